//! In: fields that many processes follow. Out: a hash with an epoch that grows with each change.
//! Touches: Redis.

use std::collections::BTreeMap;

use crate::{Client, Error, scripts};

/// A small configuration that is published in Redis and read from time to time.
#[derive(Clone, Debug)]
pub struct Config {
    client: Client,
    key: String,
}

/// What was published last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// How often it was published; starts with 1.
    pub epoch: u64,
    /// All fields that were ever set.
    pub fields: BTreeMap<String, String>,
}

/// The field that counts.
const EPOCH: &str = "epoch";

impl Config {
    /// The hash at `key`, which is written as it is.
    pub fn new(client: Client, key: impl Into<String>) -> Self {
        let key = key.into();
        Self { client, key }
    }

    /// Sets fields, leaves the others as they are, and tells the new epoch.
    pub async fn publish(&self, fields: &[(&str, String)]) -> Result<u64, Error> {
        if fields.is_empty() || fields.iter().any(|(field, _)| *field == EPOCH) {
            return Err(Error::invalid(
                "a configuration needs fields, none of them called epoch",
            ));
        }
        let mut call = scripts::PUBLISH.key(&self.key);
        for (field, value) in fields {
            call.arg(*field).arg(value);
        }
        self.client.run(&call).await
    }

    /// What is published, if anything is.
    pub async fn read(&self) -> Result<Option<Published>, Error> {
        let mut command = redis::cmd("HGETALL");
        let mut fields: BTreeMap<String, String> =
            self.client.query(command.arg(&self.key)).await?;
        let Some(epoch) = fields.remove(EPOCH) else {
            return Ok(None);
        };
        let epoch = epoch.parse().map_err(|_| Error::Protocol {
            reason: format!("epoch {epoch} is no number").into(),
        })?;
        Ok(Some(Published { epoch, fields }))
    }

    /// Removes it; the next one starts with epoch 1.
    pub async fn delete(&self) -> Result<(), Error> {
        let mut command = redis::cmd("DEL");
        self.client.query(command.arg(&self.key)).await
    }
}
