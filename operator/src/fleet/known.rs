//! What is known of one agent. In: how requests to it ended. Out: its last values, and since when it fails.
//! Pure.

use std::{net::IpAddr, sync::Arc, time::Duration};

use crds::report::{ConfigDocument, StatusReport};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Both clocks, read at the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// For waits.
    pub monotonic: Instant,
    /// For what people see.
    pub wall: Timestamp,
}

/// A request that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Where it went.
    pub address: IpAddr,
    /// When it began.
    pub sent: Now,
    /// When it was over.
    pub ended: Now,
}

/// Why a request brought nothing; its metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No answer, or none in time.
    Unreachable,
    /// Another pod answered at this address.
    WrongPod,
    /// An answer that makes no sense.
    Unreadable,
}

/// How a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// In a word.
    pub cause: Cause,
    /// For people; short, and the same for the same failure.
    pub words: String,
}

/// The last good report.
#[derive(Clone, Debug, PartialEq)]
pub struct Heard {
    /// What the agent said.
    pub report: Arc<StatusReport>,
    /// When it said so, by the operator's clock.
    pub at: Timestamp,
    /// How far its clock is ahead of the operator's.
    pub offset: SignedDuration,
    /// How far the offset may be wrong: the agent read its clock at any time during the request.
    pub doubt: Duration,
}

/// A series of failures without a good report in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failing {
    /// The last one.
    pub failure: Failure,
    /// How many.
    pub attempts: u32,
    /// The time of the first one.
    pub since: Timestamp,
}

/// What became of a configuration that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offered {
    /// The agent says that it is in force.
    Taken,
    /// The agent will not have it.
    Refused {
        /// Its own words.
        words: String,
        /// What it was when it refused: it may think otherwise as another.
        by: Stand,
    },
    /// Nobody knows.
    Failed(Failure),
}

/// What makes an agent likely to answer the same to the same configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stand {
    agent_version: String,
    config: Option<(String, i64)>,
}

impl Stand {
    /// That of the agent that wrote the report.
    pub fn of(report: &StatusReport) -> Self {
        Self {
            agent_version: report.agent_version.clone(),
            config: report.config_uid.clone().zip(report.config_generation),
        }
    }
}

/// The configuration that was sent last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    uid: String,
    generation: i64,
    /// What became of it.
    pub outcome: Offered,
}

impl Offer {
    fn is_of(&self, config: &ConfigDocument) -> bool {
        self.uid == config.uid && self.generation == config.generation
    }
}

/// When an agent was asked last, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// When the request was over.
    pub at: Instant,
    /// Where it went.
    pub address: IpAddr,
}

/// What is known of one agent. Of each kind only the newest: the size does not grow with time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    /// The last request.
    pub asked: Option<Asked>,
    /// The last good report; it stays while the agent is unreachable.
    pub heard: Option<Heard>,
    /// Set while the last report that was asked for did not come.
    pub failing: Option<Failing>,
    /// The last configuration that was sent, since the agent failed last.
    pub offer: Option<Offer>,
    /// Since when it is asked to work by a configuration that it has not taken up.
    pub behind: Option<Behind>,
}

/// A configuration that was sent, and not taken up yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behind {
    uid: String,
    generation: i64,
    /// When it was sent first.
    pub since: Timestamp,
}

impl Behind {
    fn is_of(&self, config: &ConfigDocument) -> bool {
        self.uid == config.uid && self.generation == config.generation
    }

    fn is_over(&self, report: &StatusReport) -> bool {
        works_by(report, &self.uid, self.generation)
    }
}

impl Known {
    /// The report of an agent that answered when it was asked last.
    pub fn current_report(&self) -> Option<&StatusReport> {
        let heard = self.heard.as_ref().filter(|_| self.failing.is_none());
        heard.map(|heard| heard.report.as_ref())
    }

    /// What became of `config`, if that is what was sent last.
    pub fn outcome(&self, config: &ConfigDocument) -> Option<&Offered> {
        let offer = self.offer.as_ref().filter(|offer| offer.is_of(config));
        offer.map(|offer| &offer.outcome)
    }

    /// Since when the agent is asked in vain to work by `config`, whether it answers or not.
    pub fn behind_since(&self, config: &ConfigDocument) -> Option<Timestamp> {
        let behind = self.behind.as_ref().filter(|behind| behind.is_of(config));
        behind.map(|behind| behind.since)
    }

    /// A good report came.
    pub fn heard(&mut self, report: StatusReport, call: &Call) {
        let took = call.ended.monotonic - call.sent.monotonic;
        let ahead = report.time.duration_since(call.sent.wall);
        let half = SignedDuration::try_from(took / 2).unwrap_or(SignedDuration::MAX);
        self.note(call);
        self.failing = None;
        self.behind = self.behind.take().filter(|it| !it.is_over(&report));
        self.heard = Some(Heard {
            offset: ahead.saturating_sub(half),
            doubt: took / 2,
            report: Arc::new(report),
            at: call.ended.wall,
        });
    }

    /// No good report came. Whoever answers next may be a new process: what the old one refused is forgotten.
    pub fn failed(&mut self, failure: Failure, call: &Call) {
        let before = self.failing.take();
        self.note(call);
        self.offer = None;
        self.failing = Some(Failing {
            failure,
            attempts: before.as_ref().map_or(0, |f| f.attempts).saturating_add(1),
            since: before.map_or(call.ended.wall, |f| f.since),
        });
    }

    /// A configuration was sent.
    pub fn offered(&mut self, config: &ConfigDocument, outcome: Offered, call: &Call) {
        self.note(call);
        if !self.behind.as_ref().is_some_and(|it| it.is_of(config)) {
            self.behind = Some(Behind {
                uid: config.uid.clone(),
                generation: config.generation,
                since: call.ended.wall,
            });
        }
        self.offer = Some(Offer {
            uid: config.uid.clone(),
            generation: config.generation,
            outcome,
        });
    }

    fn note(&mut self, call: &Call) {
        self.asked = Some(Asked {
            at: call.ended.monotonic,
            address: call.address,
        });
    }
}

/// Whether the agent works by `config`, or by a later generation of it.
pub fn acknowledges(report: &StatusReport, config: &ConfigDocument) -> bool {
    works_by(report, &config.uid, config.generation)
}

fn works_by(report: &StatusReport, uid: &str, generation: i64) -> bool {
    report.config_uid.as_deref() == Some(uid) && report.config_generation >= Some(generation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::plan::fixture::{call, config, failure, moment, report};

    #[test]
    fn the_offset_is_taken_halfway_between_request_and_answer() {
        let cases = [(1_000, 0), (6_000, 5_000), (0, -1_000)];
        for (agent_ms, offset_ms) in cases {
            let mut known = Known::default();
            let mut report = report("u", None);
            report.time = moment(agent_ms).wall;
            known.heard(report, &call(0, 2_000));
            let heard = known.heard.unwrap();
            assert_eq!(heard.offset, SignedDuration::from_millis(offset_ms));
            assert_eq!(heard.doubt, Duration::from_secs(1));
            assert_eq!(heard.at, moment(2_000).wall);
        }
    }

    #[test]
    fn clocks_at_the_ends_of_time_are_only_far_off() {
        for time in [Timestamp::MIN, Timestamp::MAX] {
            let mut known = Known::default();
            let mut report = report("u", None);
            report.time = time;
            known.heard(report, &call(0, 10));
            let offset = known.heard.unwrap().offset;
            assert!(offset.abs() > SignedDuration::from_hours(1_000_000));
        }
    }

    #[test]
    fn the_last_values_are_kept_while_the_agent_fails() {
        let mut known = Known::default();
        known.heard(report("u", Some(1)), &call(0, 10));
        let heard = known.heard.clone();
        known.failed(failure("first"), &call(5_000, 8_000));
        known.failed(failure("second"), &call(9_000, 12_000));
        assert_eq!(known.heard, heard);
        assert_eq!(known.current_report(), None);
        let failing = known.failing.as_ref().unwrap();
        assert_eq!((failing.attempts, failing.since), (2, moment(8_000).wall));
        assert_eq!(failing.failure, failure("second"));
        known.heard(report("u", Some(1)), &call(20_000, 20_010));
        assert_eq!(known.failing, None);
    }

    #[test]
    fn since_when_an_agent_is_behind_counts_from_the_first_offer_until_it_has_taken_it_up() {
        let mut known = Known::default();
        let (third, fourth) = (config("a", 3), config("a", 4));
        let refuse = |known: &mut Known, ms| {
            let by = Stand::of(&report("u", Some(2)));
            let words = "unknown field".into();
            known.offered(&third, Offered::Refused { words, by }, &call(ms, ms));
        };
        known.heard(report("u", Some(2)), &call(0, 0));
        assert_eq!(known.behind_since(&third), None);
        refuse(&mut known, 1_000);
        known.failed(failure("no answer"), &call(5_000, 5_000));
        known.heard(report("u", Some(2)), &call(9_000, 9_000));
        refuse(&mut known, 10_000);
        assert_eq!(known.behind_since(&third), Some(moment(1_000).wall));
        assert_eq!(known.behind_since(&fourth), None);
        known.heard(report("u", Some(3)), &call(20_000, 20_000));
        assert_eq!(known.behind_since(&third), None);
    }

    #[test]
    fn an_acknowledgement_is_of_the_same_resource_and_not_older() {
        let report = report("u", Some(3));
        assert!(acknowledges(&report, &config("a", 3)));
        assert!(acknowledges(&report, &config("a", 2)));
        assert!(!acknowledges(&report, &config("a", 4)));
        assert!(!acknowledges(&report, &config("b", 1)));
    }

    #[test]
    fn a_configuration_without_a_number_is_none() {
        let mut report = report("u", Some(3));
        report.config_generation = None;
        assert!(!acknowledges(&report, &config("a", i64::MIN)));
    }
}
