//! What this node writes as one of the replicas.

use super::unacknowledged::Unacknowledged;
use crate::model::mutation::RowMutation;
use crate::net::messenger::Messenger;
use crate::replica::{Answer, Replica, ReplicaError};
use futures_util::FutureExt;
use std::fmt::Display;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::task::TaskTracker;

/// Begins writes on this node. What has to wait is done when its turn comes, also if its request
/// is over long before: nobody keeps hints for this node, so that it would lack the rows until they
/// are repaired.
#[derive(Debug)]
pub(super) struct OwnWrites {
    /// This node as a replica.
    pub(super) replica: Arc<Replica>,
    /// Tells of what went wrong, not too often.
    pub(super) messenger: Arc<Messenger>,
    /// Address of this node.
    pub(super) local: IpAddr,
    /// Bounds what waits for longer than a request.
    pub(super) unacknowledged: Arc<Unacknowledged>,
    /// Where writes that wait are.
    pub(super) tasks: TaskTracker,
    /// Requests whose rows this node lacks.
    pub(super) missed: AtomicU64,
}

type Applying = Pin<Box<dyn Future<Output = Answer<()>> + Send>>;

impl OwnWrites {
    /// Begins to apply rows. What memory does is done when this returns.
    pub(super) fn begin(self: &Arc<Self>, rows: &Arc<[RowMutation]>) -> Answer<()> {
        if rows.is_empty() {
            return Answer::Ready(Ok(()));
        }
        let mut applying = self.applying(rows);
        let begun = match applying.as_mut().now_or_never() {
            Some(Answer::Ready(applied)) => {
                return Answer::Ready(applied.inspect_err(|error| self.miss(error)));
            }
            Some(answer) => Box::pin(std::future::ready(answer)),
            None => applying,
        };
        let (sender, receiver) = oneshot::channel();
        self.keep(rows, begun, Some(sender));
        Answer::Working(receiver)
    }

    /// Waits until rows are applied or have their turn, but no longer than until the deadline.
    pub(super) async fn queue(self: &Arc<Self>, rows: &Arc<[RowMutation]>, deadline: Instant) {
        if rows.is_empty() {
            return;
        }
        let mut applying = self.applying(rows);
        match timeout_at(deadline, applying.as_mut()).await {
            Ok(Answer::Ready(Err(error))) => self.miss(&error),
            Ok(_) => {}
            Err(_) => self.keep(rows, applying, None),
        }
    }

    fn applying(&self, rows: &Arc<[RowMutation]>) -> Applying {
        let (replica, rows) = (Arc::clone(&self.replica), Arc::clone(rows));
        Box::pin(async move { replica.apply(&rows).await })
    }

    /// Lets a write wait as long as it takes; if too much waits already, as long as a request.
    fn keep(
        self: &Arc<Self>,
        rows: &Arc<[RowMutation]>,
        applying: Applying,
        sender: Option<oneshot::Sender<Result<(), ReplicaError>>>,
    ) {
        let (own, rows) = (Arc::clone(self), Arc::clone(rows));
        let admits = |row: &&RowMutation| self.unacknowledged.admit(self.local, row);
        let admitted = rows.iter().take_while(admits).count();
        self.tasks.spawn(async move {
            let answer = if admitted == rows.len() {
                Some(applying.await)
            } else {
                timeout(own.timeout(), applying).await.ok()
            };
            match answer {
                Some(answer) => {
                    let applied = answer.wait().await.inspect_err(|error| own.miss(error));
                    // The request may be over.
                    sender.map(|sender| sender.send(applied));
                }
                None => own.miss(&"too much waits for its disk already"),
            }
            rows[..admitted].iter().for_each(|row| own.unacknowledged.settle(own.local, row));
        });
    }

    fn timeout(&self) -> Duration {
        self.messenger.timeout()
    }

    fn miss(&self, error: &dyn Display) {
        self.missed.fetch_add(1, Ordering::Relaxed);
        let line = format_args!("this node could not write its own part: {error}");
        self.messenger.warn(self.local, line);
    }
}
