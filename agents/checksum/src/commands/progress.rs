#![expect(
    clippy::disallowed_methods,
    reason = "an edge: it reads the clock to tell a rate"
)]
//! How far a run is, while it runs. In: counters. Out: one line that is written over and over on a terminal, or a JSON line
//! every ten seconds. Touches: standard error, standard output.

use std::convert::Infallible;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::args::Output;
use crate::engine::Shared;
use crate::rate::Rate;
use crate::report;

const LINE: Duration = Duration::from_millis(500);
const JSON: Duration = Duration::from_secs(10);

/// Tells until it is dropped.
pub(super) async fn tell(shared: &Shared, output: Output, quiet: bool) -> Infallible {
    let terminal = io::stderr().is_terminal();
    match output {
        _ if quiet => std::future::pending().await,
        Output::Text if terminal => line(shared).await,
        Output::Text => std::future::pending().await,
        Output::Json => json(shared).await,
    }
}

/// Takes the line away when the run has ended.
struct Clear;

impl Drop for Clear {
    fn drop(&mut self) {
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
}

async fn line(shared: &Shared) -> Infallible {
    let _clear = Clear;
    let mut rate = Rate::default();
    let _ = Look::take(shared, &mut rate); // what comes next is compared with it
    loop {
        sleep(LINE).await;
        let text = Look::take(shared, &mut rate).text();
        let _ = write!(io::stderr(), "\r\x1b[K{text}");
    }
}

async fn json(shared: &Shared) -> Infallible {
    let mut rate = Rate::default();
    let _ = Look::take(shared, &mut rate); // what comes next is compared with it
    loop {
        sleep(JSON).await;
        let Look {
            listed,
            selected,
            done,
            bytes,
            rate,
            ..
        } = Look::take(shared, &mut rate);
        let line = serde_json::json!({
            "kind": "progress", "listed": listed, "selected": selected, "done": done, "bytes": bytes,
            "bytesPerSecond": rate,
        });
        let _ = writeln!(io::stdout(), "{line}");
    }
}

struct Look {
    listed: u64,
    selected: i64,
    selected_bytes: i64,
    done: i64,
    bytes: i64,
    rate: i64,
}

impl Look {
    fn take(shared: &Shared, rate: &mut Rate) -> Self {
        let bytes = shared.bytes.load(Ordering::Relaxed);
        let rate = rate.observe(Instant::now(), bytes).cast_signed();
        let read = bytes.cast_signed();
        let before = shared.bytes_before.load(Ordering::Relaxed).cast_signed();
        let counts = shared.run().map(|run| run.counts).unwrap_or_default();
        Self {
            listed: shared.listed.load(Ordering::Relaxed),
            selected: counts.selected,
            selected_bytes: counts.selected_bytes,
            done: counts.selected - counts.remaining(),
            bytes: before + read,
            rate,
        }
    }

    fn text(&self) -> String {
        if self.selected == 0 {
            return format!("{} files listed", self.listed);
        }
        let percent = self.bytes.saturating_mul(100) / self.selected_bytes.max(1);
        let text = format!(
            "{} % of {}, {} of {} files, {}/s",
            percent.min(100),
            report::size(self.selected_bytes),
            self.done,
            self.selected,
            report::size(self.rate),
        );
        // Nobody knows how long it takes while nothing is read.
        let left = (self.selected_bytes - self.bytes).max(0);
        match left.checked_div(self.rate) {
            Some(seconds) => format!("{text}, {} left", duration(seconds)),
            None => text,
        }
    }
}

fn duration(seconds: i64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_was_resumed_goes_on_where_it_was() {
        let look = |bytes| Look {
            listed: 10,
            selected: 10,
            selected_bytes: 1 << 20,
            done: 4,
            bytes,
            rate: 1 << 10,
        };
        assert_eq!(
            look(1 << 19).text(),
            "50 % of 1.0 MiB, 4 of 10 files, 1.0 KiB/s, 8 min left"
        );
        assert!(look(2 << 20).text().starts_with("100 %"));
        let resting = Look { rate: 0, ..look(0) };
        assert!(resting.text().ends_with("0 B/s"), "{}", resting.text());
    }
}
