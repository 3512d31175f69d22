//! A ChecksumSchedule controller in this process against a real API server, with a clock that tests
//! set and a connection that fails when they say so.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context as TaskContext, Poll},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use crds::{checksum_run::ChecksumRun, checksum_schedule::ChecksumSchedule};
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use jiff::Timestamp;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    client::{Body, ClientBuilder},
};
use operator::{
    act::Writer,
    checksum_schedule::{
        Context,
        observe::{CachedRun, CachedSchedule, Started},
        reconcile,
    },
    controller::Next,
    leader::Leadership,
    metrics::Metrics,
    object::Key,
    received::Received,
    report::Reporter,
    watch::{self, Cached, Scope, Store, Watch, freshness::Freshness},
};
use runtime::{
    clock::{Clock, ManualClock},
    tasks::TaskGroup,
};
use serde_json::{Value, json};
use testbed::{Namespace, Shared, wait::eventually};
use tower::{BoxError, Layer, Service};

const SOON: Duration = Duration::from_secs(20);

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is not sent.
    Unsent,
    /// It is carried out, and the answer is lost.
    Unanswered,
}

/// Counts the controller's requests, and spoils one of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    sent: Arc<AtomicUsize>,
    writes: Arc<AtomicUsize>,
    /// Which request is spoiled, counted from 1; 0 for none.
    spoiled: Arc<AtomicUsize>,
    unanswered: Arc<AtomicUsize>,
}

impl Line {
    pub(crate) fn spoil(&self, request: usize, fault: Fault) {
        self.sent.store(0, Ordering::SeqCst);
        self.spoiled.store(request, Ordering::SeqCst);
        self.unanswered
            .store(usize::from(fault == Fault::Unanswered), Ordering::SeqCst);
    }

    pub(crate) fn sent(&self) -> usize {
        self.sent.load(Ordering::SeqCst)
    }

    pub(crate) fn writes(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
    }
}

impl<S> Layer<S> for Line {
    type Service = Spoiler<S>;

    fn layer(&self, inner: S) -> Spoiler<S> {
        Spoiler {
            inner,
            line: self.clone(),
        }
    }
}

#[derive(Clone)]
pub(crate) struct Spoiler<S> {
    inner: S,
    line: Line,
}

impl<S, B> Service<Request<Body>> for Spoiler<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
    B: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<B>, BoxError>>;

    fn poll_ready(&mut self, context: &mut TaskContext<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let number = self.line.sent.fetch_add(1, Ordering::SeqCst) + 1;
        if request.method() != Method::GET {
            self.line.writes.fetch_add(1, Ordering::SeqCst);
        }
        let spoiled = self.line.spoiled.load(Ordering::SeqCst) == number;
        let unanswered = self.line.unanswered.load(Ordering::SeqCst) == 1;
        if spoiled && !unanswered {
            return Box::pin(async { Err("the line was cut before the request".into()) });
        }
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            if spoiled {
                return Err("the line was cut before the answer".into());
            }
            answer
        })
    }
}

/// A controller in a namespace of its own.
pub(crate) struct World {
    _kubernetes: Shared,
    pub(crate) namespace: Namespace,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) line: Line,
    client: Client,
    context: Context,
    /// Ends the watches when dropped.
    _watches: TaskGroup,
}

impl World {
    pub(crate) async fn new(now: &str) -> Result<Self> {
        runtime::tls::install_crypto_provider();
        let kubernetes = testbed::kubernetes().await?;
        let namespace = kubernetes.namespace("schedule").await?;
        let client = kubernetes.client().await?;
        let line = Line::default();
        let spoiled = spoiled_client(&kubernetes, &line).await?;
        let clock = Arc::new(ManualClock::new(now.parse()?));
        let shared: Arc<dyn Clock> = clock.clone();
        let leadership = Leadership::unchallenged(shared.clone());
        let scope = Scope::Namespaces(vec![namespace.to_string()]);
        let context = Context {
            schedules: Store::new(&scope),
            runs: Store::new(&scope),
            started: Started::new(shared.clone()),
            writer: Writer::new(spoiled.clone(), leadership.clone()),
            reporter: Reporter::new(spoiled, leadership, shared, "test", Duration::ZERO),
            clock: clock.clone(),
        };
        let mut watches = TaskGroup::new(2);
        follow(
            &mut watches,
            &client,
            &namespace,
            &context.schedules,
            CachedSchedule::slim,
        )?;
        follow(
            &mut watches,
            &client,
            &namespace,
            &context.runs,
            CachedRun::slim,
        )?;
        Ok(Self {
            _kubernetes: kubernetes,
            namespace,
            clock,
            line,
            client,
            context,
            _watches: watches,
        })
    }

    pub(crate) fn schedules(&self) -> Api<ChecksumSchedule> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn runs(&self) -> Api<ChecksumRun> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Makes a schedule from the given spec, completed by a template.
    pub(crate) async fn schedule(&self, name: &str, mut spec: Value) -> Result<()> {
        let fields = spec.as_object_mut().context("a spec is an object")?;
        let template =
            json!({"spec": {"source": {"persistentVolumeClaim": {"claimName": "home"}}}});
        fields.entry("template").or_insert(template);
        let object = json!({"metadata": {"name": name}, "apiVersion": "orrery.dev/v1alpha1", "kind": "ChecksumSchedule", "spec": spec});
        let object = serde_json::from_value(object)?;
        self.schedules()
            .create(&PostParams::default(), &object)
            .await?;
        Ok(())
    }

    pub(crate) fn now(&self, now: &str) -> Result<()> {
        self.clock.set(now.parse()?);
        Ok(())
    }

    /// One pass, on caches that have caught up.
    pub(crate) async fn pass(&self, name: &str) -> Result<Next> {
        self.settle().await?;
        let key = Key {
            namespace: self.namespace.to_string(),
            name: name.into(),
        };
        Ok(reconcile(self.context.clone(), key).await)
    }

    /// Passes until one changes nothing, as the watch would cause them.
    pub(crate) async fn passes(&self, name: &str) -> Result<()> {
        for _ in 0..20 {
            let before = self.line.writes();
            let next = self.pass(name).await?;
            if self.line.writes() == before && !matches!(next, Next::Failed { .. }) {
                return Ok(());
            }
        }
        anyhow::bail!("after 20 passes there is still something to write")
    }

    /// Waits until the caches hold exactly what the server has.
    async fn settle(&self) -> Result<()> {
        let params = ListParams::default();
        eventually("caches that have caught up", SOON, async || {
            let listed = self.context.schedules.is_synced() && self.context.runs.is_synced();
            ensure!(listed, "the first lists are under way");
            let schedules = versions(&self.schedules().list(&params).await?.items);
            let runs = versions(&self.runs().list(&params).await?.items);
            ensure!(
                schedules == cached(&self.context.schedules),
                "schedules differ"
            );
            ensure!(runs == cached(&self.context.runs), "runs differ");
            Ok(Some(()))
        })
        .await
    }

    pub(crate) async fn get(&self, name: &str) -> Result<ChecksumSchedule> {
        Ok(self.schedules().get(name).await?)
    }

    /// Names of the runs, sorted.
    pub(crate) async fn run_names(&self) -> Result<Vec<String>> {
        let runs = self.runs().list(&ListParams::default()).await?;
        let mut names: Vec<_> = runs.iter().map(ResourceExt::name_any).collect();
        names.sort();
        Ok(names)
    }

    /// Ends a run as its controller would.
    pub(crate) async fn end(&self, run: &str, result: &str) -> Result<()> {
        let now = crds::condition::whole_seconds(self.clock.wall());
        let status = json!({"status": {
            "observedGeneration": 1,
            "completionTime": now,
            "conditions": [
                {"type": "Complete", "status": "True", "reason": result, "message": "", "lastTransitionTime": now},
                {"type": "Ready", "status": if result == "Verified" {"True"} else {"False"}, "reason": result, "message": "", "lastTransitionTime": now},
            ],
        }});
        self.runs()
            .patch_status(run, &PatchParams::default(), &Patch::Merge(&status))
            .await?;
        Ok(())
    }

    pub(crate) async fn edit(&self, schedule: &str, change: Value) -> Result<()> {
        self.schedules()
            .patch(schedule, &PatchParams::default(), &Patch::Merge(&change))
            .await?;
        Ok(())
    }

    pub(crate) async fn delete_run(&self, name: &str) -> Result<()> {
        self.runs().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }
}

async fn spoiled_client(kubernetes: &Shared, line: &Line) -> Result<Client> {
    let mut config = kubernetes.config().await?;
    config.default_retry = false;
    Ok(ClientBuilder::try_from(config)?.with_layer(line).build())
}

fn follow<K, T>(
    tasks: &mut TaskGroup,
    client: &Client,
    namespace: &str,
    store: &Store<T>,
    slim: fn(Received<K>) -> T,
) -> Result<()>
where
    K: operator::act::Kind + Send + Sync + 'static,
    T: Cached + Send + Sync + 'static,
{
    let clock: Arc<dyn Clock> = Arc::new(runtime::clock::SystemClock);
    let metrics = Metrics::default().watch(&K::kind(&()), namespace);
    let watch = Watch {
        store: store.clone(),
        part: 0,
        labels: None,
        timeout: watch::WATCH_TIMEOUT,
        freshness: Arc::new(Freshness::new("test".into(), clock, metrics)),
    };
    let api = Scope::api(client, Some(namespace));
    tasks.spawn("watch", async move {
        watch::follow(api, watch, slim, |_| {}).await;
        Ok::<_, Infallible>(())
    })?;
    Ok(())
}

fn versions<K: kube::Resource>(objects: &[K]) -> Vec<(String, u64)> {
    let version = |object: &K| object.meta().resource_version.as_deref()?.parse().ok();
    let mut versions: Vec<_> = objects
        .iter()
        .map(|o| (o.name_any(), version(o).unwrap_or_default()))
        .collect();
    versions.sort();
    versions
}

fn cached<T: Cached>(store: &Store<T>) -> Vec<(String, u64)> {
    let mut versions: Vec<_> = store
        .all()
        .iter()
        .map(|object| (object.key().name, object.version()))
        .collect();
    versions.sort();
    versions
}

/// The reason of Ready.
pub(crate) fn reason(schedule: &ChecksumSchedule) -> String {
    let conditions = schedule
        .status
        .as_ref()
        .map(|status| status.conditions.clone())
        .unwrap_or_default();
    crds::condition::find(&conditions, "Ready")
        .map_or_else(String::new, |ready| ready.reason.clone())
}

pub(crate) fn at(text: &str) -> Result<Timestamp> {
    Ok(text.parse()?)
}
