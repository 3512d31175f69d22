//! In: a pattern or a sorted set. Out: keys or members, a bounded number at a time.
//! Touches: reads Redis, in steps so small that others do not notice.

use crate::{Client, Error};

/// How many keys Redis looks at in one step.
const STEP: u32 = 1000;

/// A walk through all keys that match. It goes on where it stopped.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    cursor: u64,
}

impl Walk {
    /// The keys of the next `steps` steps, and whether the walk is through. Keys that were there all the time are
    /// found, some of them twice.
    pub(crate) async fn go(
        &mut self,
        client: &Client,
        pattern: &str,
        steps: usize,
    ) -> Result<(Vec<String>, bool), Error> {
        let mut found = Vec::new();
        for _ in 0..steps {
            let mut command = redis::cmd("SCAN");
            command.arg(self.cursor).arg("MATCH").arg(pattern);
            command.arg("COUNT").arg(STEP);
            let (cursor, keys): (u64, Vec<Vec<u8>>) = client.query(&command).await?;
            // A key that is no text is none of ours.
            found.extend(
                keys.into_iter()
                    .filter_map(|key| String::from_utf8(key).ok()),
            );
            self.cursor = cursor;
            if cursor == 0 {
                return Ok((found, true));
            }
        }
        Ok((found, false))
    }
}

/// The members of a set, sorted; those that are no text are none of ours.
pub(crate) async fn members(client: &Client, key: &str) -> Result<Vec<String>, Error> {
    let members: Vec<Vec<u8>> = client.query(redis::cmd("SMEMBERS").arg(key)).await?;
    let text = members.into_iter().map(String::from_utf8);
    let mut members: Vec<String> = text.filter_map(Result::ok).collect();
    members.sort_unstable();
    Ok(members)
}
