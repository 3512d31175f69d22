//! In: the records of all topics. Out: `docs/soak.md`.
//! Pure.

use std::fmt::Write;

use crate::{record::Record, topic::Topic};

const HEAD: &str = include_str!("page.md");

const TABLE: &str = "\
| date | seed | minutes | what was done | what held | outcome |
|---|---|---|---|---|---|
";

/// The whole page, the newest runs first.
pub fn page(topics: &[(Topic, Vec<Record>)]) -> String {
    let mut text = String::from(HEAD);
    for (topic, records) in topics {
        let _ = write!(text, "\n## {}\n\n{}\n", topic.title(), topic.about());
        for claim in topic.claims() {
            let _ = writeln!(text, "- **{}**: {}", claim.name, claim.meaning);
        }
        text.push('\n');
        if records.is_empty() {
            text.push_str("Not run yet.\n");
        } else {
            text.push_str(TABLE);
            text.extend(records.iter().rev().map(row));
        }
    }
    text
}

fn row(record: &Record) -> String {
    let done = record.done.iter();
    let held = record.held.iter().map(|held| (&held.claim, &held.times));
    let outcome = if record.is_good() {
        record.outcome.clone()
    } else {
        // What failed may contain anything, and must be seen.
        format!("**{}**", record.outcome.replace('|', "\\|"))
    };
    format!(
        "| {} | {} | {} | {} | {} | {outcome} |\n",
        record.date,
        record.seed,
        record.minutes,
        counted(done),
        counted(held),
    )
}

fn counted<'a>(counts: impl Iterator<Item = (&'a String, &'a u64)>) -> String {
    let counts = counts.map(|(name, times)| format!("{name}: {}", thousands(*times)));
    counts.collect::<Vec<_>>().join("<br>")
}

fn thousands(number: u64) -> String {
    let digits = number.to_string();
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
    use crate::record::tests::record;

    #[test]
    fn a_topic_that_never_ran_says_so_and_what_it_claims() {
        let page = page(&[(Topic::Leader, Vec::new())]);
        assert!(page.ends_with("\n\nNot run yet.\n"), "{page}");
        for claim in Topic::Leader.claims() {
            assert!(page.contains(claim.name), "{page}");
        }
    }

    #[test]
    fn the_newest_run_comes_first_and_a_failure_cannot_be_overlooked() {
        let records = vec![record(7, None), record(8, Some("a | b"))];
        let page = page(&[(Topic::Leader, records)]);
        let rows: Vec<_> = page.lines().rev().take(2).collect();
        let counts = "| 10 | kill: 1 | nothing was lost: 0<br>nothing was done twice: 12,345";
        assert_eq!(
            rows,
            [
                format!("| 2026-01-02 | 7 {counts} | held |"),
                format!("| 2026-01-02 | 8 {counts} | **failed: a \\| b** |"),
            ]
        );
    }
}
