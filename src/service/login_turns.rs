//! Logins of one address, one at a time, with a pause after each that failed.

use crate::base::lock::{Mutex, rank};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;

/// Time from a failed login to the next one of the same address.
const PAUSE: Duration = Duration::from_millis(500);

/// The longest wait for a turn. It bounds how long guesses hold connections, and how long their
/// address is shut out after them.
const MOST_WAIT: Duration = Duration::from_secs(4);

/// Most logins that wait for a turn behind one that failed: further ones would wait too long.
const MOST_WAITING: usize = (MOST_WAIT.as_millis() / PAUSE.as_millis()) as usize;

/// Idle addresses are dropped when there are as many.
const MOST_IDLE: usize = 1024;

/// Gives each address its turn to log in. However many connections guess passwords, an address
/// has one guess in each pause; other addresses do not wait for it.
#[derive(Debug, Default)]
pub(super) struct LoginTurns {
    /// By address. Lock: held for a lookup only.
    hosts: Mutex<rank::State, HashMap<IpAddr, Arc<Host>>>,
}

/// One address. All of its logins hold it.
#[derive(Debug, Default)]
struct Host {
    /// Locked by the login under way.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Whether the last login failed.
    has_failed: AtomicBool,
}

/// The turn of one login. The next one of its address waits until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    host: Arc<Host>,
    _guard: OwnedMutexGuard<()>,
}

impl LoginTurns {
    /// Waits for the turn of an address, without a thread; `None` if that takes too long, at once
    /// if [`MOST_WAITING`] wait already behind a login that failed.
    pub(super) async fn wait(&self, address: IpAddr) -> Option<Turn> {
        let host = {
            let mut hosts = self.hosts.lock();
            if hosts.len() >= MOST_IDLE {
                hosts.retain(|_, host| Arc::strong_count(host) > 1);
            }
            let host = hosts.entry(host(address)).or_default();
            // The map holds it, and so does the login whose turn it is.
            let waiting = Arc::strong_count(host).saturating_sub(2);
            if host.has_failed.load(Ordering::Relaxed) && waiting >= MOST_WAITING {
                return None;
            }
            Arc::clone(host)
        };
        let turn = Arc::clone(&host.turn).lock_owned();
        let guard = tokio::time::timeout(MOST_WAIT, turn).await.ok()?;
        Some(Turn { host, _guard: guard })
    }
}

impl Turn {
    /// Ends the turn of a login that succeeded.
    pub(super) fn end(self) {
        self.host.has_failed.store(false, Ordering::Relaxed);
    }

    /// Ends the turn of a failed login after the pause, whether or not its client stays.
    pub(super) fn end_late(self) {
        self.host.has_failed.store(true, Ordering::Relaxed);
        tokio::spawn(async move {
            tokio::time::sleep(PAUSE).await;
            drop(self);
        });
    }
}

/// The address that stands for a host. One host of IPv6 usually has 64 bits of addresses.
fn host(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn an_address_waits_after_a_failure_and_others_do_not() {
        let turns = Arc::new(LoginTurns::default());
        let [attacker, other] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        let begin = Instant::now();
        // A hundred connections of one address guess at the same time.
        let guesses = (0..100).map(|_| {
            let turns = Arc::clone(&turns);
            tokio::spawn(async move { turns.wait(attacker).await.map(Turn::end_late) })
        });
        let guesses: Vec<_> = guesses.collect();
        tokio::task::yield_now().await;
        for _ in 0..100 {
            turns.wait(other).await.unwrap();
        }
        assert_eq!(begin.elapsed(), Duration::ZERO, "another address waits for nobody");
        let mut made = 0;
        for guess in guesses {
            made += u32::from(guess.await.unwrap().is_some());
        }
        assert_eq!(begin.elapsed(), MOST_WAIT);
        assert!(PAUSE * (made - 1) <= MOST_WAIT, "{made} guesses");
        turns.wait(attacker).await.unwrap().end();
        let begin = Instant::now();
        turns.wait(attacker).await.unwrap();
        assert_eq!(begin.elapsed(), Duration::ZERO, "a login that succeeds makes nobody wait");
    }

    #[tokio::test(start_paused = true)]
    async fn few_logins_wait_behind_one_that_failed_and_all_behind_others() {
        let turns = Arc::new(LoginTurns::default());
        let address = IpAddr::from([10, 0, 0, 1]);
        let log_in = |_| {
            let turns = Arc::clone(&turns);
            tokio::spawn(async move { turns.wait(address).await.map(Turn::end).is_some() })
        };
        let first = turns.wait(address).await.unwrap();
        let mut logins: Vec<_> = (0..100).map(log_in).collect();
        tokio::task::yield_now().await;
        first.end();
        for login in logins.drain(..) {
            assert!(login.await.unwrap());
        }
        turns.wait(address).await.unwrap().end_late();
        logins.extend((0..MOST_WAITING).map(log_in));
        tokio::task::yield_now().await;
        let begin = Instant::now();
        assert!(turns.wait(address).await.is_none());
        assert_eq!(begin.elapsed(), Duration::ZERO);
        for login in logins {
            assert!(login.await.unwrap());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_of_one_host_of_ipv6_share_their_turns() {
        let turns = LoginTurns::default();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let turn = turns.wait(address("2001:db8::1")).await;
        assert!(turns.wait(address("2001:db8::2")).await.is_none());
        assert!(turns.wait(address("2001:db8:0:1::2")).await.is_some());
        drop(turn);
        assert!(turns.wait(address("2001:db8::2")).await.is_some());
    }

    #[tokio::test]
    async fn idle_addresses_are_forgotten() {
        let turns = LoginTurns::default();
        for address in 0..10_000u32 {
            drop(turns.wait(std::net::Ipv4Addr::from_bits(address).into()).await);
        }
        assert!(turns.hosts.lock().len() <= MOST_IDLE);
    }
}
