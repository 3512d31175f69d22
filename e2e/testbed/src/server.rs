//! In: the recipe of a server that is one process. Out: that server, to be used, broken, mended and wiped.
//! Touches: its process, its folder and its port.

use std::fs;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::component::Component;
use crate::ground::{self, Ground};
use crate::layout::Layout;
use crate::process::Launch;
use crate::wait::eventually;

/// Seconds are usual; tests may share two cores with many others.
pub(crate) const START_DEADLINE: Duration = Duration::from_mins(2);

/// Time for one answer of a server.
const ANSWER_DEADLINE: Duration = Duration::from_secs(5);

/// More than any first answer that is looked at.
const ANSWER_BYTES: usize = 1024;

/// How often, and after what pause, a server is started again whose children hold its memory.
const HELD_ATTEMPTS: usize = 40;
const HELD: Duration = Duration::from_millis(250);

/// Ports are chosen before they are used, so somebody else may be faster; not many times in a row.
const ATTEMPTS: usize = 5;

/// What to run, and how to tell that it works.
#[derive(Debug)]
pub(crate) struct Recipe {
    pub(crate) launch: Launch,
    /// Everything the server remembers; `setup` makes it.
    pub(crate) data: PathBuf,
    /// Run one after the other whenever there is no data.
    pub(crate) setup: Vec<Launch>,
    pub(crate) knock: Knock,
}

/// A first exchange of bytes that only a working server can take part in.
#[derive(Debug)]
pub(crate) struct Knock {
    pub(crate) address: SocketAddr,
    pub(crate) say: Vec<u8>,
    pub(crate) is_answer: fn(&[u8]) -> bool,
}

/// A server of the test's own: what is needed to use it, and [`server`](Self::server) to break it.
#[derive(Debug)]
pub struct Owned<A> {
    server: Server,
    access: A,
}

impl<A> Owned<A> {
    /// The process behind it.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Ends it and removes its folder. A drop without this is taken for a failure, and the logs are kept.
    pub async fn shutdown(mut self) -> Result<()> {
        self.server.ground.ends_well();
        // Nobody will ask for the data again: no need to be polite.
        self.server.kill().await
    }

    /// Copies the logs to where they stay; an earlier copy of that name is replaced.
    pub fn keep_logs(&self) -> Result<PathBuf> {
        self.server.ground.keep_logs()
    }

    pub(crate) fn ends_by_drop(mut self) -> Self {
        self.server.ground.ends_well();
        self
    }
}

impl<A> Deref for Owned<A> {
    type Target = A;

    fn deref(&self) -> &A {
        &self.access
    }
}

/// One real server, with a port and data of its own.
#[derive(Debug)]
pub struct Server {
    component: Component,
    recipe: Recipe,
    ground: Ground,
}

impl Server {
    /// Starts it with the data it has, if any, and waits until it works.
    pub async fn start(&self) -> Result<()> {
        if !self.recipe.data.exists() {
            self.set_up().await?;
        }
        for _ in 0..HELD_ATTEMPTS {
            match self.try_start().await {
                // What a killed server has started itself ends a moment after it, and holds its memory until then.
                Err(error) if format!("{error:#}").contains("is still in use") => {
                    tokio::time::sleep(HELD).await;
                }
                started => return started,
            }
        }
        self.try_start().await
    }

    async fn try_start(&self) -> Result<()> {
        self.component.start()?;
        tokio::select! {
            ready = self.answers(START_DEADLINE) => ready,
            error = self.component.ended() => Err(error),
        }
    }

    /// Waits until it answers as only a working one does.
    pub async fn answers(&self, deadline: Duration) -> Result<()> {
        let what = format!("{} to answer", self.component.name());
        let waited = eventually(&what, deadline, async || self.recipe.knock.once().await).await;
        waited.with_context(|| format!("its last words:\n{}", self.component.last_words()))
    }

    /// Kills it (SIGKILL) and waits until it is gone; the data stay.
    pub async fn kill(&self) -> Result<()> {
        self.component.kill().await
    }

    /// Asks it to end (SIGTERM) and waits; the data stay.
    pub async fn stop(&self) -> Result<()> {
        self.component.stop().await
    }

    /// Makes it stand still (SIGSTOP).
    pub async fn pause(&self) -> Result<()> {
        self.component.pause().await
    }

    /// Lets it go on (SIGCONT).
    pub fn resume(&self) -> Result<()> {
        self.component.resume()
    }

    /// Throws its data away; it must not be running.
    pub fn wipe(&self) -> Result<()> {
        let (name, data) = (self.component.name(), &self.recipe.data);
        ensure!(!self.component.is_running(), "{name} uses its data");
        fs::remove_dir_all(data).with_context(|| format!("failed to remove {}", data.display()))
    }

    /// Its process, for its pid and its log.
    pub fn component(&self) -> &Component {
        &self.component
    }

    async fn set_up(&self) -> Result<()> {
        for launch in &self.recipe.setup {
            let process = launch.spawn()?;
            let status = process.wait_exit(START_DEADLINE).await?;
            ensure!(
                status.success(),
                "{} failed, {status}:\n{}",
                launch.name(),
                process.log()?
            );
        }
        Ok(())
    }
}

/// Starts a server by a recipe for the folder that it is given; again elsewhere if its port was taken meanwhile.
pub(crate) async fn start<A>(
    name: &str,
    prepare: impl Fn(&Layout) -> Result<(Recipe, A)>,
) -> Result<Owned<A>> {
    for _ in 0..ATTEMPTS {
        let ground = Ground::create(format!("{}-{name}", ground::test_name()))?;
        let layout = ground.layout();
        let (recipe, access) = prepare(&layout)?;
        let server = Server {
            component: Component::new(recipe.launch.clone()),
            recipe,
            ground,
        };
        let owned = Owned { server, access };
        match owned.server.start().await {
            Err(_) if owned.server.component.found_its_port_taken() => drop(owned.ends_by_drop()),
            Err(error) => return Err(error.context(format!("failed to start {name}"))),
            Ok(()) => return Ok(owned),
        }
    }
    bail!("failed to start {name}: each of {ATTEMPTS} times a port was taken meanwhile")
}

impl Knock {
    async fn once(&self) -> Result<Option<()>> {
        timeout(ANSWER_DEADLINE, self.exchange())
            .await
            .context("no answer")?
    }

    async fn exchange(&self) -> Result<Option<()>> {
        let mut stream = TcpStream::connect(self.address).await?;
        stream.write_all(&self.say).await?;
        let mut heard = Vec::new();
        while heard.len() < ANSWER_BYTES {
            if (self.is_answer)(&heard) {
                return Ok(Some(()));
            }
            if stream.read_buf(&mut heard).await? == 0 {
                break;
            }
        }
        bail!("it said {:?}", String::from_utf8_lossy(&heard))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::TcpListener;
    use std::path::Path;

    use super::*;
    use crate::{ports, redis, tools};

    #[tokio::test]
    async fn a_port_that_was_taken_meanwhile_is_given_up() {
        let program = tools::installed("redis-server", "redis-server").unwrap();
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let attempts = Cell::new(0);
        let started = start("redis", |layout| {
            attempts.set(attempts.get() + 1);
            let port = match attempts.get() {
                1 => taken.local_addr()?.port(),
                _ => ports::free::<1>()?[0],
            };
            Ok(redis::recipe(&program, layout, port))
        });
        started.await.unwrap().shutdown().await.unwrap();
        assert_eq!(attempts.get(), 2);
    }

    #[tokio::test]
    async fn a_server_that_ends_is_quoted() {
        let started = start("redis", |layout| {
            let (mut recipe, access) = redis::recipe(Path::new("sh"), layout, 1);
            let script = "echo cannot read the moon; exit 3";
            recipe.launch = Launch::new("redis", "sh", layout.log("redis")).args(["-c", script]);
            Ok((recipe, access))
        });
        let error = format!("{:#}", started.await.unwrap_err());
        assert!(error.contains("exit status: 3"), "{error}");
        assert!(error.contains("cannot read the moon"), "{error}");
    }

    #[tokio::test]
    async fn data_in_use_are_not_wiped() {
        let redis = redis::start().await.unwrap();
        let error = redis.server().wipe().unwrap_err().to_string();
        assert_eq!(error, "redis uses its data");
        redis.shutdown().await.unwrap();
    }
}
