//! Answers the calls of other nodes.

use super::calls::{Call, Halving, HasHeard, Heard, PAGE, TokenOf, WhereIs, WhichRing, WhichToken};
use super::compare::Validator;
use super::halving::halving_token;
use super::host::{Host, RingSnapshot};
use super::job::{Cancel, JobControl, Jobs, Output, Poll, Start, Task};
use super::traffic::Traffic;
use super::transfer::{FetchError, Fetcher, MAX_PAGE};
use crate::base::bytes::ByteReader;
use crate::base::clock::Clock;
use crate::net::bodies::{
    Body, BodyContext, BodyError, EncodeError, PageCommand, PageReply, PageRows, RangeReply,
};
use crate::net::extensions::CALL;
use crate::net::message::Message;
use crate::net::messenger::Messenger;
use crate::replica::{Abandoned, Blocking};
use crate::ring::DecoratedKey;
use crate::storage::Storage;
use crate::storage::error::ReadError;
use log::Level;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

/// Calls that are answered at a time, and wait to be. Further ones are dropped: who calls asks
/// again.
const MAX_CALLS: usize = 64;

/// Pages that are read from disk at a time, so that clients have the rest of it.
const MAX_READS: usize = 2;

/// Answers the calls of other nodes.
#[derive(Debug)]
pub(super) struct Service {
    storage: Arc<Storage>,
    messenger: Arc<Messenger>,
    blocking: Blocking,
    fetcher: Arc<Fetcher>,
    pub(super) jobs: Arc<Jobs>,
    pub(super) validator: Arc<Validator>,
    calls: Arc<Semaphore>,
    reads: Arc<Semaphore>,
    tasks: TaskTracker,
    pub(super) traffic: Arc<Traffic>,
}

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("there is no call {0}")]
    Unknown(String),
    #[error("not done for {0}: {1}")]
    TurnedAway(IpAddr, &'static str),
    #[error("the rows that are asked for are not in the order of their tokens")]
    OutOfOrder,
    #[error("the call cannot be read: {0}")]
    Body(#[from] BodyError),
    #[error("the answer cannot be sent: {0}")]
    Encode(#[from] EncodeError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Abandoned(#[from] Abandoned),
}

impl Service {
    pub(super) fn new(
        messenger: Arc<Messenger>,
        fetcher: Arc<Fetcher>,
        clock: Arc<dyn Clock>,
    ) -> Arc<Self> {
        let [calls, reads] = [MAX_CALLS, MAX_READS].map(|it| Arc::new(Semaphore::new(it)));
        let (storage, blocking) = (Arc::clone(&fetcher.storage), fetcher.blocking);
        Arc::new(Self {
            validator: Validator::new(Arc::clone(&storage), blocking),
            storage,
            messenger,
            blocking,
            fetcher,
            jobs: Jobs::new(Arc::clone(&clock)),
            calls,
            reads,
            tasks: TaskTracker::new(),
            traffic: Traffic::new(clock),
        })
    }

    /// Column families and partitioner, by which bodies are read and written.
    pub(super) fn context(&self) -> BodyContext<'_> {
        BodyContext { schema: self.storage.schema(), partitioner: self.storage.partitioner() }
    }

    /// Answers a call, on a task of its own. False if the message is none. Must be called within a
    /// tokio runtime.
    pub(super) fn receive(self: &Arc<Self>, message: &Message<'_>, host: &Arc<dyn Host>) -> bool {
        let Some(name) = message.header(CALL) else { return false };
        let name = String::from_utf8_lossy(name).into_owned();
        let Ok(slot) = Arc::clone(&self.calls).try_acquire_owned() else { return true };
        let (from, id, body) = (message.from, message.id.clone(), message.body.to_vec());
        let (service, host) = (Arc::clone(self), Arc::clone(host));
        self.tasks.spawn(async move {
            let answered = match service.answer(from, &name, &body, host).await {
                Ok(answer) if name == PAGE => service.messenger.reply_in_bulk(from, id, &answer),
                Ok(answer) => service.messenger.reply(from, id, &answer),
                Err(refusal) => service.messenger.refuse(from, id, &format!("{name}: {refusal}")),
            };
            if let Err(error) = answered {
                let line = format_args!("{from} gets no answer to its call {name}: {error}");
                service.messenger.warn(from, line);
            }
            drop(slot);
        });
        true
    }

    /// Ends jobs, and waits for what is under way.
    pub(super) async fn stop(&self) {
        self.jobs.stop().await;
        self.validator.stop().await;
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Answers a call, which may be one of this node itself.
    pub(super) async fn answer(
        &self,
        from: IpAddr,
        name: &str,
        body: &[u8],
        host: Arc<dyn Host>,
    ) -> Result<Vec<u8>, Refusal> {
        // A removed node that is to join again has to know the ring before it can say so.
        let asks_for_ring =
            [HasHeard::NAME, WhereIs::NAME, WhichRing::NAME, WhichToken::NAME].contains(&name);
        // Nor does it turn itself away.
        let is_other = from != self.messenger.local();
        if is_other
            && !asks_for_ring
            && let Some(why) = host.turns_away(from)
        {
            return Err(Refusal::TurnedAway(from, why));
        }
        let context = self.context();
        match name {
            PAGE => self.page(from, PageCommand::decode(body, context)?).await,
            HasHeard::NAME => {
                let HasHeard(announced) = Body::decode(body, context)?;
                let knows_it = host.has_heard(from, announced);
                let is_quiet = knows_it && host.is_quiet();
                let RingSnapshot { given_up, live, .. } = host.look();
                let live = live.into_iter().collect();
                Ok(Heard { knows_it, is_quiet, given_up, live }.encode(context)?)
            }
            WhereIs::NAME => {
                let WhereIs(endpoint) = Body::decode(body, context)?;
                let members = host.look().members;
                let token = members.ring.token(endpoint).cloned();
                let is_leaving = members.leaving.contains(&endpoint);
                Ok(TokenOf { token, is_leaving }.encode(context)?)
            }
            WhichRing::NAME => {
                let look = host.look();
                let members = look.members.ring.members();
                let members: Vec<_> = members.map(|(token, it)| (it, token.clone())).collect();
                Ok(members.encode(context)?)
            }
            WhichToken::NAME => {
                let storage = Arc::clone(&self.storage);
                let token = self.blocking.run(move || halving_token(&storage, &*host)).await?;
                let stores = self.storage.stores();
                let load = stores.map(|store| store.statistics().live_bytes).sum::<u64>() as f64;
                Ok(Halving { load, token }.encode(context)?)
            }
            Start::NAME => {
                self.start(from, body, host)?;
                Ok(Vec::new())
            }
            Poll::NAME => {
                let Poll { job, from } = Body::decode(body, context)?;
                Ok(self.jobs.status(job, from).encode(context)?)
            }
            Cancel::NAME => {
                let Cancel(job) = Body::decode(body, context)?;
                self.jobs.cancel(job);
                Ok(Vec::new())
            }
            _ => Err(Refusal::Unknown(name.chars().take(100).collect())),
        }
    }

    /// Starts a job. One that makes no sense here fails, or it would be asked for again and again.
    fn start(&self, from: IpAddr, body: &[u8], host: Arc<dyn Host>) -> Result<(), Refusal> {
        let mut reader = ByteReader::new(body);
        let number = u64::read(&mut reader, self.context())?;
        let (fetcher, validator) = (Arc::clone(&self.fetcher), Arc::clone(&self.validator));
        match Task::decode(reader.rest(), self.context()) {
            Ok(Task::Ranges(ranges)) => {
                let what = format!("{} ranges, of which it becomes a replica", ranges.len());
                self.jobs.start(number, from, |control| async move {
                    let fetch = fetcher.fetch(&ranges, &*host, &control.progress);
                    collect(from, (Level::Info, what), &control, fetch).await
                });
            }
            Ok(Task::Rows { family, sources }) => {
                let rows: usize = sources.iter().map(|(_, keys)| keys.len()).sum();
                let what = format!("{rows} rows that it lacks");
                self.jobs.start(number, from, |control| async move {
                    let fetch = fetcher.fetch_rows((family, &sources), &*host, &control.progress);
                    collect(from, (Level::Debug, what), &control, fetch).await
                });
            }
            Ok(Task::Leaves { scope, shape }) => {
                self.jobs.start(number, from, |control| async move {
                    let leaves = validator.leaves(scope, shape, control).await;
                    leaves.map_err(|error| error.to_string())
                });
            }
            Ok(Task::List { scope, after }) => {
                self.jobs.start(number, from, |control| async move {
                    let listed = validator.list(scope, after, control).await;
                    listed.map_err(|error| error.to_string())
                });
            }
            Err(error) => {
                self.jobs.start(number, from, |_| async move { Err(error.to_string()) });
            }
        }
        Ok(())
    }

    /// Reads a page for another node, when its turn comes.
    async fn page(&self, from: IpAddr, command: PageCommand) -> Result<Vec<u8>, Refusal> {
        let PageCommand { family: id, rows, after, max_bytes } = command;
        let (storage, partitioner) = (Arc::clone(&self.storage), self.storage.partitioner());
        let family = Arc::clone(storage.schema().family(id));
        // If that takes too long for the caller, it asks again.
        let permit = Arc::clone(&self.reads).acquire_owned().await.map_err(|_| Abandoned)?;
        let job = move || {
            let max_bytes = max_bytes.clamp(1, MAX_PAGE) as usize;
            let page = match rows {
                PageRows::Range(range) => {
                    storage.store(id).read_piece(&range, after.as_ref(), max_bytes)?
                }
                PageRows::Keys(keys) => {
                    let keys = keys.into_iter().map(|key| partitioner.decorate(key));
                    let keys: Vec<DecoratedKey> = keys.collect();
                    if !keys.is_sorted_by(|a, b| a < b) {
                        return Err(Refusal::OutOfOrder);
                    }
                    storage.store(id).read_rows_piece(&keys, after.as_ref(), max_bytes)?
                }
            };
            drop(permit);
            let rows = RangeReply { rows: page.rows };
            Ok::<_, Refusal>(PageReply { rows, next: page.next }.encode(&family)?)
        };
        let page = self.blocking.run(job).await??;
        self.traffic.add(from, id, page.len());
        Ok(page)
    }
}

/// Collects rows for a node, until they are here or the job is to end.
async fn collect(
    from: IpAddr,
    (level, what): (Level, String),
    control: &JobControl,
    fetch: impl Future<Output = Result<(), FetchError>>,
) -> Result<Output, String> {
    log::log!(level, "{from} has this node collect {what}");
    match control.stop.run_until_cancelled(fetch).await {
        Some(Ok(())) => {
            log::log!(level, "collected for {from}: {} bytes", control.progress.now().bytes);
            Ok(Output::Collected)
        }
        Some(Err(error)) => {
            log::warn!("what {from} ordered cannot be collected: {error}");
            Err(error.to_string())
        }
        None => Err("nobody waits for it any more".to_owned()),
    }
}
