//! Requests of one connection that are answered beside each other, in whatever order.

use super::worker::Local;
use super::{Protocol, Whole};
use crate::base::budget::Charge;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The reply of a request that is over. Empty if the request was given up.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) bytes: Vec<u8>,
    /// Counts it as unsent.
    pub(super) charge: Charge,
}

/// Requests under way. Dropping this cancels those that only read.
#[derive(Debug, Default)]
pub(super) struct Beside {
    pub(super) under_way: usize,
    /// Made for the first of them: most connections have none.
    channel: Option<Channel>,
}

#[derive(Debug)]
struct Channel {
    /// Bounded by the requests under way.
    sender: mpsc::UnboundedSender<Reply>,
    replies: mpsc::UnboundedReceiver<Reply>,
    /// Cancels the reads.
    unwanted: CancellationToken,
    _end: DropGuard,
}

impl Default for Channel {
    fn default() -> Self {
        let (sender, replies) = mpsc::unbounded_channel();
        let unwanted = CancellationToken::new();
        Self { sender, replies, _end: unwanted.clone().drop_guard(), unwanted }
    }
}

impl Beside {
    /// Spawns the task that answers a request.
    pub(super) fn begin<P: Protocol>(
        &mut self,
        local: &Local,
        protocol: &Arc<P>,
        session: &Arc<P::Session>,
        whole: Whole<P::Request<'static>>,
    ) {
        self.under_way += 1;
        let Channel { sender, unwanted, .. } = self.channel.get_or_insert_default();
        let charge = Charge::new(Arc::clone(&local.shared.unsent));
        let reply = Some(Reply { bytes: Vec::new(), charge });
        let mut end = End { sender: sender.clone(), reply };
        let (protocol, session) = (Arc::clone(protocol), Arc::clone(session));
        let (pool, unwanted) = (Arc::clone(&local.pool), unwanted.clone());
        local.tasks.spawn(async move {
            let mut bytes = pool.take();
            {
                let answer = pin!(protocol.answer(&session, &whole.request, &mut bytes));
                if whole.only_reads {
                    if unwanted.run_until_cancelled(answer).await.is_none() {
                        return;
                    }
                } else {
                    answer.await;
                }
            }
            end.done(bytes);
        });
    }

    /// The reply of the next request that is over. Pending if none is under way.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Reply> {
        let Some(channel) = self.channel.as_mut().filter(|_| self.under_way > 0) else {
            return Poll::Pending;
        };
        match channel.replies.poll_recv(context) {
            Poll::Ready(Some(reply)) => {
                self.under_way -= 1;
                Poll::Ready(reply)
            }
            // The channel has a sender of its own.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    /// Takes a reply that is ready.
    pub(super) fn try_next(&mut self) -> Option<Reply> {
        let reply = self.channel.as_mut()?.replies.try_recv().ok()?;
        self.under_way -= 1;
        Some(reply)
    }

    /// Gives up the requests that only read.
    pub(super) fn give_up_reads(&self) {
        if let Some(channel) = &self.channel {
            channel.unwanted.cancel();
        }
    }
}

/// Sends the reply of a request when its task ends, however that happens.
struct End {
    sender: mpsc::UnboundedSender<Reply>,
    reply: Option<Reply>,
}

impl End {
    fn done(&mut self, bytes: Vec<u8>) {
        if let Some(reply) = &mut self.reply {
            reply.charge.set(bytes.capacity());
            reply.bytes = bytes;
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if let Some(reply) = self.reply.take() {
            // The connection may be gone.
            let _ = self.sender.send(reply);
        }
    }
}
