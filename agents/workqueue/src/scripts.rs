//! In: nothing. Out: the steps that Redis must do as one, each with its keys and arguments described in its file.
//! Touches nothing itself. The time in all of them is that of Redis, so hosts need not agree about it.

use std::sync::LazyLock;

use redis::Script;

macro_rules! script {
    ($($part:literal),+) => {
        LazyLock::new(|| Script::new(concat!($(include_str!(concat!("scripts/", $part, ".lua"))),+)))
    };
}

pub(crate) static BEAT: LazyLock<Script> = script!("alive", "though_full", "beat");
pub(crate) static TAKE: LazyLock<Script> = script!("alive", "though_full", "take");
pub(crate) static FINISH: LazyLock<Script> = script!("release", "finish");
pub(crate) static ENQUEUE: LazyLock<Script> = script!("enqueue");
pub(crate) static GIVE_BACK: LazyLock<Script> = script!("release", "give_back");
pub(crate) static REAP: LazyLock<Script> = script!("release", "though_full", "reap");
pub(crate) static BURY_POOL: LazyLock<Script> = script!("bury_pool");
pub(crate) static MEND: LazyLock<Script> = script!("though_full", "mend");
pub(crate) static DUE: LazyLock<Script> = script!("due");
pub(crate) static REQUEUE: LazyLock<Script> = script!("requeue");
pub(crate) static COUNTS: LazyLock<Script> = script!("counts");
pub(crate) static HOLD: LazyLock<Script> = script!("though_full", "hold");
pub(crate) static LET_GO: LazyLock<Script> = script!("let_go");
pub(crate) static PUBLISH: LazyLock<Script> = script!("publish");
