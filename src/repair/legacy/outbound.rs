//! Who waits for what a node of 0.6 says of the files that go to it.

use crate::base::lock::{Mutex, MutexGuard, rank};
use crate::net::bodies::StreamFinished;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::{Mutex as TurnMutex, OwnedMutexGuard, mpsc};

/// What a target has said, and nobody has looked at yet. More it does not say in a session.
const MOST_NEWS: usize = 64;

/// What a target says of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum News {
    /// The files may come.
    Ready,
    /// What became of one.
    Finished(StreamFinished),
}

#[derive(Debug, Default)]
struct Target {
    /// One session at a time.
    turn: Arc<TurnMutex<()>>,
    news: Option<mpsc::Sender<News>>,
}

/// All that goes to nodes of 0.6.
#[derive(Debug, Default)]
pub(super) struct OutboundSessions(Mutex<rank::LegacyPeers, BTreeMap<IpAddr, Target>>);

/// The turn of a session with a target.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    departures: &'a OutboundSessions,
    target: IpAddr,
    _held: OwnedMutexGuard<()>,
}

impl OutboundSessions {
    /// Waits until no other session with this target is under way.
    pub(super) async fn turn(&self, target: IpAddr) -> Turn<'_> {
        let turn = Arc::clone(&self.lock().entry(target).or_default().turn);
        Turn { departures: self, target, _held: turn.lock_owned().await }
    }

    /// A target is ready for files.
    pub(super) fn tell_ready(&self, from: IpAddr) {
        self.tell(from, News::Ready);
    }

    /// What became of a file. What nobody waits for is forgotten.
    pub(super) fn tell(&self, from: IpAddr, news: News) {
        let sender = self.lock().get(&from).and_then(|target| target.news.clone());
        if let Some(sender) = sender {
            // One that says more than can be is not listened to.
            let _ = sender.try_send(news);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<IpAddr, Target>> {
        self.0.lock()
    }
}

impl Turn<'_> {
    /// Listens to the target from now on.
    pub(super) fn listen(&self) -> mpsc::Receiver<News> {
        let (sender, news) = mpsc::channel(MOST_NEWS);
        self.departures.lock().entry(self.target).or_default().news = Some(sender);
        news
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut targets = self.departures.lock();
        if let Some(target) = targets.get_mut(&self.target) {
            target.news = None;
            // This one, the map, and nobody who waits.
            if Arc::strong_count(&target.turn) <= 2 {
                targets.remove(&self.target);
            }
        }
    }
}
