//! The operator's fleet against real agents on loopback addresses: what is pushed, what is known, what is bounded.

#[cfg(test)]
mod pki;
#[cfg(test)]
mod pretend;
#[cfg(test)]
mod support;

use std::{sync::Arc, time::Duration};

use crds::{
    condition::Status,
    report::{AgentState, DOCUMENT_LIMIT},
};
use futures::future::join_all;
use jiff::SignedDuration;
use operator::{
    fleet::{
        AT_ONCE, PROBES, Pod, Settings, Summary,
        known::Cause,
        summary::{Config, Contact},
    },
    leader::Leadership,
};
use pki::Authority;
use pretend::{Impostor, Silence, report};
use runtime::clock::{Clock, ManualClock, SystemClock};
use serde_json::{Value, json};
use support::{Agent, Net, cause, eventually, of, pod, settings, subject, words};

#[tokio::test]
async fn every_agent_gets_its_configuration_in_the_first_round() {
    let mut net = Net::new();
    let (one, first) = net.agent("one").await;
    let (two, second) = net.agent("two").await;
    let (pods, operator) = ([one, two], net.operator(Settings::default()));
    let summary = operator.round(&net.roster(3, &pods)).await;
    assert_eq!((summary.desired, summary.reachable), (2, 2));
    assert_eq!(summary.acknowledged, 2);
    assert_eq!(summary.agents_reachable().status, Status::True);
    assert_eq!(summary.clocks_agree().status, Status::True);
    assert_eq!(
        (first.generation(), second.generation()),
        (Some(3), Some(3))
    );
    let heard = of(&summary, "one").heard.as_ref().unwrap();
    assert_eq!(heard.report.state, AgentState::Running);
    // A poll, a push, and a poll for what came of it.
    assert_eq!(operator.counted("ok"), 6);
}

#[tokio::test]
async fn a_higher_generation_follows_at_once_and_nothing_is_sent_twice() {
    let mut net = Net::new();
    let (pod, agent) = net.agent("one").await;
    let operator = net.operator(Settings::default());
    operator.round(&net.roster(1, [&pod])).await;
    let summary = operator.round(&net.roster(2, [&pod])).await;
    assert_eq!((summary.acknowledged, agent.generation()), (1, Some(2)));
    let sent = operator.counted("ok");
    let summary = operator.round(&net.roster(2, [&pod])).await;
    assert_eq!(summary.acknowledged, 1);
    assert_eq!(operator.counted("ok"), sent, "nobody is due");
    let summary = operator.round(&net.roster(1, [&pod])).await;
    assert_eq!((summary.acknowledged, agent.generation()), (1, Some(2)));
}

#[tokio::test]
async fn the_values_an_agent_reports_arrive() {
    let mut net = Net::new();
    let (pod, agent) = net.agent("one").await;
    let (operator, roster) = (net.operator(settings()), net.roster(1, [&pod]));
    operator.round(&roster).await;
    agent.shell.detail().set(json!({"files": 7}));
    let detail = |summary: &Summary| {
        let heard = of(summary, "one").heard.as_ref();
        heard.map_or(Value::Null, |heard| heard.report.detail.clone())
    };
    let what = "detail arrives";
    operator
        .rounds_until(&roster, what, |summary| {
            detail(summary) == json!({"files": 7})
        })
        .await;
}

#[tokio::test]
async fn an_agent_that_refuses_is_told_of_and_not_asked_again() {
    let mut net = Net::new();
    let (pod, agent) = net.agent("one").await;
    let operator = net.operator(settings());
    operator.round(&net.roster(1, [&pod])).await;
    let bad = net.roster_with(2, json!("bad"), [&pod]);
    let polls = operator.counted("ok");
    let summary = operator
        .rounds_until(&bad, "ten more polls", |_| {
            operator.counted("ok") >= polls + 10
        })
        .await;
    assert_eq!(agent.refusals(), 1);
    assert_eq!(operator.counted("refused"), 1);
    assert_eq!((summary.reachable, summary.outdated), (1, 1));
    let problem = of(&summary, "one").config_problem.as_deref().unwrap();
    assert!(problem.contains("spec is bad"), "{problem}");
    assert_eq!(agent.generation(), Some(1));

    let summary = operator.round(&net.roster(3, [&pod])).await;
    assert_eq!((summary.acknowledged, agent.generation()), (1, Some(3)));
    assert_eq!(of(&summary, "one").config_problem, None);
}

#[tokio::test]
async fn an_agent_that_goes_down_keeps_its_last_values_and_comes_back() {
    let mut net = Net::new();
    let address = net.address();
    let leaf = net.authority.agent();
    let agent = Agent::start(address, "one", &leaf).await;
    let (pod, operator) = (pod("one", address), net.operator(settings()));
    let roster = net.roster(1, [&pod]);
    agent.shell.detail().set(json!({"files": 7}));
    operator.round(&roster).await;
    drop(agent);
    let summary = operator
        .rounds_until(&roster, "agent is down", |summary| summary.reachable == 0)
        .await;
    assert_eq!(cause(&summary, "one"), Some(Cause::Unreachable));
    assert_eq!(summary.acknowledged, 1);
    let heard = of(&summary, "one").heard.as_ref().unwrap();
    assert_eq!(heard.report.detail, json!({"files": 7}));
    let draft = summary.agents_reachable();
    assert_eq!(draft.reason.name, "AgentsUnreachable");
    assert!(draft.message.contains("pod-one"), "{draft:?}");

    // It comes back empty-handed, and gets its configuration again.
    let agent = Agent::start(address, "one", &leaf).await;
    operator
        .rounds_until(&roster, "agent is back", |summary| summary.reachable == 1)
        .await;
    assert_eq!(agent.generation(), Some(1));
}

#[tokio::test]
async fn another_pod_at_a_reused_address_is_not_believed_and_gets_nothing() {
    let mut net = Net::new();
    let address = net.address();
    let stranger = Agent::start(address, "stranger", &net.authority.agent()).await;
    let operator = net.operator(settings());
    let roster = net.roster(1, [&pod("mine", address)]);
    let summary = operator
        .rounds_until(&roster, "three polls", |_| {
            operator.counted("wrong_pod") == 3
        })
        .await;
    assert_eq!(summary.reachable, 0);
    assert_eq!(of(&summary, "mine").heard, None);
    assert_eq!(summary.agents_reachable().reason.name, "WrongPod");
    assert_eq!(stranger.generation(), None);
    assert_eq!(operator.counted("ok"), 0);
}

#[tokio::test]
async fn a_replaced_pod_starts_without_a_past() {
    let mut net = Net::new();
    let (old, agent) = net.agent("old").await;
    let operator = net.operator(settings());
    operator.round(&net.roster(1, [&old])).await;
    drop(agent);
    let mut new = pod("new", net.address());
    new.key = old.key.clone();
    let roster = net.roster(1, [&new]);
    let summary = operator.round(&roster).await;
    assert_eq!(of(&summary, "new").heard, None);
    // Even if the old pod were to come back: it has been forgotten.
    let summary = operator.summary(&net.roster(1, [&old]));
    assert_eq!(of(&summary, "old").contact, Contact::NotAsked);

    operator.fleet.forget(&operator.subject);
    let summary = operator.summary(&roster);
    assert_eq!(of(&summary, "new").contact, Contact::NotAsked);
}

#[tokio::test]
async fn an_agent_that_hangs_keeps_nobody_waiting() {
    let mut net = Net::new();
    let address = net.address();
    let silence = Silence::at(&[address]).await;
    let (one, _first) = net.agent("one").await;
    let (two, _second) = net.agent("two").await;
    let operator = net.operator(Settings {
        request: Duration::from_hours(1),
        ..settings()
    });
    let pods = [pod("hangs", address), one, two];
    let roster = net.roster(1, &pods);
    let others = eventually("others are known", async || {
        (operator.summary(&roster).acknowledged == 2).then_some(())
    });
    tokio::select! {
        _ = operator.fleet.round(&operator.subject, &roster) => panic!("the round waits for the one that hangs"),
        () = others => {}
    }
    // The round was dropped in the middle; the next one may ask the same pod.
    drop(silence);
    let _revived = Agent::start(address, "hangs", &net.authority.agent()).await;
    operator
        .rounds_until(&roster, "all are known", |summary| {
            summary.acknowledged == 3
        })
        .await;
}

#[tokio::test]
async fn two_rounds_at_once_do_not_ask_one_pod_twice() {
    let mut net = Net::new();
    let address = net.address();
    let silence = Silence::at(&[address]).await;
    let operator = net.operator(Settings {
        request: Duration::from_millis(500),
        ..settings()
    });
    let roster = net.roster(1, [&pod("hangs", address)]);
    let other = subject("other");
    let (mine, same, others) = tokio::join!(
        operator.fleet.round(&operator.subject, &roster),
        operator.fleet.round(&operator.subject, &roster),
        operator.fleet.round(&other, &roster),
    );
    assert_eq!(operator.counted("unreachable"), 1);
    assert_eq!(silence.most(), 1);
    assert_eq!(cause(&mine.summary, "hangs"), Some(Cause::Unreachable));
    for left_out in [same, others] {
        let contact = &of(&left_out.summary, "hangs").contact;
        assert_eq!(contact, &Contact::NotAsked);
        assert!(left_out.again.is_some_and(|again| !again.is_zero()));
    }
}

#[tokio::test]
async fn a_hundred_agents_that_hang_stay_within_the_bound() {
    let mut net = Net::new();
    let addresses: Vec<_> = (0..100).map(|_| net.address()).collect();
    let silence = Silence::at(&addresses).await;
    let operator = net.operator(Settings {
        request: Duration::from_secs(1),
        ..settings()
    });
    let silent = addresses.iter().zip(0..);
    let silent: Vec<_> = silent
        .map(|(address, n)| pod(&format!("silent-{n}"), *address))
        .collect();
    let (good, agent) = net.agent("good").await;
    let mut resources = Vec::new();
    for (pods, name) in silent.chunks(20).zip(["a", "b", "c", "d", "e"]) {
        let is_first = name == "a";
        let pods = pods.iter().chain(is_first.then_some(&good));
        resources.push((subject(name), net.roster(1, pods)));
    }
    let is_asked = |summary: &Summary| {
        let mut agents = summary.agents.iter();
        agents.all(|agent| agent.contact != Contact::NotAsked)
    };
    let rounds = resources
        .iter()
        .map(|(subject, roster)| operator.follow(subject, roster, "all are asked", is_asked));
    join_all(rounds).await;
    assert_eq!(silence.most(), PROBES, "as many as allowed, and no more");
    let summary = operator.fleet.summary(&resources[0].0, &resources[0].1);
    assert_eq!((summary.desired, summary.reachable), (21, 1));
    assert_eq!(agent.generation(), Some(1));
    let message = summary.agents_reachable().message;
    assert!(message.contains("and 15 more"), "{message}");
    assert!(message.contains("not connected within"), "{message}");
}

#[tokio::test]
async fn when_all_hang_at_once_a_round_ends_before_all_have_been_asked() {
    let mut net = Net::new();
    let (mut pods, mut addresses, mut impostors) = (Vec::new(), Vec::new(), Vec::new());
    let leaf = net.authority.agent();
    for n in 0..40 {
        let (address, uid) = (net.address(), n.to_string());
        let body = serde_json::to_vec(&report(&uid, Some(1))).unwrap();
        let answer = move |_: &str| (200, body.clone());
        impostors.push(Impostor::at(address, &leaf, answer).await);
        pods.push(pod(&uid, address));
        addresses.push(address);
    }
    let operator = net.operator(Settings {
        request: Duration::from_secs(1),
        ..settings()
    });
    let roster = net.roster(1, &pods);
    let what = "all answer";
    operator
        .rounds_until(&roster, what, |summary| summary.reachable == 40)
        .await;
    drop(impostors);
    let _silence = Silence::at(&addresses).await;
    // With a new generation all are visited at once.
    let roster = net.roster(2, &pods);
    let reachable = operator.round(&roster).await.reachable;
    assert!(reachable >= 40 - AT_ONCE / 2, "{reachable} were not asked");
    assert!(reachable < 40);
    operator
        .rounds_until(&roster, "all were asked", |summary| summary.reachable == 0)
        .await;
}

#[tokio::test]
async fn whoever_shows_a_certificate_of_another_authority_is_told_nothing() {
    let mut net = Net::new();
    let (real, pretended) = (net.address(), net.address());
    let foreign = Authority::new();
    let agent = Agent::start(real, "real", &foreign.agent()).await;
    let answer = |_: &str| (200, serde_json::to_vec(&report("pretended", None)).unwrap());
    let impostor = Impostor::at(pretended, &foreign.agent(), answer).await;
    let operator = net.operator(settings());
    let pods = [pod("real", real), pod("pretended", pretended)];
    let summary = operator
        .rounds_until(&net.roster(1, &pods), "three polls each", |_| {
            operator.counted("unreachable") >= 6 && impostor.handshakes() >= 3
        })
        .await;
    assert_eq!(summary.reachable, 0);
    assert_eq!(cause(&summary, "real"), Some(Cause::Unreachable));
    let words = words(&summary, "pretended");
    assert!(words.contains("certificate"), "{words}");
    assert_eq!(impostor.heard(), Vec::<String>::new());
    assert_eq!(agent.generation(), None);
}

#[tokio::test]
async fn what_is_no_report_is_a_failure_with_a_reason() {
    let newer = json!({"version": 9, "agent": "x", "agentVersion": "9", "podUid": "newer", "state": "Dancing",
        "configUid": "resource", "configGeneration": 1, "time": SystemClock.wall(), "novelty": [1]});
    let cases = [
        ("garbage", 200, b"\xff{".to_vec(), "is not JSON"),
        ("broken", 500, Vec::new(), "answered 500"),
        ("huge", 200, vec![b' '; DOCUMENT_LIMIT + 1], "more than"),
        ("newer", 200, newer.to_string().into(), "Reachable"),
    ];
    let mut net = Net::new();
    let (mut pods, mut impostors) = (Vec::new(), Vec::new());
    for (uid, status, body, _) in cases.clone() {
        let address = net.address();
        let answer = move |_: &str| (status, body.clone());
        impostors.push(Impostor::at(address, &net.authority.agent(), answer).await);
        pods.push(pod(uid, address));
    }
    let operator = net.operator(settings());
    let summary = operator.round(&net.roster(1, &pods)).await;
    for (uid, _, _, expected) in cases {
        let words = words(&summary, uid);
        assert!(words.contains(expected), "{uid}: {words}");
    }
    assert_eq!(operator.counted("unreadable"), 3);
    assert_eq!(summary.acknowledged, 1);
    for impostor in impostors {
        assert_eq!(impostor.heard(), ["GET /status HTTP/1.1"]);
    }
}

#[tokio::test]
async fn an_agent_that_breaks_on_its_configuration_stays_reachable_and_is_not_flooded() {
    let mut net = Net::new();
    let address = net.address();
    let answer = |line: &str| match line {
        "PUT /config HTTP/1.1" => (500, Vec::new()),
        _ => (200, serde_json::to_vec(&report("one", None)).unwrap()),
    };
    let impostor = Impostor::at(address, &net.authority.agent(), answer).await;
    let (operator, roster) = (
        net.operator(settings()),
        net.roster(1, [&pod("one", address)]),
    );
    let summary = operator
        .rounds_until(&roster, "five pushes", |_| {
            operator.counted("unreadable") == 5
        })
        .await;
    assert_eq!((summary.reachable, summary.waiting), (1, 1));
    let problem = of(&summary, "one").config_problem.as_deref();
    assert_eq!(problem, Some("/config answered 500"));
    // No push without a poll right before.
    let expected = ["GET /status HTTP/1.1", "PUT /config HTTP/1.1"].repeat(5);
    assert_eq!(impostor.heard(), expected);
}

#[tokio::test]
async fn a_process_that_does_not_lead_pushes_nothing() {
    let mut net = Net::new();
    let (pod, agent) = net.agent("one").await;
    let clock = Arc::new(SystemClock);
    let follower = Leadership::new(clock.clone());
    let operator = net.operator_with(settings(), clock, follower);
    let roster = net.roster(1, [&pod]);
    let round = operator.fleet.round(&operator.subject, &roster).await;
    assert_eq!((round.summary.reachable, round.summary.waiting), (1, 1));
    let known = of(&round.summary, "one");
    assert_eq!(known.config, Config::Waiting);
    let problem = known.config_problem.as_deref();
    assert_eq!(problem, Some("this process does not lead"));
    assert!(round.again.is_some_and(|again| !again.is_zero()));
    assert_eq!(agent.generation(), None);
}

#[tokio::test]
async fn a_pod_that_is_being_deleted_is_asked_but_gets_no_new_configuration() {
    let mut net = Net::new();
    let (pod, agent) = net.agent("one").await;
    let deleting = Pod {
        deleting: true,
        ..pod
    };
    let operator = net.operator(settings());
    let summary = operator.round(&net.roster(1, [&deleting])).await;
    assert!(of(&summary, "one").is_reachable());
    assert_eq!((summary.desired, agent.generation()), (0, None));
}

#[tokio::test]
async fn an_agent_whose_clock_is_off_is_named() {
    let mut net = Net::new();
    let (pod, _agent) = net.agent("one").await;
    // Half a second of room on either side.
    let behind = SystemClock.wall() - SignedDuration::from_millis(60_500);
    let clock = Arc::new(ManualClock::new(behind));
    let leadership = Leadership::unchallenged(clock.clone());
    let operator = net.operator_with(settings(), clock, leadership);
    let draft = operator.round(&net.roster(1, [&pod])).await.clocks_agree();
    assert_eq!(draft.reason.name, "ClocksDiffer");
    assert!(draft.message.contains("pod-one by +60 s"), "{draft:?}");
}
