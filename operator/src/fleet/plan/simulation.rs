//! A fleet on paper, under proptest: what holds whatever agents, pods and time do.

use proptest::prelude::*;

use super::fixture::{call, config, failure, moment, pod, report, roster};
use super::*;
use crate::fleet::known::{Call, Cause, Failure};

type Agents = HashMap<Uid, Known>;

/// How a simulated agent behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Good,
    Silent,
    /// Somebody else answers at its address.
    WrongPod,
    /// Refuses every configuration.
    Refusing,
    /// Answers polls, but not to a configuration.
    Mute,
    /// Says that it took a configuration, and does not.
    Lying,
}

#[derive(Clone, Debug)]
enum Event {
    Behave(usize, Manner),
    Replace(usize),
    Come(usize),
    Go(usize),
    Delete(usize),
    NewGeneration,
    Begin,
    Finish(usize),
    Pass(u64),
}

#[derive(Clone, Debug)]
struct Simulated {
    pod: Pod,
    manner: Manner,
    generation: Option<i64>,
}

/// A fleet on paper: the real decisions and the real knowledge, with imagined agents and imagined time.
struct World {
    slots: Vec<Option<Simulated>>,
    generation: i64,
    known: Agents,
    busy: HashSet<Uid>,
    now_ms: u64,
    next_uid: u32,
    visits: usize,
    /// How often a pod refused a generation since it last failed.
    refusals: HashMap<(Uid, i64), u32>,
}

const SLOTS: usize = 4;

impl World {
    fn new() -> Self {
        let mut world = Self {
            slots: vec![None; SLOTS],
            generation: 1,
            known: Agents::new(),
            busy: HashSet::new(),
            now_ms: 0,
            next_uid: 0,
            visits: 0,
            refusals: HashMap::new(),
        };
        (0..SLOTS).for_each(|slot| world.come(slot));
        world
    }

    fn come(&mut self, slot: usize) {
        self.next_uid += 1;
        self.slots[slot] = Some(Simulated {
            pod: pod(&self.next_uid.to_string()),
            manner: Manner::Good,
            generation: None,
        });
    }

    fn roster(&self) -> Roster {
        let pods = self.slots.iter().flatten().map(|agent| agent.pod.clone());
        roster(self.generation, pods)
    }

    fn plan(&self) -> Plan {
        let seen = Observed {
            known: &self.known,
            busy: &self.busy,
        };
        let now = moment(self.now_ms).monotonic;
        plan(&self.roster(), &seen, &Pace::default(), now)
    }

    /// What [`Fleet::round`](crate::fleet::Fleet::round) does before it sends anything.
    fn begin(&mut self) {
        let plan = self.plan();
        let there: HashSet<_> = self.roster().pods.into_keys().collect();
        for uid in plan.forget {
            assert!(!there.contains(&uid), "only who is gone is forgotten");
            self.known.remove(&uid);
        }
        assert!(self.known.keys().all(|uid| there.contains(uid)));
        for visit in plan.visits.into_iter().chain(plan.probes) {
            assert!(there.contains(&visit.uid), "only who is there is visited");
            self.known.entry(visit.uid.clone()).or_default();
            self.visits += 1;
            let is_free = self.busy.insert(visit.uid);
            assert!(is_free, "never two visits of one pod at once");
        }
    }

    fn call(&self) -> Call {
        call(self.now_ms, self.now_ms)
    }

    /// All of a visit's requests are answered, or not.
    fn finish(&mut self, uid: &Uid) {
        self.busy.remove(uid);
        let (call, config) = (self.call(), config("a", self.generation));
        let agents = self.slots.iter_mut().flatten();
        let agent = agents.into_iter().find(|agent| agent.pod.uid == *uid);
        let (Some(agent), Some(known)) = (agent, self.known.get_mut(uid)) else {
            return;
        };
        let cause = match agent.manner {
            Manner::Silent => Some(Cause::Unreachable),
            Manner::WrongPod => Some(Cause::WrongPod),
            Manner::Good | Manner::Refusing | Manner::Mute | Manner::Lying => None,
        };
        if let Some(cause) = cause {
            let words = String::new();
            known.failed(Failure { cause, words }, &call);
            self.refusals.retain(|(of, _), _| of != uid);
            return;
        }
        known.heard(report(uid, agent.generation), &call);
        if !pushes(&config, &agent.pod, known) {
            return;
        }
        assert!(!agent.pod.deleting && agent.generation < Some(config.generation));
        let outcome = agent.answer(&config);
        if matches!(outcome, Offered::Refused { .. }) {
            let key = (uid.clone(), config.generation);
            let refusals = self.refusals.entry(key).or_default();
            *refusals += 1;
            assert_eq!(*refusals, 1, "a refused generation is not sent again");
        }
        known.offered(&config, outcome, &call);
        known.heard(report(uid, agent.generation), &call);
    }

    fn finish_all(&mut self) {
        for uid in self.busy.clone() {
            self.finish(&uid);
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
    }

    fn happen(&mut self, event: &Event) {
        match *event {
            Event::Behave(slot, manner) => {
                if let Some(agent) = &mut self.slots[slot] {
                    agent.manner = manner;
                }
            }
            Event::Replace(slot) | Event::Come(slot) => self.come(slot),
            Event::Go(slot) => self.slots[slot] = None,
            Event::Delete(slot) => {
                if let Some(agent) = &mut self.slots[slot] {
                    agent.pod.deleting = true;
                }
            }
            Event::NewGeneration => self.generation += 1,
            Event::Begin => self.begin(),
            Event::Finish(n) => {
                let mut busy: Vec<_> = self.busy.iter().cloned().collect();
                busy.sort_unstable();
                if let Some(uid) = busy.get(n % busy.len().max(1)) {
                    self.finish(uid);
                }
            }
            Event::Pass(ms) => self.pass(ms),
        }
    }

    /// Makes rounds, as often as the plan asks for, for so long.
    fn live(&mut self, ms: u64) {
        let end_ms = self.now_ms + ms;
        while self.now_ms < end_ms {
            self.begin();
            self.finish_all();
            let Some(next) = self.plan().next else {
                return;
            };
            let wait = next.saturating_duration_since(moment(self.now_ms).monotonic);
            assert!(!wait.is_zero(), "nobody is due again right after a visit");
            self.pass(u64::try_from(wait.as_millis()).unwrap() + 1);
        }
    }
}

impl Simulated {
    fn answer(&mut self, config: &ConfigDocument) -> Offered {
        match self.manner {
            Manner::Refusing => Offered::Refused {
                words: String::new(),
                by: Stand::of(&report(&self.pod.uid, self.generation)),
            },
            Manner::Mute => Offered::Failed(failure("no answer")),
            Manner::Lying => Offered::Taken,
            Manner::Good | Manner::Silent | Manner::WrongPod => {
                self.generation = Some(config.generation);
                Offered::Taken
            }
        }
    }
}

fn any_manner() -> impl Strategy<Value = Manner> {
    prop::sample::select(vec![
        Manner::Good,
        Manner::Silent,
        Manner::WrongPod,
        Manner::Refusing,
        Manner::Mute,
        Manner::Lying,
    ])
}

fn any_event() -> impl Strategy<Value = Event> {
    let slot = || 0..SLOTS;
    prop_oneof![
        3 => (slot(), any_manner()).prop_map(|(slot, manner)| Event::Behave(slot, manner)),
        1 => slot().prop_map(Event::Replace),
        1 => slot().prop_map(Event::Come),
        1 => slot().prop_map(Event::Go),
        1 => slot().prop_map(Event::Delete),
        2 => Just(Event::NewGeneration),
        6 => Just(Event::Begin),
        8 => (0..SLOTS).prop_map(Event::Finish),
        6 => (1..40_000_u64).prop_map(Event::Pass),
    ]
}

proptest! {
    /// The assertions are in [`World`]; this one is about what comes of it in the end.
    #[test]
    fn every_agent_gets_its_configuration_in_the_end(
        events in prop::collection::vec(any_event(), 0..60),
    ) {
        let mut world = World::new();
        for event in &events {
            world.happen(event);
        }
        world.finish_all();
        world.generation += 1;
        for agent in world.slots.iter_mut().flatten() {
            agent.manner = Manner::Good;
        }
        world.live(31_000);
        for agent in world.slots.iter().flatten().filter(|agent| !agent.pod.deleting) {
            prop_assert_eq!(agent.generation, Some(world.generation));
        }
    }

    #[test]
    fn no_manner_makes_an_agent_be_asked_more_often_than_others(manner in any_manner()) {
        let mut world = World::new();
        for agent in world.slots.iter_mut().flatten() {
            agent.manner = manner;
        }
        world.live(60_000);
        let most = if manner == Manner::Silent || manner == Manner::WrongPod { 9 } else { 18 };
        prop_assert!(world.visits <= most * SLOTS, "{} visits", world.visits);
        prop_assert!(world.visits >= 4 * SLOTS, "{} visits", world.visits);
    }
}
