use jiff::SignedDuration;
use proptest::prelude::*;

use super::{super::fixture::schedule, *};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A case: the fixture's schedule, one change per method.
struct Case {
    spec: ChecksumScheduleSpec,
    seen: Observed,
}

fn case() -> Case {
    Case {
        spec: schedule().spec,
        seen: Observed {
            name: "nightly".into(),
            created: at("2026-11-01T00:00:00Z"),
            generation: 1,
            token: None,
            status: ChecksumScheduleStatus {
                observed_generation: -1,
                ..ChecksumScheduleStatus::default()
            },
            runs: Vec::new(),
        },
    }
}

impl Case {
    fn cron(mut self, text: &str) -> Self {
        self.spec.schedule.0 = text.into();
        self
    }

    fn policy(mut self, policy: ConcurrencyPolicy) -> Self {
        self.spec.concurrency_policy = policy;
        self
    }

    fn deadline(mut self, text: &str) -> Self {
        self.spec.starting_deadline = Some(text.parse().unwrap());
        self
    }

    fn suspended(mut self) -> Self {
        self.spec.suspend = true;
        self
    }

    /// The status tells of this slot, and promises the one after it.
    fn last(mut self, slot: &str) -> Self {
        let slot = at(slot);
        let spec = validate(&self.spec).unwrap();
        self.seen.status.observed_generation = 1;
        self.seen.status.last_schedule_time = Some(slot);
        self.seen.status.next_schedule_time = spec.cron.next_after(slot, &spec.zone);
        self
    }

    fn promised(mut self, slot: &str) -> Self {
        self.seen.status.next_schedule_time = Some(at(slot));
        self
    }

    fn changed(mut self) -> Self {
        self.seen.generation += 1;
        self
    }

    /// A suspended schedule promises nothing.
    fn was_suspended(mut self) -> Self {
        self.seen.status.next_schedule_time = None;
        self
    }

    fn token(mut self, token: &str) -> Self {
        self.seen.token = Some(token.into());
        self
    }

    fn handled(mut self, token: &str) -> Self {
        self.seen.status.last_handled_run_now = Some(token.into());
        self
    }

    fn run(mut self, run: Run) -> Self {
        self.seen.runs.push(run);
        self
    }

    fn told(mut self, until: &str) -> Self {
        self.seen.status.last_result_time = Some(at(until));
        self
    }

    fn plan(&self, now: &str) -> Plan {
        plan(&validate(&self.spec).unwrap(), &self.seen, at(now))
    }

    fn started(&self, now: &str) -> Vec<String> {
        self.plan(now)
            .start
            .into_iter()
            .map(|start| start.name)
            .collect()
    }
}

fn run(slot: &str) -> Run {
    let slot = at(slot);
    Run {
        name: name::slot_run("nightly", slot),
        uid: slot.to_string(),
        created: slot,
        deleting: false,
        slot: Some(slot),
        token: None,
        ended: None,
        keep: None,
    }
}

impl Run {
    fn ended(mut self, result: &str, when: &str) -> Self {
        self.ended = Some(Ended {
            result: result.into(),
            at: at(when),
        });
        self
    }

    fn deleting(mut self) -> Self {
        self.deleting = true;
        self
    }
}

#[test]
fn nothing_is_due_before_the_first_slot() {
    let plan = case().plan("2026-11-01T02:59:59Z");
    assert_eq!(plan.start, []);
    assert_eq!(plan.next_slot, Some(at("2026-11-01T03:00:00Z")));
    assert_eq!(plan.wake, plan.next_slot);
    assert_eq!(plan.last_slot, None);
}

#[test]
fn a_slot_starts_the_run_that_is_named_after_it() {
    insta::assert_yaml_snapshot!(
        case()
            .last("2026-11-15T03:00:00Z")
            .plan("2026-11-16T03:00:02Z")
    );
}

#[test]
fn a_run_that_exists_is_not_started_again_and_counts_as_handled() {
    let plan = case()
        .last("2026-11-15T03:00:00Z")
        .run(run("2026-11-16T03:00:00Z"))
        .plan("2026-11-16T03:00:10Z");
    assert_eq!(plan.start, []);
    assert_eq!(plan.last_slot, Some(at("2026-11-16T03:00:00Z")));
    assert_eq!(plan.active, ["nightly-2611160300"]);
}

#[test]
fn after_an_outage_only_the_newest_slot_is_started_and_the_others_are_reported() {
    let plan = case()
        .last("2026-11-10T03:00:00Z")
        .plan("2026-11-16T12:00:00Z");
    assert_eq!(plan.start[0].name, "nightly-2611160300");
    assert_eq!(plan.start.len(), 1);
    let missed = plan.missed.unwrap();
    assert_eq!((missed.count, missed.last), (5, at("2026-11-15T03:00:00Z")));
}

#[test]
fn slots_before_the_schedule_was_created_are_not_owed() {
    assert_eq!(case().plan("2026-11-01T01:00:00Z").missed, None);
}

#[test]
fn a_slot_is_given_up_after_the_deadline() {
    let case = case().last("2026-11-15T03:00:00Z").deadline("1h");
    assert_eq!(case.started("2026-11-16T04:00:00Z"), ["nightly-2611160300"]);
    let plan = case.plan("2026-11-16T04:00:01Z");
    assert_eq!(plan.start, []);
    assert_eq!(plan.last_slot, Some(at("2026-11-16T03:00:00Z")));
    assert_eq!(plan.missed.unwrap().count, 1);
}

#[test]
fn forbid_holds_a_slot_until_the_active_run_ends() {
    let active = run("2026-11-15T03:00:00Z");
    let held = case().last("2026-11-15T03:00:00Z").run(active.clone());
    let plan = held.plan("2026-11-16T03:00:00Z");
    assert_eq!(
        (plan.start.len(), plan.waiting),
        (0, Some(Waiting::ForActiveRun))
    );
    assert_eq!(plan.last_slot, Some(at("2026-11-15T03:00:00Z")));
    assert_eq!(
        plan.next_slot,
        Some(at("2026-11-16T03:00:00Z")),
        "the promise stands"
    );
    assert_eq!(plan.wake, Some(at("2026-11-17T03:00:00Z")));
    let free = case()
        .last("2026-11-15T03:00:00Z")
        .run(active.ended("Verified", "2026-11-16T05:00:00Z"));
    assert_eq!(free.started("2026-11-16T05:00:01Z"), ["nightly-2611160300"]);
}

#[test]
fn a_held_slot_is_given_up_at_its_deadline() {
    let case = case()
        .last("2026-11-15T03:00:00Z")
        .deadline("30m")
        .run(run("2026-11-15T03:00:00Z"));
    assert_eq!(
        case.plan("2026-11-16T03:00:00Z").wake,
        Some(at("2026-11-16T03:30:01Z"))
    );
    let late = case.plan("2026-11-16T03:30:01Z");
    assert_eq!(late.waiting, None);
    assert_eq!(late.missed.unwrap().count, 1);
}

#[test]
fn allow_starts_beside_the_active_run() {
    let case = case()
        .policy(ConcurrencyPolicy::Allow)
        .last("2026-11-15T03:00:00Z")
        .run(run("2026-11-15T03:00:00Z"));
    let plan = case.plan("2026-11-16T03:00:00Z");
    assert_eq!(plan.replace, []);
    assert_eq!(plan.active, ["nightly-2611150300", "nightly-2611160300"]);
}

#[test]
fn replace_deletes_the_active_run_first() {
    let case = case()
        .policy(ConcurrencyPolicy::Replace)
        .last("2026-11-15T03:00:00Z")
        .run(run("2026-11-15T03:00:00Z"));
    let plan = case.plan("2026-11-16T03:00:00Z");
    assert_eq!(plan.replace[0].name, "nightly-2611150300");
    assert_eq!(plan.active, ["nightly-2611160300"]);
    assert_eq!(
        case.plan("2026-11-15T12:00:00Z").replace,
        [],
        "only when something starts"
    );
}

#[test]
fn a_run_that_is_being_deleted_holds_nothing_up() {
    let case = case()
        .last("2026-11-15T03:00:00Z")
        .run(run("2026-11-15T03:00:00Z").deleting());
    assert_eq!(case.started("2026-11-16T03:00:00Z"), ["nightly-2611160300"]);
}

#[test]
fn while_suspended_nothing_starts_and_nothing_changes() {
    let case = case().suspended().last("2026-11-15T03:00:00Z").token("now");
    let plan = case.plan("2026-11-18T12:00:00Z");
    assert_eq!(
        (plan.start.len(), plan.next_slot, plan.wake),
        (0, None, None)
    );
    assert_eq!(plan.waiting, Some(Waiting::Suspended));
    assert_eq!(plan.last_slot, Some(at("2026-11-15T03:00:00Z")));
    assert_eq!(plan.missed, None);
}

#[test]
fn slots_that_passed_while_suspended_are_not_made_up_for() {
    let case = case().last("2026-11-10T03:00:00Z").was_suspended();
    let plan = case.plan("2026-11-16T12:00:00Z");
    assert_eq!((plan.start.len(), plan.missed), (0, None));
    assert_eq!(plan.last_slot, Some(at("2026-11-16T03:00:00Z")));
    assert_eq!(plan.next_slot, Some(at("2026-11-17T03:00:00Z")));
}

#[test]
fn a_changed_schedule_owes_no_slot_it_never_promised() {
    let changed = case()
        .cron("0 11 * * *")
        .last("2026-11-16T03:00:00Z")
        .promised("2026-11-17T03:00:00Z")
        .changed();
    let plan = changed.plan("2026-11-16T12:00:00Z");
    assert_eq!(plan.start, []);
    assert_eq!(plan.last_slot, Some(at("2026-11-16T11:00:00Z")));
    assert_eq!(plan.next_slot, Some(at("2026-11-17T11:00:00Z")));
}

#[test]
fn a_change_does_not_forgive_a_slot_that_was_promised() {
    let changed = case()
        .last("2026-11-15T03:00:00Z")
        .promised("2026-11-16T03:00:00Z")
        .changed();
    assert_eq!(
        changed.started("2026-11-16T04:00:00Z"),
        ["nightly-2611160300"]
    );
}

#[test]
fn each_new_token_starts_one_run() {
    let case = case().last("2026-11-16T03:00:00Z").token("first");
    let plan = case.plan("2026-11-16T12:00:00Z");
    assert_eq!(plan.start.len(), 1);
    assert_eq!(plan.start[0].token.as_deref(), Some("first"));
    assert_eq!(plan.handled_token.as_deref(), Some("first"));
    let name = plan.start[0].name.clone();
    assert!(name.starts_with("nightly-r") && name.len() == "nightly-r".len() + 9);
    let done = case.handled("first");
    assert_eq!(done.plan("2026-11-16T12:00:00Z").start, []);
    assert_ne!(done.token("second").started("2026-11-16T12:00:00Z"), [name]);
}

#[test]
fn a_token_whose_run_exists_is_handled_whatever_the_status_says() {
    let mut asked = run("2026-11-16T12:00:00Z");
    asked.slot = None;
    asked.token = Some("now".into());
    let case = case().last("2026-11-16T03:00:00Z").token("now").run(asked);
    let plan = case.plan("2026-11-16T12:00:10Z");
    assert_eq!((plan.start.len(), plan.waiting), (0, None));
    assert_eq!(plan.handled_token.as_deref(), Some("now"));
}

#[test]
fn an_empty_or_endless_token_is_no_token() {
    assert_eq!(case().token("").plan("2026-11-01T01:00:00Z").start, []);
    assert_eq!(
        case()
            .token(&"x".repeat(254))
            .plan("2026-11-01T01:00:00Z")
            .start,
        []
    );
}

#[test]
fn a_token_waits_for_the_active_run_too() {
    let case = case()
        .last("2026-11-16T03:00:00Z")
        .run(run("2026-11-16T03:00:00Z"))
        .token("now");
    let plan = case.plan("2026-11-16T04:00:00Z");
    assert_eq!(
        (plan.start.len(), plan.waiting),
        (0, Some(Waiting::ForActiveRun))
    );
    assert_eq!(plan.handled_token, None);
}

#[test]
fn a_slot_and_a_token_due_together_are_served_by_one_run_unless_runs_may_be_concurrent() {
    let both = case().last("2026-11-15T03:00:00Z").token("now");
    let plan = both.plan("2026-11-16T03:00:00Z");
    assert_eq!(plan.start.len(), 1);
    assert_eq!(plan.start[0].slot, Some(at("2026-11-16T03:00:00Z")));
    assert_eq!(plan.start[0].token.as_deref(), Some("now"));
    assert_eq!(plan.start[0].name, "nightly-2611160300");
    assert_eq!(plan.last_slot, plan.start[0].slot);
    let concurrent = both.policy(ConcurrencyPolicy::Allow);
    assert_eq!(concurrent.plan("2026-11-16T03:00:00Z").start.len(), 2);
}

#[test]
fn history_keeps_the_newest_of_each_result() {
    let mut case = case()
        .last("2026-11-16T03:00:00Z")
        .told("2026-11-16T04:00:00Z");
    for day in 10..=16 {
        let result = if day % 2 == 0 {
            "Verified"
        } else {
            "DamageFound"
        };
        let day = format!("2026-11-{day}T0");
        case = case.run(run(&format!("{day}3:00:00Z")).ended(result, &format!("{day}4:00:00Z")));
    }
    case.spec.successful_runs_history_limit = 2;
    case.spec.failed_runs_history_limit = 1;
    let pruned: Vec<_> = case
        .plan("2026-11-16T12:00:00Z")
        .prune
        .into_iter()
        .map(|d| d.name)
        .collect();
    assert_eq!(
        pruned,
        [
            "nightly-2611100300",
            "nightly-2611120300",
            "nightly-2611110300",
            "nightly-2611130300"
        ]
    );
}

#[test]
fn a_run_is_not_pruned_before_the_status_has_told_of_it() {
    let ended = run("2026-11-16T03:00:00Z").ended("Verified", "2026-11-16T04:00:00Z");
    let mut untold = case().run(ended);
    untold.spec.successful_runs_history_limit = 0;
    assert_eq!(
        untold.plan("2026-11-16T05:00:00Z").prune,
        [],
        "neither slot nor result"
    );
    let slot_told = untold.last("2026-11-16T03:00:00Z");
    assert_eq!(
        slot_told.plan("2026-11-16T05:00:00Z").prune,
        [],
        "not the result"
    );
    let told = slot_told.told("2026-11-16T04:00:00Z");
    assert_eq!(told.plan("2026-11-16T05:00:00Z").prune.len(), 1);
}

#[test]
fn a_run_that_has_outlived_its_time_goes_once_the_status_has_told_of_it() {
    let ended = Run {
        keep: Some(SignedDuration::from_hours(1)),
        ..run("2026-11-16T03:00:00Z").ended("DamageFound", "2026-11-16T04:00:00Z")
    };
    let untold = case().run(ended).last("2026-11-16T03:00:00Z");
    let plan = untold.plan("2026-11-16T05:00:00Z");
    assert_eq!(plan.prune, [], "nobody has heard of the damage");
    let told = untold.told("2026-11-16T04:00:00Z");
    let early = told.plan("2026-11-16T04:59:59Z");
    assert_eq!(
        (early.prune, early.wake),
        (vec![], Some(at("2026-11-16T05:00:00Z")))
    );
    let due = told.plan("2026-11-16T05:00:00Z");
    assert_eq!(due.prune.len(), 1);
    assert_eq!(due.wake, Some(at("2026-11-17T03:00:00Z")));
    // Also of a schedule that starts nothing.
    let suspended = told.suspended().plan("2026-11-16T04:59:59Z");
    assert_eq!(suspended.wake, Some(at("2026-11-16T05:00:00Z")));
}

#[test]
fn a_clock_that_went_back_starts_nothing_twice() {
    let case = case().last("2026-11-16T03:00:00Z");
    let plan = case.plan("2026-11-16T02:59:30Z");
    assert_eq!(plan.start, []);
    assert_eq!(plan.next_slot, Some(at("2026-11-17T03:00:00Z")));
}

#[test]
fn a_clock_that_was_a_year_ahead_stops_nothing_once_it_is_right() {
    let case = case()
        .last("2027-11-16T03:00:00Z")
        .run(run("2027-11-16T03:00:00Z").ended("Verified", "2027-11-16T04:00:00Z"));
    let plan = case.plan("2026-11-16T12:00:00Z");
    assert_eq!(plan.start, []);
    assert_eq!(plan.last_slot, Some(at("2026-11-16T03:00:00Z")));
    assert_eq!(plan.next_slot, Some(at("2026-11-17T03:00:00Z")));
}

#[test]
fn missed_slots_are_counted_to_a_limit() {
    let plan = case()
        .cron("* * * * *")
        .last("2026-11-15T03:00:00Z")
        .plan("2026-11-16T12:00:00Z");
    assert!(plan.missed.unwrap().count > MISSED_LIMIT);
}

#[test]
fn a_spec_that_cannot_be_read_names_its_field() {
    for (change, message) in [
        (
            (|spec| spec.schedule.0 = "0 0 30 2 *".into()) as fn(&mut ChecksumScheduleSpec),
            "spec.schedule: this schedule never fires: no month it names has the days it names",
        ),
        (
            |spec| spec.time_zone.0 = "Mars/Olympus".into(),
            "spec.timeZone: \"Mars/Olympus\" is not in the IANA time zone database; use a name like Europe/Berlin or UTC",
        ),
        (
            |spec| spec.template.spec.source.exclude = vec!["cache/".into()],
            "spec.template.spec.source.exclude: bad exclude pattern \"cache/\": it ends with a slash: a folder is meant without one, what is in it with `/**`",
        ),
    ] {
        let mut spec = schedule().spec;
        change(&mut spec);
        assert_eq!(validate(&spec).unwrap_err().to_string(), message);
    }
}

proptest! {
    /// Whatever happened before, carrying the plan out leaves nothing to start at the same instant.
    #[test]
    fn a_plan_carried_out_is_done(
        minutes in 1i64..100_000,
        every in 1i64..60,
        policy in prop_oneof![Just(ConcurrencyPolicy::Allow), Just(ConcurrencyPolicy::Forbid), Just(ConcurrencyPolicy::Replace)],
        token in prop::option::of("[a-z]{1,5}"),
    ) {
        let mut case = case().cron(&format!("*/{every} * * * *")).policy(policy);
        case.seen.token = token;
        let now = case.seen.created + SignedDuration::from_mins(minutes);
        let spec = validate(&case.spec).unwrap();
        let first = plan(&spec, &case.seen, now);
        for start in &first.start {
            case.seen.runs.push(Run {
                name: start.name.clone(),
                uid: start.name.clone(),
                created: now,
                deleting: false,
                slot: start.slot,
                token: start.token.clone(),
                ended: None,
                keep: None,
            });
        }
        // A crash before the status was written must not matter.
        let crashed = plan(&spec, &case.seen, now);
        prop_assert!(crashed.start.iter().all(|start| first.start.iter().all(|done| done.name != start.name)));
        case.seen.status.last_schedule_time = first.last_slot;
        case.seen.status.last_handled_run_now = first.handled_token.clone();
        let second = plan(&spec, &case.seen, now);
        prop_assert_eq!(&second.start, &vec![]);
        prop_assert_eq!(second.last_slot, first.last_slot);
        prop_assert_eq!(second.next_slot, first.next_slot);
    }
}
