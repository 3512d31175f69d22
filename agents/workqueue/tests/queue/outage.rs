//! Redis away, wiped, silent, or not for us.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testbed::proxy::Proxy;
use testbed::wait::eventually;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use workqueue::{Client, Error, NewJob, Options, Outcome, Pool, PoolOptions, Tls};

use crate::support::{
    PATIENCE, Running, SOON, Space, numbered, options, options_via, pool_options,
};

/// An error has to come within this, whatever is broken.
const FEW_SECONDS: Duration = Duration::from_secs(8);

#[tokio::test]
async fn everything_goes_on_after_all_data_are_lost() -> Result<()> {
    let server = testbed::redis::start().await?;
    let space = Space::new(options(&server), &server.url()).await?;
    let worker = space.pool(&["N"])?;
    space.enqueue("N", 1).await?;
    let held = worker.next().await?;
    let first = worker.pool.id();
    space.enqueue("N", 2).await?;

    server.server().kill().await?;
    server.server().wipe()?;
    server.server().start().await?;
    eventually("an enqueuer that goes on", SOON, async || {
        Ok(Some(space.enqueue("N", 3).await?))
    })
    .await?;
    let next = worker.next().await?;
    ensure!(next.job().integer("n") == Some(3));
    ensure!(worker.pool.id() != first, "nothing is left of the old one");
    ensure!(worker.pool.finish(&held).await? == Outcome::Fenced);
    ensure!(worker.pool.finish(&next).await? == Outcome::Done);
    eventually("a heartbeat", SOON, async || {
        let workers = space.inspector.workers("N").await?;
        Ok((workers == 4 && space.inspector.known_jobs().await? == ["N"]).then_some(()))
    })
    .await?;
    ensure!(
        space
            .ask::<String>("GET", "jobs:N:max_concurrency", &[])
            .await?
            == "0"
    );
    worker.stop().await?;
    server.shutdown().await
}

#[tokio::test]
async fn a_redis_that_is_full_takes_nothing_more_and_is_emptied_all_the_same() -> Result<()> {
    let server = testbed::redis::start().await?;
    let space = Space::new(options(&server), &server.url()).await?;
    for n in 1..=3 {
        space.enqueue("N", n).await?;
    }
    let mut command = redis::cmd("CONFIG");
    command.arg(&["SET", "maxmemory", "1"]);
    command.exec_async(&mut space.raw().await?).await?;
    let refused = space.enqueuer.enqueue("N", None).await.unwrap_err();
    ensure!(refused.to_string().contains("maxmemory"), "{refused}");
    // One that was not there before, whose heartbeats are more, too.
    let worker = space.pool(&["N"])?;
    for n in 1..=3 {
        let taken = worker.next().await?;
        ensure!(taken.job().integer("n") == Some(n));
        ensure!(worker.pool.finish(&taken).await? == Outcome::Done);
    }
    let later = worker.pool.stats().identities;
    tokio::time::sleep(PATIENCE + Duration::from_secs(1)).await; // so long nobody lives without a heartbeat
    ensure!(worker.pool.take().await?.is_none());
    ensure!(
        worker.pool.stats().identities == later,
        "it counted as dead"
    );
    worker.stop().await?;
    server.shutdown().await
}

#[tokio::test]
async fn in_a_redis_that_is_full_jobs_come_back_counts_are_put_right_and_queues_can_be_paused()
-> Result<()> {
    let server = testbed::redis::start().await?;
    let space = Space::new(options(&server), &server.url()).await?;
    let (reaper, doomed) = (space.pool(&["Other"])?, space.pool(&["N"])?);
    space.enqueue("N", 1).await?;
    let _held = doomed.next().await?;
    space.ask::<String>("SET", "jobs:N:lock", &["0"]).await?;
    let mut command = redis::cmd("CONFIG");
    command.arg(&["SET", "maxmemory", "1"]);
    command.exec_async(&mut space.raw().await?).await?;
    let lock = async || space.ask::<i64>("GET", "jobs:N:lock", &[]).await;
    eventually("a count that is true", SOON, async || {
        Ok((lock().await? == 1).then_some(()))
    })
    .await?;
    let _frozen = doomed.freeze().await;
    space.list_becomes("jobs:N", 1).await?;
    space.inspector.hold("N", "somebody").await?;
    ensure!(space.inspector.is_paused("N").await?);
    reaper.stop().await?;
    server.shutdown().await
}

#[tokio::test]
async fn nobody_dies_because_redis_was_away() -> Result<()> {
    let server = testbed::redis::start().await?;
    let space = Space::new(options(&server), &server.url()).await?;
    let proxy = Proxy::start(server.address()).await?;
    let client = Client::new(options_via(&server, proxy.address()))?;
    // Whoever needs longer than this to come back is dead, and this machine may be busy.
    let patience = Duration::from_secs(8);
    let patient = |name: &str| PoolOptions {
        patience,
        ..pool_options(&[name])
    };
    let pool = Pool::new(client, space.namespace.clone(), patient("N"))?;
    let (worker, other) = (Running::new(pool), space.pool_with(patient("M"))?);
    space.enqueue("N", 1).await?;
    let held = worker.next().await?;
    server.server().stop().await?;
    proxy.cut();
    tokio::time::sleep(patience + Duration::from_secs(1)).await;
    let called = timeout(FEW_SECONDS, worker.pool.take()).await;
    let error = called.context("an error comes soon")?.unwrap_err();
    ensure!(error.is_transient(), "{error}");
    let enqueued = timeout(FEW_SECONDS, space.enqueuer.enqueue("N", None)).await;
    ensure!(enqueued.context("an error comes soon")?.is_err());

    // One of them is back first, and sees only old heartbeats.
    let before = other.pool.stats().identities;
    server.server().start().await?;
    eventually("the first to be back", SOON, async || {
        Ok((other.pool.stats().identities > before).then_some(()))
    })
    .await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    proxy.pass();
    tokio::time::sleep(patience + Duration::from_secs(1)).await;
    let outcome = worker.pool.finish(&held).await?;
    ensure!(outcome == Outcome::Done, "it was not given away");
    ensure!(worker.pool.stats().reaped + other.pool.stats().reaped == 0);
    space.enqueue("N", 2).await?;
    let next = worker.next().await?;
    ensure!(next.job().integer("n") == Some(2));
    worker.stop().await?;
    other.stop().await?;
    server.shutdown().await
}

#[tokio::test]
async fn a_connection_that_falls_silent_is_replaced() -> Result<()> {
    let server = testbed::redis().await?;
    let proxy = Proxy::start(server.address()).await?;
    let mut options = options_via(&server, proxy.address());
    options.response_timeout = Duration::from_millis(500);
    let space = Space::new(options, &server.url()).await?;
    proxy.half_open_existing();
    let error = timeout(FEW_SECONDS, space.client.ping())
        .await?
        .unwrap_err();
    ensure!(error.is_transient(), "{error}");
    space.client.ping().await?;

    proxy.cut();
    ensure!(timeout(FEW_SECONDS, space.client.ping()).await?.is_err());
    proxy.pass();
    eventually("Redis to be back", SOON, async || {
        Ok(Some(space.client.ping().await?))
    })
    .await
}

#[tokio::test]
async fn an_answer_that_was_lost_does_not_push_twice() -> Result<()> {
    let server = testbed::redis().await?;
    let proxy = Proxy::start(server.address()).await?;
    let mut options = options_via(&server, proxy.address());
    options.response_timeout = Duration::from_millis(300);
    let space = Space::new(options, &server.url()).await?;
    let worker = space.pool(&["N"])?;
    for number in 0..10 {
        space.enqueue("N", number).await?;
        let taken = worker.next().await?;
        let answer = || NewJob {
            name: "Answer".into(),
            args: Some(numbered(number)),
        };
        if number % 2 == 0 {
            proxy.half_open_existing();
        } else {
            proxy.drop_existing();
        }
        let ended = eventually("an outcome", SOON, async || {
            Ok(Some(worker.pool.finish_with(&taken, vec![answer()]).await?))
        })
        .await?;
        proxy.pass();
        let length = space.length("jobs:Answer").await?;
        ensure!(
            length == number.unsigned_abs() + 1,
            "{length} after {ended:?}"
        );
    }
    worker.stop().await
}

#[tokio::test]
async fn a_wrong_password_is_not_an_absence() -> Result<()> {
    let server = testbed::redis().await?;
    let refused = async |options: Options| {
        let client = Client::new(options)?;
        let first = client.ping().await.unwrap_err();
        let second = client.ping().await.unwrap_err();
        ensure!(matches!(second, Error::Refused { .. }), "{second}");
        ensure!(!format!("{client:?} {first}").contains("hunter2"));
        Ok(matches!(first, Error::Refused { .. }))
    };
    let mut wrong = options(&server);
    wrong.password = Some("hunter2".into());
    ensure!(refused(wrong.clone()).await?);
    wrong.username = Some("nobody".into());
    ensure!(refused(wrong.clone()).await?);
    wrong.password = None;
    ensure!(refused(wrong).await?);
    let mut named = options(&server);
    named.username = Some("default".into());
    named.database = 3;
    Client::new(named)?.ping().await?;

    let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = nobody.local_addr()?;
    drop(nobody);
    let away = Client::new(options_via(&server, address))?;
    let error = timeout(FEW_SECONDS, away.ping()).await?.unwrap_err();
    ensure!(error.is_transient(), "{error}");
    Ok(())
}

#[tokio::test]
async fn redis_can_be_reached_by_tls() -> Result<()> {
    let server = testbed::redis().await?;
    let (authority, both) = testbed::certificates::server(vec!["localhost".into()])?;
    let (address, _tasks) = encrypting(&both, server.address()).await?;
    let mut options = options_via(&server, address);
    options.host = "localhost".into();
    options.tls = Some(Tls {
        authorities: Some(authority.into()),
        identity: None,
    });
    Client::new(options.clone())?.ping().await?;

    let (stranger, _) = testbed::certificates::server(vec!["localhost".into()])?;
    options.tls = Some(Tls {
        authorities: Some(stranger.into()),
        identity: None,
    });
    let error = Client::new(options)?.ping().await.unwrap_err();
    ensure!(
        error.is_transient() && error.to_string().contains("certificate"),
        "{error}"
    );
    Ok(())
}

/// An address that speaks TLS, in front of one that does not.
async fn encrypting(both: &str, target: SocketAddr) -> Result<(SocketAddr, JoinSet<()>)> {
    let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
    let chain = CertificateDer::pem_slice_iter(both.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(both.as_bytes())?;
    let config = ServerConfig::builder().with_no_client_auth();
    let acceptor = TlsAcceptor::from(Arc::new(config.with_single_cert(chain, key)?));
    let listener = TcpListener::bind("localhost:0").await?;
    let address = listener.local_addr()?;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            connections.spawn(async move {
                let mut client = acceptor.accept(client).await?;
                let mut server = TcpStream::connect(target).await?;
                copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
    Ok((address, tasks))
}
