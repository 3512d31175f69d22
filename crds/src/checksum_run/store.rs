//! Where checksums live, and how work reaches several workers. In and out: API fields. Pure data and schema.
#![expect(
    unreachable_pub,
    reason = "KubeSchema repeats the items inside a function"
)]

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{rules, size};
use crate::{
    quantity::Size,
    reference::{LocalRef, Tls},
};

/// Where checksums live between runs: exactly one of the members.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[x_kube(validation = rules::STORE)]
#[serde(rename_all = "camelCase")]
pub struct Store {
    /// A SQLite file on a claim of its own, which outlives the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedded: Option<EmbeddedStore>,
    /// A MySQL or MariaDB server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mysql: Option<MysqlStore>,
}

/// The claim with the SQLite file.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EmbeddedStore {
    /// The claim's name; absent means `<schedule, else run>-store`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")
    )]
    pub claim_name: Option<String>,
    /// The claim's size when the operator makes it.
    #[serde(default = "default_store_size")]
    pub size: Size,
    /// The claim's storage class when the operator makes it; absent means the cluster's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub storage_class_name: Option<String>,
}

impl Default for EmbeddedStore {
    fn default() -> Self {
        Self {
            claim_name: None,
            size: default_store_size(),
            storage_class_name: None,
        }
    }
}

fn default_store_size() -> Size {
    size("10Gi")
}

/// A MySQL or MariaDB server.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[x_kube(validation = rules::HOST)]
#[serde(rename_all = "camelCase")]
pub struct MysqlStore {
    /// Host name or address.
    #[schemars(length(min = 1, max = 253))]
    pub host: String,
    /// Port.
    #[serde(default = "default_mysql_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// The database in it.
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Za-z0-9_]+$"))]
    pub database: String,
    /// A Secret with `username` and `password`.
    pub credentials_ref: LocalRef,
    /// TLS; absent means none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
}

fn default_mysql_port() -> i32 {
    3306
}

/// How work reaches several workers: exactly one of the members.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[x_kube(validation = rules::QUEUE)]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    /// A Redis server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redis: Option<RedisQueue>,
}

/// A Redis server.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[x_kube(validation = rules::HOST)]
#[serde(rename_all = "camelCase")]
pub struct RedisQueue {
    /// Host name or address.
    #[schemars(length(min = 1, max = 253))]
    pub host: String,
    /// Port.
    #[serde(default = "default_redis_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// A Secret with `username` (may be empty) and `password`; absent means no authentication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_ref: Option<LocalRef>,
    /// TLS; absent means none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// The first part of every key, so that several systems can share a server.
    #[serde(default = "default_prefix")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[A-Za-z0-9._:-]+$"))]
    pub prefix: String,
}

fn default_redis_port() -> i32 {
    6379
}

fn default_prefix() -> String {
    "orrery".into()
}
