//! Conditions that tell about agents, and every reason they can have: part of the API. Pure data.

use crds::condition::Reason;

/// Every agent answers the operator.
pub const AGENTS_REACHABLE: &str = "AgentsReachable";
/// No agent's clock is far from the operator's.
pub const CLOCKS_AGREE: &str = "ClocksAgree";

/// `AgentsReachable`: all is well.
pub const ALL_REACHABLE: Reason = Reason {
    name: "AllReachable",
    meaning: "Every agent answered when it was asked last.",
    remedy: "Nothing to do.",
};

/// There is nobody to ask.
pub const NO_AGENTS: Reason = Reason {
    name: "NoAgents",
    meaning: "There is no pod that should carry an agent.",
    remedy: "See the other conditions, and the events of the workload, for why there are no pods.",
};

/// Nothing is known yet.
pub const NOT_ASKED_YET: Reason = Reason {
    name: "NotAskedYet",
    meaning: "The operator or the agents have just started, and not every agent has been asked.",
    remedy: "Wait a few seconds.",
};

/// `AgentsReachable`: some do not answer.
pub const AGENTS_UNREACHABLE: Reason = Reason {
    name: "AgentsUnreachable",
    meaning: "Agents did not answer, or not with a report, when they were asked last. What is told of them is what they said before.",
    remedy: "See whether the named pods run, whether a NetworkPolicy keeps the operator from their control port, and what their logs say about TLS.",
};

/// `AgentsReachable`: somebody else answers.
pub const WRONG_POD: Reason = Reason {
    name: "WrongPod",
    meaning: "At the addresses of the named pods, agents of other pods answered. Their answers were discarded.",
    remedy: "Usually passes within a minute, when the cluster has noticed that an address moved. If not, look for two pods with host networking and the same control port on one node.",
};

/// `ClocksAgree`: all is well.
pub const WITHIN_ONE_SECOND: Reason = Reason {
    name: "WithinOneSecond",
    meaning: "No agent's clock is known to differ from the operator's by more than a second.",
    remedy: "Nothing to do.",
};

/// `ClocksAgree`: some are off.
pub const CLOCKS_DIFFER: Reason = Reason {
    name: "ClocksDiffer",
    meaning: "The clocks of the named agents differ from the operator's by more than a second.",
    remedy: "Correct the time synchronisation of the nodes the named pods run on; if all agents are named, that of the operator's node.",
};

/// `ClocksAgree`: nobody told the time.
pub const NO_REPORTS: Reason = Reason {
    name: "NoReports",
    meaning: "No agent answered when it was asked last, so no clock is known.",
    remedy: "See the condition AgentsReachable.",
};

/// Every reason that a condition about agents can have.
pub const ALL: &[&Reason] = &[
    &ALL_REACHABLE,
    &NO_AGENTS,
    &NOT_ASKED_YET,
    &AGENTS_UNREACHABLE,
    &WRONG_POD,
    &WITHIN_ONE_SECOND,
    &CLOCKS_DIFFER,
    &NO_REPORTS,
];
