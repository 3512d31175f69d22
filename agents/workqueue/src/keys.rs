//! In: a namespace, and names of jobs, pools and workers. Out: the keys that gocraft/work uses for them.
//! Pure.

use crate::Error;

/// More is a mistake, and would make every key as long.
const NAME_BYTES: usize = 512;

/// What all keys of one work queue begin with.
///
/// A colon is added unless there is one at the end already, and an empty namespace stays empty. In a Redis
/// Cluster it must contain a hash tag: the scripts use several of its keys at once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Namespace {
    prefix: String,
}

impl Namespace {
    /// The namespace that a Go program names by the same text.
    pub fn new(namespace: impl Into<String>) -> Self {
        let mut prefix = namespace.into();
        if !prefix.is_empty() && !prefix.ends_with(':') {
            prefix.push(':');
        }
        Self { prefix }
    }

    /// What its keys begin with, colon included.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn known_jobs(&self) -> String {
        self.key("known_jobs")
    }

    pub(crate) fn queue(&self, name: &str) -> String {
        format!("{}jobs:{name}", self.prefix)
    }

    pub(crate) fn in_progress(&self, name: &str, pool: &str) -> String {
        format!("{}jobs:{name}:{pool}:inprogress", self.prefix)
    }

    pub(crate) fn paused(&self, name: &str) -> String {
        format!("{}jobs:{name}:paused", self.prefix)
    }

    pub(crate) fn lock(&self, name: &str) -> String {
        format!("{}jobs:{name}:lock", self.prefix)
    }

    pub(crate) fn lock_info(&self, name: &str) -> String {
        format!("{}jobs:{name}:lock_info", self.prefix)
    }

    /// Which jobs have come back from dead pools, by their SHA-1, and how often. Ours alone.
    pub(crate) fn come_back(&self, name: &str) -> String {
        format!("{}jobs:{name}:come_back", self.prefix)
    }

    pub(crate) fn max_concurrency(&self, name: &str) -> String {
        format!("{}jobs:{name}:max_concurrency", self.prefix)
    }

    pub(crate) fn retry(&self) -> String {
        self.key("retry")
    }

    pub(crate) fn scheduled(&self) -> String {
        self.key("scheduled")
    }

    pub(crate) fn dead(&self) -> String {
        self.key("dead")
    }

    pub(crate) fn worker_pools(&self) -> String {
        self.key("worker_pools")
    }

    pub(crate) fn heartbeat(&self, pool: &str) -> String {
        format!("{}worker_pools:{pool}", self.prefix)
    }

    pub(crate) fn observation(&self, worker: &str) -> String {
        format!("{}worker:{worker}", self.prefix)
    }

    /// `args` is what Go's encoder writes, so with a line feed at the end, or nothing.
    pub(crate) fn unique(&self, name: &str, args: &str) -> String {
        format!("{}unique:{name}:{args}", self.prefix)
    }

    /// Matches the in-progress lists of all names and pools.
    pub(crate) fn in_progress_pattern(&self) -> String {
        format!("{}jobs:*:inprogress", glob_escaped(&self.prefix))
    }

    /// Matches all there is.
    pub(crate) fn all_pattern(&self) -> String {
        format!("{}*", glob_escaped(&self.prefix))
    }

    /// Matches what marks jobs of one name as unique.
    pub(crate) fn unique_pattern(&self, name: &str) -> String {
        let name = glob_escaped(name);
        format!("{}unique:{name}:*", glob_escaped(&self.prefix))
    }

    /// Name and pool of an in-progress list. Names may contain colons, identifiers of pools do not.
    pub(crate) fn split_in_progress<'a>(&self, key: &'a str) -> Option<(&'a str, &'a str)> {
        let inner = key.strip_prefix(&self.prefix)?.strip_prefix("jobs:")?;
        let (name, pool) = inner.strip_suffix(":inprogress")?.rsplit_once(':')?;
        (!name.is_empty() && !pool.is_empty()).then_some((name, pool))
    }

    fn key(&self, rest: &str) -> String {
        format!("{}{rest}", self.prefix)
    }
}

/// A heartbeat lists names with commas in between, and keys are made of them.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let is_usable = !name.is_empty()
        && name.len() <= NAME_BYTES
        && !name.contains(|c: char| c == ',' || c.is_control());
    if is_usable {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{name:?} cannot be the name of jobs: it must have 1 to {NAME_BYTES} bytes, and no comma or control character"
    )))
}

fn glob_escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_is_added_once() {
        assert_eq!(Namespace::new("work").prefix(), "work:");
        assert_eq!(Namespace::new("work:").prefix(), "work:");
        assert_eq!(Namespace::new("").prefix(), "");
        let nested = Namespace::new("a:lsdf-checksum/workqueue:work");
        assert_eq!(nested.dead(), "a:lsdf-checksum/workqueue:work:dead");
    }

    #[test]
    fn keys_are_those_of_gocraft() {
        let space = Namespace::new("ns");
        assert_eq!(space.known_jobs(), "ns:known_jobs");
        assert_eq!(space.queue("N"), "ns:jobs:N");
        assert_eq!(space.in_progress("N", "p"), "ns:jobs:N:p:inprogress");
        assert_eq!(space.paused("N"), "ns:jobs:N:paused");
        assert_eq!(space.lock("N"), "ns:jobs:N:lock");
        assert_eq!(space.lock_info("N"), "ns:jobs:N:lock_info");
        assert_eq!(space.max_concurrency("N"), "ns:jobs:N:max_concurrency");
        assert_eq!(space.retry(), "ns:retry");
        assert_eq!(space.scheduled(), "ns:scheduled");
        assert_eq!(space.worker_pools(), "ns:worker_pools");
        assert_eq!(space.heartbeat("p"), "ns:worker_pools:p");
        assert_eq!(space.observation("w"), "ns:worker:w");
        assert_eq!(space.unique("N", "{}\n"), "ns:unique:N:{}\n");
    }

    #[test]
    fn an_in_progress_list_tells_its_name_and_pool() {
        let space = Namespace::new("ns");
        let split = |key| space.split_in_progress(key);
        assert_eq!(split("ns:jobs:N:p:inprogress"), Some(("N", "p")));
        assert_eq!(split("ns:jobs:a:b:p:inprogress"), Some(("a:b", "p")));
        assert_eq!(split("ns:jobs:N:inprogress"), None);
        assert_eq!(split("other:jobs:N:p:inprogress"), None);
        assert_eq!(split("ns:jobs:N:p:lock"), None);
    }

    #[test]
    fn a_namespace_is_no_pattern() {
        let space = Namespace::new("a*[b]?");
        assert_eq!(space.in_progress_pattern(), r"a\*\[b\]\?:jobs:*:inprogress");
    }

    #[test]
    fn a_name_that_would_break_a_list_is_refused() {
        assert!(check_name("WriteBack-fs-snap/1:2").is_ok());
        for bad in ["", "a,b", "a\nb", "a\0", &"x".repeat(513)] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
    }
}
