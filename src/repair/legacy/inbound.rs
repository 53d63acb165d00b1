//! Sessions of files that nodes of 0.6 have announced, by source.

use crate::base::lock::{Mutex, rank};
use crate::model::schema::FamilyId;
use crate::storage::database::TakenIn;
use crate::storage::files::OriginalPart;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Most failed transfers of a file.
const ATTEMPTS: u32 = 3;

/// Silence after which a session is over: its source was restarted, or has lost a message. 0.6
/// tries for ten minutes to connect.
pub(super) const IDLE: Duration = Duration::from_mins(15);

/// An announced file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Expected {
    /// Its path at the source, as answers repeat it.
    pub(super) path: String,
    pub(super) length: u64,
    pub(super) family: FamilyId,
    pub(super) part: OriginalPart,
}

/// Files of a keyspace that a node sends one after the other.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) source: IpAddr,
    pub(super) keyspace: String,
    state: Mutex<rank::State, SessionState>,
}

#[derive(Debug, Default)]
struct SessionState {
    taken: TakenIn,
    /// Time of the last sign of the source.
    last: Duration,
    outcome: Option<Result<(), String>>,
}

impl Session {
    fn new(source: IpAddr, keyspace: &str, now: Duration) -> Arc<Self> {
        let state = Mutex::new(SessionState { last: now, ..SessionState::default() });
        Arc::new(Self { source, keyspace: keyspace.to_owned(), state })
    }

    /// Notes a sign of the source.
    pub(super) fn touch(&self, now: Duration) {
        self.state.lock().last = now;
    }

    fn end(&self, outcome: Result<(), String>) {
        self.state.lock().outcome.get_or_insert(outcome);
    }

    /// Time since the last sign of the source.
    pub(super) fn silence(&self, now: Duration) -> Duration {
        now.saturating_sub(self.state.lock().last)
    }

    /// The result, once the session has ended.
    pub(super) fn outcome(&self) -> Option<Result<TakenIn, String>> {
        let state = self.state.lock();
        state.outcome.clone().map(|outcome| outcome.map(|()| state.taken))
    }
}

/// Sessions of one node.
#[derive(Debug, Default)]
struct Source {
    /// Requested sessions that were not announced yet, in the order of the requests.
    awaited: VecDeque<Arc<Session>>,
    /// The announced session.
    current: Option<Current>,
}

#[derive(Debug)]
struct Current {
    session: Arc<Session>,
    /// Files that have not arrived, in order.
    files: VecDeque<Expected>,
    /// Whether the first file is arriving at the moment.
    is_coming: bool,
    /// Failed transfers of the first file.
    attempts: u32,
}

/// Consequence of an arrived or failed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    Taken,
    /// The file has to be sent again.
    Again,
    /// The file failed too often: the session is over.
    GivenUp,
    /// The session was over before.
    Over,
}

/// All sessions, by source.
#[derive(Debug, Default)]
pub(super) struct InboundSessions(Mutex<rank::Job, BTreeMap<IpAddr, Source>>);

impl InboundSessions {
    /// Adds a session for a request, before the source announces it.
    pub(super) fn await_one(&self, from: IpAddr, keyspace: &str, now: Duration) -> Arc<Session> {
        let session = Session::new(from, keyspace, now);
        self.0.lock().entry(from).or_default().awaited.push_back(Arc::clone(&session));
        session
    }

    /// Ends a session.
    pub(super) fn give_up(&self, session: &Arc<Session>) {
        let mut sources = self.0.lock();
        if let Some(source) = sources.get_mut(&session.source) {
            source.awaited.retain(|awaited| !Arc::ptr_eq(awaited, session));
            source.current.take_if(|current| Arc::ptr_eq(&current.session, session));
        }
        drop(sources);
        session.end(Err("it is not waited for any longer".to_owned()));
    }

    /// Takes an announcement of files, which may be none, or faulty. A source has one session at a
    /// time: a new one ends the last.
    pub(super) fn announce(
        &self,
        from: IpAddr,
        keyspace: &str,
        files: Result<Vec<Expected>, String>,
        now: Duration,
    ) {
        let mut sources = self.0.lock();
        let source = sources.entry(from).or_default();
        if let Some(last) = source.current.take() {
            last.session.end(Err(format!("{from} has begun to send other files")));
        }
        let place = source.awaited.iter().position(|awaited| awaited.keyspace == keyspace);
        let awaited = place.and_then(|place| source.awaited.remove(place));
        let session = awaited.unwrap_or_else(|| Session::new(from, keyspace, now));
        session.touch(now);
        match files {
            Ok(files) if !files.is_empty() => {
                let files = files.into();
                source.current = Some(Current { session, files, is_coming: false, attempts: 0 });
            }
            files => session.end(files.map(|_| ())),
        }
    }

    /// The keyspaces of awaited sessions of a source, in order.
    pub(super) fn awaited(&self, from: IpAddr) -> Vec<String> {
        let sources = self.0.lock();
        let awaited = sources.get(&from).map(|source| source.awaited.iter());
        awaited.into_iter().flatten().map(|session| session.keyspace.clone()).collect()
    }

    /// The file that a new connection of a source brings. `None` if none was announced, or another
    /// one is still arriving.
    pub(super) fn begin(&self, from: IpAddr, now: Duration) -> Option<(Arc<Session>, Expected)> {
        let mut sources = self.0.lock();
        let current = sources.get_mut(&from)?.current.as_mut()?;
        if current.is_coming {
            return None;
        }
        current.is_coming = true;
        current.session.touch(now);
        Some((Arc::clone(&current.session), current.files.front()?.clone()))
    }

    /// Takes the result of the arriving file.
    pub(super) fn arrive(
        &self,
        session: &Arc<Session>,
        taken: Result<TakenIn, String>,
        now: Duration,
    ) -> Arrival {
        let mut sources = self.0.lock();
        let current = sources.get_mut(&session.source).map(|source| &mut source.current);
        let Some(slot) = current else { return Arrival::Over };
        let is_it = |current: &&mut Current| Arc::ptr_eq(&current.session, session);
        let Some(current) = slot.as_mut().filter(is_it) else { return Arrival::Over };
        current.is_coming = false;
        session.touch(now);
        let (arrival, outcome) = match taken {
            Ok(taken) => {
                current.files.pop_front();
                current.attempts = 0;
                let sum = &mut session.state.lock().taken;
                (sum.rows, sum.bytes) = (sum.rows + taken.rows, sum.bytes + taken.bytes);
                (Arrival::Taken, current.files.is_empty().then_some(Ok(())))
            }
            Err(why) => {
                current.attempts += 1;
                match current.attempts {
                    ..ATTEMPTS => (Arrival::Again, None),
                    _ => (Arrival::GivenUp, Some(Err(why))),
                }
            }
        };
        if let Some(outcome) = outcome {
            *slot = None;
            session.end(outcome);
        }
        arrival
    }

    /// Ends silent sessions. Sessions that are not announced yet are given up by their requests.
    pub(super) fn expire(&self, now: Duration) -> Vec<Arc<Session>> {
        let mut expired = Vec::new();
        let mut sources = self.0.lock();
        for source in sources.values_mut() {
            // While a file arrives or is read, its reader checks the time.
            let is_over =
                |current: &mut Current| !current.is_coming && current.session.silence(now) >= IDLE;
            expired.extend(source.current.take_if(is_over).map(|current| current.session));
        }
        sources.retain(|_, source| source.current.is_some() || !source.awaited.is_empty());
        drop(sources);
        for session in &expired {
            session.end(Err(format!("nothing has come from {} for long", session.source)));
        }
        expired
    }
}
