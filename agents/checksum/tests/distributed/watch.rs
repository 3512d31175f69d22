#![expect(
    clippy::unwrap_used,
    reason = "what a fixture cannot do fails the test"
)]
//! What else is asked of pods where several work together.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::pod::{PATIENCE, Pod};

impl Pod {
    /// What comes after all that was logged until now.
    pub(crate) fn until_logged_again(&self, words: &str) {
        let seen = self.log().matches(words).count();
        let began = Instant::now();
        while self.log().matches(words).count() <= seen {
            assert!(began.elapsed() < PATIENCE, "{}", self.log());
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// All bytes below the root.
    pub(crate) fn total(&self) -> u64 {
        let top = fs::read_dir(self.root()).unwrap();
        let files = top.map(|it| it.unwrap().metadata().unwrap());
        let large: u64 = files.filter(fs::Metadata::is_file).map(|it| it.len()).sum();
        large + self.size()
    }
}
