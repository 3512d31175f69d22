use proptest::prelude::*;
use runtime::clock::{Clock, SystemClock};

use super::*;

fn start() -> Instant {
    SystemClock.monotonic()
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn elector(identity: &str) -> Elector {
    Elector::new(identity.into(), Times::default())
}

fn record(holder: Option<&str>, version: &str) -> Record {
    Record {
        holder: holder.map(Into::into),
        transitions: 0,
        version: version.into(),
        duration: Some(seconds(15)),
        acquired: None,
    }
}

#[test]
fn an_absent_lease_is_created() {
    let (t, mut elector) = (start(), elector("a"));
    assert_eq!(elector.step(t), Step::Look);
    elector.saw(None, t);
    assert_eq!(elector.step(t), Step::Create);
    elector.claimed(record(Some("a"), "1"), t, t);
    assert_eq!(elector.leads_until(), Some(t + seconds(10)));
    assert_eq!(elector.step(t), Step::Wait(t + seconds(2)));
}

#[test]
fn a_held_lease_is_taken_over_only_after_it_stood_still_for_its_duration() {
    let (t, mut elector) = (start(), elector("b"));
    elector.saw(Some(record(Some("a"), "1")), t);
    assert_eq!(elector.step(t), Step::Wait(t + seconds(2)));
    elector.saw(Some(record(Some("a"), "2")), t + seconds(14));
    elector.saw(Some(record(Some("a"), "2")), t + seconds(28));
    assert!(matches!(elector.step(t + seconds(28)), Step::Wait(_)));
    assert_eq!(
        elector.step(t + seconds(30)),
        Step::Claim(record(Some("a"), "2"))
    );
}

#[test]
fn a_holder_that_asks_for_more_time_gets_it() {
    let (t, mut elector) = (start(), elector("b"));
    let patient = Record {
        duration: Some(seconds(60)),
        ..record(Some("a"), "1")
    };
    elector.saw(Some(patient.clone()), t);
    assert_eq!(elector.step(t + seconds(59)), Step::Look);
    assert_eq!(elector.step(t + seconds(60)), Step::Claim(patient));
}

#[test]
fn a_released_lease_is_claimed_at_once() {
    let (t, mut elector) = (start(), elector("b"));
    elector.saw(Some(record(Some("a"), "1")), t);
    elector.nudged();
    assert_eq!(elector.step(t), Step::Look);
    elector.saw(Some(record(None, "2")), t);
    assert_eq!(elector.step(t), Step::Claim(record(None, "2")));
}

#[test]
fn a_leader_that_cannot_renew_stops_at_the_deadline_counted_from_before_the_request() {
    let (t, mut elector) = (start(), elector("a"));
    elector.saw(None, t);
    elector.claimed(record(Some("a"), "1"), t, t + seconds(3));
    elector.failed(t + seconds(6));
    assert!(matches!(elector.step(t + seconds(8)), Step::Claim(_)));
    elector.failed(t + seconds(9));
    assert_eq!(elector.step(t + seconds(10)), Step::Lost);
}

#[test]
fn a_leader_whose_answer_was_lost_finds_its_own_record_and_goes_on() {
    let (t, mut elector) = (start(), elector("a"));
    elector.saw(None, t);
    elector.claimed(record(Some("a"), "1"), t, t);
    elector.failed(t + seconds(2));
    assert_eq!(
        elector.step(t + seconds(4)),
        Step::Claim(record(Some("a"), "1"))
    );
    elector.refused();
    assert_eq!(elector.step(t + seconds(4)), Step::Look);
    elector.saw(Some(record(Some("a"), "2")), t + seconds(4));
    assert_eq!(
        elector.step(t + seconds(4)),
        Step::Claim(record(Some("a"), "2"))
    );
}

#[test]
fn a_leader_that_finds_another_holder_has_lost() {
    let (t, mut elector) = (start(), elector("a"));
    elector.saw(None, t);
    elector.claimed(record(Some("a"), "1"), t, t);
    elector.refused();
    elector.saw(Some(record(Some("b"), "2")), t + seconds(3));
    assert_eq!(elector.step(t + seconds(3)), Step::Lost);
}

#[test]
fn failed_requests_do_not_make_a_standby_wait_anew() {
    let (t, mut elector) = (start(), elector("b"));
    elector.saw(Some(record(Some("a"), "1")), t);
    for n in 1..8 {
        elector.failed(t + seconds(2 * n));
    }
    assert!(matches!(elector.step(t + seconds(16)), Step::Claim(_)));
}

#[test]
fn a_deleted_lease_is_not_recreated_before_its_holder_must_have_noticed() {
    let (t, mut elector) = (start(), elector("b"));
    elector.saw(Some(record(Some("a"), "1")), t);
    for n in 1..16 {
        elector.saw(None, t + seconds(n));
    }
    assert_eq!(elector.step(t + seconds(17)), Step::Create);
    elector.saw(None, t + seconds(15));
    assert_eq!(
        elector.step(t + seconds(17) - Duration::from_millis(1)),
        Step::Wait(t + seconds(17))
    );
    assert_eq!(
        elector.step(t + seconds(60)),
        Step::Look,
        "it has looked away"
    );
}

#[test]
fn a_leader_whose_lease_is_deleted_creates_it_again_at_once() {
    let (t, mut elector) = (start(), elector("a"));
    elector.saw(None, t);
    elector.claimed(record(Some("a"), "1"), t, t);
    elector.refused();
    elector.saw(None, t + seconds(2));
    assert_eq!(elector.step(t + seconds(2)), Step::Create);
}

/// A Lease on a server that answers late, or carries a request out and loses the answer.
#[derive(Default)]
struct Server {
    record: Option<Record>,
    version: u64,
}

impl Server {
    fn claim(&mut self, identity: &str, expected: Option<&Record>) -> Result<Record, ()> {
        if self.record.as_ref() != expected {
            return Err(());
        }
        self.version += 1;
        let claimed = record(Some(identity), &self.version.to_string());
        self.record = Some(claimed.clone());
        Ok(claimed)
    }
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    LostRequest,
    LostAnswer,
    Slow(u64),
    /// The process stands still, as under SIGSTOP.
    Paused(u64),
    /// Somebody deletes the Lease.
    Deleted,
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        6 => Just(Fault::None),
        1 => Just(Fault::LostRequest),
        1 => Just(Fault::LostAnswer),
        1 => (1u64..6).prop_map(Fault::Slow),
        1 => (1u64..40).prop_map(Fault::Paused),
        1 => Just(Fault::Deleted),
    ]
}

proptest! {
    /// Runs three candidates second by second against one server under faults; whatever happens,
    /// the times in which they may act do not overlap.
    #[test]
    fn two_candidates_never_lead_at_the_same_time(faults in prop::collection::vec((0usize..3, fault()), 200)) {
        let t = start();
        let mut server = Server::default();
        let mut electors = ["a", "b", "c"].map(elector);
        // A process that has never seen a leader creates an absent Lease at once; see the docs.
        for elector in &mut electors {
            elector.rival = true;
        }
        let mut paused_until = [t; 3];
        let mut deletable = t;
        for (second, (who, fault)) in faults.into_iter().enumerate() {
            let now = t + seconds(u64::try_from(second).unwrap());
            for (n, elector) in electors.iter_mut().enumerate() {
                let fault = if n == who { fault } else { Fault::None };
                // Who deletes a Lease before the standbys have seen it can deceive them.
                if matches!(fault, Fault::Deleted) && now >= deletable {
                    server.record = None;
                }
                if paused_until[n] > now {
                    continue;
                }
                if let Fault::Paused(pause) = fault {
                    paused_until[n] = now + seconds(pause);
                    continue;
                }
                let absent = server.record.is_none();
                turn(elector, &mut server, fault, now);
                if absent && server.record.is_some() {
                    deletable = now + seconds(6);
                }
            }
            let leading = electors.iter().filter(|e| e.leads_until().is_some_and(|until| now < until));
            prop_assert!(leading.count() <= 1);
        }
    }
}

fn turn(elector: &mut Elector, server: &mut Server, fault: Fault, now: Instant) {
    let expected = match elector.step(now) {
        Step::Wait(_) => return,
        Step::Lost => {
            // The process ends and a new one takes its place, which has seen the others before.
            *elector = self::elector(&format!("{}'", elector.identity()));
            elector.rival = true;
            return;
        }
        Step::Look if matches!(fault, Fault::None) => {
            return elector.saw(server.record.clone(), now);
        }
        Step::Look => return elector.failed(now),
        Step::Create => None,
        Step::Claim(record) => Some(record),
    };
    match fault {
        Fault::LostRequest | Fault::Paused(_) => elector.failed(now),
        Fault::LostAnswer => {
            let _ = server.claim(elector.identity(), expected.as_ref());
            elector.failed(now);
        }
        Fault::None | Fault::Slow(_) | Fault::Deleted => {
            let late = if let Fault::Slow(by) = fault {
                seconds(by)
            } else {
                Duration::ZERO
            };
            match server.claim(elector.identity(), expected.as_ref()) {
                Ok(record) => elector.claimed(record, now, now + late),
                Err(()) => elector.refused(),
            }
        }
    }
}
