//! What failures and earlier runs mean for a coordinator. In: errors, runs. Out: what to do and to tell. Pure.

use std::io;
use std::path::Path;

use crds::checksum_run::reason;
use crds::report::checksum::Explained;
use runtime::telemetry::chain;
use rustix::io::Errno;

use super::Failure;
use crate::engine;
use crate::list;
use crate::result::{self, explained};
use crate::store::{self, Owner, Problem, Run, Trouble};

/// What becomes of a run in a store.
pub(super) enum Claim {
    /// It is the one to carry out.
    Ours(Box<Run>),
    /// It was begun for a ChecksumRun of this namespace that is gone or has ended: the operator lets only one begin.
    Abandoned(Box<Run>),
    /// It is somebody else's to resume or to abort.
    Others(Explained),
    /// Nothing is in the way.
    Free,
}

/// Of a store with these runs: the one that was begun for `owner`, and the last of all. A ChecksumRun has one run, whatever came
/// after it: a pod that is replaced in its last seconds may find that the next has ended, too.
pub(super) fn claim(own: Option<Run>, last: Option<Run>, owner: &Owner) -> Claim {
    if let Some(run) = own {
        return Claim::Ours(Box::new(run));
    }
    let Some(run) = last else {
        return Claim::Free;
    };
    if run.state.is_resolved() {
        return Claim::Free;
    }
    let namespace = |name: &str| name.split('/').next().map(str::to_owned);
    let by = run.what.owner.as_ref();
    if by.is_some_and(|by| namespace(&by.name) == namespace(&owner.name)) {
        return Claim::Abandoned(Box::new(run));
    }
    let by = by.map_or_else(
        || "which was begun on a command line".to_owned(),
        |by| format!("of the ChecksumRun {}", by.name),
    );
    Claim::Others(explained(
        reason::UNRESOLVED_RUN.name,
        format!(
            "run {} {by} was interrupted in state {}: resume or abort it there",
            run.id, run.state
        ),
    ))
}

pub(super) fn of_store(error: &store::Error) -> Failure {
    let words = chain(error);
    let waiting =
        |reason: &crds::condition::Reason| Failure::Waiting(explained(reason.name, words.clone()));
    match error.trouble() {
        Trouble::InUse => waiting(&reason::STORE_IN_USE),
        Trouble::Unresolved => waiting(&reason::UNRESOLVED_RUN),
        Trouble::Unreachable | Trouble::Clash => waiting(&reason::STORE_UNREACHABLE),
        Trouble::Refused => waiting(&reason::STORE_REFUSED),
        Trouble::Full => waiting(&reason::STORE_FULL),
        Trouble::Broken => Failure::Final(explained(reason::FAILED.name, words)),
    }
}

pub(super) fn of_engine(error: &engine::Error) -> Failure {
    let is_final =
        |reason: &crds::condition::Reason| Failure::Final(explained(reason.name, chain(error)));
    match error {
        engine::Error::Store(error) => of_store(error),
        engine::Error::Stopped { .. } | engine::Error::Interrupted => Failure::Stopped,
        engine::Error::Guard { .. } => is_final(&reason::DELETION_GUARD),
        engine::Error::List(list::Error::Root {
            path,
            errno: Errno::ACCESS | Errno::PERM,
        }) => Failure::Final(denied(path)),
        engine::Error::Open { path, source }
            if source.kind() == io::ErrorKind::PermissionDenied =>
        {
            Failure::Final(denied(path))
        }
        engine::Error::Queue(_) => {
            Failure::Waiting(explained(reason::QUEUE_UNREACHABLE.name, chain(error)))
        }
        engine::Error::List(_)
        | engine::Error::Open { .. }
        | engine::Error::Spill { .. }
        | engine::Error::Reader => is_final(&reason::FAILED),
    }
}

pub(super) fn cancelled() -> Explained {
    explained(reason::CANCELLED.name, "cancelled; what was read is stored")
}

/// How a run ended. Damage that an earlier run found, and that this one did not read, is still there. If nothing could be read
/// at all, whose the files are is what helps.
pub(super) fn result(
    run: &Run,
    first: Option<&Problem>,
    damaged: u64,
    root: &Path,
) -> Option<Explained> {
    let result = result::of(run)?;
    let is_good =
        [reason::VERIFIED.name, reason::CHANGED_MEANWHILE.name].contains(&&*result.reason);
    if is_good && damaged > 0 {
        let message = format!(
            "{damaged} files that earlier runs found damaged were neither restored nor accepted"
        );
        return Some(explained(reason::DAMAGE_FOUND.name, message));
    }
    let is_denied = |problem: &Problem| problem.why.contains("Permission denied");
    let all = run.counts.selected > 0 && run.counts.unreadable == run.counts.selected;
    match first.filter(|it| is_denied(it)) {
        Some(problem) if all => {
            let path = root.join(problem.path.to_string());
            Some(denied(&path))
        }
        _ => Some(result),
    }
}

fn denied(path: &Path) -> Explained {
    use std::os::unix::fs::MetadataExt as _;
    let owner = std::fs::metadata(path)
        .or_else(|_| {
            path.parent()
                .map_or_else(|| std::fs::metadata(path), std::fs::metadata)
        })
        .map_or_else(
            |_| "nobody here can tell whose it is".to_owned(),
            |seen| format!("it belongs to user {} and group {}", seen.uid(), seen.gid()),
        );
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    explained(
        reason::PERMISSION_DENIED.name,
        format!(
            "user {} and group {} may not read {}: {owner}; set spec.workers.runAsUser or runAsGroup",
            user.as_raw(),
            group.as_raw(),
            path.display()
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::State;

    fn owner(uid: &str, name: &str) -> Owner {
        Owner {
            uid: uid.into(),
            name: name.into(),
        }
    }

    fn run(by: Option<Owner>, state: State) -> Run {
        let mut run = Run::example(state);
        run.what.owner = by;
        run
    }

    #[test]
    fn a_run_is_taken_up_by_its_own_uid_only() {
        let us = owner("a", "ns/run");
        let ours = || Some(run(Some(us.clone()), State::WorkQueue));
        assert!(matches!(claim(ours(), ours(), &us), Claim::Ours(_)));
        let again = run(Some(owner("b", "ns/run")), State::WorkQueue);
        assert!(matches!(claim(None, Some(again), &us), Claim::Abandoned(_)));
        let finished = || Some(run(Some(owner("b", "ns/run")), State::Finished));
        assert!(matches!(claim(None, finished(), &us), Claim::Free));
        assert!(matches!(claim(None, None, &us), Claim::Free));
        let ended = Some(run(Some(us.clone()), State::Finished));
        assert!(matches!(claim(ended, finished(), &us), Claim::Ours(_)));
    }

    #[test]
    fn a_run_of_another_place_is_left_to_its_owner() {
        let us = owner("a", "ns/run");
        let others = [
            (None, "command line"),
            (Some(owner("c", "elsewhere/run")), "elsewhere/run"),
        ];
        for (by, name) in others {
            let Claim::Others(why) = claim(None, Some(run(by, State::MetadataSync)), &us) else {
                panic!("taken");
            };
            assert_eq!(why.reason, reason::UNRESOLVED_RUN.name);
            assert!(why.message.contains(name), "{}", why.message);
        }
    }

    #[test]
    fn a_run_of_which_nothing_could_be_read_names_the_owner_of_the_files() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "").unwrap();
        let mut ended = run(None, State::Finished);
        (ended.counts.selected, ended.counts.unreadable) = (1, 1);
        let problem = Problem {
            path: crate::path::RelativePath::new(*b"a"),
            outcome: "unreadable".into(),
            why: "failed to open it: Permission denied (os error 13)".into(),
        };
        let told = result(&ended, Some(&problem), 0, folder.path()).unwrap();
        assert_eq!(told.reason, reason::PERMISSION_DENIED.name);
        assert!(
            told.message.contains("it belongs to user"),
            "{}",
            told.message
        );
        assert_eq!(
            result(&ended, None, 0, folder.path()).unwrap().reason,
            reason::UNREADABLE.name
        );
    }

    #[test]
    fn damage_that_was_not_read_again_is_still_damage() {
        let ended = run(None, State::Finished);
        let told = |damaged| {
            result(&ended, None, damaged, Path::new("/"))
                .unwrap()
                .reason
        };
        assert_eq!(told(0), reason::VERIFIED.name);
        assert_eq!(told(1), reason::DAMAGE_FOUND.name);
    }
}
