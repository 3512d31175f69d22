//! The queue of a run, in the names of lsdf-checksum. In: where Redis is. Out: what carries packs and results.
//! Touches: Redis.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use crds::report::checksum::{Server, credential};
use runtime::telemetry::chain;
use tokio::sync::SetOnce;
use tokio::time::sleep;
use tracing::warn;
use workqueue::{
    Args, Client, Config, Enqueuer, Inspector, Job, Namespace, NewJob, Options, Tls, Value,
};

use crate::config::secret;
use crate::engine::Shared;
use crate::wire::{BackPack, WorkPack};

/// Jobs that are packs of files.
pub const COMPUTE: &str = "ComputeChecksum";

/// The field that a job carries its payload in.
const PAYLOAD: &str = "pl";

/// The field of the published limit: bytes per second of each process that reads; 0 is no limit.
pub const LIMIT: &str = "max_node_throughput";

/// The queue of one run. Packs of several runs may share it; results do not.
#[derive(Clone)]
pub struct Queue {
    /// The connection.
    pub client: Client,
    /// What all names begin with.
    pub namespace: Namespace,
    /// The name of the file system.
    pub file_system: String,
    /// The name of the snapshot, or of the run.
    pub snapshot: String,
    dynamic: String,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("namespace", &self.namespace.prefix())
            .field("results", &self.results())
            .finish_non_exhaustive()
    }
}

/// How it stands between us and the queue.
#[derive(Debug, Default)]
pub(crate) struct Contact {
    refused: SetOnce<workqueue::Error>,
}

impl Contact {
    /// Takes note of what is wrong, and waits a moment.
    pub(crate) async fn lost(&self, shared: &Shared, error: &workqueue::Error) {
        const PAUSE: Duration = Duration::from_secs(1);
        let words = chain(error);
        let is_news = shared.queue_trouble().replace(words.clone()).is_none();
        if is_news {
            warn!(error = words, "the queue cannot be used for now");
        }
        if matches!(error, workqueue::Error::Refused { .. }) {
            let _ = self.refused.set(error.clone()); // the first is as good as any
        }
        sleep(PAUSE).await;
    }

    /// Waits until we are refused: only other credentials help then.
    pub(crate) async fn refused(&self) -> workqueue::Error {
        self.refused.wait().await.clone()
    }
}

impl Queue {
    /// The queue below a prefix.
    pub fn new(client: Client, prefix: &str, file_system: &str, snapshot: &str) -> Self {
        let base = if prefix.is_empty() {
            "lsdf-checksum/workqueue".to_owned()
        } else {
            format!("{prefix}:lsdf-checksum/workqueue")
        };
        Self {
            client,
            namespace: Namespace::new(format!("{base}:work")),
            file_system: file_system.into(),
            snapshot: snapshot.into(),
            dynamic: format!("{base}:dconfig:{file_system}-{snapshot}:data"),
        }
    }

    /// Jobs that are results of this run.
    pub fn results(&self) -> String {
        format!("WriteBack-{}-{}", self.file_system, self.snapshot)
    }

    /// What is published to all workers.
    pub fn published(&self) -> Config {
        Config::new(self.client.clone(), self.dynamic.clone())
    }

    /// Looks at queues.
    pub fn inspector(&self) -> Inspector {
        Inspector::new(self.client.clone(), self.namespace.clone())
    }

    /// Fills queues.
    pub fn enqueuer(&self) -> Enqueuer {
        Enqueuer::new(self.client.clone(), self.namespace.clone())
    }
}

/// A pack as a job.
pub fn pack_job(pack: &WorkPack) -> NewJob {
    job(COMPUTE, pack.encode())
}

/// How many bytes a job of ours has, about.
pub fn size(job: &NewJob) -> usize {
    let payload = job.args.as_ref().and_then(|args| args.get(PAYLOAD));
    payload.and_then(Value::as_str).map_or(0, str::len)
}

/// Results as a job.
pub fn result_job(name: &str, results: &BackPack) -> NewJob {
    job(name, results.encode())
}

fn job(name: &str, payload: String) -> NewJob {
    NewJob {
        name: name.into(),
        args: Some(Args::from([(PAYLOAD.to_owned(), Value::String(payload))])),
    }
}

/// What a job carries.
pub fn payload(job: &Job) -> Result<&str, &'static str> {
    job.text(PAYLOAD).ok_or("it carries no payload `pl`")
}

/// How to reach Redis with mounted credentials.
pub fn options(server: &Server, folder: &Path) -> io::Result<Options> {
    let optional = |name: &str| match secret(folder, name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(|it| Some(it).filter(|it| !it.is_empty())),
    };
    let file = |name: &str| fs::read(folder.join(name)).ok();
    let identity = file(credential::QUEUE_CERTIFICATE).zip(file(credential::QUEUE_KEY));
    Ok(Options {
        username: optional(credential::QUEUE_USERNAME)?,
        password: optional(credential::QUEUE_PASSWORD)?,
        tls: server.tls.then(|| Tls {
            authorities: file(credential::QUEUE_CA),
            identity,
        }),
        ..Options::new(server.host.clone(), server.port)
    })
}
