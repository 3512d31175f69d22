//! In: a state folder and ports. Out: the command line of each part.
//! Pure: touches nothing.

use std::path::Path;

use super::Seat;
use crate::certificates::{
    API_SERVER_CLIENT, AUTHORITY, CONTROLLER_MANAGER, SCHEDULER, SERVER, SERVICE_ACCOUNTS,
};
use crate::layout::Layout;

/// What tests rely on: owner references, namespaces, service accounts, workloads and their quotas.
///
/// Left out is what needs a cloud or a network, and what signs certificates.
const CONTROLLERS: &[&str] = &[
    "clusterrole-aggregation-controller",
    "cronjob-controller",
    "daemonset-controller",
    "deployment-controller",
    "disruption-controller",
    "endpointslice-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "statefulset-controller",
    "taint-eviction-controller",
    "ttl-after-finished-controller",
    "validatingadmissionpolicy-status-controller",
];

/// A single member; its peer port is never used, so any will do. The data need not survive the machine.
pub(super) fn etcd(layout: &Layout, seat: &Seat) -> Vec<String> {
    vec![
        flag("data-dir", layout.etcd_data()),
        flag("listen-client-urls", seat.etcd_url()),
        flag("advertise-client-urls", seat.etcd_url()),
        flag("listen-peer-urls", "http://127.0.0.1:0"),
        flag("log-level", "warn"),
        "--unsafe-no-fsync".into(),
    ]
}

pub(super) fn api_server(layout: &Layout, seat: &Seat) -> Vec<String> {
    let mut flags = vec![
        flag("etcd-servers", seat.etcd_url()),
        flag("bind-address", seat.address().to_string()),
        flag("advertise-address", seat.address().to_string()),
        flag("secure-port", seat.port().to_string()),
        flag("service-cluster-ip-range", "10.96.0.0/16"),
        flag("tls-cert-file", layout.certificate(SERVER)),
        flag("tls-private-key-file", layout.key(SERVER)),
        flag("client-ca-file", layout.certificate(AUTHORITY)),
        flag("anonymous-auth", "false"),
        flag("authorization-mode", "Node,RBAC"),
        flag("service-account-issuer", "https://kubernetes.default.svc"),
        flag(
            "service-account-key-file",
            layout.public_key(SERVICE_ACCOUNTS),
        ),
        flag(
            "service-account-signing-key-file",
            layout.key(SERVICE_ACCOUNTS),
        ),
        flag("audit-policy-file", layout.audit_policy()),
        flag("audit-log-path", layout.audit_log()),
        // Not buffered, and never moved away while tests read it.
        flag("audit-log-mode", "blocking"),
        flag("audit-log-maxsize", "10000"),
    ];
    match seat {
        // The default would publish 127.0.0.1 as the endpoint of the `kubernetes` service, which is refused.
        Seat::Loopback { .. } => flags.push(flag("endpoint-reconciler-type", "none")),
        Seat::Host { .. } => flags.extend(kubelets(layout)),
    }
    flags
}

/// What an API server needs that has nodes.
fn kubelets(layout: &Layout) -> [String; 6] {
    [
        flag("enable-admission-plugins", "NodeRestriction"),
        flag("allow-privileged", "true"),
        flag(
            "kubelet-certificate-authority",
            layout.certificate(AUTHORITY),
        ),
        flag(
            "kubelet-client-certificate",
            layout.certificate(API_SERVER_CLIENT),
        ),
        flag("kubelet-client-key", layout.key(API_SERVER_CLIENT)),
        flag("kubelet-preferred-address-types", "InternalIP"),
    ]
}

pub(super) fn controller_manager(layout: &Layout, seat: &Seat) -> Vec<String> {
    let mut flags = client(layout, CONTROLLER_MANAGER);
    match seat {
        Seat::Loopback { .. } => flags.push(flag("controllers", CONTROLLERS.join(","))),
        // All of them; and a node that is silent is given up sooner than after 50 seconds.
        Seat::Host { .. } => flags.push(flag("node-monitor-grace-period", "16s")),
    }
    flags.extend([
        flag("root-ca-file", layout.certificate(AUTHORITY)),
        // Controllers hold themselves back by default, which costs two seconds of every start.
        flag("kube-api-qps", "1000"),
        flag("kube-api-burst", "1000"),
        "--use-service-account-credentials".into(),
    ]);
    flags
}

pub(super) fn scheduler(layout: &Layout) -> Vec<String> {
    client(layout, SCHEDULER)
}

/// The one instance of a part that serves nobody: it needs no lease and no port.
fn client(layout: &Layout, user: &str) -> Vec<String> {
    vec![
        flag("kubeconfig", layout.kubeconfig(user)),
        flag("leader-elect", "false"),
        flag("secure-port", "0"),
    ]
}

fn flag(name: &str, value: impl AsRef<Path>) -> String {
    format!("--{name}={}", value.as_ref().display())
}
