//! In: rows. Out: a picture of them, as SVG that follows the reader's light or dark mode.
//! Pure.

use std::fmt::Write;

use crate::{
    row::Row,
    table::{goal, quantity},
};

const WIDTH: u32 = 760;
const MARGIN: u32 = 20;
/// Where bars begin and how long the longest may be; the number stands behind it.
const LEFT: u32 = 90;
const LONGEST: f64 = 500.0;
const TITLE: u32 = 44;
const LABEL: u32 = 20;
const BAR: u32 = 16;
const GAP: u32 = 4;
const BETWEEN: u32 = 18;

const STYLE: &str = "
  text { font: 13px system-ui, -apple-system, 'Segoe UI', sans-serif; fill: #1f2328 }
  .title { font-weight: 600; font-size: 16px }
  .label { font-weight: 600 }
  .paper { fill: #ffffff }
  .ours { fill: #1f6feb }
  .peer { fill: #8c959f }
  .spread { stroke: #1f2328; stroke-opacity: 0.55 }
  .goal { stroke: #1a7f37; stroke-width: 2; stroke-dasharray: 4 3 }
  .missed { stroke: #cf222e }
  text.missed { stroke: none; fill: #cf222e; font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .paper { fill: #0d1117 }
    .ours { fill: #58a6ff }
    .peer { fill: #7d8590 }
    .spread { stroke: #e6edf3 }
    .goal { stroke: #3fb950 }
    .missed { stroke: #ff7b72 }
    text.missed { fill: #ff7b72 }
  }
";

/// The rows as pairs of bars, each pair in its own scale. The goal is a dashed line.
pub fn plot(title: &str, rows: &[Row]) -> String {
    let mut pen = Pen {
        svg: String::new(),
        y: TITLE,
    };
    for row in rows {
        pen.row(row);
    }
    let (Pen { svg, y }, title) = (pen, escaped(title));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {y}\" width=\"{WIDTH}\" height=\"{y}\" \
         role=\"img\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
         <rect class=\"paper\" width=\"{WIDTH}\" height=\"{y}\" rx=\"6\"/>\n\
         <text class=\"title\" x=\"{MARGIN}\" y=\"28\">{title}</text>\n{svg}</svg>\n"
    )
}

/// How far to the right a value of a row is.
#[derive(Clone, Copy)]
struct Scale {
    most: f64,
}

impl Scale {
    /// Wide enough for all that is drawn of a row.
    fn of(row: &Row) -> Self {
        let spreads = [Some(row.ours_spread), row.peer_spread]
            .into_iter()
            .flatten();
        let values = spreads.map(|[_, most]| most).chain(mark(row));
        Self {
            most: values.fold(0.0, f64::max),
        }
    }

    fn x(self, value: f64) -> f64 {
        let share = if self.most > 0.0 {
            value / self.most
        } else {
            0.0
        };
        f64::from(LEFT) + share * LONGEST
    }
}

/// Where the goal is. Beside a peer it is a share of the peer's.
fn mark(row: &Row) -> Option<f64> {
    row.goal.map(|goal| goal * row.peer.unwrap_or(1.0))
}

/// Draws from top to bottom; `y` is where it has got to.
struct Pen {
    svg: String,
    y: u32,
}

impl Pen {
    fn row(&mut self, row: &Row) {
        self.label(row);
        let (scale, top) = (Scale::of(row), self.y);
        self.bar("ours", (row.ours, row.ours_spread), &row.unit, scale);
        if let Some(peer) = row.peer.zip(row.peer_spread) {
            self.bar("peer", peer, &row.unit, scale);
        }
        if let Some(mark) = mark(row) {
            let missed = if row.met == Some(true) { "" } else { " missed" };
            let (x, ends) = (scale.x(mark), [top - 2, self.y - GAP + 2]);
            self.line(&format!("goal{missed}"), [x, x], ends.map(f64::from));
        }
        self.y += BETWEEN;
    }

    /// The measure on the left; on the right how it compares, and whether that is good enough.
    fn label(&mut self, row: &Row) {
        let baseline = self.y + 13;
        self.text("label", "start", [MARGIN, baseline], &row.measure);
        let ratio = row.ratio.map(|ratio| format!("{ratio:.2} × peer"));
        let goal = goal(row).map(|goal| format!("goal {goal}"));
        let (class, verdict) = match row.met {
            Some(true) => ("verdict", Some("met".into())),
            Some(false) => ("missed", Some("NOT MET".into())),
            None => ("verdict", None),
        };
        let parts: Vec<String> = [ratio, goal, verdict].into_iter().flatten().collect();
        let right = [WIDTH - MARGIN, baseline];
        self.text(class, "end", right, &parts.join(" · "));
        self.y += LABEL;
    }

    fn bar(
        &mut self,
        side: &str,
        (median, [least, most]): (f64, [f64; 2]),
        unit: &str,
        scale: Scale,
    ) {
        let (y, baseline) = (self.y, self.y + 12);
        self.text("side", "start", [MARGIN, baseline], side);
        let width = scale.x(median) - f64::from(LEFT);
        let _ = writeln!(
            self.svg,
            "<rect class=\"{side}\" x=\"{LEFT}\" y=\"{y}\" width=\"{width:.1}\" height=\"{BAR}\" rx=\"2\"/>"
        );
        let middle = f64::from(y) + f64::from(BAR) / 2.0;
        if least < most {
            self.line("spread", [scale.x(least), scale.x(most)], [middle; 2]);
        }
        let (behind, number) = (scale.x(most) + 8.0, escaped(&quantity(median, unit)));
        let _ = writeln!(
            self.svg,
            "<text x=\"{behind:.1}\" y=\"{baseline}\">{number}</text>"
        );
        self.y += BAR + GAP;
    }

    fn text(&mut self, class: &str, anchor: &str, [x, y]: [u32; 2], words: &str) {
        let words = escaped(words);
        let _ = writeln!(
            self.svg,
            "<text class=\"{class}\" text-anchor=\"{anchor}\" x=\"{x}\" y=\"{y}\">{words}</text>"
        );
    }

    fn line(&mut self, class: &str, [x1, x2]: [f64; 2], [y1, y2]: [f64; 2]) {
        let _ = writeln!(
            self.svg,
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        );
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::example;

    #[test]
    fn every_row_has_its_bars_and_its_goal() {
        let svg = plot("Operator core", &example());
        assert_eq!(svg.matches("class=\"ours\"").count(), 3);
        assert_eq!(svg.matches("class=\"peer\"").count(), 2);
        assert_eq!(svg.matches("<line class=\"goal\"").count(), 1);
        assert_eq!(svg.matches("<line class=\"goal missed\"").count(), 1);
        assert!(
            svg.contains("0.38 × peer · goal ≤ 0.4 × peer · met"),
            "{svg}"
        );
    }

    #[test]
    fn the_goal_is_drawn_where_a_bar_would_have_to_end() {
        // 0.4 of the peer's 52; the longest bar is the peer's 53.
        let svg = plot("", &example()[..1]);
        let x = 90.0 + 500.0 * (0.4 * 52.0) / 53.0;
        assert!(
            svg.contains(&format!("<line class=\"goal\" x1=\"{x:.1}\"")),
            "{svg}"
        );
    }

    #[test]
    fn words_are_not_taken_for_markup() {
        let svg = plot("a < b", &example());
        assert!(svg.contains("a &lt; b") && svg.contains("idle &lt;&amp;&gt;"));
    }

    #[test]
    fn nothing_measured_makes_a_bar_of_no_length() {
        let mut row = example().remove(2);
        (row.ours, row.ours_spread, row.goal) = (0.0, [0.0, 0.0], Some(0.0));
        let svg = plot("", &[row]);
        assert!(
            svg.contains("width=\"0.0\"") && !svg.contains("NaN"),
            "{svg}"
        );
    }
}
