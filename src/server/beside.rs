//! Requests of one connection that are answered beside each other, in whatever order.

use super::worker::Local;
use super::{Protocol, Whole};
use crate::base::budget::Charge;
use crate::base::lock::{Mutex, rank};
use futures_util::FutureExt;
use std::mem::{size_of_val, swap, take};
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard, ReusableBoxFuture};

/// A protocol with the session of one connection: all that an answer needs besides its request.
pub(super) struct Speaker<P: Protocol> {
    pub(super) protocol: Arc<P>,
    pub(super) session: P::Session,
}

impl<P: Protocol> Speaker<P> {
    /// Answers a request, appending to these bytes, and returns them.
    async fn answer(self: Arc<Self>, request: P::Request<'static>, mut bytes: Vec<u8>) -> Vec<u8> {
        self.protocol.answer(&self.session, &request, &mut bytes).await;
        bytes
    }
}

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
    /// Answers a request at once if that takes no waiting, and else by a task.
    pub(super) fn begin<P: Protocol>(
        &mut self,
        local: &Local,
        speaker: &Arc<Speaker<P>>,
        whole: Whole<P::Request<'static>>,
        ready: &mut Vec<u8>,
    ) {
        let Whole { request, only_reads, .. } = whole;
        let bytes = if ready.is_empty() { take(ready) } else { local.pool.take() };
        // In a box, since it may go on elsewhere.
        let answering = Arc::clone(speaker).answer(request, bytes);
        let size = size_of_val(&answering);
        let mut answering = local.call.boxed(answering);
        if let Some(mut bytes) = (&mut answering).now_or_never() {
            local.call.give(answering);
            if ready.is_empty() {
                swap(ready, &mut bytes);
            } else {
                ready.extend_from_slice(&bytes);
            }
            return local.pool.give(bytes);
        }
        if ready.capacity() == 0 {
            *ready = local.pool.take();
        }
        self.under_way += 1;
        let Channel { sender, unwanted, .. } = self.channel.get_or_insert_default();
        let charge = Charge::new(Arc::clone(&local.shared.unsent));
        let reply = Some(Reply { bytes: Vec::new(), charge });
        let mut end = End { sender: sender.clone(), reply };
        let unwanted = unwanted.clone();
        let mut held = Charge::new(Arc::clone(&local.shared.room.memory));
        held.set(size);
        local.tasks.spawn(async move {
            let _held = held;
            if !only_reads {
                end.done(answering.await);
            } else if let Some(bytes) = unwanted.run_until_cancelled_owned(answering).await {
                end.done(bytes);
            }
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

/// A request that is being answered.
type Call = ReusableBoxFuture<'static, Vec<u8>>;

/// The box of a call that is over, for the next one of the same worker: most are answered at once.
/// The lock is never contended: only the worker's own tasks take it.
#[derive(Debug, Default)]
pub(super) struct SpareCall(Mutex<rank::State, Option<Call>>);

impl SpareCall {
    fn boxed(&self, answering: impl Future<Output = Vec<u8>> + Send + 'static) -> Call {
        let spare = self.0.lock().take();
        match spare {
            Some(mut call) => {
                call.set(answering);
                call
            }
            None => Call::new(answering),
        }
    }

    fn give(&self, call: Call) {
        *self.0.lock() = Some(call);
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
