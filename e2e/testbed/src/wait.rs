//! In: a condition and a deadline. Out: what the condition yielded, or an error that says what was seen last.
//! Touches nothing but the timer.

use std::time::Duration;

use anyhow::{Result, bail};

/// Pause between two looks: short beside any deadline, long beside the cost of a look.
const PAUSE: Duration = Duration::from_millis(20);

/// Looks until `check` yields a value, at most for `deadline`.
///
/// `Ok(None)` and `Err` both mean "not yet"; an error is kept as the last thing seen, so a check says
/// why it is not satisfied by returning one. A look that hangs is cut off by the deadline too.
pub async fn eventually<T, F: Future<Output = Result<Option<T>>>>(
    what: &str,
    deadline: Duration,
    mut check: impl FnMut() -> F,
) -> Result<T> {
    let mut seen = String::from("no look came to an end");
    let looking = async {
        loop {
            match check().await {
                Ok(Some(value)) => return value,
                Ok(None) => "nothing".clone_into(&mut seen),
                Err(error) => seen = format!("{error:#}"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    let found = tokio::time::timeout(deadline, looking).await;
    match found {
        Ok(value) => Ok(value),
        Err(_) => bail!("waited {deadline:?} in vain for {what}; last seen: {seen}"),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use anyhow::anyhow;

    use super::*;

    #[tokio::test]
    async fn looks_again_until_there_is_a_value() {
        let looks = Cell::new(0);
        let found = eventually("three looks", Duration::from_secs(5), async || {
            looks.set(looks.get() + 1);
            Ok((looks.get() == 3).then_some("seen"))
        })
        .await;
        assert_eq!(found.unwrap(), "seen");
        assert_eq!(looks.get(), 3);
    }

    #[tokio::test]
    async fn the_error_says_what_was_awaited_and_what_was_seen_last() {
        let seen = async || Err::<Option<()>, _>(anyhow!("2 of 3 pods"));
        let error = eventually("pods", Duration::from_millis(50), seen).await;
        let text = error.unwrap_err().to_string();
        assert!(text.contains("for pods; last seen: 2 of 3 pods"), "{text}");
    }

    #[tokio::test]
    async fn a_look_that_hangs_does_not_outlive_the_deadline() {
        let hanging = async || std::future::pending::<Result<Option<()>>>().await;
        let error = eventually("an answer", Duration::from_millis(50), hanging).await;
        assert!(
            error
                .unwrap_err()
                .to_string()
                .contains("no look came to an end")
        );
    }
}
