//! What a run's agents are told, and what it takes to tell them. In: the object as users write it.
//! Out: the same with every field read. Pure.

use std::error::Error;

use crds::{
    checksum_run::{
        ChecksumRun, ChecksumRunSpec, StopAfter,
        source::{CsiSnapshot, Source},
        store::{EmbeddedStore, MysqlStore, RedisQueue},
    },
    name::{self, SCHEDULE_LABEL},
    pattern,
    quantity::Size,
    report::{
        ConfigDocument, DOCUMENT_VERSION,
        checksum::{ChecksumConfig, QueueConfig, SOURCE_FOLDER, Server, StoreConfig, TuningConfig},
    },
};
use jiff::SignedDuration;
use kube::ResourceExt;
use serde_json::Value;

use crate::object::Key;

/// The run with every field read.
#[derive(Clone, Debug, PartialEq)]
pub struct Validated {
    /// Its name.
    pub key: Key,
    /// Its UID.
    pub uid: String,
    /// The generation of its spec.
    pub generation: i64,
    /// What users wrote, for what needs no reading.
    pub spec: ChecksumRunSpec,
    /// What agents are told.
    pub config: ChecksumConfig,
    /// Where checksums live: two runs never use the same place at the same time.
    pub place: Place,
    /// How long it is kept after its end.
    pub keep: Option<SignedDuration>,
}

/// Where checksums live.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// A claim of the same namespace.
    Claim(String),
    /// The files of that name in a database. On which server nobody knows: one may have several names.
    Database {
        /// Its name.
        database: String,
        /// The files.
        file_system: String,
    },
}

/// A field of the spec that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("spec.{field}: {why}")]
pub struct Invalid {
    field: &'static str,
    why: String,
}

fn invalid(field: &'static str, why: impl Error) -> Invalid {
    let why = why.to_string();
    Invalid { field, why }
}

/// Reads every field once.
pub fn validate(run: &ChecksumRun) -> Result<Validated, Invalid> {
    let key = Key::of(run);
    let config = config(run, &key)?;
    let place = place(run);
    not_the_source(run, &place)?;
    Ok(Validated {
        uid: run.uid().unwrap_or_default(),
        generation: run.metadata.generation.unwrap_or_default(),
        place,
        spec: run.spec.clone(),
        keep: keep(&run.spec)?,
        key,
        config,
    })
}

/// The claim that is read is mounted so that nobody can write to it, and the store is written; the name of a store that has a
/// default may be that of any claim.
fn not_the_source(run: &ChecksumRun, place: &Place) -> Result<(), Invalid> {
    let source = &run.spec.source.persistent_volume_claim.claim_name;
    if *place != Place::Claim(source.clone()) {
        return Ok(());
    }
    let why = format!(
        "the store would be PersistentVolumeClaim {source}, which is the claim that is read; name another one"
    );
    Err(Invalid {
        field: "store.embedded.claimName",
        why,
    })
}

impl Validated {
    /// Whether nothing is to be read for now.
    pub fn is_suspended(&self) -> bool {
        self.spec.suspend
    }

    /// Whether the run is to be given up.
    pub fn is_cancelled(&self) -> bool {
        self.spec.cancel == Some(true)
    }

    /// The database of the store, if it is one.
    pub fn mysql(&self) -> Option<&MysqlStore> {
        mysql(&self.spec)
    }

    /// The queue, if there are workers.
    pub fn redis(&self) -> Option<&RedisQueue> {
        redis(&self.spec)
    }

    /// How the snapshot is made, if one is.
    pub fn csi(&self) -> Option<&CsiSnapshot> {
        self.spec.source.csi()
    }

    /// The claim of the store, as it is made if it is not there.
    pub fn embedded(&self) -> Option<EmbeddedStore> {
        if self.mysql().is_some() {
            return None;
        }
        let store = self.spec.store.as_ref();
        Some(store.and_then(|s| s.embedded.clone()).unwrap_or_default())
    }

    /// Whether nobody has named the claim of the store.
    pub fn has_default_store(&self) -> bool {
        let store = self.embedded();
        store.is_some_and(|store| store.claim_name.is_none())
    }

    /// The document that agents get, by file and by push.
    pub fn document(&self) -> ConfigDocument {
        ConfigDocument {
            version: DOCUMENT_VERSION,
            uid: self.uid.clone(),
            generation: self.generation,
            spec: serde_json::to_value(&self.config).unwrap_or(Value::Null),
        }
    }
}

fn mysql(spec: &ChecksumRunSpec) -> Option<&MysqlStore> {
    spec.store.as_ref()?.mysql.as_ref()
}

fn redis(spec: &ChecksumRunSpec) -> Option<&RedisQueue> {
    spec.queue.as_ref()?.redis.as_ref()
}

/// How long a run is kept after its end.
pub fn keep(spec: &ChecksumRunSpec) -> Result<Option<SignedDuration>, Invalid> {
    let Some(ttl) = &spec.ttl_after_finished else {
        return Ok(None);
    };
    let keep = ttl.parse().map_err(|e| invalid("ttlAfterFinished", e))?;
    Ok(Some(
        SignedDuration::try_from(keep).unwrap_or(SignedDuration::MAX),
    ))
}

/// Where a run keeps its checksums.
pub fn place(run: &ChecksumRun) -> Place {
    match mysql(&run.spec) {
        Some(mysql) => Place::Database {
            database: mysql.database.clone(),
            file_system: file_system(run),
        },
        None => Place::Claim(claim(run)),
    }
}

/// The store of a run in a few letters, as its spec names it and without the name of the files in it.
pub fn store_name(run: &ChecksumRun) -> String {
    match mysql(&run.spec) {
        Some(mysql) => address(mysql),
        None => claim(run),
    }
}

/// A database in a few letters.
pub fn address(mysql: &MysqlStore) -> String {
    format!("{}:{}/{}", mysql.host, mysql.port, mysql.database)
}

/// The claim of an embedded store.
fn claim(run: &ChecksumRun) -> String {
    let named = run.spec.store.as_ref().and_then(|s| s.embedded.as_ref());
    let named = named.and_then(|embedded| embedded.claim_name.clone());
    named.unwrap_or_else(|| {
        let schedule = run.labels().get(SCHEDULE_LABEL).cloned();
        name::checksum_store(&schedule.unwrap_or_else(|| run.name_any()))
    })
}

/// The name under which the store keeps the files of a run.
pub fn file_system(run: &ChecksumRun) -> String {
    let spec = &run.spec;
    if let Some(named) = &spec.file_system {
        return named.clone();
    }
    let claim = &spec.source.persistent_volume_claim.claim_name;
    // Claims of two namespaces may have one name, and their runs one database.
    match mysql(spec) {
        Some(_) => name::file_system(&run.namespace().unwrap_or_default(), claim),
        None => claim.clone(),
    }
}

fn port(number: i32) -> u16 {
    u16::try_from(number).unwrap_or_default()
}

fn config(run: &ChecksumRun, key: &Key) -> Result<ChecksumConfig, Invalid> {
    let spec = &run.spec;
    let workers = &spec.workers;
    Ok(ChecksumConfig {
        run: key.to_string(),
        file_system: file_system(run),
        root: root(&spec.source),
        exclude: exclude(&spec.source)?,
        snapshot: snapshot(run),
        consistent: spec.source.snapshot.is_some(),
        mode: spec.mode,
        sample_percent: spec.sample_percent,
        algorithm: spec.algorithm,
        store: store(spec),
        queue: redis(spec).map(|redis| QueueConfig {
            redis: Server {
                host: redis.host.clone(),
                port: port(redis.port),
                space: redis.prefix.clone(),
                tls: redis.tls.is_some(),
            },
        }),
        deletion_guard_percent: spec.deletion_guard_percent,
        stop_after_sync: spec.stop_after == Some(StopAfter::MetadataSync),
        suspend: spec.suspend,
        cancel: spec.cancel == Some(true),
        concurrency: workers.concurrency,
        max_throughput: bytes("workers.maxThroughput", workers.max_throughput.as_ref())?,
        max_throughput_per_worker: bytes(
            "workers.maxThroughputPerWorker",
            workers.max_throughput_per_worker.as_ref(),
        )?,
        tuning: tuning(spec)?,
    })
}

/// Agents would refuse the whole configuration for one pattern that they cannot read.
fn exclude(source: &Source) -> Result<Vec<String>, Invalid> {
    for pattern in &source.exclude {
        pattern::read(pattern).map_err(|e| invalid("source.exclude", e))?;
    }
    Ok(source.exclude.clone())
}

fn bytes(field: &'static str, size: Option<&Size>) -> Result<Option<u64>, Invalid> {
    size.map(|size| size.bytes().map_err(|e| invalid(field, e)))
        .transpose()
}

fn store(spec: &ChecksumRunSpec) -> StoreConfig {
    mysql(spec).map_or(StoreConfig::Embedded {}, |mysql| {
        StoreConfig::Mysql(Server {
            host: mysql.host.clone(),
            port: port(mysql.port),
            space: mysql.database.clone(),
            tls: mysql.tls.is_some(),
        })
    })
}

fn tuning(spec: &ChecksumRunSpec) -> Result<TuningConfig, Invalid> {
    let tuning = &spec.tuning;
    let number = |field, value: i32| u32::try_from(value).map_err(|e| invalid(field, e));
    let few = |field, value: i32| u16::try_from(value).map_err(|e| invalid(field, e));
    let (pack_bytes, spill_bytes) = (tuning.pack_size.bytes(), tuning.spill_size.bytes());
    Ok(TuningConfig {
        pack_bytes: pack_bytes.map_err(|e| invalid("tuning.packSize", e))?,
        pack_files: number("tuning.packFiles", tuning.pack_files)?,
        sync_concurrency: few("tuning.syncConcurrency", tuning.sync_concurrency)?,
        sync_chunk_rows: number("tuning.syncChunkRows", tuning.sync_chunk_rows)?,
        write_back_concurrency: few("tuning.writeBackConcurrency", tuning.write_back_concurrency)?,
        write_back_batch: number("tuning.writeBackBatch", tuning.write_back_batch)?,
        bypass_cache: tuning.bypass_cache,
        spill_bytes: Some(spill_bytes.map_err(|e| invalid("tuning.spillSize", e))?),
    })
}

/// The folder that is read, as the pods see it.
fn root(source: &Source) -> String {
    let snapshot = source.snapshot.as_ref();
    let existing = snapshot.and_then(|s| Some(s.existing.as_ref()?.path.as_str()));
    let parts = existing.into_iter().chain(source.sub_path.as_deref());
    parts.fold(SOURCE_FOLDER.to_owned(), |root, part| {
        let part = part.trim_matches('/');
        format!("{root}/{part}")
    })
}

/// A name that no other snapshot has: a later run may have the name of this one.
fn snapshot(run: &ChecksumRun) -> Option<String> {
    run.spec.source.csi()?;
    let (name, uid) = (name::checksum_snapshot(&run.name_any()), run.uid()?);
    Some(format!("{name}/{uid}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        super::fixture::{distributed, run_with},
        *,
    };

    fn validated(spec: Value) -> Validated {
        validate(&run_with(spec)).unwrap()
    }

    #[test]
    fn a_store_in_the_claim_that_is_read_is_refused_also_by_its_default_name() {
        let named = json!({"store": {"embedded": {"claimName": "home"}}});
        let of = |claim: &str| json!({"source": {"persistentVolumeClaim": {"claimName": claim}}});
        for fields in [named, of("home-full-store")] {
            let words = validate(&run_with(fields)).unwrap_err().to_string();
            assert!(
                words.starts_with("spec.store.embedded.claimName: "),
                "{words}"
            );
        }
        assert!(validate(&run_with(of("home-store"))).is_ok());
        // A database is no claim, whatever it is called.
        let mut database = distributed();
        database["store"]["mysql"]["database"] = "home".into();
        assert!(validate(&run_with(database)).is_ok());
    }

    #[test]
    fn what_agents_are_told_is_what_users_wrote() {
        let spec = json!({
            "source": {"persistentVolumeClaim": {"claimName": "home"}, "subPath": "photos/", "exclude": ["*.tmp"],
                "snapshot": {"existing": {"path": ".snapshots/daily"}}},
            "mode": "Sample", "samplePercent": 5, "algorithm": "sha256", "fileSystem": "archive",
            "store": {"mysql": {"host": "db", "database": "sums", "credentialsRef": {"name": "db"}, "tls": {"secretRef": {"name": "ca"}}}},
            "queue": {"redis": {"host": "cache"}},
            "workers": {"replicas": 3, "concurrency": 7, "maxThroughput": "1Mi"},
            "suspend": true, "stopAfter": "MetadataSync", "deletionGuardPercent": 11,
            "tuning": {"packSize": "2Mi", "packFiles": 3, "syncConcurrency": 4, "syncChunkRows": 500, "writeBackConcurrency": 6,
                "writeBackBatch": 70, "bypassCache": false, "spillSize": "8Gi"},
        });
        insta::assert_yaml_snapshot!(validated(spec).document());
    }

    #[test]
    fn a_snapshot_that_is_made_for_a_run_is_named_with_its_uid() {
        let source =
            json!({"persistentVolumeClaim": {"claimName": "home"}, "snapshot": {"csi": {}}});
        let run = validated(json!({"source": source}));
        assert_eq!(
            run.config.snapshot.as_deref(),
            Some("home-full-snapshot/run-uid")
        );
    }

    #[test]
    fn little_said_means_the_whole_live_volume_and_a_store_named_after_the_run() {
        let run = validated(json!({}));
        insta::assert_yaml_snapshot!(run.document());
        assert_eq!(run.place, Place::Claim("home-full-store".into()));
    }

    #[test]
    fn files_of_two_namespaces_are_apart_in_a_database_unless_somebody_names_them_alike() {
        let told = |namespace: &str, fields: &Value| {
            let mut run = run_with(fields.clone());
            run.metadata.namespace = Some(namespace.into());
            let validated = validate(&run).unwrap();
            (validated.config.file_system, validated.place)
        };
        let database =
            json!({"mysql": {"host": "db", "database": "sums", "credentialsRef": {"name": "db"}}});
        let mut fields = json!({"store": database});
        let (one, other) = (told("one", &fields), told("other", &fields));
        assert_eq!((&*one.0, &*other.0), ("one/home", "other/home"));
        assert_ne!(one.1, other.1);
        fields["store"]["mysql"]["host"] = "db.one.svc".into();
        assert_eq!(told("one", &fields).1, one.1, "the server by another name");
        fields["fileSystem"] = "archive".into();
        assert_eq!(told("one", &fields), told("other", &fields));
        assert_eq!(
            told("one", &json!({})).0,
            "home",
            "a claim has one namespace"
        );
    }

    #[test]
    fn the_runs_of_a_schedule_share_a_store() {
        let mut run = run_with(json!({}));
        run.labels_mut()
            .insert(SCHEDULE_LABEL.into(), "nightly".into());
        assert_eq!(place(&run), Place::Claim("nightly-store".into()));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let run = run_with(json!({"ttlAfterFinished": "1 fortnight"}));
        let error = validate(&run).unwrap_err().to_string();
        assert!(error.starts_with("spec.ttlAfterFinished: "), "{error}");
        let source =
            json!({"persistentVolumeClaim": {"claimName": "home"}, "exclude": ["*.tmp", "[a"]});
        let error = validate(&run_with(json!({"source": source}))).unwrap_err();
        let expected = "spec.source.exclude: bad exclude pattern \"[a\": unclosed character class; missing ']'";
        assert_eq!(error.to_string(), expected);
    }
}
