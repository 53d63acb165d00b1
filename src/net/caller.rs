//! Calls: requests between nodes of this program that no verb of 0.6 covers.

use super::extensions::{CALL, TAKES_REFUSAL};
use super::message::Header;
use super::messenger::{BodyTooLarge, Messenger, Replies, Request};
use super::verb::Verb;
use crate::base::java::TooLong;
use crate::base::lock::{Mutex, rank};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Why a call has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Nothing came in time: the node is down or busy, or something on the way is.
    #[error("{0} has not answered")]
    Silent(IpAddr),
    /// The node says why not.
    #[error("{from} refuses: {why}")]
    Refused {
        /// Which node.
        from: IpAddr,
        /// The reason that it gives.
        why: String,
    },
    /// No message can hold the call.
    #[error("the call cannot be sent: {0}")]
    TooLong(#[from] TooLong),
    /// No message can hold the call.
    #[error("the call cannot be sent: {0}")]
    TooLarge(#[from] BodyTooLarge),
}

/// Calls one node after the other, or several at once.
#[derive(Debug, Clone)]
pub struct Caller(Arc<Messenger>);

impl Caller {
    /// A caller whose calls go by this messenger, and take as long as its timeout at most.
    pub fn new(messenger: Arc<Messenger>) -> Self {
        Self(messenger)
    }

    /// Calls a node, and waits for the body of its answer.
    pub async fn call(&self, to: IpAddr, name: &str, body: &[u8]) -> Result<Vec<u8>, CallError> {
        let call = Header { name: CALL.into(), value: name.as_bytes() };
        let headers = vec![call, TAKES_REFUSAL];
        self.ask(to, Request { verb: Verb::StreamRequest, headers, body, tag: 0 }).await
    }

    /// Asks a node for something that 0.6 has a verb for, and waits for the body of its answer.
    pub async fn call_verb(
        &self,
        to: IpAddr,
        verb: Verb,
        body: &[u8],
    ) -> Result<Vec<u8>, CallError> {
        self.ask(to, Request { verb, headers: Vec::new(), body, tag: 0 }).await
    }

    async fn ask(&self, to: IpAddr, request: Request<'_>) -> Result<Vec<u8>, CallError> {
        self.0.check_body(request.body.len())?;
        let (sender, outcome) = oneshot::channel();
        let replies: Arc<dyn Replies> = Arc::new(Answer(Mutex::new(Some(sender))));
        self.0.request(request, &[to], &replies)?;
        outcome.await.unwrap_or(Err(CallError::Silent(to)))
    }
}

/// Hands the first answer over.
#[derive(Debug)]
struct Answer(Mutex<rank::State, Option<oneshot::Sender<Answered>>>);

/// The body of an answer, or why there is none.
type Answered = Result<Vec<u8>, CallError>;

impl Answer {
    fn give(&self, answer: Answered) {
        let sender = self.0.lock().take();
        if let Some(sender) = sender {
            // The caller may have given up.
            let _ = sender.send(answer);
        }
    }
}

impl Replies for Answer {
    fn on_reply(&self, _tag: u32, _from: IpAddr, body: &[u8], _took: Duration) {
        self.give(Ok(body.to_vec()));
    }

    fn on_timeout(&self, _tag: u32, missing: &[IpAddr]) {
        if let Some(missing) = missing.first() {
            self.give(Err(CallError::Silent(*missing)));
        }
    }

    fn on_refusal(&self, _tag: u32, from: IpAddr, why: &str) {
        self.give(Err(CallError::Refused { from, why: why.to_owned() }));
    }
}
