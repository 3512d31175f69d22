//! In: rows. Out: a Markdown table that is readable in a terminal too.
//! Pure.

use std::collections::BTreeSet;

use crate::row::Row;

/// The rows as a table. Columns that would be empty, those of a peer where there is none, are left out. One peer of all
/// rows is named in the head, several in each row.
pub fn table(rows: &[Row]) -> String {
    let peers: BTreeSet<&str> = rows
        .iter()
        .filter_map(|row| row.against.as_deref())
        .collect();
    let peer = match (peers.first(), peers.len()) {
        (None, _) => "",
        (Some(peer), 1) => peer,
        (Some(_), _) => "peer",
    };
    let ratio = if peers.is_empty() { "" } else { "ratio" };
    let head = ["measure", "ours", peer, ratio, "goal", "met"];
    let mut lines = vec![head.map(String::from)];
    lines.extend(rows.iter().map(|row| cells(row, peers.len() > 1)));
    let longest = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<usize> = (0..head.len()).filter_map(longest).collect();
    let mut text = lines.iter().map(|line| joined(line, &widths));
    let head = text.next().unwrap_or_default();
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    let rule = joined(&rule, &widths).replace(' ', "-");
    head + &rule + &text.collect::<String>()
}

fn joined(cells: &[String], widths: &[usize]) -> String {
    let mut line = String::from("|");
    for (cell, width) in cells.iter().zip(widths).filter(|(_, width)| **width > 0) {
        let padding = " ".repeat(width - cell.chars().count());
        line.extend([" ", cell, &padding, " |"]);
    }
    line + "\n"
}

fn cells(row: &Row, is_peer_named: bool) -> [String; 6] {
    let peer = row.peer.zip(row.peer_spread);
    let peer = peer.map(|(peer, spread)| with_spread(peer, spread, &row.unit));
    let name = row.against.as_deref().filter(|_| is_peer_named);
    let name = name.map(|name| format!(": {name}"));
    [
        row.measure.clone(),
        with_spread(row.ours, row.ours_spread, &row.unit),
        peer.unwrap_or_default() + &name.unwrap_or_default(),
        row.ratio
            .map_or_else(String::new, |ratio| format!("{ratio:.2}")),
        goal(row).unwrap_or_default(),
        verdict(row.met).into(),
    ]
}

/// The goal in words.
pub fn goal(row: &Row) -> Option<String> {
    let goal = row.goal?;
    Some(match row.peer {
        Some(_) => format!("≤ {goal} × peer"),
        None => format!("≤ {}", quantity(goal, &row.unit)),
    })
}

/// What became of a goal, hard to overlook when it is not met.
pub fn verdict(met: Option<bool>) -> &'static str {
    match met {
        Some(true) => "met",
        Some(false) => "**NOT MET**",
        None => "",
    }
}

fn with_spread(median: f64, [least, most]: [f64; 2], unit: &str) -> String {
    let median_text = quantity(median, unit);
    let (least, most) = (plain(least), plain(most));
    if least == most {
        return median_text;
    }
    format!("{median_text} ({least} – {most})")
}

/// A number with its unit.
pub fn quantity(value: f64, unit: &str) -> String {
    let text = format!("{} {unit}", plain(value));
    text.trim_end().into()
}

/// Three digits or so, and thousands apart.
fn plain(value: f64) -> String {
    let decimals = match value.abs() {
        0.0 => 0,
        small if small < 10.0 => 2,
        medium if medium < 100.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    match text.split_once('.') {
        Some((whole, fraction)) if fraction.bytes().any(|digit| digit != b'0') => {
            format!("{}.{fraction}", thousands(whole))
        }
        Some((whole, _)) => thousands(whole),
        None => thousands(&text),
    }
}

fn thousands(digits: &str) -> String {
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::example;

    #[test]
    fn a_goal_that_is_not_met_cannot_be_overlooked() {
        insta::assert_snapshot!(table(&example()));
    }

    #[test]
    fn without_a_peer_there_are_no_columns_for_one() {
        insta::assert_snapshot!(table(&example()[2..]));
    }

    #[test]
    fn several_peers_are_named_in_their_rows() {
        let mut rows = example();
        rows[1].against = Some("another".into());
        let text = table(&rows);
        assert!(text.contains("| peer "), "{text}");
        assert!(text.contains(": another "), "{text}");
    }

    #[test]
    fn numbers_have_about_three_digits() {
        let texts = [0.0, 0.034, 1.5, 14.583, 41.0, 123.4, 2000.0, 1_234_567.0].map(plain);
        let expected = [
            "0",
            "0.03",
            "1.50",
            "14.6",
            "41",
            "123",
            "2,000",
            "1,234,567",
        ];
        assert_eq!(texts, expected);
    }
}
