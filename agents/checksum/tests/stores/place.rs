//! A tree of files, and a store for it of either kind.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use checksum::algorithm::Algorithm;
use checksum::engine::{self, Job, Lister, Shared, Source};
use checksum::list::exclude::Excludes;
use checksum::merge::Mode;
use checksum::pack::Sizes;
use checksum::read::Medium;
use checksum::state::State;
use checksum::store::{Location, Mysql, NewRun, Password, Run, Store, View};
use jiff::Timestamp;
use sqlx::{ConnectOptions as _, Executor as _};
use tempfile::TempDir;

pub(crate) mod lsdf;

/// Everything here takes a second; two cores may be busy with other things.
const PATIENCE: Duration = Duration::from_mins(1);

#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) folder: Arc<TempDir>,
    pub(crate) location: Location,
}

pub(crate) fn what(mode: Mode) -> NewRun {
    NewRun {
        owner: None,
        snapshot: None,
        mode,
        algorithm: Algorithm::Blake3,
    }
}

impl Place {
    pub(crate) fn sqlite() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        fs::create_dir(folder.path().join("root"))?;
        let location = Location::file(folder.path().join("store.sqlite"));
        Ok(Self {
            folder: Arc::new(folder),
            location,
        })
    }

    /// A database of its own on the server that all tests share.
    pub(crate) async fn mariadb() -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let server = testbed::mariadb().await?;
        let database = format!(
            "sums_{}_{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let options: sqlx::mysql::MySqlConnectOptions = server.url().parse()?;
        let mut link = options.connect().await?;
        let create = sqlx::AssertSqlSafe(format!("CREATE DATABASE {database}"));
        link.execute(sqlx::raw_sql(create)).await?;
        Self::on(&server, &database)
    }

    pub(crate) fn on(server: &testbed::mariadb::Access, database: &str) -> Result<Self> {
        let SocketAddr::V4(address) = server.address() else {
            anyhow::bail!("an address of another kind");
        };
        let mut place = Self::sqlite()?;
        place.location = Location::Mysql {
            server: Mysql {
                host: address.ip().to_string(),
                port: address.port(),
                database: database.into(),
                username: "testbed".into(),
                password: Password("testbed".into()),
                tls: None,
            },
            file_system: "home".into(),
        };
        Ok(place)
    }

    pub(crate) fn changed(&self, change: impl FnOnce(&mut Mysql)) -> Location {
        let mut location = self.location.clone();
        if let Location::Mysql { server, .. } = &mut location {
            change(server);
        }
        location
    }

    pub(crate) fn with_password(&self, password: &str) -> Location {
        self.changed(|server| server.password = Password(password.into()))
    }

    /// Where the server keeps its data.
    pub(crate) async fn data_folder(&self) -> Result<PathBuf> {
        let select = "SELECT @@datadir";
        let mut link = self.link().await?;
        let (folder,): (String,) = sqlx::query_as(select).fetch_one(&mut link).await?;
        Ok(folder.into())
    }

    /// Where nobody listens.
    pub(crate) fn elsewhere(&self) -> Location {
        self.changed(|server| server.port = 1)
    }

    /// The same files under another name in the same store.
    pub(crate) fn named(&self, name: &str) -> Self {
        let mut place = self.clone();
        let (Location::Sqlite { file_system, .. } | Location::Mysql { file_system, .. }) =
            &mut place.location;
        *file_system = name.into();
        place
    }

    pub(crate) fn is_sqlite(&self) -> bool {
        matches!(self.location, Location::Sqlite { .. })
    }

    /// Frees the lock of whoever holds it, who does not notice.
    pub(crate) async fn free_lock(&self) -> Result<()> {
        match &self.location {
            Location::Sqlite { path, .. } => {
                let mut lock = path.clone().into_os_string();
                lock.push(".lock");
                Ok(fs::remove_file(lock)?)
            }
            Location::Mysql { server, .. } => {
                let mut link = self.link().await?;
                let select = "SELECT id FROM information_schema.processlist WHERE db = ? AND id <> CONNECTION_ID()";
                let others: Vec<(i64,)> = sqlx::query_as(select)
                    .bind(&server.database)
                    .fetch_all(&mut link)
                    .await?;
                for (id,) in others {
                    let kill = sqlx::AssertSqlSafe(format!("KILL {id}"));
                    link.execute(sqlx::raw_sql(kill)).await?;
                }
                Ok(())
            }
        }
    }

    async fn link(&self) -> Result<sqlx::MySqlConnection> {
        let Mysql {
            host,
            port,
            database,
            ..
        } = self.mysql()?;
        let url = format!("mysql://testbed:testbed@{host}:{port}/{database}");
        let options: sqlx::mysql::MySqlConnectOptions = url.parse()?;
        Ok(options.connect().await?)
    }

    /// Makes the server believe that it knows no files, as one does that died before it had counted them.
    pub(crate) async fn believed_empty(&self) -> Result<()> {
        let mut link = self.link().await?;
        for statement in [
            "ALTER TABLE orrery_files STATS_PERSISTENT = 1, STATS_AUTO_RECALC = 0",
            "UPDATE mysql.innodb_table_stats SET n_rows = 0, clustered_index_size = 1 WHERE table_name = 'orrery_files'",
            "FLUSH TABLES orrery_files",
        ] {
            link.execute(sqlx::raw_sql(statement)).await?;
        }
        Ok(())
    }

    /// How often the server has seen transactions that waited for each other.
    pub(crate) async fn deadlocks(&self) -> Result<u64> {
        let status = "SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'";
        let (_, number): (String, String) = sqlx::query_as(status)
            .fetch_one(&mut self.link().await?)
            .await?;
        Ok(number.parse()?)
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    pub(crate) fn files(&self, number: usize) -> Result<()> {
        for n in 0..number {
            let path = self.root().join(format!("folder{}/file{n}", n / 10));
            fs::create_dir_all(path.parent().context("a folder")?)?;
            fs::write(path, format!("content of {n}"))?;
        }
        Ok(())
    }

    pub(crate) fn size(&self) -> Result<u64> {
        let mut size = 0;
        for folder in fs::read_dir(self.root())? {
            for file in fs::read_dir(folder?.path())? {
                size += file?.metadata()?.len();
            }
        }
        Ok(size)
    }

    /// Flips a bit as a medium does: the modification time stays.
    pub(crate) fn rot(&self, file: &str) -> Result<()> {
        let path = self.root().join(file);
        let modified = fs::metadata(&path)?.modified()?;
        let file = File::options().read(true).write(true).open(path)?;
        let mut byte = [0];
        file.read_exact_at(&mut byte, 0)?;
        file.write_all_at(&[byte[0] ^ 1], 0)?;
        Ok(file.set_modified(modified)?)
    }

    pub(crate) fn edit(&self, file: &str) -> Result<()> {
        let path = self.root().join(file);
        let modified = fs::metadata(&path)?.modified()?;
        fs::write(&path, "edited")?;
        let file = File::options().write(true).open(path)?;
        Ok(file.set_modified(modified + Duration::from_secs(1))?)
    }

    pub(crate) fn job(&self) -> Job {
        Job {
            root: self.root(),
            source: Source::Live,
            lister: Lister::Walk,
            excludes: Excludes::default(),
            spill: self.folder.path().join("listing"),
            spill_size: None,
            deletion_guard: 10,
            readers: Some(2),
            queue: None,
            medium: Medium::Cache,
            packs: Sizes {
                bytes: 1 << 20,
                files: 7,
            },
            sync_concurrency: 3,
            sync_rows: 7,
            writers: 3,
            batch: 20,
            stop_after_sync: false,
        }
    }

    pub(crate) fn mysql(&self) -> Result<&Mysql> {
        match &self.location {
            Location::Mysql { server, .. } => Ok(server),
            Location::Sqlite { .. } => anyhow::bail!("not a server"),
        }
    }

    pub(crate) async fn run(&self, mode: Mode) -> Result<Run> {
        self.run_into(&self.location, mode).await
    }

    pub(crate) async fn run_into(&self, location: &Location, mode: Mode) -> Result<Run> {
        Self::carry_out_into(location, &self.job(), mode).await
    }

    /// A run with other sizes than usual.
    pub(crate) async fn carry_out(&self, job: &Job, mode: Mode) -> Result<Run> {
        Self::carry_out_into(&self.location, job, mode).await
    }

    async fn carry_out_into(location: &Location, job: &Job, mode: Mode) -> Result<Run> {
        let store = Store::open(location, 3).await?;
        let run = store.begin_run(&what(mode), Timestamp::now()).await?;
        let shared = Arc::new(Shared::new(None, Instant::now()));
        Ok(engine::run(job, &store, run, &shared).await?.run)
    }

    /// Lets the store refuse one part of each listing, though not the first ones.
    pub(crate) async fn refuse_progress(&self) -> Result<()> {
        let refuse = match &self.location {
            Location::Sqlite { .. } => {
                "CREATE TRIGGER refused BEFORE INSERT ON orrery_parts WHEN NEW.part > 2
                 BEGIN SELECT RAISE(ABORT, 'refused'); END"
            }
            Location::Mysql { .. } => {
                "CREATE TRIGGER refused BEFORE INSERT ON orrery_parts FOR EACH ROW
                 IF NEW.part > 2 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused'; END IF"
            }
        };
        self.command(refuse).await
    }

    /// Lets the store refuse what a listing has found, after all of it was compared.
    pub(crate) async fn refuse_listings(&self) -> Result<()> {
        let refuse = match &self.location {
            Location::Sqlite { .. } => {
                "CREATE TRIGGER refused BEFORE UPDATE ON orrery_runs WHEN NEW.total > OLD.total
                 BEGIN SELECT RAISE(ABORT, 'refused'); END"
            }
            Location::Mysql { .. } => {
                "CREATE TRIGGER refused BEFORE UPDATE ON orrery_runs FOR EACH ROW
                 IF NEW.total > OLD.total THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused'; END IF"
            }
        };
        self.command(refuse).await
    }

    /// Lets the store refuse the end of each run, though nothing before.
    async fn refuse_end(&self) -> Result<()> {
        let refuse = match &self.location {
            Location::Sqlite { .. } => {
                "CREATE TRIGGER refused BEFORE UPDATE ON orrery_runs WHEN NEW.state = 'finished'
                 BEGIN SELECT RAISE(ABORT, 'refused'); END"
            }
            Location::Mysql { .. } => {
                "CREATE TRIGGER refused BEFORE UPDATE ON orrery_runs FOR EACH ROW
                 IF NEW.state = 'finished' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused'; END IF"
            }
        };
        self.command(refuse).await
    }

    pub(crate) async fn allow_progress(&self) -> Result<()> {
        self.command("DROP TRIGGER refused").await
    }

    pub(crate) async fn command(&self, statement: &'static str) -> Result<()> {
        let statement = sqlx::raw_sql(statement);
        match &self.location {
            Location::Sqlite { path, .. } => {
                let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
                options.connect().await?.execute(statement).await?;
            }
            Location::Mysql { .. } => {
                self.link().await?.execute(statement).await?;
            }
        }
        Ok(())
    }

    /// A run whose process died in this state.
    pub(crate) async fn died_in(&self, state: State) -> Result<i64> {
        let store = Store::open(&self.location, 2).await?;
        let now = Timestamp::now();
        if state == State::WorkQueue {
            return Ok(self.until_reading(&store).await?.id);
        }
        if state == State::CleanUp {
            drop(store);
            return self.died_at_the_end().await;
        }
        let mut run = store.begin_run(&what(Mode::Full), now).await?;
        // Who gives up goes back by the same steps.
        let is_given_up = [State::AbortingMetadataSync, State::AbortingSnapshot].contains(&state);
        let way = if is_given_up {
            State::MetadataSync
        } else {
            state
        };
        while run.state != way {
            let next = run.state.next().context("no such state")?;
            store.advance(&mut run, next, now).await?;
        }
        let mut next = Some(run.state.aborted());
        while run.state != state {
            store
                .advance(&mut run, next.context("no such state")?, now)
                .await?;
            next = run.state.next();
        }
        Ok(run.id)
    }

    /// A run that has read all files, and died before it could say so.
    async fn died_at_the_end(&self) -> Result<i64> {
        self.refuse_end().await?;
        let refused = self.run(Mode::Full).await;
        anyhow::ensure!(refused.is_err(), "{refused:?}");
        self.allow_progress().await?;
        let view = View::open(&self.location).await?;
        Ok(view.last_run().await?.context("no run")?.id)
    }

    /// A run that has listed all files and read none.
    pub(crate) async fn until_reading(&self, store: &Store) -> Result<Run> {
        let run = store.begin_run(&what(Mode::Full), Timestamp::now()).await?;
        let id = run.id;
        let shared = Arc::new(Shared::new(None, Instant::now()));
        shared.pause.store(true, Ordering::Relaxed);
        let job = self.job();
        let running = engine::run(&job, store, run, &shared);
        let watching = async {
            let began = Instant::now();
            while shared.run().is_none_or(|run| run.state != State::WorkQueue) {
                assert!(began.elapsed() < PATIENCE, "it does not begin to read");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            shared.stop.store(true, Ordering::Relaxed);
        };
        let (stopped, ()) = tokio::join!(running, watching);
        anyhow::ensure!(
            matches!(stopped, Err(engine::Error::Stopped { .. })),
            "{stopped:?}"
        );
        Ok(store.view().run(id).await?)
    }
}
