//! Sessions of files to nodes of 0.6, and their answers.

use crate::base::lock::{Mutex, rank};
use crate::net::bodies::StreamFinished;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::{Mutex as TurnMutex, OwnedMutexGuard};

/// Most waiting messages of a target. It sends fewer in a session.
const MOST_NEWS: usize = 64;

/// Messages of a target about a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum News {
    /// It is ready for files.
    Ready,
    /// A file has arrived, or has to be sent again.
    Finished(StreamFinished),
}

#[derive(Debug, Default)]
struct Target {
    /// Held by the one session.
    turn: Arc<TurnMutex<()>>,
    /// `None` without a session.
    news: Option<VecDeque<News>>,
}

/// All sessions, by target.
#[derive(Debug, Default)]
pub(super) struct OutboundSessions(Mutex<rank::State, BTreeMap<IpAddr, Target>>);

/// The right to a session with a target.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    sessions: &'a OutboundSessions,
    target: IpAddr,
    _held: OwnedMutexGuard<()>,
}

impl OutboundSessions {
    /// Waits for the end of other sessions with this target.
    pub(super) async fn turn(&self, target: IpAddr) -> Turn<'_> {
        let turn = Arc::clone(&self.0.lock().entry(target).or_default().turn);
        Turn { sessions: self, target, _held: turn.lock_owned().await }
    }

    /// Takes a message of a target. Without a session it is dropped.
    pub(super) fn tell(&self, from: IpAddr, news: News) {
        let mut targets = self.0.lock();
        let waiting = targets.get_mut(&from).and_then(|target| target.news.as_mut());
        if let Some(waiting) = waiting.filter(|it| it.len() < MOST_NEWS) {
            waiting.push_back(news);
        }
    }
}

impl Turn<'_> {
    /// Begins to collect messages of the target.
    pub(super) fn listen(&self) {
        self.sessions.0.lock().entry(self.target).or_default().news = Some(VecDeque::new());
    }

    /// The next message of the target.
    pub(super) fn hear(&self) -> Option<News> {
        self.sessions.0.lock().get_mut(&self.target)?.news.as_mut()?.pop_front()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut targets = self.sessions.0.lock();
        if let Some(target) = targets.get_mut(&self.target) {
            target.news = None;
            // Held by this turn and the map: no other one waits.
            if Arc::strong_count(&target.turn) <= 2 {
                targets.remove(&self.target);
            }
        }
    }
}
