//! Whether watches are alive. In: signs of life (events, connects, failures). Out: which watch gave
//! none for too long. Touches memory only.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::StatusCode;
use prometheus_client::metrics::{counter::Counter, gauge::Gauge};
use runtime::clock::Clock;
use tokio::time::Instant;

/// The signs of life of one watch.
#[derive(Debug)]
pub struct Freshness {
    what: String,
    clock: Arc<dyn Clock>,
    last: Mutex<Instant>,
    failing_since: Mutex<Option<Instant>>,
    activity: Gauge,
    errors: Counter,
}

impl Freshness {
    /// A watch that has just begun.
    pub fn new(what: String, clock: Arc<dyn Clock>, (activity, errors): (Gauge, Counter)) -> Self {
        let fresh = Self {
            what,
            last: Mutex::new(clock.monotonic()),
            failing_since: Mutex::default(),
            clock,
            activity,
            errors,
        };
        fresh.touch();
        fresh
    }

    /// An event came, or a connection was made.
    pub fn touch(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = self.clock.monotonic();
        self.activity.set(self.clock.wall().as_second());
    }

    /// An attempt failed. That, too, is a sign of life: somebody is trying.
    pub fn failed(&self) {
        self.errors.inc();
        let now = self.clock.monotonic();
        self.failing_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(now);
    }

    /// An attempt succeeded.
    pub fn worked(&self) {
        *self
            .failing_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn failing_for(&self) -> Duration {
        let since = *self
            .failing_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        since.map_or(Duration::ZERO, |since| {
            self.clock.monotonic().saturating_duration_since(since)
        })
    }

    fn silent_for(&self) -> Duration {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        self.clock.monotonic().saturating_duration_since(last)
    }
}

/// All watches of the process, by the path they ask the API server for.
#[derive(Clone, Debug, Default)]
pub struct Watches {
    by_path: Arc<Mutex<HashMap<String, Arc<Freshness>>>>,
}

impl Watches {
    /// Adds a watch.
    pub fn register(&self, path: String, freshness: Arc<Freshness>) {
        self.lock(|watches| watches.insert(path, freshness));
    }

    /// A request for `path` was answered, with or without success.
    pub fn answered(&self, path: &str, status: StatusCode) {
        let Some(watch) = self.lock(|watches| watches.get(path).cloned()) else {
            return;
        };
        watch.touch();
        if status.is_success() {
            watch.worked();
        }
    }

    /// Names the watches that gave no sign of life for `limit`.
    pub fn check(&self, limit: Duration) -> Result<(), String> {
        let silent = self.names(|watch| watch.silent_for() > limit);
        if silent.is_empty() {
            return Ok(());
        }
        Err(format!(
            "no sign of life for {} s from the watch of {}",
            limit.as_secs(),
            silent.join(", ")
        ))
    }

    /// Names the watches that have done nothing but fail for `limit`.
    pub fn check_failing(&self, limit: Duration) -> Result<(), String> {
        let failing = self.names(|watch| watch.failing_for() > limit);
        if failing.is_empty() {
            return Ok(());
        }
        Err(format!(
            "failing for {} s, see the log: the watch of {}",
            limit.as_secs(),
            failing.join(", ")
        ))
    }

    fn names(&self, which: impl Fn(&Freshness) -> bool) -> Vec<String> {
        self.lock(|watches| {
            let found = watches.values().filter(|watch| which(watch));
            let mut names: Vec<_> = found.map(|watch| watch.what.clone()).collect();
            names.sort();
            names
        })
    }

    fn lock<R>(&self, f: impl FnOnce(&mut HashMap<String, Arc<Freshness>>) -> R) -> R {
        f(&mut self.by_path.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use runtime::clock::SystemClock;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_falls_silent_is_named() {
        let watches = Watches::default();
        for kind in ["pods", "runs"] {
            let metrics = (Gauge::default(), Counter::default());
            let freshness = Freshness::new(kind.into(), Arc::new(SystemClock), metrics);
            watches.register(format!("/api/{kind}"), Arc::new(freshness));
        }
        tokio::time::advance(Duration::from_secs(100)).await;
        watches.answered("/api/runs", StatusCode::OK);
        tokio::time::advance(Duration::from_secs(100)).await;
        let limit = Duration::from_secs(130);
        assert_eq!(
            watches.check(limit).unwrap_err(),
            "no sign of life for 130 s from the watch of pods"
        );
        watches.answered("/api/pods", StatusCode::OK);
        assert_eq!(watches.check(limit), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_only_fails_is_named_until_it_works() {
        let metrics = (Gauge::default(), Counter::default());
        let pods = Arc::new(Freshness::new(
            "pods".into(),
            Arc::new(SystemClock),
            metrics,
        ));
        let watches = Watches::default();
        watches.register("/api/pods".into(), Arc::clone(&pods));
        pods.failed();
        tokio::time::advance(Duration::from_secs(40)).await;
        pods.failed();
        watches.answered("/api/pods", StatusCode::FORBIDDEN);
        let limit = Duration::from_secs(30);
        assert_eq!(
            watches.check_failing(limit).unwrap_err(),
            "failing for 30 s, see the log: the watch of pods"
        );
        assert_eq!(watches.check(limit), Ok(()), "trying is a sign of life");
        watches.answered("/api/pods", StatusCode::OK);
        assert_eq!(watches.check_failing(limit), Ok(()));
    }
}
