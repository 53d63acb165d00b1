//! The one driver of questions to several replicas: it asks them, collects their answers, asks one
//! more when answers are slow, and finishes when there are enough.

use super::coordinator::Coordinator;
use super::latencies::Latencies;
use super::view::View;
use super::{CoordinatorError, ReplicaCounts};
use crate::base::context::{RequestContext, TooLarge};
use crate::net::Verb;
use crate::net::message::Header;
use crate::net::messenger::{self, Replies};
use crate::replica::{Replica, ReplicaError};
use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::{Instant, sleep_until};

/// A request to one replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request<W> {
    pub(super) to: IpAddr,
    /// Comes back with the answer.
    pub(super) round: u32,
    pub(super) what: W,
}

/// Chooses the requests to replicas, and decides when their answers are enough. Knows no network
/// and no clock.
pub(super) trait Question {
    /// The part of a request that depends on the question.
    type What;
    type Reply: Send + 'static;
    type Answer;

    /// The first requests.
    fn begin(&mut self) -> Vec<Request<Self::What>>;

    /// Takes a reply of this round.
    fn on_reply(&mut self, from: IpAddr, reply: Self::Reply) -> Vec<Request<Self::What>>;

    /// Answers take longer than usual, or one will not come: asks one replica more, if there is
    /// one that may help.
    fn on_slow(&mut self) -> Vec<Request<Self::What>>;

    /// A replica has failed. `None` if there is no other that may help.
    fn on_failure(&mut self, from: IpAddr) -> Option<Vec<Request<Self::What>>>;

    /// The time is over. `None` if the question has failed; else it goes on with the replicas that
    /// have answered, and has as much time again.
    fn on_deadline(&mut self) -> Option<Vec<Request<Self::What>>> {
        None
    }

    /// The number of this round. Replies of earlier ones do not count.
    fn round(&self) -> u32 {
        0
    }

    /// The replicas that it needs, and those that have answered so far.
    fn counts(&self) -> ReplicaCounts;

    /// Takes the outcome, when enough replicas have answered.
    fn take_answer(&mut self) -> Option<Self::Answer>;
}

/// Carries the requests of a question to replicas, and reads their replies.
pub(super) trait Exchange: Send + Sync + 'static {
    type What;
    type Reply: Send + 'static;

    /// The verb of log lines.
    const ACTION: &'static str;

    /// Whether a request changes nothing. Writes run to their end even after the client has left,
    /// and their times say nothing of reads.
    const IS_READ: bool;

    /// The message that carries a request.
    fn encode<'a>(
        &'a self,
        view: &View,
        request: &'a Request<Self::What>,
    ) -> Result<Outgoing<'a>, CoordinatorError>;

    /// Reads a reply, or says for the log why it is none.
    fn decode(&self, from: IpAddr, body: &[u8]) -> Result<Self::Reply, String>;

    /// Does the work of a replica on this node.
    fn do_here(
        self: Arc<Self>,
        replica: Arc<Replica>,
        what: Self::What,
        context: RequestContext,
    ) -> impl Future<Output = Result<Self::Reply, ReplicaError>> + Send;

    /// Takes memory for a reply that came over the network.
    fn take_memory(&self, _reply: &Self::Reply, _context: &RequestContext) -> Result<(), TooLarge> {
        Ok(())
    }

    /// Notes how long a replica took.
    fn record(&self, latencies: &Latencies, from: IpAddr, took: Duration);
}

/// A message that carries a request.
pub(super) struct Outgoing<'a> {
    pub(super) verb: Verb,
    pub(super) headers: Vec<Header<'a>>,
    pub(super) body: Cow<'a, [u8]>,
}

#[derive(Debug)]
struct Arrival<R> {
    round: u32,
    from: IpAddr,
    /// `None` if it is no valid answer to the question.
    reply: Option<Result<R, ReplicaError>>,
}

/// Takes replies off the threads that receive them.
#[derive(derive_more::Debug)]
#[debug("Inbox {{ action: {:?}, .. }}", E::ACTION)]
struct Inbox<E: Exchange> {
    coordinator: Arc<Coordinator>,
    exchange: Arc<E>,
    arrivals: UnboundedSender<Arrival<E::Reply>>,
}

impl<E: Exchange> Inbox<E> {
    fn put(&self, round: u32, from: IpAddr, reply: Option<Result<E::Reply, ReplicaError>>) {
        // The receiver is gone when the question is answered.
        let _ = self.arrivals.send(Arrival { round, from, reply });
    }
}

impl<E: Exchange> Replies for Inbox<E> {
    fn on_reply(&self, round: u32, from: IpAddr, body: &[u8], took: Duration) {
        self.exchange.record(&self.coordinator.latencies, from, took);
        let reply = self.exchange.decode(from, body).map(Ok);
        let reply = reply.inspect_err(|why| {
            self.coordinator.messenger.warn(from, format_args!("{why}"));
        });
        self.put(round, from, reply.ok());
    }

    fn on_refusal(&self, round: u32, from: IpAddr, why: &str) {
        self.put(round, from, Some(Err(ReplicaError::TooLarge(why.to_owned()))));
    }

    fn on_timeout(&self, _round: u32, missing: &[IpAddr]) {
        let (latencies, waited) = (&self.coordinator.latencies, self.coordinator.rpc_timeout());
        for endpoint in missing.iter().filter(|_| E::IS_READ) {
            latencies.record_answer(*endpoint, waited);
        }
    }
}

/// The next event while answers are waited for.
enum Event<R> {
    Arrived(Arrival<R>),
    /// They take longer than is usual.
    AreSlow,
    DeadlinePassed,
}

/// The time that answers have.
struct Timing {
    /// After how long they are slow; `None`: never.
    delay: Option<Duration>,
    /// Time of the next slow event.
    next_slow: Option<Instant>,
    deadline: Instant,
}

impl Timing {
    fn new(delay: Option<Duration>, deadline: Instant) -> Self {
        let mut timing = Self { delay, next_slow: None, deadline };
        timing.restart();
        timing
    }

    /// Others are asked now, which may be slow as well.
    fn restart(&mut self) {
        self.next_slow = self.delay.map(|delay| Instant::now() + delay);
    }

    async fn next<R>(&mut self, inbox: &mut UnboundedReceiver<Arrival<R>>) -> Event<R> {
        let until = self.next_slow.map_or(self.deadline, |at| at.min(self.deadline));
        tokio::select! {
            biased;
            Some(arrival) = inbox.recv() => Event::Arrived(arrival),
            () = sleep_until(until) => {
                if Instant::now() >= self.deadline {
                    return Event::DeadlinePassed;
                }
                // One at a time: if all are slow, asking all of them helps no one.
                self.restart();
                Event::AreSlow
            }
        }
    }
}

impl Coordinator {
    /// Asks replicas until the question is answered. After `delay` without an answer one more
    /// replica is asked. Rounds that are over give back the memory that they have taken of a
    /// scratch context.
    pub(super) async fn drive<Q, E>(
        self: &Arc<Self>,
        view: &View,
        mut question: Q,
        exchange: E,
        delay: Option<Duration>,
        context: &mut RequestContext,
    ) -> Result<Q::Answer, CoordinatorError>
    where
        Q: Question,
        E: Exchange<What = Q::What, Reply = Q::Reply>,
    {
        let (arrivals, mut incoming) = mpsc::unbounded_channel();
        let (coordinator, exchange) = (Arc::clone(self), Arc::new(exchange));
        let inbox = Arc::new(Inbox { coordinator, exchange, arrivals });
        let mut timing = Timing::new(delay, context.deadline());
        let mut requests = question.begin();
        loop {
            for request in std::mem::take(&mut requests) {
                self.ask(view, request, &inbox, context)?;
            }
            if let Some(answer) = question.take_answer() {
                return Ok(answer);
            }
            match timing.next(&mut incoming).await {
                // Takes no memory: it is dropped here.
                Event::Arrived(Arrival { round, .. }) if round != question.round() => {}
                Event::Arrived(Arrival { from, reply: Some(Ok(reply)), .. }) => {
                    if from != self.local {
                        inbox.exchange.take_memory(&reply, context)?;
                    }
                    requests = question.on_reply(from, reply);
                    if !requests.is_empty() {
                        context.renew();
                        timing.restart();
                    }
                }
                Event::Arrived(Arrival { from, reply: Some(Err(error)), .. }) => {
                    let others = question.on_failure(from).filter(|_| !error.is_too_large());
                    let Some(others) = others else { return Err(error.into()) };
                    self.warn_of_own(E::ACTION, &error);
                    requests = others;
                }
                Event::Arrived(Arrival { reply: None, .. }) => requests = question.on_slow(),
                Event::AreSlow => {
                    requests = question.on_slow();
                    if E::IS_READ {
                        let count = requests.len() as u64;
                        self.update_stats(|stats| stats.speculations += count);
                    }
                    if requests.is_empty() {
                        // No replica is left to ask.
                        timing.next_slow = None;
                    }
                }
                Event::DeadlinePassed => {
                    let others = question.on_deadline();
                    requests =
                        others.ok_or_else(|| CoordinatorError::TimedOut(question.counts()))?;
                    context.renew();
                    timing.deadline = Instant::now() + self.rpc_timeout();
                    timing.restart();
                }
            }
        }
    }

    /// Asks one replica.
    fn ask<E: Exchange>(
        self: &Arc<Self>,
        view: &View,
        request: Request<E::What>,
        inbox: &Arc<Inbox<E>>,
        context: &RequestContext,
    ) -> Result<(), CoordinatorError> {
        let Request { to, round, .. } = request;
        if to == self.local {
            // It holds up others only while it reads, not while the other replicas are waited for.
            let (exchange, replica) = (Arc::clone(&inbox.exchange), Arc::clone(&self.replica));
            let (inbox, began) = (Arc::clone(inbox), Instant::now());
            let closed = inbox.arrivals.clone();
            let work = exchange.do_here(replica, request.what, context.child());
            let work = async move {
                let reply = work.await;
                if reply.is_ok() && E::IS_READ {
                    inbox.coordinator.latencies.record_answer(to, began.elapsed());
                }
                inbox.put(round, to, Some(reply));
            };
            if E::IS_READ {
                let is_unwanted = async move { closed.closed().await };
                self.begin_read(context.child(), is_unwanted, work);
            } else {
                self.begin(work);
            }
            return Ok(());
        }
        let Outgoing { verb, headers, body } = inbox.exchange.encode(view, &request)?;
        let message = messenger::Request { verb, headers, body: &body, tag: round };
        let replies: Arc<dyn Replies> = Arc::clone(inbox) as _;
        Ok(self.messenger.request(message, &[to], &replies)?)
    }

    /// Tells that this node could not do its part, and others have to do.
    pub(super) fn warn_of_own(&self, action: &str, error: &ReplicaError) {
        let line = format_args!("this node could not {action} what it is a replica of: {error}");
        self.messenger.warn(self.local, line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_are_slow_until_the_time_is_over() {
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        let (arrivals, mut incoming) = mpsc::unbounded_channel();
        let mut timing = Timing::new(Some(second), began + 4 * second);
        let from = IpAddr::from([127, 0, 0, 1]);
        arrivals.send(Arrival { round: 7, from, reply: Some(Ok(())) }).unwrap();
        let first = timing.next(&mut incoming).await;
        assert!(matches!(first, Event::Arrived(Arrival { round: 7, .. })));
        for number in 1..3 {
            assert!(matches!(timing.next(&mut incoming).await, Event::AreSlow));
            assert_eq!(began.elapsed(), number * second);
        }
        timing.next_slow = None;
        assert!(matches!(timing.next(&mut incoming).await, Event::DeadlinePassed));
        assert_eq!(began.elapsed(), 4 * second);
    }
}
