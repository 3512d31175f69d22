//! What the operator says, as the engine understands it. In: a document and mounted folders. Out: a job, a store, limits.
//! Touches: reads mounted credentials.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;

use crds::checksum_run::{Algorithm as Named, Mode as NamedMode, reason};
use crds::report::ConfigDocument;
use crds::report::checksum::{
    CREDENTIALS_FOLDER, ChecksumConfig, Explained, SPILL_FOLDER, STORE_FOLDER, Server, StoreConfig,
    credential,
};

use workqueue::Client;

use crate::algorithm::Algorithm;
use crate::engine::{Job, Lister, Shared, Source};
use crate::list::exclude::Excludes;
use crate::merge::Mode;
use crate::pack::Sizes;
use crate::queue::{self, Queue};
use crate::read::Medium;
use crate::result::explained;
use crate::store::{Location, Mysql, NewRun, Owner, Password, Tls};

/// Where things are mounted.
#[derive(Clone, Debug, clap::Args)]
pub struct Folders {
    /// The folder of an embedded store
    #[arg(long, env = "ORRERY_STORE_FOLDER", default_value = STORE_FOLDER)]
    pub store_folder: PathBuf,
    /// The folder for what does not fit in memory
    #[arg(long, env = "ORRERY_SPILL_FOLDER", default_value = SPILL_FOLDER)]
    pub spill_folder: PathBuf,
    /// The folder where the Secret with credentials is mounted
    #[arg(long, env = "ORRERY_CREDENTIALS_FOLDER", default_value = CREDENTIALS_FOLDER)]
    pub credentials_folder: PathBuf,
}

/// What an agent was told.
#[derive(Clone, Debug)]
pub struct Told {
    uid: String,
    /// As it was said.
    pub config: ChecksumConfig,
    excludes: Excludes,
}

impl Told {
    /// Reads and checks a document.
    pub fn read(document: &ConfigDocument) -> Result<Self, String> {
        let config: ChecksumConfig = serde_json::from_value(document.spec.clone())
            .map_err(|error| format!("spec: {error}"))?;
        let excludes =
            Excludes::new(&config.exclude).map_err(|error| format!("spec.exclude: {error}"))?;
        Ok(Self {
            uid: document.uid.clone(),
            config,
            excludes,
        })
    }

    /// The ChecksumRun.
    pub fn owner(&self) -> Owner {
        Owner {
            uid: self.uid.clone(),
            name: self.config.run.clone(),
        }
    }

    /// How files are hashed.
    pub fn algorithm(&self) -> Algorithm {
        match self.config.algorithm {
            Named::Blake3 => Algorithm::Blake3,
            Named::Sha1 => Algorithm::Sha1,
            Named::Sha256 => Algorithm::Sha256,
            Named::Xxh3 => Algorithm::Xxh3,
            Named::Crc32c => Algorithm::Crc32c,
        }
    }

    /// What the run is to do.
    pub fn what(&self) -> NewRun {
        let percent = self.config.sample_percent.unwrap_or(100);
        NewRun {
            owner: Some(self.owner()),
            snapshot: self.config.snapshot.clone(),
            mode: match self.config.mode {
                NamedMode::Full => Mode::Full,
                NamedMode::Incremental => Mode::Incremental,
                NamedMode::Sample => Mode::Sample(u8::try_from(percent).unwrap_or(100)),
            },
            algorithm: self.algorithm(),
        }
    }

    /// Whether what is read may change meanwhile.
    fn source(&self) -> Source {
        if self.config.consistent || self.config.snapshot.is_some() {
            Source::Snapshot
        } else {
            Source::Live
        }
    }

    /// The same in all detail.
    pub fn job(&self, folders: &Folders) -> Result<Job, Explained> {
        let config = &self.config;
        let tuning = &config.tuning;
        let guard = u8::try_from(config.deletion_guard_percent).unwrap_or(0);
        Ok(Job {
            root: PathBuf::from(&config.root),
            source: self.source(),
            lister: Lister::Walk,
            excludes: self.excludes.clone(),
            spill: folders.spill_folder.join("listing"),
            spill_size: tuning.spill_bytes,
            deletion_guard: guard.min(100),
            readers: config.concurrency.and_then(|it| usize::try_from(it).ok()),
            queue: match self.config.queue {
                Some(_) => Some(self.queue(folders)?),
                None => None,
            },
            medium: self.medium(),
            packs: Sizes {
                bytes: tuning.pack_bytes,
                files: usize::try_from(tuning.pack_files)
                    .unwrap_or(usize::MAX)
                    .max(1),
            },
            sync_concurrency: usize::from(tuning.sync_concurrency).max(1),
            sync_rows: usize::try_from(tuning.sync_chunk_rows).unwrap_or(usize::MAX),
            writers: usize::from(tuning.write_back_concurrency),
            batch: usize::try_from(tuning.write_back_batch)
                .unwrap_or(usize::MAX)
                .max(1),
            stop_after_sync: config.stop_after_sync,
        })
    }

    /// How packs reach workers.
    pub fn queue(&self, folders: &Folders) -> Result<Queue, Explained> {
        self.queue_of(&self.uid, self.config.snapshot.as_deref(), folders)
    }

    /// The same of another run over the same files.
    pub fn queue_of(
        &self,
        uid: &str,
        snapshot: Option<&str>,
        folders: &Folders,
    ) -> Result<Queue, Explained> {
        let Some(queue) = &self.config.queue else {
            let message = "the configuration names no queue, and a worker needs one";
            return Err(explained(reason::REFERENCE_MISSING.name, message));
        };
        let options = queue::options(&queue.redis, &folders.credentials_folder)
            .map_err(|error| missing(&error))?;
        let client = Client::new(options).map_err(|error| {
            explained(
                reason::QUEUE_UNREACHABLE.name,
                runtime::telemetry::chain(&error),
            )
        })?;
        let snapshot = snapshot.map_or_else(|| format!("run-{uid}"), str::to_owned);
        // Workers of a run have its volume and no other: packs of another run would be of no use to them.
        let space = format!("{}:{uid}", queue.redis.space);
        Ok(Queue::new(
            client,
            &space,
            &self.config.file_system,
            &snapshot,
        ))
    }

    /// Where content comes from.
    pub fn medium(&self) -> Medium {
        if self.config.tuning.bypass_cache {
            Medium::Device
        } else {
            Medium::Cache
        }
    }

    /// Where checksums live.
    pub fn location(&self, folders: &Folders) -> Result<Location, Explained> {
        let file_system = self.config.file_system.clone();
        match &self.config.store {
            StoreConfig::Embedded {} => Ok(Location::Sqlite {
                path: folders.store_folder.join(store_file(&file_system)),
                file_system,
            }),
            StoreConfig::Mysql(server) => Ok(Location::Mysql {
                server: mysql(server, &folders.credentials_folder)
                    .map_err(|error| missing(&error))?,
                file_system,
            }),
        }
    }

    /// Brings what may change at any time to those who read.
    pub fn apply(&self, shared: &Shared, now: Instant) {
        let config = &self.config;
        shared.pause.store(config.suspend, Ordering::Relaxed);
        if config.cancel {
            shared.stop.store(true, Ordering::Relaxed);
        }
        let own = match (config.max_throughput_per_worker, &config.queue) {
            // Alone, a coordinator reads all there is to read.
            (own, None) => own.into_iter().chain(config.max_throughput).min(),
            (own, Some(_)) => own,
        };
        shared.own_limit.set(own, now);
        let total = config.max_throughput.unwrap_or(0);
        shared.total_limit.store(total, Ordering::Relaxed);
    }
}

/// The file of an embedded store. Others beside it have longer names yet, and a folder takes 255 bytes.
fn store_file(file_system: &str) -> String {
    const LONGEST: usize = 200;
    if file_system.len() <= LONGEST {
        return format!("{file_system}.sqlite");
    }
    let begin = &file_system[..file_system.floor_char_boundary(LONGEST)];
    let digest = blake3::hash(file_system.as_bytes()).to_hex();
    format!("{begin}-{}.sqlite", &digest[..16])
}

fn missing(error: &io::Error) -> Explained {
    explained(reason::REFERENCE_MISSING.name, error.to_string())
}

fn mysql(server: &Server, folder: &Path) -> io::Result<Mysql> {
    let file = |name: &str| Some(folder.join(name)).filter(|path| path.exists());
    let identity = file(credential::STORE_CERTIFICATE).zip(file(credential::STORE_KEY));
    Ok(Mysql {
        host: server.host.clone(),
        port: server.port,
        database: server.space.clone(),
        username: secret(folder, credential::STORE_USERNAME)?,
        password: Password(secret(folder, credential::STORE_PASSWORD)?),
        tls: server.tls.then(|| Tls {
            authorities: file(credential::STORE_CA),
            identity,
        }),
    })
}

/// A mounted credential, without the line end that many tools write.
pub(crate) fn secret(folder: &Path, name: &str) -> io::Result<String> {
    let path = folder.join(name);
    let text = fs::read_to_string(&path).map_err(|error| {
        let what = format!("no credential {name} is mounted: {error}");
        io::Error::new(error.kind(), what)
    })?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_that_is_said_about_a_job_is_heard() {
        let document = json!({"version": 1, "uid": "uid", "generation": 1, "spec": {
            "run": "here/run", "fileSystem": "home", "root": "/source/photos", "mode": "Full", "algorithm": "sha1",
            "store": {"embedded": {}}, "deletionGuardPercent": 11, "concurrency": 7, "stopAfterSync": true, "consistent": true,
            "tuning": {"packBytes": 1, "packFiles": 2, "syncConcurrency": 3, "syncChunkRows": 4, "writeBackConcurrency": 5,
                "writeBackBatch": 6, "bypassCache": true, "spillBytes": 8},
        }});
        let document = serde_json::from_value(document).unwrap();
        let folders = Folders {
            store_folder: "/store".into(),
            spill_folder: "/spill".into(),
            credentials_folder: "/credentials".into(),
        };
        let job = Told::read(&document).unwrap().job(&folders).unwrap();
        assert_eq!((job.packs.bytes, job.packs.files), (1, 2));
        assert_eq!((job.sync_concurrency, job.sync_rows), (3, 4));
        assert_eq!((job.writers, job.batch), (5, 6));
        assert_eq!((job.readers, job.spill_size), (Some(7), Some(8)));
        assert_eq!((job.deletion_guard, job.stop_after_sync), (11, true));
        assert_eq!((job.medium, job.source), (Medium::Device, Source::Snapshot));
        assert_eq!(job.root, Path::new("/source/photos"));
        assert_eq!(job.spill, Path::new("/spill/listing"));
    }

    #[test]
    fn an_embedded_store_is_named_after_its_file_system_as_far_as_folders_allow() {
        assert_eq!(store_file("home"), "home.sqlite");
        assert_eq!(store_file(&"a".repeat(200)).len(), 207);
        let [one, other] = ["x", "y"].map(|it| store_file(&("a".repeat(252) + it)));
        assert!(one.len() + ".listing".len() < 255, "{one}");
        assert_ne!(one, other);
        assert!(one.starts_with(&"a".repeat(200)));
    }
}
