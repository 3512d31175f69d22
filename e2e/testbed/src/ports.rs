//! In: nothing. Out: ports of 127.0.0.1 nobody listens on.
//! Touches: binds sockets for a moment.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;

use anyhow::{Context, Result};

/// Below the range from which Linux takes the ports of outgoing connections (32768 and up by default).
///
/// A server that is killed and started again needs its old port back. Were that port an ephemeral one, a
/// client that keeps knocking could be given it as its own, connect to itself, and keep the server out.
const RANGE: Range<u16> = 20_000..30_000;

const ATTEMPTS: usize = 1_000;

/// `N` different free ports.
///
/// Another process may take one before it is used; whoever uses them has to be prepared to try again.
pub(crate) fn free<const N: usize>() -> Result<[u16; N]> {
    let mut held = Vec::with_capacity(N); // while a port is held it is not found twice
    for _ in 0..ATTEMPTS {
        if held.len() == N {
            break;
        }
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, candidate())) {
            held.push(listener);
        }
    }
    let ports: Vec<u16> = held
        .iter()
        .map(|listener| Ok(listener.local_addr()?.port()))
        .collect::<Result<_>>()?;
    let ports = ports.try_into().ok();
    ports.with_context(|| format!("no {N} free ports in {RANGE:?} after {ATTEMPTS} attempts"))
}

/// Different in every process and every call: hashers are seeded at random.
fn candidate() -> u16 {
    let random = RandomState::new().hash_one(0) % u64::from(RANGE.end - RANGE.start);
    RANGE.start + u16::try_from(random).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ_and_can_be_bound() {
        let [a, b, c] = free().unwrap();
        assert!(a != b && b != c && a != c);
        for port in [a, b, c] {
            assert!(RANGE.contains(&port));
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        }
    }
}
