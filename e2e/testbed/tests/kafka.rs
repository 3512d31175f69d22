//! Claims about Kafka that a queue on top of it relies on, shown on a real broker.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::util::Timeout;
use rdkafka::{ClientConfig, Message};
use testbed::kafka;
use testbed::wait::eventually;
use tokio::sync::Mutex;
use tokio::task::{JoinSet, spawn_blocking};

const SOON: Duration = Duration::from_mins(1);
const PARTITIONS: usize = 16;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_while_consumers_come_and_go() -> Result<()> {
    let kafka = testbed::kafka().await?;
    let topic = format!("rebalance-{}", std::process::id());
    create(kafka.bootstrap(), &topic).await?;
    let seen = Seen::default();
    let first = Member::join(kafka.bootstrap(), &topic, &seen)?;
    first.has(PARTITIONS).await?;
    produce(kafka.bootstrap(), &topic, 0..400).await?;

    let second = Member::join(kafka.bootstrap(), &topic, &seen)?;
    produce(kafka.bootstrap(), &topic, 400..800).await?;
    tokio::try_join!(first.has(PARTITIONS / 2), second.has(PARTITIONS / 2))?;

    first.leave().await?;
    produce(kafka.bootstrap(), &topic, 800..1200).await?;
    second.has(PARTITIONS).await?;
    seen.all_of(1200).await?;
    second.leave().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_survives_a_kill_and_not_a_wipe() -> Result<()> {
    let kafka = kafka::start().await?;
    create(kafka.bootstrap(), "kept").await?;
    produce(kafka.bootstrap(), "kept", 0..200).await?;
    kafka.server().kill().await?;
    kafka.server().start().await?;
    let seen = Seen::default();
    let reader = Member::join(kafka.bootstrap(), "kept", &seen)?;
    seen.all_of(200).await?;
    reader.leave().await?;

    kafka.server().stop().await?;
    kafka.server().wipe()?;
    kafka.server().start().await?;
    ensure!(topics(kafka.bootstrap()).await?.is_empty());
    kafka.shutdown().await
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_can_be_sent_through_faulty_connections() -> Result<()> {
    let (kafka, proxy) = kafka::start_behind_proxy().await?;
    ensure!(kafka.bootstrap() == proxy.address());
    create(kafka.bootstrap(), "t").await?;
    produce(kafka.bootstrap(), "t", 0..1).await?;
    proxy.half_open();
    ensure!(
        produce(kafka.bootstrap(), "t", 1..2).await.is_err(),
        "silence"
    );
    proxy.pass();
    produce(kafka.bootstrap(), "t", 2..3).await?;
    kafka.shutdown().await
}

fn client(bootstrap: SocketAddr) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap.to_string());
    config
}

async fn create(bootstrap: SocketAddr, topic: &str) -> Result<()> {
    let admin: AdminClient<DefaultClientContext> = client(bootstrap).create()?;
    let partitions = i32::try_from(PARTITIONS)?;
    let topic = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    let options = AdminOptions::new().request_timeout(Some(SOON));
    let created = admin.create_topics([&topic], &options).await?;
    created.into_iter().try_for_each(|it| {
        it.map(drop)
            .map_err(|(name, error)| anyhow!("{name}: {error}"))
    })
}

async fn topics(bootstrap: SocketAddr) -> Result<Vec<String>> {
    let admin: AdminClient<DefaultClientContext> = client(bootstrap).create()?;
    let metadata = spawn_blocking(move || admin.inner().fetch_metadata(None, SOON)).await??;
    Ok(metadata
        .topics()
        .iter()
        .map(|topic| topic.name().to_owned())
        .collect())
}

/// Sends numbers, a key each, and waits until all are acknowledged.
async fn produce(bootstrap: SocketAddr, topic: &str, numbers: std::ops::Range<u32>) -> Result<()> {
    let producer: FutureProducer = client(bootstrap)
        .set("enable.idempotence", "true")
        .set("message.timeout.ms", "10000")
        .create()?;
    let sent = numbers.map(async |number| {
        let number = number.to_string();
        let record = FutureRecord::to(topic).key(&number).payload(&number);
        let sent = producer.send(record, Timeout::After(SOON)).await;
        sent.map(drop).map_err(|(error, _)| error)
    });
    futures::future::try_join_all(sent).await?;
    Ok(())
}

/// The numbers that members of a group have read.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeSet<u32>>>);

impl Seen {
    async fn all_of(&self, count: usize) -> Result<()> {
        eventually("every message", SOON, async || {
            let seen = self.0.lock().await.len();
            ensure!(seen == count, "{seen} of {count}");
            Ok(Some(()))
        })
        .await
    }
}

/// A member of the group that is named after its topic.
struct Member {
    consumer: Arc<StreamConsumer>,
    reading: JoinSet<Result<()>>,
}

impl Member {
    fn join(bootstrap: SocketAddr, topic: &str, seen: &Seen) -> Result<Self> {
        let consumer: StreamConsumer = client(bootstrap)
            .set("group.id", topic)
            .set("group.protocol", "consumer")
            .set("auto.offset.reset", "earliest")
            .create()?;
        consumer.subscribe(&[topic])?;
        let consumer = Arc::new(consumer);
        let mut reading = JoinSet::new();
        reading.spawn(read(Arc::clone(&consumer), seen.clone()));
        Ok(Self { consumer, reading })
    }

    async fn has(&self, partitions: usize) -> Result<()> {
        eventually("its share of partitions", SOON, async || {
            let count = self.consumer.assignment()?.count();
            ensure!(count == partitions, "{count} of {partitions}");
            Ok(Some(()))
        })
        .await
    }

    /// The last owner leaves the group, which blocks.
    async fn leave(mut self) -> Result<()> {
        self.reading.shutdown().await;
        Ok(spawn_blocking(move || drop(self.consumer)).await?)
    }
}

async fn read(consumer: Arc<StreamConsumer>, seen: Seen) -> Result<()> {
    loop {
        let message = consumer.recv().await?;
        let number = message.payload_view::<str>().context("a payload")??;
        let number = number.parse()?;
        seen.0.lock().await.insert(number);
    }
}
