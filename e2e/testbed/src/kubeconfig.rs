//! In: an address and a credential. Out: the text of a kubeconfig.
//! Pure: touches nothing.

use std::path::PathBuf;

use anyhow::Result;
use serde_json::json;

use crate::certificates::AUTHORITY;
use crate::layout::Layout;

/// How the user of a kubeconfig shows who it is.
#[derive(Debug)]
pub(crate) enum Credential {
    /// By the certificate and key in these files.
    Certificate { certificate: PathBuf, key: PathBuf },
    /// By a bearer token.
    Token(String),
}

impl Credential {
    pub(crate) fn certificate(layout: &Layout, name: &str) -> Self {
        Self::Certificate {
            certificate: layout.certificate(name),
            key: layout.key(name),
        }
    }
}

/// A kubeconfig for `server`. Certificates are referred to by path: the file works on this machine only.
pub(crate) fn text(
    layout: &Layout,
    server: &str,
    namespace: &str,
    credential: &Credential,
) -> Result<String> {
    let user = match credential {
        Credential::Certificate { certificate, key } => {
            json!({"client-certificate": certificate, "client-key": key})
        }
        Credential::Token(token) => json!({ "token": token }),
    };
    let cluster = json!({
        "server": server,
        "certificate-authority": layout.certificate(AUTHORITY),
    });
    let context = json!({"cluster": "testbed", "user": "testbed", "namespace": namespace});
    Ok(serde_saphyr::to_string(&json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "testbed",
        "clusters": [{"name": "testbed", "cluster": cluster}],
        "users": [{"name": "testbed", "user": user}],
        "contexts": [{"name": "testbed", "context": context}],
    }))?)
}
