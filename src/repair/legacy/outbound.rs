//! Sessions of files to nodes of 0.6, and what these say of them.

use crate::base::lock::{Mutex, MutexGuard, rank};
use crate::net::bodies::StreamFinished;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::{Mutex as TurnMutex, OwnedMutexGuard};

/// Most news of a target that wait. More it does not say in a session.
const MOST_NEWS: usize = 64;

/// Messages of a target about a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum News {
    /// The files may come.
    Ready,
    /// One has arrived, or has to be sent again.
    Finished(StreamFinished),
}

#[derive(Debug, Default)]
struct Target {
    /// One session at a time.
    turn: Arc<TurnMutex<()>>,
    /// None as long as there is no session.
    news: Option<VecDeque<News>>,
}

/// All that goes to nodes of 0.6.
#[derive(Debug, Default)]
pub(super) struct OutboundSessions(Mutex<rank::State, BTreeMap<IpAddr, Target>>);

/// The turn of a session with a target.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    sessions: &'a OutboundSessions,
    target: IpAddr,
    _held: OwnedMutexGuard<()>,
}

impl OutboundSessions {
    /// Waits until no other session with this target is under way.
    pub(super) async fn turn(&self, target: IpAddr) -> Turn<'_> {
        let turn = Arc::clone(&self.lock().entry(target).or_default().turn);
        Turn { sessions: self, target, _held: turn.lock_owned().await }
    }

    /// A target says something. Without a session it is forgotten.
    pub(super) fn tell(&self, from: IpAddr, news: News) {
        let mut targets = self.lock();
        let waiting = targets.get_mut(&from).and_then(|target| target.news.as_mut());
        if let Some(waiting) = waiting.filter(|it| it.len() < MOST_NEWS) {
            waiting.push_back(news);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<IpAddr, Target>> {
        self.0.lock()
    }
}

impl Turn<'_> {
    /// Listens to the target from now on.
    pub(super) fn listen(&self) {
        self.sessions.lock().entry(self.target).or_default().news = Some(VecDeque::new());
    }

    /// The next message of the target.
    pub(super) fn hear(&self) -> Option<News> {
        self.sessions.lock().get_mut(&self.target)?.news.as_mut()?.pop_front()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut targets = self.sessions.lock();
        if let Some(target) = targets.get_mut(&self.target) {
            target.news = None;
            // This one and the map: no other one waits.
            if Arc::strong_count(&target.turn) <= 2 {
                targets.remove(&self.target);
            }
        }
    }
}
