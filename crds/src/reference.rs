//! References to other objects of the same namespace.
//! In and out: API fields. Pure data.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Names one object of the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalRef {
    /// The object's name.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")
    )]
    pub name: String,
}

/// How a connection is secured. Present means TLS.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    /// A Secret with `ca.crt`, and with `tls.crt` and `tls.key` where the server asks for a client certificate.
    pub secret_ref: LocalRef,
}
