//! What is known about the objects of one kind, by name and by owner.
//! In: the events of a watch. Out: lookups, and which keys an event touched. Pure.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use crate::object::Key;

/// What a cache must know about an object to keep it in order.
pub trait Cached {
    /// Its name.
    fn key(&self) -> Key;
    /// Its UID.
    fn uid(&self) -> &str;
    /// The UID of its controlling owner.
    fn owner(&self) -> Option<&str>;
    /// Its resource version, a number that grows with each change.
    fn version(&self) -> u64;
}

/// The objects of one watch. A list that is under way is collected beside the old state and takes
/// its place when it is whole, so that readers never see half a list.
#[derive(Debug)]
pub struct Cache<T> {
    current: Index<T>,
    listing: Option<Index<T>>,
    /// Our own writes that were answered while a list was under way, which may be older.
    refreshed: Vec<Arc<T>>,
    synced: bool,
}

#[derive(Debug)]
struct Index<T> {
    objects: HashMap<Key, Arc<T>>,
    by_owner: HashMap<String, BTreeSet<Key>>,
}

impl<T> Default for Index<T> {
    fn default() -> Self {
        Self {
            objects: HashMap::new(),
            by_owner: HashMap::new(),
        }
    }
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self {
            current: Index::default(),
            listing: None,
            refreshed: Vec::new(),
            synced: false,
        }
    }
}

impl<T: Cached> Cache<T> {
    /// A list begins.
    pub fn begin_list(&mut self) {
        self.listing = Some(Index::default());
        self.refreshed.clear();
    }

    /// An object of the list.
    pub fn listed(&mut self, object: T) {
        self.listing
            .get_or_insert_default()
            .insert(Arc::new(object));
    }

    /// The list is whole. Returns every object that was or is there, to be looked at again.
    pub fn end_list(&mut self) -> Vec<Arc<T>> {
        let listed = self.listing.take().unwrap_or_default();
        let before = std::mem::replace(&mut self.current, listed);
        self.synced = true;
        for written in std::mem::take(&mut self.refreshed) {
            self.refresh_shared(written);
        }
        let gone = before
            .objects
            .into_iter()
            .filter(|(key, _)| !self.current.objects.contains_key(key));
        let gone: Vec<_> = gone.map(|(_, object)| object).collect();
        self.current.objects.values().cloned().chain(gone).collect()
    }

    /// An object is there, or changed. A revision that is not newer than the one known is ignored.
    pub fn put(&mut self, object: T) -> Option<Arc<T>> {
        self.put_shared(Arc::new(object))
    }

    fn put_shared(&mut self, object: Arc<T>) -> Option<Arc<T>> {
        let known = self.current.objects.get(&object.key());
        if known.is_some_and(|k| k.uid() == object.uid() && k.version() >= object.version()) {
            return None;
        }
        self.current.insert(Arc::clone(&object));
        Some(object)
    }

    /// Notes the answer to a write of our own, before the watch tells of it. An object that is not
    /// known is not added: the watch may have told of its deletion already. Returns what was news: the watch will tell
    /// nobody of it.
    pub fn refresh(&mut self, object: T) -> Option<Arc<T>> {
        let object = Arc::new(object);
        if self.listing.is_some() {
            self.refreshed.push(Arc::clone(&object));
        }
        self.refresh_shared(object)
    }

    fn refresh_shared(&mut self, object: Arc<T>) -> Option<Arc<T>> {
        let known = self.current.objects.get(&object.key());
        let is_known = known.is_some_and(|k| k.uid() == object.uid());
        is_known.then(|| self.put_shared(object)).flatten()
    }

    /// An object is gone. An object of the same name that came later stays.
    pub fn remove(&mut self, object: &T) -> Option<Arc<T>> {
        let key = object.key();
        let known = self.current.objects.get(&key)?;
        if known.uid() != object.uid() {
            return None;
        }
        self.current.remove(&key)
    }

    /// Whether a list has been whole once.
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// The object of that name.
    pub fn get(&self, key: &Key) -> Option<Arc<T>> {
        self.current.objects.get(key).cloned()
    }

    /// The objects that the given owner controls, by name.
    pub fn owned_by(&self, uid: &str) -> Vec<Arc<T>> {
        let keys = self.current.by_owner.get(uid).into_iter().flatten();
        keys.filter_map(|key| self.get(key)).collect()
    }

    /// All objects, in no order.
    pub fn all(&self) -> impl Iterator<Item = &Arc<T>> {
        self.current.objects.values()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.current.objects.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: Cached> Index<T> {
    fn insert(&mut self, object: Arc<T>) {
        let key = object.key();
        self.remove(&key);
        if let Some(owner) = object.owner() {
            self.by_owner
                .entry(owner.into())
                .or_default()
                .insert(key.clone());
        }
        self.objects.insert(key, object);
    }

    fn remove(&mut self, key: &Key) -> Option<Arc<T>> {
        let object = self.objects.remove(key)?;
        if let Some(owner) = object.owner()
            && let Some(owned) = self.by_owner.get_mut(owner)
        {
            owned.remove(key);
            if owned.is_empty() {
                self.by_owner.remove(owner);
            }
        }
        Some(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Thing {
        name: &'static str,
        uid: &'static str,
        owner: Option<&'static str>,
        version: u64,
    }

    impl Cached for Thing {
        fn key(&self) -> Key {
            Key {
                namespace: "ns".into(),
                name: self.name.into(),
            }
        }

        fn uid(&self) -> &str {
            self.uid
        }

        fn owner(&self) -> Option<&str> {
            self.owner
        }

        fn version(&self) -> u64 {
            self.version
        }
    }

    fn thing(name: &'static str, version: u64) -> Thing {
        Thing {
            name,
            uid: name,
            owner: Some("owner"),
            version,
        }
    }

    fn names(things: &[Arc<Thing>]) -> Vec<&str> {
        let mut names: Vec<_> = things.iter().map(|t| t.name).collect();
        names.sort_unstable();
        names
    }

    fn listed(things: &[Thing]) -> Cache<Thing> {
        let mut cache = Cache::default();
        cache.begin_list();
        things.iter().cloned().for_each(|t| cache.listed(t));
        cache.end_list();
        cache
    }

    #[test]
    fn a_list_is_seen_when_it_is_whole() {
        let mut cache = listed(&[thing("a", 1), thing("b", 1)]);
        cache.begin_list();
        cache.listed(thing("b", 2));
        cache.listed(thing("c", 2));
        assert_eq!(names(&cache.owned_by("owner")), ["a", "b"]);
        let touched = cache.end_list();
        assert_eq!(names(&touched), ["a", "b", "c"]);
        assert_eq!(names(&cache.owned_by("owner")), ["b", "c"]);
    }

    #[test]
    fn nothing_is_synced_before_the_first_list() {
        let mut cache = Cache::default();
        cache.begin_list();
        cache.listed(thing("a", 1));
        assert!(!cache.is_synced());
        cache.end_list();
        assert!(cache.is_synced());
    }

    #[test]
    fn an_older_revision_never_replaces_a_newer_one() {
        let mut cache = listed(&[thing("a", 5)]);
        assert!(cache.put(thing("a", 4)).is_none());
        assert!(cache.put(thing("a", 5)).is_none());
        assert!(cache.put(thing("a", 6)).is_some());
    }

    #[test]
    fn our_own_write_is_seen_at_once_but_never_revives_a_deleted_object() {
        let mut cache = listed(&[thing("a", 5)]);
        assert!(cache.refresh(thing("a", 6)).is_some());
        assert!(cache.put(thing("a", 6)).is_none());
        assert!(cache.refresh(thing("a", 6)).is_none(), "it was told");
        cache.remove(&thing("a", 7));
        assert!(cache.refresh(thing("a", 6)).is_none());
        assert!(cache.is_empty());
    }

    #[test]
    fn a_list_that_is_older_than_our_own_write_does_not_undo_it() {
        let mut cache = listed(&[thing("a", 5)]);
        cache.begin_list();
        cache.listed(thing("a", 5));
        cache.refresh(thing("a", 6));
        cache.end_list();
        assert!(cache.put(thing("a", 6)).is_none());
    }

    #[test]
    fn a_namesake_that_came_later_survives_the_end_of_the_earlier_one() {
        let mut cache = listed(&[thing("a", 5)]);
        let later = Thing {
            uid: "later",
            ..thing("a", 7)
        };
        cache.put(later);
        assert!(cache.remove(&thing("a", 6)).is_none());
        assert_eq!(cache.len(), 1);
    }

    #[test]
    fn a_change_of_owner_moves_the_object() {
        let mut cache = listed(&[thing("a", 1)]);
        cache.put(Thing {
            owner: Some("other"),
            ..thing("a", 2)
        });
        assert!(cache.owned_by("owner").is_empty());
        assert_eq!(names(&cache.owned_by("other")), ["a"]);
        cache.remove(&thing("a", 3));
        assert!(cache.owned_by("other").is_empty() && cache.is_empty());
    }
}
