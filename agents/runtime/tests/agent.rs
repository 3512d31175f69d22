//! In: the bare agent, as a real process. Out: claims about what every agent does.
//! Starts processes on local ports, each with its own temporary folders.

#[cfg(test)]
#[path = "agent/harness.rs"]
mod harness;
#[cfg(test)]
#[path = "agent/pki.rs"]
mod pki;

use crds::report::{Acknowledged, AgentState, DOCUMENT_LIMIT, Problem, StatusReport};
use harness::{Agent, Caller, Mounts, document, eventually, push_bytes};
use http::StatusCode;
use nix::sys::signal::Signal;
use pki::Authority;
use serde_json::json;

/// An agent with TLS files that has read what is mounted, and the operator that may call it.
async fn agent(mounts: &Mounts, flags: &[&str]) -> (Agent, Caller) {
    let authority = Authority::new("one");
    authority.server().write(&mounts.tls(), &authority.pem());
    let agent = mounts.start(flags).await;
    let operator = Caller::operator(&agent, &authority);
    operator.status().await;
    (agent, operator)
}

fn has_generation(generation: i64) -> impl Fn(&StatusReport) -> bool {
    move |report| report.config_generation == Some(generation)
}

#[tokio::test]
async fn an_agent_waits_for_its_first_configuration() {
    let mounts = Mounts::new();
    let (agent, operator) = agent(&mounts, &[]).await;
    let report = operator.status().await;
    assert_eq!(report.agent, "bare-agent");
    assert_eq!(report.pod_uid, "pod-1");
    assert_eq!(report.state, AgentState::WaitingForConfig);
    assert_eq!(agent.admin("/livez").await.0, StatusCode::OK);
    let (status, body) = agent.admin("/readyz").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(body, "config: waiting for one\n");

    mounts.mount_document(1);
    let report = operator
        .status_with("agent works", |report| report.detail != json!(null))
        .await;
    assert_eq!(report.state, AgentState::Running);
    assert_eq!(report.config_generation, Some(1));
    assert_eq!(report.detail, json!({"configurations": 1}));
    assert_eq!(agent.admin("/readyz").await.0, StatusCode::OK);
    let (_, metrics) = agent.admin("/metrics").await;
    assert!(metrics.contains("orrery_config_generation 1\n"));
    assert!(metrics.contains("orrery_build_info{version="));
}

#[tokio::test]
async fn a_configuration_that_is_mounted_before_the_start_is_in_force_from_the_start() {
    let mounts = Mounts::new();
    mounts.mount_document(4);
    let (_agent, operator) = agent(&mounts, &[]).await;
    assert_eq!(operator.status().await.config_generation, Some(4));
}

#[tokio::test]
async fn a_mounted_change_is_picked_up() {
    let mounts = Mounts::new();
    mounts.mount_document(1);
    let (_agent, operator) = agent(&mounts, &[]).await;
    mounts.mount_document(2);
    operator
        .status_with("second generation", has_generation(2))
        .await;
}

#[tokio::test]
async fn a_push_wins_over_an_older_file_and_an_older_push_is_a_conflict() {
    let mounts = Mounts::new();
    mounts.mount_document(1);
    let (_agent, operator) = agent(&mounts, &[]).await;
    let answer = operator.push(5).await;
    assert_eq!(answer.status, StatusCode::OK);
    let acknowledged: Acknowledged = serde_json::from_slice(&answer.body).unwrap();
    let expected = Acknowledged {
        uid: "a".into(),
        generation: 5,
    };
    assert_eq!(acknowledged, expected);

    let answer = operator.push(4).await;
    assert_eq!(answer.status, StatusCode::CONFLICT);
    let problem: Problem = serde_json::from_slice(&answer.body).unwrap();
    assert!(problem.detail.contains("generation 5"), "{problem:?}");

    // Whether or not the agent looks between the two, the 3 must not show.
    mounts.mount_document(3);
    mounts.mount_document(6);
    let report = operator.status_with("newest file", has_generation(6)).await;
    assert_eq!(report.config_error, None);
}

#[tokio::test]
async fn a_bad_configuration_keeps_the_old_one_and_says_so() {
    let mounts = Mounts::new();
    mounts.mount_document(1);
    let (agent, operator) = agent(&mounts, &[]).await;
    let refused = document(2).to_string().replace("{}", "7");
    let too_long = " ".repeat(DOCUMENT_LIMIT + 1);
    let cases = [
        ("{", 400, "not JSON"),
        ("[]", 422, "JSON object"),
        (&refused, 422, "spec must be an object"),
        (&too_long, 413, "bytes"),
    ];
    for (body, status, words) in cases {
        let line = operator.push_bytes(body.as_bytes()).await.unwrap();
        assert!(line.contains(&status.to_string()), "{line}");
        let report = operator.status().await;
        assert_eq!(report.config_generation, Some(1));
        let error = report.config_error.unwrap();
        assert!(error.contains(words), "{error}");
    }
    let (_, metrics) = agent.admin("/metrics").await;
    assert!(metrics.contains("orrery_config_errors_total 4\n"));

    operator.push(2).await;
    let report = operator.status().await;
    assert_eq!(report.config_generation, Some(2));
    assert_eq!(report.config_error, None);
}

#[tokio::test]
async fn a_bad_file_keeps_the_old_one_and_says_so() {
    let mounts = Mounts::new();
    mounts.mount_document(1);
    let (agent, operator) = agent(&mounts, &[]).await;
    mounts.mount_config(2, "not json, s3cret");
    let report = operator
        .status_with("error is told", |report| report.config_error.is_some())
        .await;
    assert_eq!(report.config_generation, Some(1));
    assert_eq!(report.state, AgentState::Running);
    assert!(!agent.running.log().contains("s3cret"));
}

#[tokio::test]
async fn nobody_gets_in_without_the_right_certificate() {
    let mounts = Mounts::new();
    let authority = Authority::new("one");
    let stranger = Authority::new("one");
    let trusted = authority.pem();
    authority.server().write(&mounts.tls(), &trusted);
    let agent = mounts.start(&[]).await;
    let body = document(1).to_string();
    let callers = [
        Caller::new(&agent, &stranger.client(), &trusted),
        Caller::new(&agent, &authority.server(), &trusted),
        Caller::new(&agent, &authority.stranger(), &trusted),
    ];
    for caller in callers {
        assert!(caller.push_bytes(body.as_bytes()).await.is_err());
    }
    let anonymous = pki::without_certificate(&trusted);
    let answer = push_bytes(agent.control, anonymous, body.as_bytes()).await;
    assert!(answer.is_err(), "{answer:?}");

    let operator = Caller::operator(&agent, &authority);
    assert_eq!(operator.status().await.config_generation, None);
}

#[tokio::test]
async fn rotated_certificates_are_taken_without_a_restart() {
    let mounts = Mounts::new();
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let both = format!("{}{}", old.pem(), new.pem());
    let leaf = old.server();
    leaf.write(&mounts.tls(), &old.pem());
    let agent = mounts.start(&[]).await;
    let early = Caller::new(&agent, &old.client(), &both);
    let late = Caller::new(&agent, &new.client(), &both);
    early.status().await;
    assert!(late.try_status().await.is_err());

    leaf.write(&mounts.tls(), &both);
    late.status_with("new authority is trusted", |_| true).await;
    early.status().await;

    new.server().write(&mounts.tls(), &both);
    let strict = Caller::operator(&agent, &new);
    strict.status_with("new leaf is shown", |_| true).await;
    early.status().await;

    new.server().write(&mounts.tls(), &new.pem());
    eventually("old authority is forgotten", async || {
        early.try_status().await.err()
    })
    .await;
    strict.status().await;
}

#[tokio::test]
async fn half_written_certificates_keep_the_old_ones() {
    let mounts = Mounts::new();
    let (agent, operator) = agent(&mounts, &[]).await;
    let other = Authority::new("other").server();
    pki::replace(&mounts.tls().join("tls.crt"), &other.certificate);
    eventually("failure is counted", async || {
        let (_, metrics) = agent.admin("/metrics").await;
        let is_counted = metrics.contains("orrery_tls_reload_failures_total 1\n");
        is_counted.then_some(())
    })
    .await;
    operator.status().await;
    let log = agent.running.log();
    assert!(log.contains("tls.crt together with tls.key"), "{log}");
}

#[tokio::test]
async fn an_agent_without_tls_files_is_not_ready_and_answers_once_they_arrive() {
    let mounts = Mounts::new();
    mounts.mount_document(1);
    let agent = mounts.start(&[]).await;
    let authority = Authority::new("one");
    let operator = Caller::operator(&agent, &authority);
    assert!(operator.try_status().await.is_err());
    let (status, body) = agent.admin("/readyz").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(body.starts_with("tls: no identity from"), "{body}");

    authority.server().write(&mounts.tls(), &authority.pem());
    operator.status_with("port answers", |_| true).await;
    assert_eq!(agent.admin("/readyz").await.0, StatusCode::OK);
}

#[tokio::test]
async fn sigterm_drains_and_a_second_one_does_not_hurry() {
    let mounts = Mounts::new();
    mounts.mount_document(1);
    let (mut agent, operator) = agent(&mounts, &["--last-work=2s"]).await;
    assert_eq!(agent.admin("/readyz").await.0, StatusCode::OK);
    agent.running.signal(Signal::SIGTERM);
    let body = eventually("agent is not ready", async || {
        let (status, body) = agent.admin("/readyz").await;
        (status != StatusCode::OK).then_some(body)
    })
    .await;
    assert_eq!(body, "shutdown: draining\n");
    agent.running.signal(Signal::SIGTERM);
    assert_eq!(agent.admin("/livez").await.0, StatusCode::OK);
    assert_eq!(operator.status().await.state, AgentState::Draining);
    assert_eq!(agent.running.exit().await.code(), Some(0));
}

#[tokio::test]
async fn work_that_does_not_end_in_time_is_cut_off_by_name() {
    let mounts = Mounts::new();
    let flags = ["--last-work=1h", "--drain-timeout=600ms"];
    let (mut agent, _) = agent(&mounts, &flags).await;
    agent.running.signal(Signal::SIGINT);
    assert_eq!(agent.running.exit().await.code(), Some(1));
    let log = agent.running.log();
    assert!(log.contains("cut off work"), "{log}");
}

#[tokio::test]
async fn a_taken_port_is_told_by_its_flag() {
    let mounts = Mounts::new();
    let (agent, _) = agent(&mounts, &[]).await;
    let other = Mounts::new();
    let admin = format!("--admin-address={}", agent.admin);
    let control = format!("--control-address={}", agent.control);
    let free = "--admin-address=127.0.0.1:0";
    for (flags, name) in [
        (vec![admin.as_str()], "--admin-address"),
        (vec![free, control.as_str()], "--control-address"),
    ] {
        let mut running = other.launch(&flags);
        assert_eq!(running.exit().await.code(), Some(1));
        let log = running.log();
        assert!(log.contains(name) && log.contains("in use"), "{log}");
    }
}

#[tokio::test]
async fn a_missing_or_wrong_flag_is_told_before_anything_starts() {
    let mounts = Mounts::new();
    for flag in ["--drain-timeout=soon", "--log-format=xml", "--pod-uid"] {
        let mut running = mounts.launch(&[flag]);
        assert_eq!(running.exit().await.code(), Some(2));
        let log = running.log();
        let (name, _) = flag.split_once('=').unwrap_or((flag, ""));
        assert!(log.contains(name), "{log}");
    }
}
