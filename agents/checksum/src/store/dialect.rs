//! What databases say differently. In: what is meant. Out: SQL. Pure.

use super::link::{Link, Place};

/// A kind of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Sqlite,
    Mysql,
}

impl Dialect {
    pub(super) fn of(place: &Place) -> Self {
        match place {
            Place::Sqlite(_) => Self::Sqlite,
            Place::Mysql(_) => Self::Mysql,
        }
    }

    pub(super) fn spoken_by(link: &Link) -> Self {
        match link {
            Link::Sqlite(_) => Self::Sqlite,
            Link::Mysql(_) => Self::Mysql,
        }
    }

    /// The tables, by version: a later one is added, and brings what is there up to it.
    pub(super) fn schemas(self) -> [&'static str; 2] {
        match self {
            Self::Sqlite => [
                include_str!("schema/sqlite-1.sql"),
                include_str!("schema/sqlite-2.sql"),
            ],
            Self::Mysql => [
                include_str!("schema/mysql-1.sql"),
                include_str!("schema/mysql-2.sql"),
            ],
        }
    }

    /// What a new connection is told first.
    pub(super) fn on_connect(self) -> &'static [&'static str] {
        match self {
            Self::Sqlite => &[],
            // Rows are locked by name, never the gaps between them.
            Self::Mysql => &[
                "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
                "SET SESSION innodb_lock_wait_timeout = 30",
                // What a process that lost its power has left open is undone, not kept for hours.
                "SET SESSION wait_timeout = 60",
            ],
        }
    }

    /// Keeps rows that were found as they are until the transaction ends. A writer of SQLite has all of it anyway.
    pub(super) fn for_update(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Mysql => " FOR UPDATE",
        }
    }

    /// The same, but others may read them and keep them, too.
    pub(super) fn for_share(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Mysql => " LOCK IN SHARE MODE",
        }
    }

    /// Stores checksums of `files` files, if the run has not done them. Values for SQLite: run and run; file system, key,
    /// algorithm and checksum of each file; run. For MySQL: key, algorithm and checksum of each; file system and three times
    /// the run.
    pub(super) fn update_checksums(self, files: usize) -> String {
        match self {
            // The file system is in each row, or SQLite goes through all of its files to find these.
            Self::Sqlite => format!(
                "UPDATE orrery_files SET read_run = ?, done_run = ?, read_mtime = mtime, algorithm = v.column3, \
                 checksum = v.column4 FROM (VALUES {}) AS v \
                 WHERE orrery_files.fs = v.column1 AND orrery_files.hash = v.column2 AND orrery_files.done_run < ?",
                list("(?, ?, ?, ?)", files)
            ),
            Self::Mysql => {
                let more = " UNION ALL SELECT ?, ?, ?".repeat(files.saturating_sub(1));
                // In this order and by this index: a plan that goes through all files would wait for those of others.
                format!(
                    "UPDATE (SELECT ? AS hash, ? AS algorithm, ? AS checksum{more}) AS v \
                     STRAIGHT_JOIN orrery_files AS f FORCE INDEX (PRIMARY) ON f.fs = ? AND f.hash = v.hash AND f.done_run < ? \
                     SET f.read_run = ?, f.done_run = ?, f.read_mtime = f.mtime, f.algorithm = v.algorithm, f.checksum = v.checksum"
                )
            }
        }
    }

    /// Goes to rows by their keys, whatever is believed of the table: who went through all of it would wait for rows that
    /// others hold, and they for his.
    pub(super) fn by_key(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Mysql => " FORCE INDEX (PRIMARY)",
        }
    }

    /// How many values a statement may have.
    pub(super) fn values(self) -> usize {
        match self {
            Self::Sqlite => 32_000,
            Self::Mysql => 65_000,
        }
    }

    /// How many rows one statement adds at most: more are no faster, and cost memory on both sides.
    pub(super) fn added_rows(self) -> usize {
        match self {
            Self::Sqlite => 250,
            Self::Mysql => 2000,
        }
    }

    /// How many rows one statement may name by their keys. SQLite is no faster with more once it is prepared. MariaDB takes
    /// a long list for a table of its own from 1,000 on, and MySQL no longer looks keys up one by one from some ten thousand
    /// on.
    pub(super) fn named_rows(self) -> usize {
        match self {
            Self::Sqlite => 250,
            Self::Mysql => 500,
        }
    }
}

/// `one`, so often, with commas.
pub(super) fn list(one: &str, times: usize) -> String {
    let mut list = format!("{one}, ").repeat(times);
    list.truncate(list.len().saturating_sub(2));
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_a_comma_between_two() {
        assert_eq!(list("?", 3), "?, ?, ?");
        assert_eq!(list("(?, ?)", 1), "(?, ?)");
        assert_eq!(list("?", 0), "");
    }

    #[tokio::test]
    async fn sqlite_finds_files_by_their_keys_and_goes_through_no_others() {
        use futures::TryStreamExt as _;
        use sqlx::{AssertSqlSafe, Connection as _, Row as _, SqliteConnection};

        let mut link = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        let schema = Dialect::Sqlite.schemas().concat();
        let schema = sqlx::raw_sql(AssertSqlSafe(schema));
        schema.execute(&mut link).await.unwrap();
        for files in [1, 2, Dialect::Sqlite.named_rows()] {
            let update = Dialect::Sqlite.update_checksums(files);
            let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {update}"));
            let plan: Vec<String> = sqlx::query(explain)
                .fetch(&mut link)
                .map_ok(|row| row.get("detail"))
                .try_collect()
                .await
                .unwrap();
            let by_key = "SEARCH orrery_files USING PRIMARY KEY (fs=? AND hash=?)";
            assert!(plan.iter().any(|it| it == by_key), "{plan:?}");
        }
    }

    /// Tables and their columns.
    fn tables(dialect: Dialect) -> Vec<(String, Vec<String>)> {
        let text = dialect.schemas().concat();
        let tables = text.split("CREATE TABLE ").skip(1).map(|table| {
            let (name, rest) = table.split_once(" (").unwrap();
            // One to a line, or all of them in one.
            let parts = rest.split([',', '\n']).map(str::trim_start);
            let words = parts.filter_map(|part| part.split(' ').next());
            let is_name = |word: &&str| {
                !word.is_empty() && word.chars().all(|it| it.is_ascii_lowercase() || it == '_')
            };
            let columns = words.filter(is_name);
            (name.to_owned(), columns.map(str::to_owned).collect())
        });
        tables.collect()
    }

    #[test]
    fn both_sides_know_the_same_tables_and_columns() {
        let sqlite = tables(Dialect::Sqlite);
        assert!(sqlite.len() > 5, "{sqlite:?}");
        assert_eq!(sqlite, tables(Dialect::Mysql));
    }
}
