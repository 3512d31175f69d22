//! One decision each, with the least that makes it interesting.

use std::collections::BTreeSet;

use super::fixture::{PORT, call, config, failure, ip, lost, moment, pod, reached, report, roster};
use super::*;

type Agents = HashMap<Uid, Known>;

fn agents<const N: usize>(known: [(&str, Known); N]) -> Agents {
    known.into_iter().map(|(uid, k)| (uid.into(), k)).collect()
}

fn plan_at(roster: &Roster, known: &Agents, at_ms: u64) -> Plan {
    let busy = HashSet::new();
    let seen = Observed { known, busy: &busy };
    plan(roster, &seen, &Pace::default(), moment(at_ms).monotonic)
}

fn whys(plan: &Plan) -> Vec<(&str, Why)> {
    let visits = plan.visits.iter().chain(&plan.probes);
    visits.map(|visit| (&*visit.uid, visit.why)).collect()
}

fn idles(plan: &Plan) -> Vec<(&str, Idle)> {
    let waiting = plan.waiting.iter();
    waiting
        .map(|waiting| (&*waiting.uid, waiting.why))
        .collect()
}

/// When the only agent of a roster is visited next, in milliseconds, and why.
fn next_visit(generation: i64, known: Known, from_ms: u64) -> (u64, Why) {
    let (roster, known) = (roster(generation, [pod("u")]), agents([("u", known)]));
    let mut at_ms = from_ms;
    loop {
        let plan = plan_at(&roster, &known, at_ms);
        if let Some((_, why)) = whys(&plan).first() {
            return (at_ms, *why);
        }
        let wait = plan.next.unwrap() - moment(at_ms).monotonic;
        at_ms += u64::try_from(wait.as_millis()).unwrap().max(1);
    }
}

fn refused(known: &mut Known, generation: i64) {
    let by = Stand::of(known.current_report().unwrap());
    let words = "no".into();
    let outcome = Offered::Refused { words, by };
    known.offered(&config("a", generation), outcome, &call(0, 0));
}

#[test]
fn a_pod_is_known_by_a_few_words() {
    let slim = |ip: &str| {
        let json = serde_json::json!({
            "metadata": {"namespace": "ns", "name": "pod-u", "uid": "u", "deletionTimestamp": "2026-11-16T12:00:00Z"},
            "status": {"podIP": ip},
        });
        let wire: crate::watch::pod::WirePod = serde_json::from_value(json).unwrap();
        Pod::of(&SlimPod::from(wire)).unwrap()
    };
    let deleting = Pod {
        deleting: true,
        ..pod("u")
    };
    assert_eq!(slim("10.0.0.1"), deleting);
    assert!(slim("fd00::1").ip.is_some_and(|ip| ip.is_ipv6()));
    assert_eq!(slim("nowhere").ip, None);
}

#[test]
fn an_agent_that_was_never_asked_is_visited_at_once() {
    let plan = plan_at(&roster(1, [pod("u")]), &Agents::new(), 0);
    let expected = Visit {
        uid: "u".into(),
        address: SocketAddr::new(ip(1), PORT),
        why: Why::New,
    };
    assert_eq!(plan.probes, [expected]);
    assert_eq!(plan.next, Some(moment(0).monotonic));
}

#[test]
fn an_agent_that_answers_is_asked_every_five_seconds_or_a_little_sooner() {
    let (at_ms, why) = next_visit(1, reached(0, Some(1)), 0);
    assert_eq!(why, Why::Due);
    assert!((3_500..=5_000).contains(&at_ms), "{at_ms}");
}

#[test]
fn an_agent_that_fails_is_asked_ever_less_often_down_to_twice_a_minute() {
    let cases = [
        (1, 300..=1_000),
        (2, 1_100..=2_000),
        (4, 5_900..=8_000),
        (6, 23_500..=30_000),
        (u32::MAX, 23_500..=30_000),
    ];
    for (attempts, expected) in cases {
        let mut known = lost(0, 1);
        known.failing.as_mut().unwrap().attempts = attempts;
        let (at_ms, why) = next_visit(1, known, 0);
        assert_eq!(why, Why::Due);
        assert!(expected.contains(&at_ms), "{attempts}: {at_ms}");
    }
}

#[test]
fn agents_that_fail_together_are_asked_apart() {
    let next = |n: u32| {
        let uid = n.to_string();
        let known = agents([(&uid, lost(0, 6))]);
        plan_at(&roster(1, [pod(&uid)]), &known, 0).next.unwrap()
    };
    let times: BTreeSet<_> = (0..100).map(next).collect();
    assert!(times.len() > 30);
}

#[test]
fn an_outdated_agent_is_visited_at_once() {
    let known = || reached(0, Some(1));
    assert_eq!(next_visit(2, known(), 10), (10, Why::Outdated));
    assert_ne!(next_visit(1, known(), 10).0, 10);
    assert_eq!(next_visit(1, reached(0, None), 10), (10, Why::Outdated));
}

#[test]
fn what_was_sent_without_effect_is_sent_again_at_the_pace_of_polls() {
    let failed = Offered::Failed(failure("500"));
    for outcome in [Offered::Taken, failed] {
        let mut known = reached(0, Some(1));
        known.offered(&config("a", 2), outcome, &call(0, 0));
        assert!(pushes(&config("a", 2), &pod("u"), &known));
        let (at_ms, why) = next_visit(2, known, 10);
        assert_eq!(why, Why::Due);
        assert!(at_ms >= 3_500);
    }
}

#[test]
fn who_gets_a_configuration() {
    let deleting = Pod {
        deleting: true,
        ..pod("u")
    };
    let mut failing = reached(0, Some(1));
    failing.failed(failure("gone"), &call(0, 0));
    let cases = [
        (pod("u"), reached(0, None), true),
        (pod("u"), reached(0, Some(1)), true),
        (pod("u"), reached(0, Some(2)), false),
        (pod("u"), reached(0, Some(3)), false),
        (pod("u"), Known::default(), false),
        (pod("u"), lost(0, 1), false),
        (pod("u"), failing, false),
        (deleting, reached(0, Some(1)), false),
    ];
    for (pod, known, expected) in cases {
        assert_eq!(pushes(&config("a", 2), &pod, &known), expected, "{known:?}");
    }
    let other = config("b", 1);
    assert!(pushes(&other, &pod("u"), &reached(0, Some(3))));
}

#[test]
fn what_an_agent_refused_it_gets_again_only_when_something_changed() {
    let mut known = reached(0, Some(1));
    refused(&mut known, 2);
    assert!(!pushes(&config("a", 2), &pod("u"), &known));
    assert_eq!(next_visit(2, known.clone(), 10).1, Why::Due);
    known.heard(report("u", Some(1)), &call(5_000, 5_000));
    assert!(!pushes(&config("a", 2), &pod("u"), &known));

    // Another configuration.
    assert!(pushes(&config("a", 3), &pod("u"), &known));
    assert_eq!(next_visit(3, known.clone(), 5_010), (5_010, Why::Outdated));
    assert!(pushes(&config("b", 2), &pod("u"), &known));

    // Another agent.
    let mut upgraded = known.clone();
    let newer = "2.0.0".into();
    let report_of_newer = crds::report::StatusReport {
        agent_version: newer,
        ..report("u", Some(1))
    };
    upgraded.heard(report_of_newer, &call(10_000, 10_000));
    assert!(pushes(&config("a", 2), &pod("u"), &upgraded));

    // Perhaps another process.
    known.failed(failure("restarting"), &call(10_000, 10_000));
    known.heard(report("u", Some(1)), &call(11_000, 11_000));
    assert!(pushes(&config("a", 2), &pod("u"), &known));
}

#[test]
fn a_pod_without_an_address_is_waited_for() {
    let pod = Pod {
        ip: None,
        ..pod("u")
    };
    let plan = plan_at(&roster(1, [pod]), &Agents::new(), 0);
    assert_eq!(idles(&plan), [("u", Idle::NoAddress)]);
    assert_eq!(plan.next, None);
}

#[test]
fn a_pod_whose_address_changed_is_visited_at_once() {
    let moved = Pod {
        ip: Some(ip(2)),
        ..pod("u")
    };
    let known = agents([("u", lost(0, 9))]);
    let plan = plan_at(&roster(1, [moved]), &known, 10);
    assert_eq!(whys(&plan), [("u", Why::Moved)]);
    assert_eq!(plan.probes[0].address.ip(), ip(2));
}

#[test]
fn a_pod_that_is_being_deleted_is_polled_on() {
    let deleting = Pod {
        deleting: true,
        ..pod("u")
    };
    let known = agents([("u", reached(0, Some(1)))]);
    let plan = plan_at(&roster(2, [deleting]), &known, 5_000);
    assert_eq!(whys(&plan), [("u", Why::Due)]);
}

#[test]
fn a_pod_that_is_being_visited_is_left_alone() {
    let (known, busy) = (Agents::new(), HashSet::from(["u".into()]));
    let seen = Observed {
        known: &known,
        busy: &busy,
    };
    let now = moment(0).monotonic;
    let plan = plan(&roster(1, [pod("u")]), &seen, &Pace::default(), now);
    assert_eq!(idles(&plan), [("u", Idle::Busy)]);
    assert!(plan.next.unwrap() > now);
}

#[test]
fn pods_that_are_gone_or_replaced_are_forgotten() {
    let known = agents([
        ("gone", lost(0, 1)),
        ("old", reached(0, Some(1))),
        ("u", reached(0, Some(1))),
    ]);
    let mut replacement = pod("new");
    replacement.key = pod("old").key;
    let plan = plan_at(&roster(1, [pod("u"), replacement]), &known, 10);
    assert_eq!(plan.forget, ["gone".into(), "old".into()] as [Uid; 2]);
    assert_eq!(whys(&plan), [("new", Why::New)]);
}

#[test]
fn those_that_answer_are_kept_apart_and_who_has_waited_longest_goes_first() {
    let known = agents([
        ("a", lost(2_000, 1)),
        ("b", lost(1_000, 1)),
        ("c", reached(4_000, Some(1))),
        ("d", reached(3_000, Some(1))),
    ]);
    let roster = roster(1, ["a", "b", "c", "d", "new"].map(pod));
    let plan = plan_at(&roster, &known, 60_000);
    let uids = |visits: &[Visit]| -> Vec<_> { visits.iter().map(|v| v.uid.clone()).collect() };
    assert_eq!(uids(&plan.visits), ["d".into(), "c".into()] as [Uid; 2]);
    let expected: [Uid; 3] = ["new".into(), "b".into(), "a".into()];
    assert_eq!(uids(&plan.probes), expected);
    assert_eq!(plan.next, Some(moment(60_000).monotonic));
}

#[test]
fn agents_that_come_due_a_moment_later_are_asked_in_the_same_round() {
    let known = agents([("u", reached(0, Some(1))), ("v", reached(400, Some(1)))]);
    let roster = roster(1, [pod("u"), pod("v")]);
    let first = plan_at(&roster, &known, 10).next.unwrap();
    let busy = HashSet::new();
    let seen = Observed {
        known: &known,
        busy: &busy,
    };
    let plan = plan(&roster, &seen, &Pace::default(), first);
    assert_eq!(whys(&plan), [("u", Why::Due), ("v", Why::Due)]);
}
