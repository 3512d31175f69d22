//! What a listing changes in the store. In: one partition of the listing and of the store. Out: the differences. Pure.

use crate::entry::{Attributes, Seen, UNKNOWN};
use crate::judge::RunId;
use crate::path::Key;
use crate::store::Part;

/// A row of the store, as far as a listing can change it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its path's key.
    pub key: Key,
    /// What the file system said last.
    pub attributes: Attributes,
    /// See [`crate::judge::Known::changed_run`].
    pub changed_run: RunId,
    /// The run that last saw another size or another change of metadata under the same modification time, or could not verify
    /// the file; 0 if none did.
    pub suspect_run: RunId,
    /// See [`crate::judge::Known::read_run`].
    pub read_run: RunId,
    /// The modification time of what was read then, if that is known.
    pub read_mtime: Option<i64>,
}

impl Row {
    /// Whether this is what was read last, although the last listing had something else: the wrong volume, or a file that
    /// somebody has put back.
    fn was_read_as(&self, seen: &Attributes) -> bool {
        let read = self.read_mtime.map(|mtime| Attributes {
            mtime,
            // As exactly as the listing of then said, which may have been to the microsecond.
            ctime: UNKNOWN,
            ..*seen
        });
        read.is_some_and(|it| it.has_time_of(seen))
    }

    /// Whether it must be read whatever the mode: it was never read, or something happened to it since.
    pub fn is_unread(&self) -> bool {
        self.changed_run > self.read_run || self.suspect_run > self.read_run
    }
}

/// Which files a run reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Every file.
    Full,
    /// Files that are new, changed or suspicious.
    Incremental,
    /// The same, and so many percent of the others.
    Sample(u8),
}

impl Mode {
    /// Whether run `run` reads this file.
    pub fn selects(self, row: &Row, run: RunId) -> bool {
        match self {
            Self::Full => true,
            Self::Incremental => row.is_unread(),
            Self::Sample(percent) => row.is_unread() || row.key.draw(run, 100) < percent.into(),
        }
    }
}

/// What is different in one partition, and what follows for the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences<'a> {
    /// Files the store does not know.
    pub new: Vec<Seen<'a>>,
    /// Files with another modification time: somebody changed them.
    pub changed: Vec<Seen<'a>>,
    /// Files with the same modification time, but another size or time of change: to be read and compared.
    pub suspect: Vec<Seen<'a>>,
    /// Files that have the modification time again with which they were read: to be read and compared with that.
    pub returned: Vec<Seen<'a>>,
    /// Files that are as they were, and of which more is known now.
    pub refined: Vec<Seen<'a>>,
    /// Files of the store that are gone.
    pub missing: Vec<Key>,
    /// Files that the store did not know before this run, also those that an earlier attempt of it has added.
    pub unknown: u64,
    /// Files that are there.
    pub listed: Tally,
    /// Files that are gone; or, if not all could be listed, perhaps only not seen.
    pub unseen: Tally,
}

/// How many files there are, and what a run reads of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// All of them.
    pub total: u64,
    /// Those that the run reads.
    pub selected: u64,
    /// How many bytes those have.
    pub selected_bytes: u64,
}

impl Tally {
    fn add(&mut self, row: &Row, mode: Mode, run: RunId) {
        self.total += 1;
        if mode.selects(row, run) {
            self.selected += 1;
            self.selected_bytes = self.selected_bytes.saturating_add(row.attributes.size);
        }
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            total: self.total + other.total,
            selected: self.selected + other.selected,
            selected_bytes: self.selected_bytes.saturating_add(other.selected_bytes),
        }
    }
}

/// Compares. Both sides are in the order of their keys, and hold each key once.
pub fn merge<'a>(
    listed: impl IntoIterator<Item = Seen<'a>>,
    rows: &[Row],
    mode: Mode,
    run: RunId,
) -> Differences<'a> {
    let mut found = Differences::default();
    let mut rows = rows.iter().peekable();
    for seen in listed {
        while let Some(gone) = rows.next_if(|row| row.key < seen.key) {
            found.miss(gone, mode, run);
        }
        let row = rows.next_if(|row| row.key == seen.key);
        found.add(seen, row, mode, run);
    }
    rows.for_each(|gone| found.miss(gone, mode, run));
    found
}

impl<'a> Differences<'a> {
    fn miss(&mut self, row: &Row, mode: Mode, run: RunId) {
        self.missing.push(row.key);
        self.unseen.add(row, mode, run);
    }

    fn add(&mut self, seen: Seen<'a>, row: Option<&Row>, mode: Mode, run: RunId) {
        let mut now = Row {
            key: seen.key,
            attributes: seen.attributes,
            changed_run: run,
            suspect_run: 0,
            read_run: 0,
            read_mtime: None,
        };
        match row {
            None => {
                self.unknown += 1;
                self.new.push(seen);
            }
            Some(row) => {
                (now.read_run, now.suspect_run) = (row.read_run, row.suspect_run);
                self.unknown += u64::from(row.changed_run == run && row.read_run == 0);
                match change(&row.attributes, &seen.attributes) {
                    Change::None => now.changed_run = row.changed_run,
                    Change::Refined => {
                        now.changed_run = row.changed_run;
                        self.refined.push(seen);
                    }
                    Change::Suspect => {
                        (now.changed_run, now.suspect_run) = (row.changed_run, run);
                        self.suspect.push(seen);
                    }
                    Change::Edited if row.was_read_as(&seen.attributes) => {
                        (now.changed_run, now.suspect_run) = (row.read_run, run);
                        self.returned.push(seen);
                    }
                    Change::Edited => self.changed.push(seen),
                }
            }
        }
        self.listed.add(&now, mode, run);
    }

    /// Takes over what is different elsewhere.
    pub fn append(&mut self, other: Self) {
        self.new.extend(other.new);
        self.changed.extend(other.changed);
        self.suspect.extend(other.suspect);
        self.returned.extend(other.returned);
        self.refined.extend(other.refined);
        self.missing.extend(other.missing);
        self.unknown += other.unknown;
        self.listed = self.listed.plus(other.listed);
        self.unseen = self.unseen.plus(other.unseen);
    }

    /// Whether nothing of it is to be written before files are forgotten.
    pub fn is_nothing(&self) -> bool {
        let Self {
            new,
            changed,
            suspect,
            returned,
            refined,
            ..
        } = self;
        [new, changed, suspect, returned, refined]
            .iter()
            .all(|it| it.is_empty())
    }

    /// What it comes to.
    pub fn part(&self) -> Part {
        Part {
            listed: self.listed,
            unseen: self.unseen,
            new: self.unknown,
        }
    }
}

/// What happened to a file between two listings.
enum Change {
    None,
    Refined,
    Suspect,
    Edited,
}

fn change(before: &Attributes, after: &Attributes) -> Change {
    if before == after {
        return Change::None;
    }
    let same_time = before.has_time_of(after) || after.has_time_of(before);
    match (same_time, before.size == after.size) {
        (false, _) => Change::Edited,
        (true, true) if after.ctime == UNKNOWN => Change::None,
        (true, true) if before.ctime == UNKNOWN => Change::Refined,
        (true, _) => Change::Suspect,
    }
}

/// Whether so many files may be forgotten: not when nothing is left of many, and not more than a share of them. A few may
/// always go, or small trees would never be rid of anything.
pub fn may_forget(missing: u64, known: u64, percent: u8) -> bool {
    const FEW: u64 = 10;
    let all_is_gone = missing == known && missing > 0;
    percent >= 100
        || (!all_is_gone && missing <= FEW)
        || u128::from(missing) * 100 <= u128::from(known) * u128::from(percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEN: Attributes = Attributes {
        size: 10,
        mtime: 5,
        ctime: 5,
    };

    fn seen(name: &str, attributes: Attributes) -> Seen<'_> {
        let path = name.as_bytes();
        Seen {
            key: Key::of(path),
            path,
            attributes,
        }
    }

    /// Read in run 1, and nothing since.
    fn row(name: &str) -> Row {
        Row {
            key: Key::of(name.as_bytes()),
            attributes: SEEN,
            changed_run: 1,
            suspect_run: 0,
            read_run: 1,
            read_mtime: Some(SEEN.mtime),
        }
    }

    fn differences(mut listed: Vec<Seen<'_>>, mut rows: Vec<Row>, mode: Mode) -> Differences<'_> {
        listed.sort_by_key(|it| it.key);
        rows.sort_by_key(|row| row.key);
        merge(listed, &rows, mode, 2)
    }

    #[test]
    fn only_another_modification_time_is_a_change() {
        let with = |size, mtime, ctime| Attributes { size, mtime, ctime };
        let listed = vec![
            seen("same", SEEN),
            seen("edited", with(10, 6000, 6000)),
            seen("older", with(10, -6000, 6000)),
            seen("grown", with(11, 5, 5)),
            seen("touched", with(10, 5, 6)),
            seen("new", SEEN),
        ];
        let rows = ["same", "edited", "older", "grown", "touched", "gone"].map(row);
        let found = differences(listed, rows.into(), Mode::Incremental);
        assert_eq!(found.new.len(), 1);
        assert_eq!(found.changed.len(), 2);
        assert_eq!(found.suspect.len(), 2);
        assert_eq!(found.missing, [Key::of(b"gone")]);
        assert_eq!((found.listed.total, found.listed.selected), (6, 5));
    }

    #[test]
    fn a_file_that_is_again_what_was_read_is_compared_with_that() {
        // What a run of another volume has seen, or one that was given up.
        let mut row = row("a");
        (row.attributes.mtime, row.changed_run) = (9, 2);
        let found = |mtime, read_mtime| {
            let listed = vec![seen("a", Attributes { mtime, ..SEEN })];
            let known = Row {
                read_mtime,
                ..row.clone()
            };
            differences(listed, vec![known], Mode::Incremental)
        };
        let again = found(SEEN.mtime, Some(SEEN.mtime));
        assert_eq!((again.returned.len(), again.changed.len()), (1, 0));
        assert_eq!(again.listed.selected, 1);
        let edited = found(SEEN.mtime + 5000, Some(SEEN.mtime));
        assert_eq!((edited.returned.len(), edited.changed.len()), (0, 1));
        assert_eq!(found(SEEN.mtime, None).changed.len(), 1);
    }

    #[test]
    fn a_row_that_was_taken_over_is_the_same_to_the_microsecond() {
        let rough = |mtime| Attributes {
            mtime,
            ctime: UNKNOWN,
            ..SEEN
        };
        let exact = |mtime| Attributes { mtime, ..SEEN };
        let with = |mtime| Row {
            attributes: rough(mtime),
            ..row("a")
        };
        let found = |listed, stored| {
            let listed = vec![seen("a", exact(listed))];
            differences(listed, vec![with(stored)], Mode::Incremental)
        };
        assert_eq!(found(5_000_123, 5_000_000).refined.len(), 1);
        assert_eq!(found(5_000_123, 5_000_000).listed.selected, 0);
        assert_eq!(found(5_001_000, 5_000_000).changed.len(), 1);
    }

    #[test]
    fn a_listing_that_tells_less_changes_nothing_that_is_known() {
        let found = |mtime, size| {
            let rough = Attributes {
                size,
                mtime,
                ctime: UNKNOWN,
            };
            let mut known = row("a");
            known.attributes.mtime = 5_000_123;
            differences(vec![seen("a", rough)], vec![known], Mode::Incremental)
        };
        assert_eq!(found(5_000_000, 10).listed.selected, 0);
        assert_eq!(found(5_000_000, 10).refined, []);
        assert_eq!(found(5_000_000, 11).suspect.len(), 1);
        assert_eq!(found(5_001_000, 10).changed.len(), 1);
    }

    #[test]
    fn files_that_an_earlier_attempt_has_added_are_still_new_to_the_guard() {
        let mut added = row("a");
        (added.changed_run, added.read_run) = (2, 0);
        let found = differences(
            vec![seen("a", SEEN), seen("b", SEEN)],
            vec![added],
            Mode::Full,
        );
        assert_eq!((found.unknown, found.new.len()), (2, 1));
    }

    #[test]
    fn what_an_earlier_run_left_unread_is_read() {
        let mut unread = row("a");
        unread.changed_run = 2;
        let mut suspect = row("b");
        suspect.suspect_run = 2;
        let listed = vec![seen("a", SEEN), seen("b", SEEN), seen("c", SEEN)];
        let rows = vec![unread, suspect, row("c")];
        assert_eq!(
            differences(listed, rows, Mode::Incremental).listed.selected,
            2
        );
    }

    #[test]
    fn a_sample_is_about_its_share_and_the_same_when_asked_again() {
        let names: Vec<_> = (0..1000).map(|n| n.to_string()).collect();
        let listed: Vec<_> = names.iter().map(|name| seen(name, SEEN)).collect();
        let rows: Vec<_> = names.iter().map(|name| row(name)).collect();
        let found = differences(listed.clone(), rows.clone(), Mode::Sample(20));
        let selected = found.listed.selected;
        assert!((140..260).contains(&selected), "{selected}");
        assert_eq!(found, differences(listed, rows, Mode::Sample(20)));
    }

    #[test]
    fn an_empty_side_is_all_new_or_all_gone() {
        let found = differences(vec![seen("a", SEEN)], vec![], Mode::Full);
        assert_eq!((found.new.len(), found.missing.len()), (1, 0));
        let found = differences(vec![], vec![row("a")], Mode::Full);
        assert_eq!((found.listed.total, found.unseen.total), (0, 1));
    }

    #[test]
    fn a_few_files_may_go_a_tenth_may_go_but_never_all() {
        assert!(may_forget(0, 0, 10));
        assert!(may_forget(10, 20, 10));
        assert!(may_forget(100, 1000, 10));
        assert!(!may_forget(101, 1000, 10));
        assert!(!may_forget(5, 5, 10));
        assert!(!may_forget(1000, 1000, 10));
        assert!(may_forget(1000, 1000, 100));
    }
}
