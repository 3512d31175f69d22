//! In: commands to start. Out: their children, each tied to the life of this process.
//! Touches: starts processes, all of them from one thread that lives as long as this process.

use std::io;
use std::process::{Child, Command};
use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use nix::sys::signal::Signal;

/// Requests that may wait while the keeper forks; a fork takes about a millisecond, so senders barely block.
const QUEUE: usize = 16;

/// Closes the gap between fork and `prctl`: if the parent died in it, no signal will ever come, but the
/// parent is not the expected one any more. `$0` is the expected parent, `$@` the program and its arguments.
const GUARD: &str = r#"[ "$PPID" = "$0" ] && exec "$@""#;

/// The thread that forks. The kernel sends a child its parent-death signal when the *thread* that forked
/// it ends: forked from a test's thread or a runtime's worker, children would die too early.
static KEEPER: LazyLock<io::Result<SyncSender<Request>>> = LazyLock::new(|| {
    let (requests, queue) = sync_channel(QUEUE);
    thread::Builder::new()
        .name("testbed-keeper".into())
        .spawn(move || keep(&queue))?;
    Ok(requests)
});

struct Request {
    command: Command,
    reply: SyncSender<io::Result<Child>>,
}

/// A command, its program still to be added, that gets `signal` when this process dies, however it dies.
///
/// By `setpriv`, because the call itself needs unsafe code. The pid is the program's: both steps `exec`.
pub(crate) fn tied(signal: Signal) -> Command {
    let signal = signal.as_str().trim_start_matches("SIG");
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", signal, "--", "sh", "-c", GUARD])
        .arg(std::process::id().to_string());
    command
}

/// Starts the command from the keeper's thread.
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    let keeper = KEEPER
        .as_ref()
        .map_err(|error| io::Error::new(error.kind(), "failed to start the keeper thread"))?;
    let (reply, answer) = sync_channel(1);
    keeper
        .send(Request { command, reply })
        .map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}

fn keep(queue: &Receiver<Request>) {
    for Request { mut command, reply } in queue {
        // A requester that went away has dropped the receiver; its child is then dropped unkilled, so kill it.
        if let Err(unwanted) = reply.send(command.spawn())
            && let Ok(mut child) = unwanted.0
        {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn gone() -> io::Error {
    io::Error::other("the keeper thread is gone")
}
