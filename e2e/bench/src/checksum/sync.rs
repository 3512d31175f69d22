#![expect(clippy::disallowed_methods, reason = "measures how long things take")]
//! A second run that finds nothing changed, beside the statements of lsdf-checksum. In: rules. Out: rows.
//! Touches: a MariaDB with two million rows for each, and a list of files that need not exist.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use checksum::{
    algorithm::Algorithm,
    engine::{self, Job, Lister, Shared, Source},
    list::exclude::Excludes,
    merge::Mode,
    pack::Sizes,
    read::Medium,
    store::{Location, Mysql, NewRun, Password, Store},
};
use jiff::Timestamp;
use tempfile::TempDir;
use testbed::{SharedStore, mariadb};

use super::{
    goal,
    site::{LOGIN, SPACE, create_database},
    statements::Statements,
    tree, turn,
};
use crate::{
    rounds::{self, Rules, Side},
    row::{self, Measure, Row, Run, Sample},
};

const FILES: usize = 2_000_000;

/// At least ten times as fast.
const SYNC: Measure = goal(
    "metadata of 2 million files in MariaDB, nothing changed: time",
    "s",
    0.1,
);

pub(super) async fn measure(rules: Rules, run: &Run) -> Result<Vec<Row>> {
    let mut place = Place::fill().await?;
    let sides = [Side::Ours, Side::Peer];
    let samples = rounds::run_by(rules, "metadata", &sides, async |side| {
        Box::pin(turn(place.sync(side))).await
    });
    let statements = run.beside("three statements of lsdf-checksum");
    row::rows(&[SYNC], &Box::pin(samples).await?, &statements)
}

struct Place {
    folder: TempDir,
    _mariadb: SharedStore<mariadb::Access>,
    location: Location,
    statements: Statements,
}

impl Place {
    /// The same rows in our tables and in those of the statements.
    async fn fill() -> Result<Self> {
        let folder = tree::folder()?;
        let mariadb = testbed::mariadb().await?;
        create_database(&mariadb.url()).await?;
        let location = Location::Mysql {
            server: Mysql {
                host: mariadb.address().ip().to_string(),
                port: mariadb.address().port(),
                database: SPACE.into(),
                username: LOGIN.into(),
                password: Password(LOGIN.into()),
                tls: None,
            },
            file_system: "files".into(),
        };
        let statements = Statements::open(&mariadb.url()).await?;
        let mut place = Self {
            folder,
            _mariadb: mariadb,
            location,
            statements,
        };
        eprintln!("bench: {FILES} rows for us and for the statements, some minutes");
        tree::policy_list(&place.list(), place.folder.path(), FILES)?;
        place.statements.make_room().await?;
        place.ours().await?;
        place.statements.fill().await?;
        Ok(place)
    }

    fn list(&self) -> PathBuf {
        self.folder.path().join("list")
    }

    async fn sync(&mut self, side: Side) -> Result<Sample> {
        let took = match side {
            Side::Ours => self.ours().await?,
            Side::Peer => self.statements.run().await?,
        };
        Ok(Sample::from([(SYNC.name, took.as_secs_f64())]))
    }

    /// A run from its beginning until the store knows all files: the list is read, and compared with all rows.
    async fn ours(&self) -> Result<Duration> {
        let began = Instant::now();
        let store = Store::open(&self.location, 2).await?;
        let what = NewRun {
            owner: None,
            snapshot: None,
            mode: Mode::Full,
            algorithm: Algorithm::Blake3,
        };
        let run = store.begin_run(&what, Timestamp::now()).await?;
        let shared = Arc::new(Shared::new(None, Instant::now()));
        let ended = Box::pin(engine::run(&self.job(), &store, run, &shared)).await?;
        let total = usize::try_from(ended.run.counts.total)?;
        ensure!(total == FILES, "{total} files are known");
        Ok(began.elapsed())
    }

    /// As the operator configures it, but for the list.
    fn job(&self) -> Job {
        let root = self.folder.path();
        Job {
            root: root.into(),
            source: Source::Live,
            lister: Lister::Policy(self.list(), root.as_os_str().as_encoded_bytes().into()),
            excludes: Excludes::default(),
            spill: root.join("spill"),
            spill_size: None,
            deletion_guard: 10,
            readers: None,
            queue: None,
            medium: Medium::Cache,
            packs: Sizes::default(),
            sync_concurrency: 2,
            sync_rows: 10_000,
            writers: 2,
            batch: 500,
            stop_after_sync: true,
        }
    }
}
