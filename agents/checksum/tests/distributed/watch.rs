#![expect(
    clippy::unwrap_used,
    reason = "what a fixture cannot do fails the test"
)]
//! What else is asked of pods where several work together.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::pod::{PATIENCE, Pod};

impl Pod {
    /// What Prometheus would be told.
    pub(crate) fn metrics(&self) -> String {
        let address = fs::read_to_string(self.own("admin")).unwrap();
        let mut link = TcpStream::connect(address).unwrap();
        let request = "GET /metrics HTTP/1.1\r\nHost: pod\r\nConnection: close\r\n\r\n";
        link.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        link.read_to_string(&mut text).unwrap();
        text
    }

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
