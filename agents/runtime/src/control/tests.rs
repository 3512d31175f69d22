//! In: requests, with and without TLS. Out: claims about the control port's answers.

use jiff::Timestamp;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tower::ServiceExt;

use super::*;
use crate::clock::ManualClock;
use crate::pki::{Authority, SERVER_NAME, without_certificate};
use crate::tasks::TaskGroup;

const LIMIT: Duration = Duration::from_secs(5);
const NOW: i64 = 1_800_000_000;

fn subject() -> Arc<Subject> {
    let validate = |document: &crds::report::ConfigDocument| {
        let is_bad = document.spec == "bad";
        (!is_bad)
            .then_some(())
            .ok_or_else(|| "spec must not be bad".into())
    };
    let (_, detail) = watch::channel(json!({"shards": 4}));
    let now = Timestamp::from_second(NOW).unwrap();
    Arc::new(Subject {
        agent: "bare",
        pod_uid: "pod-1".into(),
        clock: Arc::new(ManualClock::new(now)),
        config: Arc::new(ConfigStore::new(&Metrics::new(), validate)),
        detail,
        draining: CancellationToken::new(),
    })
}

fn document(generation: i64, spec: &str) -> String {
    json!({"version": 1, "uid": "a", "generation": generation, "spec": spec}).to_string()
}

fn put_config(body: impl Into<Body>) -> Request {
    Request::put("/config")
        .header(header::CONTENT_TYPE, "application/json; charset=utf-8")
        .body(body.into())
        .unwrap()
}

/// The answer to `request`, whose content type must fit its status.
async fn answer(subject: &Arc<Subject>, request: Request) -> (StatusCode, Value) {
    let app = router(subject.clone(), Duration::from_millis(100));
    let response = app.oneshot(request).await.unwrap();
    let status = response.status();
    let expected = if status.is_success() {
        "application/json"
    } else {
        "application/problem+json"
    };
    assert_eq!(response.headers()[header::CONTENT_TYPE], expected);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

async fn status_of(subject: &Arc<Subject>) -> StatusReport {
    let request = Request::get("/status").body(Body::empty()).unwrap();
    let (status, body) = answer(subject, request).await;
    assert_eq!(status, StatusCode::OK);
    serde_json::from_value(body).unwrap()
}

#[tokio::test]
async fn the_report_tells_who_when_and_what() {
    let subject = subject();
    let report = status_of(&subject).await;
    assert_eq!(report.agent, "bare");
    assert_eq!(report.agent_version, VERSION);
    assert_eq!(report.pod_uid, "pod-1");
    assert_eq!(report.state, AgentState::WaitingForConfig);
    assert_eq!(report.time.as_second(), NOW);
    assert_eq!(report.detail, json!({"shards": 4}));
    assert_eq!((report.config_uid, report.config_generation), (None, None));
}

#[tokio::test]
async fn a_configured_agent_runs_until_it_drains() {
    let subject = subject();
    answer(&subject, put_config(document(3, "good"))).await;
    let report = status_of(&subject).await;
    assert_eq!(report.state, AgentState::Running);
    assert_eq!(report.config_uid.as_deref(), Some("a"));
    assert_eq!(report.config_generation, Some(3));
    subject.draining.cancel();
    assert_eq!(status_of(&subject).await.state, AgentState::Draining);
}

#[tokio::test]
async fn a_document_is_acknowledged_as_often_as_it_is_sent() {
    let subject = subject();
    for _ in 0..2 {
        let (status, body) = answer(&subject, put_config(document(3, "good"))).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(body, json!({"uid": "a", "generation": 3}));
    }
}

#[tokio::test]
async fn an_older_document_is_a_conflict_that_names_both_generations() {
    let subject = subject();
    answer(&subject, put_config(document(7, "good"))).await;
    let (status, body) = answer(&subject, put_config(document(6, "good"))).await;
    assert_eq!(status, StatusCode::CONFLICT);
    let detail = body["detail"].as_str().unwrap();
    assert!(detail.contains("generation 6") && detail.contains("generation 7"));
    let report = status_of(&subject).await;
    assert_eq!(report.config_generation, Some(7));
    assert_eq!(report.config_error, None);
}

#[tokio::test]
async fn each_bad_document_has_its_own_answer_and_shows_in_the_report() {
    let too_long = " ".repeat(DOCUMENT_LIMIT + 1);
    let cases = [
        ("{".to_owned(), 400, "line 1"),
        (too_long, 413, "1048576 bytes"),
        ("{}".to_owned(), 422, "version must be"),
        (document(2, "bad"), 422, "spec must not be bad"),
    ];
    for (body, expected, words) in cases {
        let subject = subject();
        answer(&subject, put_config(document(1, "good"))).await;
        let (status, problem) = answer(&subject, put_config(body)).await;
        let problem: Problem = serde_json::from_value(problem).unwrap();
        assert_eq!(status.as_u16(), expected);
        assert_eq!(problem.status, expected);
        assert!(problem.detail.contains(words), "{}", problem.detail);
        let report = status_of(&subject).await;
        assert_eq!(report.config_generation, Some(1));
        assert_eq!(report.config_error, Some(problem.detail));
    }
}

#[tokio::test]
async fn only_json_is_taken() {
    let subject = subject();
    let mut request = put_config(document(1, "good"));
    let yaml = header::HeaderValue::from_static("application/yaml");
    request.headers_mut().insert(header::CONTENT_TYPE, yaml);
    let (status, body) = answer(&subject, request).await;
    assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert!(body["detail"].as_str().unwrap().contains("content-type"));
    assert_eq!(status_of(&subject).await.config_generation, None);
}

#[tokio::test]
async fn unknown_paths_and_methods_are_told_what_there_is() {
    let cases = [("GET", "/", 404), ("DELETE", "/config", 405)];
    for (method, path, expected) in cases {
        let request = Request::builder().method(method).uri(path);
        let (status, body) = answer(&subject(), request.body(Body::empty()).unwrap()).await;
        assert_eq!(status.as_u16(), expected);
        assert!(body["detail"].as_str().unwrap().contains("/config"));
    }
}

#[tokio::test]
async fn a_body_that_never_ends_is_given_up() {
    let body = Body::from_stream(futures::stream::pending::<io::Result<Vec<u8>>>());
    let (status, _) = answer(&subject(), put_config(body)).await;
    assert_eq!(status, StatusCode::REQUEST_TIMEOUT);
}

#[tokio::test]
async fn an_agent_whose_detail_is_too_long_is_still_seen_without_it() {
    let (sender, detail) = watch::channel(Value::Null);
    let subject = Subject {
        detail,
        ..Arc::into_inner(subject()).unwrap()
    };
    sender.send_replace(Value::String("x".repeat(DOCUMENT_LIMIT)));
    let request = Request::get("/status").body(Body::empty()).unwrap();
    let (status, body) = answer(&Arc::new(subject), request).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(body["detail"]["omitted"], "longer than 1048576 bytes");
    assert!(body["podUid"].is_string());
}

/// A control port with the identity of `authority`, which trusts it alone.
struct Port {
    address: SocketAddr,
    identity: watch::Sender<Option<Arc<Identity>>>,
    metrics: Metrics,
    _server: TaskGroup,
}

async fn port(identity: Option<Identity>) -> Port {
    let control = Control::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let (sender, receiver) = watch::channel(identity.map(Arc::new));
    let metrics = Metrics::new();
    let mut server = TaskGroup::new(1);
    let address = control.address();
    let serving = control.serve(subject(), receiver, metrics.clone(), server.token());
    server.spawn("control", serving).unwrap();
    Port {
        address,
        identity: sender,
        metrics,
        _server: server,
    }
}

impl Port {
    /// The first line of the answer, or an error if there is none.
    async fn ask(&self, config: Arc<ClientConfig>) -> io::Result<String> {
        timeout(LIMIT, self.exchange(config)).await.unwrap()
    }

    async fn exchange(&self, config: Arc<ClientConfig>) -> io::Result<String> {
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from(SERVER_NAME).unwrap();
        let mut stream = TlsConnector::from(config).connect(name, stream).await?;
        stream
            .write_all(b"GET /status HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            .await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let line = answer.lines().next();
        line.map(ToOwned::to_owned)
            .ok_or_else(|| io::Error::other("no answer"))
    }
}

#[tokio::test]
async fn only_a_client_certificate_of_the_right_authority_gets_in() {
    let authority = Authority::new("one");
    let stranger = Authority::new("one");
    let trusted = authority.pem();
    let port = port(Some(authority.server().identity(&trusted))).await;

    let operator = authority.client().identity(&trusted).client();
    assert_eq!(port.ask(operator).await.unwrap(), "HTTP/1.1 200 OK");

    let other_authority = stranger.client().identity(&trusted).client();
    assert!(port.ask(other_authority).await.is_err());
    let another_agent = authority.server().identity(&trusted).client();
    assert!(port.ask(another_agent).await.is_err());
    let another_caller = authority.stranger().identity(&trusted).client();
    assert!(port.ask(another_caller).await.is_err());
    assert!(port.ask(without_certificate(&trusted)).await.is_err());

    let text = port.metrics.render().unwrap();
    let line = "orrery_control_refused_handshakes_total 4\n";
    assert!(text.contains(line), "{text}");
}

#[tokio::test]
async fn the_port_answers_as_soon_as_it_has_an_identity() {
    let authority = Authority::new("one");
    let trusted = authority.pem();
    let operator = authority.client().identity(&trusted).client();
    let port = port(None).await;
    assert!(port.ask(operator.clone()).await.is_err());
    let identity = authority.server().identity(&trusted);
    port.identity.send_replace(Some(Arc::new(identity)));
    assert_eq!(port.ask(operator).await.unwrap(), "HTTP/1.1 200 OK");
}

#[tokio::test]
async fn a_new_authority_is_trusted_and_an_old_one_forgotten_without_a_restart() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let both = format!("{}{}", old.pem(), new.pem());
    let port = port(Some(old.server().identity(&old.pem()))).await;
    let late = new.client().identity(&both).client();
    let early = old.client().identity(&both).client();
    assert!(port.ask(late.clone()).await.is_err());

    let overlap = old.server().identity(&both);
    port.identity.send_replace(Some(Arc::new(overlap)));
    assert!(port.ask(early.clone()).await.is_ok());
    assert!(port.ask(late.clone()).await.is_ok());

    let done = new.server().identity(&new.pem());
    port.identity.send_replace(Some(Arc::new(done)));
    assert!(port.ask(early).await.is_err());
    assert!(port.ask(late).await.is_ok());
}
