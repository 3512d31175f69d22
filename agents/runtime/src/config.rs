//! In: configuration documents, from the mounted file and from the operator. Out: the one in force, and why the newest was refused.
//! Touches nothing but its own lock; the file is read in `file`.

mod file;
mod plan;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use crds::report::ConfigDocument;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::metrics::Metrics;

pub use file::{CONFIG_FILE, ConfigFile, POLL_INTERVAL};
pub use plan::{Plan, Refusal};

/// The configuration in force, `None` until there is one. Holds the newest only: a slow reader skips the ones between.
pub type ConfigReceiver = watch::Receiver<Option<Arc<ConfigDocument>>>;

/// Where a document came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The mounted ConfigMap.
    File,
    /// The operator's `PUT /config`.
    Push,
}

type Validator = Box<dyn Fn(&ConfigDocument) -> Result<(), String> + Send + Sync>;

/// Holds the configuration in force. A document that is bad or old never takes its place.
pub struct ConfigStore {
    validate: Validator,
    current: watch::Sender<Option<Arc<ConfigDocument>>>,
    /// Why the newest document was refused. The lock also keeps two offers from overtaking each other.
    error: Mutex<Option<String>>,
    generation: Gauge,
    errors: Counter,
}

impl ConfigStore {
    /// An empty store. `validate` is the agent's own check; its message reaches people, and must not quote credentials.
    pub fn new<V>(metrics: &Metrics, validate: V) -> Self
    where
        V: Fn(&ConfigDocument) -> Result<(), String> + Send + Sync + 'static,
    {
        let generation = Gauge::default();
        let errors = Counter::default();
        metrics.with(|registry| {
            registry.register(
                "orrery_config_generation",
                "The generation of the configuration in force, 0 without one",
                generation.clone(),
            );
            registry.register(
                "orrery_config_errors",
                "Configurations that were refused",
                errors.clone(),
            );
        });
        Self {
            validate: Box::new(validate),
            current: watch::Sender::new(None),
            error: Mutex::new(None),
            generation,
            errors,
        }
    }

    /// Takes the document if it is good and new, and says what was done.
    pub fn offer(&self, source: Source, document: &[u8]) -> Plan {
        let mut error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = plan::plan(self.current().as_deref(), document, &|new| self.judge(new));
        match &plan {
            Plan::Take(document) => {
                *error = None;
                self.take(source, document.clone());
            }
            Plan::Keep => *error = None,
            // The mounted file may lag a minute behind the operator: nothing to worry anyone with.
            Plan::Older { .. } => {}
            Plan::Refuse(refusal) => {
                *error = Some(refusal.to_string());
                self.errors.inc();
                warn!(?source, error = %refusal, "configuration refused, the old one stays in force");
            }
        }
        plan
    }

    /// The agent's own word on a document. A check that panics refuses: one bad document must not end
    /// every agent that is given it, again and again.
    fn judge(&self, document: &ConfigDocument) -> Result<(), String> {
        let verdict = catch_unwind(AssertUnwindSafe(|| (self.validate)(document)));
        verdict.unwrap_or_else(|_| Err("the agent's own check of it failed; see its log".into()))
    }

    fn take(&self, source: Source, document: Arc<ConfigDocument>) {
        self.generation.set(document.generation);
        info!(
            ?source,
            config.uid = document.uid,
            config.generation = document.generation,
            "configuration accepted"
        );
        self.current.send_replace(Some(document));
    }

    /// The document in force.
    pub fn current(&self) -> Option<Arc<ConfigDocument>> {
        self.current.borrow().clone()
    }

    /// The document in force, now and later.
    pub fn subscribe(&self) -> ConfigReceiver {
        self.current.subscribe()
    }

    /// Why the newest document was refused, until a good one arrives.
    pub fn error(&self) -> Option<String> {
        let error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        error.clone()
    }
}

impl fmt::Debug for ConfigStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigStore")
            .field("generation", &self.generation.get())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_panics_refuses_the_document_and_keeps_the_old_one() {
        let store = ConfigStore::new(&Metrics::new(), |document| {
            assert_ne!(document.generation, 2, "this one panics");
            Ok(())
        });
        store.offer(Source::Push, &document(1, "{}"));
        let refused = store.offer(Source::Push, &document(2, "{}"));
        assert!(
            matches!(refused, Plan::Refuse(Refusal::Invalid(_))),
            "{refused:?}"
        );
        assert_eq!(store.current().unwrap().generation, 1);
        assert!(store.error().unwrap().contains("check of it failed"));
    }

    fn document(generation: i64, spec: &str) -> Vec<u8> {
        format!(r#"{{"version":1,"uid":"a","generation":{generation},"spec":{spec}}}"#).into_bytes()
    }

    fn store() -> (ConfigStore, Metrics) {
        let metrics = Metrics::new();
        let store = ConfigStore::new(&metrics, |document| {
            let is_bad = document.spec == "bad";
            (!is_bad).then_some(()).ok_or_else(|| "spec is bad".into())
        });
        (store, metrics)
    }

    fn generation(store: &ConfigStore) -> Option<i64> {
        store.current().map(|document| document.generation)
    }

    #[test]
    fn a_bad_config_keeps_the_old_one_and_says_so() {
        let (store, metrics) = store();
        store.offer(Source::File, &document(1, "null"));
        store.offer(Source::Push, &document(2, r#""bad""#));
        assert_eq!(generation(&store), Some(1));
        assert_eq!(
            store.error().as_deref(),
            Some("the agent refuses it: spec is bad")
        );
        let text = metrics.render().unwrap();
        assert!(text.contains("orrery_config_errors_total 1\n"), "{text}");
        assert!(text.contains("orrery_config_generation 1\n"), "{text}");
    }

    #[test]
    fn the_next_good_config_clears_the_error() {
        for good in [document(1, "null"), document(2, "null")] {
            let (store, _) = store();
            store.offer(Source::File, &document(1, "null"));
            store.offer(Source::File, b"{");
            assert!(store.error().is_some());
            store.offer(Source::File, &good);
            assert_eq!(store.error(), None);
        }
    }

    #[test]
    fn a_file_older_than_what_was_pushed_is_ignored_quietly() {
        let (store, _) = store();
        store.offer(Source::Push, &document(5, "null"));
        store.offer(Source::File, &document(4, r#""bad""#));
        assert_eq!(generation(&store), Some(5));
        assert_eq!(store.error(), None);
    }

    #[tokio::test]
    async fn readers_hear_of_a_new_config_only() {
        let (store, _) = store();
        let mut receiver = store.subscribe();
        store.offer(Source::Push, &document(1, "null"));
        assert!(receiver.has_changed().unwrap());
        receiver.mark_unchanged();
        store.offer(Source::File, &document(1, "null"));
        store.offer(Source::File, b"");
        assert!(!receiver.has_changed().unwrap());
    }
}
