//! In: metrics that any part of the process registers. Out: their `OpenMetrics` text.
//! Touches nothing but its own lock.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::VERSION;

/// The content type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The metrics of this process, shared by cloning. Every process says which release it is.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
}

impl Metrics {
    /// A registry with `orrery_build_info` in it.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        registry.register(
            "orrery_build",
            "The release this process was built from",
            Info::new([("version", VERSION)]),
        );
        Self {
            registry: Arc::new(Mutex::new(registry)),
        }
    }

    /// Gives the registry to `register`, which must not block: scrapes wait for it.
    pub fn with<T>(&self, register: impl FnOnce(&mut Registry) -> T) -> T {
        register(&mut self.registry.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// All metrics as `OpenMetrics` text.
    pub fn render(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        self.with(|registry| encode(&mut text, registry))?;
        Ok(text)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_process_tells_its_release() {
        let text = Metrics::new().render().unwrap();
        let line = format!("orrery_build_info{{version=\"{VERSION}\"}} 1\n");
        assert!(text.contains(&line), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }
}
