//! In: which elements of in-progress lists are being worked on. Out: which others nobody works on.
//! Pure.

use std::collections::HashMap;
use std::sync::Arc;

/// One element of the in-progress list of a name and a pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    pub(crate) pool: Arc<str>,
    pub(crate) name: Arc<str>,
    /// The bytes as they were taken. Written again they might differ, and would not be found.
    pub(crate) element: Arc<[u8]>,
}

/// What we hold. Equal elements count as often as they were taken.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    held: HashMap<Entry, usize>,
}

impl Ledger {
    pub(crate) fn hold(&mut self, entry: Entry) {
        *self.held.entry(entry).or_default() += 1;
    }

    pub(crate) fn let_go(&mut self, entry: &Entry) {
        if let Some(count) = self.held.get_mut(entry) {
            *count -= 1;
            if *count == 0 {
                self.held.remove(entry);
            }
        }
    }

    pub(crate) fn count(&self, pool: &str, name: &str) -> usize {
        let ours = self.held.iter();
        ours.filter(|(entry, _)| *entry.pool == *pool && *entry.name == *name)
            .map(|(_, count)| count)
            .sum()
    }

    pub(crate) fn holds_any(&self, pool: &str) -> bool {
        self.held.keys().any(|entry| *entry.pool == *pool)
    }

    /// Those of `elements` that are not held: their fetch was answered to nobody, or their job was dropped.
    pub(crate) fn strays(
        &self,
        pool: &Arc<str>,
        name: &Arc<str>,
        elements: Vec<Vec<u8>>,
    ) -> Vec<Vec<u8>> {
        let mut seen: HashMap<Entry, usize> = HashMap::new();
        let mut strays = Vec::new();
        for element in elements {
            let entry = Entry {
                pool: pool.clone(),
                name: name.clone(),
                element: element.as_slice().into(),
            };
            let held = self.held.get(&entry).copied().unwrap_or_default();
            let seen = seen.entry(entry).or_default();
            *seen += 1;
            if *seen > held {
                strays.push(element);
            }
        }
        strays
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(element: &str) -> Entry {
        Entry {
            pool: "p".into(),
            name: "N".into(),
            element: element.as_bytes().into(),
        }
    }

    fn strays(ledger: &Ledger, elements: &[&str]) -> Vec<String> {
        let elements = elements.iter().map(|text| text.as_bytes().to_vec());
        let strays = ledger.strays(&"p".into(), &"N".into(), elements.collect());
        let text = |bytes| String::from_utf8(bytes).unwrap();
        strays.into_iter().map(text).collect()
    }

    #[test]
    fn what_is_not_held_is_a_stray() {
        let mut ledger = Ledger::default();
        ledger.hold(entry("a"));
        assert_eq!(strays(&ledger, &["a", "b"]), ["b"]);
        ledger.let_go(&entry("a"));
        assert_eq!(strays(&ledger, &["a", "b"]), ["a", "b"]);
    }

    #[test]
    fn equal_elements_count_as_often_as_they_were_taken() {
        let mut ledger = Ledger::default();
        ledger.hold(entry("a"));
        ledger.hold(entry("a"));
        assert_eq!(ledger.count("p", "N"), 2);
        assert_eq!(strays(&ledger, &["a", "a", "a"]), ["a"]);
        ledger.let_go(&entry("a"));
        assert_eq!(strays(&ledger, &["a", "a", "a"]), ["a", "a"]);
    }

    #[test]
    fn pools_and_names_are_told_apart() {
        let mut ledger = Ledger::default();
        ledger.hold(entry("a"));
        assert_eq!(ledger.count("q", "N"), 0);
        assert_eq!(ledger.count("p", "M"), 0);
        assert!(ledger.holds_any("p") && !ledger.holds_any("q"));
        let other = ledger.strays(&"q".into(), &"N".into(), vec![b"a".to_vec()]);
        assert_eq!(other.len(), 1);
    }
}
