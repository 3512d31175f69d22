use std::sync::atomic::{AtomicUsize, Ordering};

use runtime::clock::{ManualClock, SystemClock};
use tokio::{sync::mpsc, time::timeout};

use super::*;
use crate::metrics::Metrics;

fn handle(clock: Arc<dyn Clock>) -> Handle {
    Handle::new(clock, Metrics::default().controller("test"))
}

fn key(name: &str) -> Key {
    Key {
        namespace: "ns".into(),
        name: name.into(),
    }
}

fn stamp(generation: i64) -> Stamp {
    let meta = kube::api::ObjectMeta {
        generation: Some(generation),
        ..kube::api::ObjectMeta::default()
    };
    Stamp::of(&meta)
}

/// A running controller that sends each key it is asked to reconcile and answers what `next` says.
async fn running(
    handle: &Handle,
    next: fn(&str) -> Next,
) -> (mpsc::Receiver<String>, CancellationToken) {
    let (sender, mut receiver) = mpsc::channel(100);
    let stop = CancellationToken::new();
    let reconcile = move |key: Key| {
        let sender = sender.clone();
        async move {
            sender.send(key.name.clone()).await.unwrap();
            if key.name == "resynced" {
                return Next::Await;
            }
            next(&key.name)
        }
    };
    let (looped, token) = (handle.clone(), stop.clone());
    let resync = handle.clone();
    let mut tasks = runtime::tasks::TaskGroup::new(1);
    tasks
        .spawn("controller", async move {
            run(looped, token, reconcile, move || {
                resync.changed(key("resynced"), None);
            })
            .await;
            Ok::<_, std::convert::Infallible>(())
        })
        .unwrap();
    // The group would end its member when dropped.
    std::mem::forget(tasks);
    // It begins by asking for everything.
    assert_eq!(receiver.recv().await.unwrap(), "resynced");
    (receiver, stop)
}

#[tokio::test(start_paused = true)]
async fn a_key_is_looked_at_again_when_it_asked_for_it() {
    let handle = handle(Arc::new(SystemClock));
    let (mut seen, _stop) = running(&handle, |_| Next::After(Duration::from_mins(1))).await;
    let began = SystemClock.monotonic();
    handle.changed(key("a"), None);
    for _ in 0..3 {
        assert_eq!(seen.recv().await.unwrap(), "a");
    }
    assert_eq!((SystemClock.monotonic() - began).as_secs(), 120);
}

#[tokio::test(start_paused = true)]
async fn a_change_does_not_shorten_the_pause_of_a_failing_object_but_a_new_generation_does() {
    let handle = handle(Arc::new(SystemClock));
    let (mut seen, _stop) = running(&handle, |_| Next::Failed {
        class: Class::Blocked,
        stamp: stamp(1),
    })
    .await;
    handle.changed(key("a"), Some(&stamp(1)));
    seen.recv().await.unwrap();
    let failed = SystemClock.monotonic();
    handle.changed(key("a"), Some(&stamp(1)));
    seen.recv().await.unwrap();
    assert!(SystemClock.monotonic() - failed >= Duration::from_millis(1600));
    let failed = SystemClock.monotonic();
    handle.changed(key("a"), Some(&stamp(2)));
    seen.recv().await.unwrap();
    assert!(SystemClock.monotonic() - failed < Duration::from_millis(10));
}

#[tokio::test(start_paused = true)]
async fn a_panic_costs_only_its_object_a_pause() {
    let handle = handle(Arc::new(SystemClock));
    let (mut seen, _stop) = running(&handle, |name| {
        assert_ne!(name, "bad", "this one panics");
        Next::Await
    })
    .await;
    handle.changed(key("bad"), None);
    handle.changed(key("good"), None);
    let mut names = vec![seen.recv().await.unwrap(), seen.recv().await.unwrap()];
    names.sort();
    assert_eq!(names, ["bad", "good"]);
    assert_eq!(seen.recv().await.unwrap(), "bad");
}

#[tokio::test(start_paused = true)]
async fn a_jump_of_the_wall_clock_is_noticed() {
    let clock = Arc::new(TickingClock(
        ManualClock::new(Timestamp::UNIX_EPOCH),
        SystemClock.monotonic(),
    ));
    let handle = handle(clock.clone());
    let (mut seen, _stop) = running(&handle, |_| Next::Await).await;
    assert!(timeout(Duration::from_secs(30), seen.recv()).await.is_err());
    clock.0.advance(jiff::SignedDuration::from_secs(30));
    let woken = timeout(Duration::from_secs(2), seen.recv()).await;
    assert_eq!(woken.unwrap().unwrap(), "resynced");
}

/// A clock whose wall side moves with the monotonic one, and can be set beside it.
#[derive(Debug)]
struct TickingClock(ManualClock, Instant);

impl Clock for TickingClock {
    fn wall(&self) -> Timestamp {
        let passed = self.monotonic() - self.1;
        self.0.wall() + jiff::SignedDuration::try_from(passed).unwrap()
    }

    fn monotonic(&self) -> Instant {
        self.0.monotonic()
    }
}

#[tokio::test(start_paused = true)]
async fn stopping_waits_for_what_is_running() {
    static DONE: AtomicUsize = AtomicUsize::new(0);
    let handle = handle(Arc::new(SystemClock));
    let stop = CancellationToken::new();
    let everything = handle.clone();
    let resync = move || {
        for n in 0..CONCURRENCY {
            everything.changed(key(&n.to_string()), None);
        }
    };
    let token = stop.clone();
    let reconcile = move |_| {
        token.cancel();
        async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            DONE.fetch_add(1, Ordering::Relaxed);
            Next::Await
        }
    };
    run(handle, stop, reconcile, resync).await;
    assert_eq!(DONE.load(Ordering::Relaxed), CONCURRENCY);
}
