//! In: the address of a node's Jolokia agent. Out: its JMX attributes and operations.
//! Touches: HTTP to that agent.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::time::timeout;

/// The bean of nearly everything: the ring, repairs, flushes.
pub const STORAGE_SERVICE: &str = "org.apache.cassandra.db:type=StorageService";

const ANSWER_DEADLINE: Duration = Duration::from_secs(30);
const ANSWER_BYTES: usize = 8 * 1024 * 1024;

/// A client of one node's agent.
#[derive(Clone, Debug)]
pub struct Jolokia {
    address: SocketAddr,
    authorization: String,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Jolokia {
    /// For an agent that asks for a name and a password.
    pub fn new(address: SocketAddr, user: &str, password: &str) -> Self {
        let credentials = STANDARD.encode(format!("{user}:{password}"));
        Self {
            address,
            authorization: format!("Basic {credentials}"),
            client: Client::builder(TokioExecutor::new()).build_http(),
        }
    }

    /// The values of attributes, as an object.
    pub async fn read(&self, bean: &str, attributes: &[&str]) -> Result<Value> {
        self.ask(&json!({"type": "read", "mbean": bean, "attribute": attributes}))
            .await
    }

    /// The result of an operation, which is named with the types of its arguments.
    pub async fn call(&self, bean: &str, operation: &str, arguments: Value) -> Result<Value> {
        let call =
            json!({"type": "exec", "mbean": bean, "operation": operation, "arguments": arguments});
        self.ask(&call).await
    }

    /// The value that answers any request; an error for whatever is not an answer.
    pub async fn ask(&self, request: &Value) -> Result<Value> {
        let sent = timeout(ANSWER_DEADLINE, self.send(request)).await;
        let (status, body) = sent.context("Jolokia does not answer")??;
        // A request that makes no sense, or no password: an answer in plain text.
        ensure!(
            status == StatusCode::OK,
            "{status}: {}",
            String::from_utf8_lossy(&body)
        );
        let mut answer: Value = serde_json::from_slice(&body).context("not JSON")?;
        match &answer["status"] {
            status if *status == 200 => Ok(answer["value"].take()),
            status => bail!("{status}: {}", answer["error"]),
        }
    }

    async fn send(&self, request: &Value) -> Result<(StatusCode, Bytes)> {
        let request = Request::post(format!("http://{}/jolokia/", self.address))
            .header(header::AUTHORIZATION, &self.authorization)
            .body(Full::from(serde_json::to_vec(request)?))?;
        let response = self.client.request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES);
        let body = body.collect().await.map_err(anyhow::Error::from_boxed)?;
        Ok((status, body.to_bytes()))
    }
}
