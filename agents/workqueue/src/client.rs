//! In: commands and scripts. Out: their answers, or soon an error of a class that says what to do.
//! Touches: one connection to Redis, made anew when it has failed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, FromRedisValue, Pipeline, RedisError, RedisResult,
    ScriptInvocation, ServerErrorKind,
};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::clock::monotonic;
use crate::{Error, Options};

/// After a failed attempt to connect nobody tries again for this long, then for twice as long, …
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// … up to this long.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A connection to Redis that all clones share.
///
/// It is made by the first call and again after it has failed. While Redis is away each call fails soon: at once
/// in the pause after a failed attempt, else within the time-outs of [`Options`]. No call is repeated here, since
/// nobody knows whether it had its effect: that is the caller's choice.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    driver: redis::Client,
    options: Options,
    slot: Mutex<Slot>,
}

#[derive(Default)]
struct Slot {
    connection: Option<MultiplexedConnection>,
    /// How many connections there were: whoever saw an old one fail must not close a new one.
    generation: u64,
    failed: Option<Failed>,
}

struct Failed {
    error: Error,
    pause: Duration,
    until: Instant,
}

impl Client {
    /// Connects later. Fails only if the certificates in `options` are none.
    pub fn new(options: Options) -> Result<Self, Error> {
        if options.tls.is_some() {
            // The driver asks for the provider of the process, and panics without one. Whoever has set it may.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let inner = Inner {
            driver: options.driver()?,
            options,
            slot: Mutex::default(),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Whether Redis answers, and lets us in.
    pub async fn ping(&self) -> Result<(), Error> {
        let answer: String = self.query(&redis::cmd("PING")).await?;
        debug_assert_eq!(answer, "PONG");
        Ok(())
    }

    /// The time of day by the clock of Redis, in seconds since 1970.
    pub async fn now(&self) -> Result<i64, Error> {
        let (seconds, _micros): (i64, i64) = self.query(&redis::cmd("TIME")).await?;
        Ok(seconds)
    }

    pub(crate) async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Error> {
        let (mut connection, generation) = self.connection().await?;
        let answer = self.bounded(command.query_async(&mut connection)).await;
        self.settled(generation, answer).await
    }

    pub(crate) async fn pipeline<T: FromRedisValue>(
        &self,
        commands: &Pipeline,
    ) -> Result<T, Error> {
        let (mut connection, generation) = self.connection().await?;
        let answer = self.bounded(commands.query_async(&mut connection)).await;
        self.settled(generation, answer).await
    }

    pub(crate) async fn run<T: FromRedisValue>(
        &self,
        script: &ScriptInvocation<'_>,
    ) -> Result<T, Error> {
        let (mut connection, generation) = self.connection().await?;
        let answer = self.bounded(script.invoke_async(&mut connection)).await;
        self.settled(generation, answer).await
    }

    /// A script may need three exchanges; the time-out is for all of them.
    async fn bounded<T>(&self, call: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
        let answer = timeout(self.inner.options.response_timeout, call).await;
        answer.unwrap_or_else(|_| Err(late("no answer in time")))
    }

    /// A connection that does not answer is as good as none: it may be half open for a quarter of an hour.
    async fn settled<T>(&self, generation: u64, answer: RedisResult<T>) -> Result<T, Error> {
        if answer.as_ref().is_err_and(is_beyond_use) {
            let mut slot = self.inner.slot.lock().await;
            if slot.generation == generation {
                slot.connection = None;
            }
        }
        Ok(answer?)
    }

    async fn connection(&self) -> Result<(MultiplexedConnection, u64), Error> {
        let mut slot = self.inner.slot.lock().await;
        if let Some(connection) = &slot.connection {
            return Ok((connection.clone(), slot.generation));
        }
        if let Some(failed) = &slot.failed
            && monotonic() < failed.until
        {
            return Err(failed.error.clone());
        }
        match self.inner.connect().await {
            Ok(connection) => {
                slot.generation += 1;
                slot.failed = None;
                slot.connection = Some(connection.clone());
                Ok((connection, slot.generation))
            }
            Err(error) => {
                let last = slot.failed.as_ref().map(|failed| failed.pause);
                let pause = next_pause(last);
                slot.failed = Some(Failed {
                    error: error.clone(),
                    pause,
                    until: monotonic() + pause,
                });
                Err(error)
            }
        }
    }
}

impl Inner {
    async fn connect(&self) -> Result<MultiplexedConnection, Error> {
        let connected = timeout(self.options.connect_timeout, self.greet()).await;
        Ok(connected.unwrap_or_else(|_| Err(late("no connection in time")))?)
    }

    async fn greet(&self) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.options.connect_timeout))
            .set_response_timeout(Some(self.options.response_timeout));
        let driver = &self.driver;
        let mut connection = driver
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        if let Some(password) = &self.options.password {
            let mut auth = redis::cmd("AUTH");
            if let Some(username) = &self.options.username {
                auth.arg(username);
            }
            auth.arg(password).exec_async(&mut connection).await?;
        }
        if self.options.database != 0 {
            let mut select = redis::cmd("SELECT");
            select.arg(self.options.database);
            select.exec_async(&mut connection).await?;
        }
        Ok(connection)
    }
}

fn late(what: &'static str) -> RedisError {
    std::io::Error::new(std::io::ErrorKind::TimedOut, what).into()
}

/// A server that was made a replica keeps its connections, so it is looked for again.
fn is_beyond_use(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Io | ErrorKind::Parse | ErrorKind::Server(ServerErrorKind::ReadOnly)
    )
}

fn next_pause(last: Option<Duration>) -> Duration {
    last.map_or(FIRST_PAUSE, |last| (last * 2).min(LONGEST_PAUSE))
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("options", &self.inner.options)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_bound() {
        let mut pause = next_pause(None);
        assert_eq!(pause, FIRST_PAUSE);
        for _ in 0..10 {
            pause = next_pause(Some(pause));
        }
        assert_eq!(pause, LONGEST_PAUSE);
    }
}
