//! In: the rows of all topics. Out: `docs/benchmarks.md`.
//! Pure.

use std::fmt::Write;

use crate::{
    row::Row,
    table::{goal, table},
    topic::Topic,
};

const HEAD: &str = include_str!("page.md");

/// The whole page. A topic that was never measured is told as such.
pub fn page(topics: &[(Topic, Vec<Row>)]) -> String {
    let mut text = String::from(HEAD);
    text.push_str(&missed(topics));
    for (topic, rows) in topics {
        let _ = write!(text, "\n## {}\n\n", topic.title());
        match rows.first() {
            Some(first) => text.push_str(&measured(*topic, rows, first)),
            None => text.push_str("Not measured yet.\n"),
        }
        let _ = write!(text, "\n{}", topic.notes());
    }
    text
}

/// All goals that are not met, before anything else.
fn missed(topics: &[(Topic, Vec<Row>)]) -> String {
    let mut text = String::new();
    for (topic, rows) in topics {
        for row in rows.iter().filter(|row| row.met == Some(false)) {
            let goal = goal(row).unwrap_or_default();
            let _ = writeln!(text, "- {}: {}, goal {goal}", topic.name(), row.measure);
        }
    }
    if text.is_empty() {
        return text;
    }
    format!("\n**Not met:**\n\n{text}")
}

fn measured(topic: Topic, rows: &[Row], first: &Row) -> String {
    let (name, title) = (topic.name(), topic.title());
    let Row {
        date,
        command,
        machine,
        repetitions,
        ..
    } = first;
    format!(
        "{date}, `{command}`, {repetitions} repetitions. {machine}.\n\n\
         ![{title}](benchmarks/{name}.svg)\n\n{}",
        table(rows)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::example;

    #[test]
    fn goals_that_are_not_met_come_first() {
        let page = page(&[(Topic::Operator, example())]);
        let (head, _) = page.split_once("\n## ").unwrap();
        assert!(
            head.ends_with("\n**Not met:**\n\n- operator: idle <&>, goal ≤ 15 MB\n"),
            "{head}"
        );
    }

    #[test]
    fn when_all_goals_are_met_nobody_is_told_otherwise() {
        let page = page(&[(Topic::Operator, example()[..2].to_vec())]);
        assert!(!page.contains("Not met"), "{page}");
    }

    #[test]
    fn a_topic_without_figures_says_so_and_keeps_its_notes() {
        let page = page(&[(Topic::Operator, Vec::new())]);
        assert!(page.contains("Not measured yet.\n"), "{page}");
        assert!(page.ends_with(Topic::Operator.notes()), "{page}");
    }
}
