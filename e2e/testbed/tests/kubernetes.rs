#![expect(
    clippy::disallowed_methods,
    reason = "measures, and talks to the server under test"
)]
//! Claims about a control plane of one's own: it works, it can be broken and mended, and it leaves nothing.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use testbed::audit::Event;
use testbed::proxy::Proxy;
use testbed::wait::eventually;
use testbed::{Kubernetes, Options, Part, process};

const SOON: Duration = Duration::from_secs(30);

/// Shorter than the 30 seconds after which the garbage collector looks for new kinds.
const COLLECTED: Duration = Duration::from_secs(15);

const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: probes.orrery.dev}
spec:
  group: orrery.dev
  names: {kind: Probe, plural: probes, singular: probe}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// One test, because a start is what takes time; each step is a claim of its own.
#[tokio::test]
async fn two_control_planes_side_by_side_work_break_and_leave_nothing() -> Result<()> {
    let began = Instant::now();
    let (one, other) = tokio::try_join!(
        Kubernetes::start(Options::default().with_crds(DEFINITION)),
        Kubernetes::start(Options::default().with_scheduler()),
    )?;
    eprintln!("two control planes started in {:?}", began.elapsed());
    let folders = [one.folder().to_owned(), other.folder().to_owned()];

    they_do_not_see_each_other(&one, &other).await?;
    the_audit_log_tells_what_kubectl_did(&one).await?;
    bodies_are_logged_for_our_own_kinds_only(&one).await?;
    what_a_custom_object_owns_goes_with_it(&one).await?;
    a_service_account_is_known_by_its_token_also_through_a_proxy(&one).await?;
    a_killed_api_server_comes_back_with_its_data_and_address(&one).await?;
    while_etcd_stands_still_nothing_is_written(&one).await?;
    parts_can_be_stopped_and_started(&other).await?;

    let began = Instant::now();
    one.shutdown().await?;
    eprintln!("shut down in {:?}", began.elapsed());
    drop_counts_as_failure_and_keeps_the_logs(other)?;
    folders
        .iter()
        .try_for_each(|folder| nothing_is_left_of(folder))
}

async fn they_do_not_see_each_other(one: &Kubernetes, other: &Kubernetes) -> Result<()> {
    let namespace = one.namespace("alone").await?;
    ensure!(namespace.starts_with("alone-"));
    let mine = one.kubectl(&["get", "namespace", &namespace]).await?;
    let theirs = other.kubectl(&["get", "namespace", &namespace]).await?;
    ensure!(mine.status.success() && !theirs.status.success());
    ensure!(theirs.stderr.contains("NotFound"), "{}", theirs.stderr);
    Ok(())
}

async fn the_audit_log_tells_what_kubectl_did(kubernetes: &Kubernetes) -> Result<()> {
    let log = kubernetes.audit().from_now()?;
    apply(kubernetes, "default", "noted", "").await?;
    eventually("the trace of a ConfigMap", SOON, async || {
        let events = log.events_from("kubectl")?;
        let traces = |event: &Event| {
            let object = event.object_ref.clone().unwrap_or_default();
            event.is_write() && event.is_about("", "configmaps") && object.name == "noted"
        };
        let trace = events.iter().find(|event| traces(event));
        let trace = trace.with_context(|| format!("{} other events", events.len()))?;
        ensure!(trace.user.username == "admin" && trace.code() == Some(201));
        ensure!(
            trace.request_object.is_none(),
            "a ConfigMap may hold anything"
        );
        Ok(Some(()))
    })
    .await
}

async fn bodies_are_logged_for_our_own_kinds_only(kubernetes: &Kubernetes) -> Result<()> {
    let probe = "{apiVersion: orrery.dev/v1, kind: Probe, metadata: {name: seen}, spec: {x: 7}}";
    kubernetes.apply_yaml(probe).await?;
    eventually("the body of a Probe", SOON, async || {
        let events = kubernetes.audit().events_from(testbed::AGENT)?;
        let mut writes = events
            .iter()
            .filter(|event| event.is_about("orrery.dev", "probes"));
        let body = writes.find_map(|event| event.request_object.as_ref());
        Ok(body.filter(|body| body["spec"]["x"] == 7).map(|_| ()))
    })
    .await
}

/// Fails if the definition is not there before the garbage collector is.
async fn what_a_custom_object_owns_goes_with_it(kubernetes: &Kubernetes) -> Result<()> {
    let began = Instant::now();
    let owner = "{apiVersion: orrery.dev/v1, kind: Probe, metadata: {name: owner}}";
    kubernetes.apply_yaml(owner).await?;
    let uid = ["get", "probe", "owner", "--output=jsonpath={.metadata.uid}"];
    let uid = kubernetes.kubectl(&uid).await?.ok()?;
    let reference = format!(
        "ownerReferences: [{{apiVersion: orrery.dev/v1, kind: Probe, name: owner, uid: {uid}}}]"
    );
    apply(kubernetes, "default", "owned", &reference).await?;
    kubernetes
        .kubectl(&["delete", "probe", "owner"])
        .await?
        .ok()?;
    eventually("the owned ConfigMap to go", COLLECTED, async || {
        let found = kubernetes.kubectl(&["get", "configmap", "owned"]).await?;
        Ok(found.stderr.contains("NotFound").then_some(()))
    })
    .await?;
    eprintln!("collected after {:?}", began.elapsed());
    Ok(())
}

async fn a_service_account_is_known_by_its_token_also_through_a_proxy(
    kubernetes: &Kubernetes,
) -> Result<()> {
    let namespace = kubernetes.namespace("tokens").await?;
    let proxy = Proxy::start(kubernetes.address()?).await?;
    let url = format!("https://{}", proxy.address());
    let account = kubernetes
        .service_account_kubeconfig(&namespace, "default", Some(&url))
        .await?;
    let admin = kubernetes.kubeconfig_via(&url)?;
    let expected = format!("system:serviceaccount:{namespace}:default");
    ensure!(who(kubernetes, &account).await? == expected);
    ensure!(who(kubernetes, &admin).await? == "admin");
    proxy.cut();
    ensure!(who(kubernetes, &admin).await.is_err());
    Ok(())
}

async fn who(kubernetes: &Kubernetes, kubeconfig: &Path) -> Result<String> {
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let output = "--output=jsonpath={.status.userInfo.username}";
    let args = [&kubeconfig, "auth", "whoami", output];
    kubernetes.kubectl(&args).await?.ok()
}

async fn a_killed_api_server_comes_back_with_its_data_and_address(
    kubernetes: &Kubernetes,
) -> Result<()> {
    let url = kubernetes.url().to_owned();
    apply(kubernetes, "default", "kept", "").await?;
    let api_server = kubernetes.part(Part::ApiServer);
    let first = api_server.process()?.pid();
    api_server.kill().await?;
    ensure!(
        !kubernetes
            .kubectl(&["get", "namespaces"])
            .await?
            .status
            .success()
    );
    let began = Instant::now();
    api_server.start()?;
    kubernetes.ready(SOON).await?;
    eprintln!("API server ready again after {:?}", began.elapsed());
    ensure!(api_server.process()?.pid() != first && kubernetes.url() == url);
    let maps: Api<ConfigMap> = Api::default_namespaced(kubernetes.client().await?);
    maps.get("kept").await?;
    Ok(())
}

async fn while_etcd_stands_still_nothing_is_written(kubernetes: &Kubernetes) -> Result<()> {
    kubernetes.part(Part::Etcd).pause().await?;
    let create = ["create", "configmap", "late", "--request-timeout=1s"];
    let refused = kubernetes.kubectl(&create).await?;
    ensure!(!refused.status.success(), "{}", refused.stdout);
    kubernetes.part(Part::Etcd).resume()?;
    kubernetes.ready(SOON).await?;
    apply(kubernetes, "default", "after", "").await
}

async fn parts_can_be_stopped_and_started(kubernetes: &Kubernetes) -> Result<()> {
    let scheduler = kubernetes.part(Part::Scheduler);
    ensure!(scheduler.process()?.is_running());
    ensure!(scheduler.start().is_err(), "one of each");
    scheduler.stop().await?;
    ensure!(!scheduler.process()?.is_running());
    scheduler.start()?;
    ensure!(scheduler.process()?.is_running());
    Ok(())
}

fn drop_counts_as_failure_and_keeps_the_logs(kubernetes: Kubernetes) -> Result<()> {
    let kept = kubernetes.keep_logs()?;
    std::fs::remove_dir_all(&kept)?;
    drop(kubernetes);
    for file in ["audit.log", "etcd.log", "kube-scheduler.log"] {
        ensure!(
            kept.join(file).is_file(),
            "{file} is not in {}",
            kept.display()
        );
    }
    Ok(std::fs::remove_dir_all(&kept)?)
}

fn nothing_is_left_of(folder: &Path) -> Result<()> {
    let processes = process::mentioning(&folder.to_string_lossy())?;
    ensure!(processes.is_empty(), "still running: {processes:?}");
    ensure!(!folder.exists(), "{} is still there", folder.display());
    Ok(())
}

async fn apply(kubernetes: &Kubernetes, namespace: &str, name: &str, more: &str) -> Result<()> {
    let map = format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, {more}}}}}");
    let args = ["apply", "--filename=-", "--namespace", namespace];
    kubernetes.kubectl_stdin(&args, &map).await?.ok()?;
    Ok(())
}
