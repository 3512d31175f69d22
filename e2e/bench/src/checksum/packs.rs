//! In: the Redis of a run. Out: which packs wait, and who has which. Touches: reads its keys.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use redis::{AsyncCommands as _, aio::MultiplexedConnection};

const COMPUTE: &str = "ComputeChecksum";
const RESULTS: &str = "WriteBack-";
const IN_PROGRESS: &str = ":inprogress";

pub(super) struct Packs {
    redis: MultiplexedConnection,
    /// All keys begin with this.
    namespace: String,
}

impl Packs {
    pub(super) async fn open(url: &str, prefix: &str) -> Result<Self> {
        let client = redis::Client::open(url)?;
        Ok(Self {
            redis: client.get_multiplexed_async_connection().await?,
            namespace: format!("{prefix}:lsdf-checksum/workqueue:work:"),
        })
    }

    /// The pool of a process.
    pub(super) async fn pool_of(&mut self, pid: u32) -> Result<String> {
        let pools = format!("{}worker_pools", self.namespace);
        let ids: Vec<String> = self.redis.smembers(&pools).await?;
        for id in ids {
            let found: Option<u32> = self.redis.hget(format!("{pools}:{id}"), "pid").await?;
            if found == Some(pid) {
                return Ok(id);
            }
        }
        anyhow::bail!("process {pid} has no pool")
    }

    /// Packs that are being read, by pool.
    pub(super) async fn in_progress(&mut self) -> Result<BTreeMap<String, Vec<String>>> {
        let mut found = BTreeMap::new();
        let begin = format!("{}jobs:{COMPUTE}:", self.namespace);
        for key in self.keys(&format!("jobs:{COMPUTE}:*{IN_PROGRESS}")).await? {
            let pool = key.strip_prefix(&begin);
            let pool = pool.and_then(|it| it.strip_suffix(IN_PROGRESS));
            let pool = pool.context("a key that is no pool's")?.to_owned();
            found.insert(pool, self.redis.lrange(&key, 0, -1).await?);
        }
        Ok(found)
    }

    /// Packs whose results are not stored: waiting, being read, or on the way back.
    pub(super) async fn in_flight(&mut self) -> Result<u64> {
        let mut count = 0;
        for pattern in [
            format!("jobs:{COMPUTE}"),
            format!("jobs:{COMPUTE}:*{IN_PROGRESS}"),
            format!("jobs:{RESULTS}*"),
        ] {
            for key in self.keys(&pattern).await? {
                let kind: String = redis::cmd("TYPE")
                    .arg(&key)
                    .query_async(&mut self.redis)
                    .await?;
                if kind == "list" {
                    count += self.redis.llen::<_, u64>(&key).await?;
                }
            }
        }
        Ok(count)
    }

    async fn keys(&mut self, pattern: &str) -> Result<Vec<String>> {
        let pattern = format!("{}{pattern}", self.namespace);
        Ok(self.redis.keys(pattern).await?)
    }
}
