//! What users read, for each state their agents can be in.

use jiff::SignedDuration;

use super::*;
use crate::fleet::{
    known::{Failure, Stand},
    plan::fixture::{call, config, failure, lost, moment, pod, reached, report, roster},
    reason,
};

fn summary<const N: usize>(generation: i64, known: [(&str, Known); N]) -> Summary {
    let roster = roster(generation, known.iter().map(|(uid, _)| pod(uid)));
    let known = known.into_iter().map(|(uid, k)| (uid.into(), k)).collect();
    Summary::new(&roster, &known)
}

fn names(summary: &Summary) -> Vec<&str> {
    let agents = summary.agents.iter();
    agents.map(|agent| &*agent.uid).collect()
}

/// Reached at that time, with a clock so far ahead.
fn ahead(ms: i64) -> Known {
    let mut known = reached(0, Some(1));
    known.heard.as_mut().unwrap().offset = SignedDuration::from_millis(ms);
    known
}

fn mistaken() -> Known {
    let mut known = Known::default();
    let failure = Failure {
        cause: Cause::WrongPod,
        words: "another pod".into(),
    };
    known.failed(failure, &call(0, 0));
    known
}

fn refusing() -> Known {
    let mut known = reached(0, Some(1));
    let outcome = Offered::Refused {
        words: "no such table".into(),
        by: Stand::of(&report("u", Some(1))),
    };
    known.offered(&config("a", 2), outcome, &call(0, 0));
    known
}

#[test]
fn agents_are_counted_by_what_they_said_last() {
    let mut silent = reached(0, Some(1));
    silent.failed(failure("no answer"), &call(5_000, 8_000));
    let summary = summary(
        2,
        [
            ("current", reached(0, Some(2))),
            ("later", reached(0, Some(3))),
            ("old", reached(0, Some(1))),
            ("fresh", reached(0, None)),
            ("silent", silent),
            ("unheard", lost(0, 1)),
        ],
    );
    assert_eq!((summary.desired, summary.reachable), (6, 4));
    assert_eq!(summary.acknowledged, 2);
    assert_eq!(summary.outdated, 2);
    assert_eq!(summary.waiting, 1);
    let silent = summary.agents.iter().find(|agent| &*agent.uid == "silent");
    let heard = silent.unwrap().heard.as_ref().unwrap();
    assert_eq!(heard.at, moment(0).wall, "last values keep their time");
}

#[test]
fn a_pod_that_is_being_deleted_is_told_of_but_not_counted() {
    let mut leaving = pod("leaving");
    leaving.deleting = true;
    let roster = roster(1, [leaving, pod("u")]);
    let known = HashMap::from([
        ("leaving".into(), lost(0, 1)),
        ("u".into(), reached(0, Some(1))),
    ]);
    let summary = Summary::new(&roster, &known);
    assert_eq!((summary.desired, summary.reachable), (1, 1));
    assert_eq!(names(&summary), ["u", "leaving"]);
    assert_eq!(summary.agents_reachable().status, Status::True);
}

#[test]
fn the_worst_come_first() {
    let mut earlier = lost(1_000, 1);
    earlier.failed(failure("still"), &call(9_000, 9_000));
    let summary = summary(
        2,
        [
            ("a-fine", reached(0, Some(2))),
            ("b-off", {
                let mut known = ahead(5_000);
                known.heard.as_mut().unwrap().report = report("u", Some(2)).into();
                known
            }),
            ("c-old", reached(0, Some(1))),
            ("d-refusing", refusing()),
            ("e-unasked", Known::default()),
            ("f-failing", lost(2_000, 1)),
            ("g-failing-longer", earlier),
        ],
    );
    let expected = [
        "g-failing-longer",
        "f-failing",
        "e-unasked",
        "d-refusing",
        "c-old",
        "b-off",
        "a-fine",
    ];
    assert_eq!(names(&summary), expected);
}

#[test]
fn a_list_for_a_status_is_short() {
    let uids: Vec<_> = (0..30).map(|n| format!("{n:02}")).collect();
    let roster = roster(1, uids.iter().map(|uid| pod(uid)));
    let summary = Summary::new(&roster, &HashMap::new());
    assert_eq!((summary.worst().len(), summary.agents.len()), (20, 30));
}

#[test]
fn why_an_agent_does_not_follow_is_told() {
    let problem = |generation, known| {
        let summary = summary(generation, [("u", known)]);
        summary.agents[0].config_problem.clone()
    };
    assert_eq!(problem(2, refusing()).as_deref(), Some("no such table"));
    assert_eq!(problem(3, refusing()), None, "the newest was not sent yet");
    assert_eq!(problem(1, refusing()), None, "all is as it should be");

    let mut failing = reached(0, Some(1));
    let outcome = Offered::Failed(failure("answered 500"));
    failing.offered(&config("a", 2), outcome, &call(0, 0));
    assert_eq!(problem(2, failing).as_deref(), Some("answered 500"));

    let mut by_file = report("u", Some(1));
    by_file.config_error = Some("not JSON".into());
    let mut known = Known::default();
    known.heard(by_file, &call(0, 0));
    assert_eq!(problem(2, known).as_deref(), Some("not JSON"));
}

#[test]
fn whether_agents_answer_is_a_condition() {
    let unaddressed = {
        let mut pod = pod("u");
        pod.ip = None;
        Summary::new(&roster(1, [pod]), &HashMap::new())
    };
    let cases = [
        (
            summary(1, []),
            Status::Unknown,
            "NoAgents",
            "no pod should carry an agent",
        ),
        (
            summary(1, [("u", reached(0, Some(1)))]),
            Status::True,
            "AllReachable",
            "all 1 agents answer",
        ),
        (
            summary(1, [("u", reached(0, Some(1))), ("v", Known::default())]),
            Status::Unknown,
            "NotAskedYet",
            "1 of 2 agents were not asked yet: pod-v",
        ),
        (
            summary(1, [("u", mistaken()), ("v", reached(0, Some(1)))]),
            Status::False,
            "WrongPod",
            "another pod answered at the address of 1 of 2 agents: pod-u",
        ),
        (
            summary(1, [("u", mistaken()), ("v", lost(0, 1))]),
            Status::False,
            "AgentsUnreachable",
            "2 of 2 agents do not answer: pod-u, pod-v; the first: another pod",
        ),
        (
            unaddressed,
            Status::False,
            "AgentsUnreachable",
            "1 of 1 agents do not answer: pod-u; the first: its pod has no address yet",
        ),
    ];
    for (summary, status, reason, message) in cases {
        let draft = summary.agents_reachable();
        assert_eq!(draft.type_, "AgentsReachable");
        assert_eq!((draft.status, draft.reason.name), (status, reason));
        assert_eq!(draft.message, message);
    }
}

#[test]
fn a_condition_names_five_pods_and_counts_the_rest() {
    let summary = summary(
        1,
        ["a", "b", "c", "d", "e", "f", "g"].map(|u| (u, lost(0, 1))),
    );
    let message = summary.agents_reachable().message;
    let names = "pod-a, pod-b, pod-c, pod-d, pod-e and 2 more";
    let expected = format!("7 of 7 agents do not answer: {names}; the first: no answer");
    assert_eq!(message, expected);
}

#[test]
fn whether_clocks_agree_is_a_condition() {
    let cases = [
        (
            summary(1, []),
            Status::Unknown,
            "NoReports",
            "no agent answers",
        ),
        (
            summary(1, [("u", ahead(1_000)), ("v", ahead(-1_000))]),
            Status::True,
            "WithinOneSecond",
            "the clocks of 2 agents agree",
        ),
        (
            summary(
                1,
                [("u", ahead(2_900)), ("v", ahead(-61_500)), ("w", ahead(0))],
            ),
            Status::False,
            "ClocksDiffer",
            "2 of 3 clocks differ from the operator's: pod-v by -61 s, pod-u by +2 s",
        ),
    ];
    for (summary, status, reason, message) in cases {
        let draft = summary.clocks_agree();
        assert_eq!(draft.type_, "ClocksAgree");
        assert_eq!((draft.status, draft.reason.name), (status, reason));
        assert_eq!(draft.message, message);
    }
}

#[test]
fn what_may_be_the_wire_is_not_blamed_on_the_clock() {
    let mut slow = ahead(2_000);
    slow.heard.as_mut().unwrap().doubt = Duration::from_millis(1_500);
    let draft = summary(1, [("u", slow)]).clocks_agree();
    assert_eq!(draft.status, Status::True);
}

#[test]
fn the_clock_of_an_agent_that_does_not_answer_is_not_known() {
    let mut known = ahead(9_000);
    known.failed(failure("no answer"), &call(5_000, 8_000));
    let draft = summary(1, [("u", known)]).clocks_agree();
    assert_eq!(draft.reason, &reason::NO_REPORTS);
}

#[test]
fn every_reason_is_listed_once_and_says_what_to_do() {
    let mut names: Vec<_> = reason::ALL.iter().map(|reason| reason.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), reason::ALL.len());
    for reason in reason::ALL {
        assert!(reason.meaning.ends_with('.') && reason.remedy.ends_with('.'));
    }
}
