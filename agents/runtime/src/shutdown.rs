//! In: SIGTERM and SIGINT. Out: a cancelled token.
//! Installs the process's signal handlers.

use std::convert::Infallible;
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

/// The handlers of SIGTERM and SIGINT. From [`Signals::install`] on, neither ends the process by itself.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// To be called early: the first process of a container does not get a signal it has no handler for.
    pub fn install() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Cancels `token` at the first signal, and never returns.
    ///
    /// Later signals change nothing: how long a drain may take is the kubelet's to say, by SIGKILL.
    pub async fn cancel(mut self, token: CancellationToken) -> Infallible {
        loop {
            let signal = self.next().await;
            if token.is_cancelled() {
                info!(signal, "signal ignored, already shutting down");
            } else {
                info!(signal, "shutting down");
                token.cancel();
            }
        }
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            Some(()) = self.terminate.recv() => "SIGTERM",
            Some(()) = self.interrupt.recv() => "SIGINT",
            else => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nix::sys::signal::{Signal, raise};
    use tokio::time::timeout;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn the_first_signal_cancels_and_a_second_does_not_kill() {
        let signals = Signals::install().unwrap();
        let token = CancellationToken::new();
        raise(Signal::SIGTERM).unwrap();
        tokio::select! {
            never = signals.cancel(token.clone()) => match never {},
            cancelled = timeout(LIMIT, token.cancelled()) => cancelled.unwrap(),
        }
        raise(Signal::SIGTERM).unwrap();
        raise(Signal::SIGINT).unwrap();
    }
}
