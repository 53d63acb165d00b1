//! Calls from other nodes, and to them and this node itself.

use super::calls::{
    CANCEL, HAS_HEARD, Heard, PAGE, POLL, START, WHERE_IS, WHICH_RING, WHICH_SCHEMA, WHICH_TOKEN,
};
use super::compare::Validator;
use super::error::{OperationError, Result, fail};
use super::host::{Announced, Node, RingSnapshot};
use super::job::{JobControl, Jobs, Output, Task};
use super::topology::halving_token;
use super::transfer::{Fetcher, MAX_PAGE};
use crate::base::bytes::ByteReader;
use crate::net::bodies::{Body, BodyContext, PageCommand, PageReply, PageRows, RangeReply};
use crate::net::caller::Caller;
use crate::net::extensions::CALL;
use crate::net::message::Message;
use crate::replica::Abandoned;
use crate::ring::DecoratedKey;
use log::Level;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Most calls that are answered or wait. Further ones are dropped: their callers repeat them.
const MAX_CALLS: usize = 64;

/// Pages that are read from disk at a time, so that clients get the rest of it.
const MAX_READS: usize = 2;

/// Longest wait for a schema that others have.
const SCHEMA_PATIENCE: Duration = Duration::from_secs(120);

/// Pause between two looks at their schema.
const SCHEMA_POLL: Duration = Duration::from_millis(200);

/// Longest answer that goes with those to clients. Longer ones go by a connection of their own.
const BULK_BYTES: usize = 16 << 10;

/// Calls between this node and others.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) node: Arc<Node>,
    pub(super) fetcher: Fetcher,
    pub(super) validator: Validator,
    pub(super) jobs: Jobs,
    calls: Arc<Semaphore>,
    reads: Arc<Semaphore>,
}

impl Service {
    pub(super) fn new(fetcher: Fetcher) -> Arc<Self> {
        let [calls, reads] = [MAX_CALLS, MAX_READS].map(|it| Arc::new(Semaphore::new(it)));
        let node = Arc::clone(&fetcher.node);
        let validator = Validator::new(Arc::clone(&node.storage), node.spawner);
        let jobs = Jobs::new(Arc::clone(&node.clock), node.stop.clone(), node.tasks.clone());
        Arc::new(Self { node, fetcher, validator, jobs, calls, reads })
    }

    /// Calls a node, which may be this one.
    pub(super) async fn ask<A: Body>(
        self: &Arc<Self>,
        to: IpAddr,
        name: &str,
        question: &(impl Body + Sync),
    ) -> Result<A> {
        if to != self.node.local() {
            return self.ask_other(to, name, question).await;
        }
        let context = self.node.context();
        let answer = self.answer(to, name, &question.encode(context)?).await?;
        decode(to, &answer, context)
    }

    async fn ask_other<A: Body>(
        &self,
        to: IpAddr,
        name: &str,
        question: &(impl Body + Sync),
    ) -> Result<A> {
        let context = self.node.context();
        let body = question.encode(context)?;
        let answer = Caller::new(Arc::clone(&self.node.messenger)).call(to, name, &body).await?;
        decode(to, &answer, context)
    }

    /// Waits until this node has followed the schema of all others that are alive: it collects the
    /// rows of the tables that it has. Gossip tells of a change later than its client hears of it.
    pub(super) async fn catch_up(&self) -> Result<()> {
        let began = Instant::now();
        loop {
            let RingSnapshot { live, callable, .. } = self.node.look()?;
            let others = live.intersection(&callable).filter(|it| **it != self.node.local());
            let mut behind = None;
            for other in others {
                let theirs = self.ask_other::<u64>(*other, WHICH_SCHEMA, &()).await;
                if theirs.is_ok_and(|theirs| theirs <= self.node.host().map_or(0, |it| it.schema()))
                {
                    continue;
                }
                behind = Some(*other);
            }
            match behind {
                None => return Ok(()),
                Some(other) if began.elapsed() >= SCHEMA_PATIENCE => {
                    return fail(format!(
                        "{other} has a newer schema that this node does not follow, or does not \
                         tell: see why in the log, and do it again"
                    ));
                }
                Some(_) => tokio::time::sleep(SCHEMA_POLL).await,
            }
        }
    }

    /// Answers a call, on a task of its own. False for other messages. Must be called within a
    /// tokio runtime.
    pub(super) fn receive(self: &Arc<Self>, message: &Message<'_>) -> bool {
        let Some(name) = message.header(CALL) else { return false };
        let name = String::from_utf8_lossy(name).into_owned();
        let Ok(slot) = Arc::clone(&self.calls).try_acquire_owned() else { return true };
        let (from, id, body) = (message.from, message.id.clone(), message.body.to_vec());
        let this = Arc::clone(self);
        self.node.tasks.spawn(async move {
            let messenger = &this.node.messenger;
            let answered = match this.answer(from, &name, &body).await {
                Ok(answer) if answer.len() > BULK_BYTES => {
                    messenger.reply_in_bulk(from, id, &answer)
                }
                Ok(answer) => messenger.reply(from, id, &answer),
                Err(error) => messenger.refuse(from, id, &format!("{name}: {error}")),
            };
            if let Err(error) = answered {
                let line = format_args!("{from} gets no answer to its call {name}: {error}");
                messenger.warn(from, line);
            }
            drop(slot);
        });
        true
    }

    async fn answer(self: &Arc<Self>, from: IpAddr, name: &str, body: &[u8]) -> Result<Vec<u8>> {
        let (node, context, host) = (&self.node, self.node.context(), self.node.host()?);
        // A removed node has to know the ring before it can join again.
        let asks_for_ring =
            [HAS_HEARD, WHERE_IS, WHICH_RING, WHICH_SCHEMA, WHICH_TOKEN].contains(&name);
        // Its own calls are never refused.
        if !asks_for_ring
            && from != node.local()
            && let Some(why) = host.turns_away(from)
        {
            return fail(format!("not done for {from}: {why}"));
        }
        match name {
            PAGE => self.page(from, PageCommand::decode(body, context)?).await,
            HAS_HEARD => {
                let (generation, version) = Body::decode(body, context)?;
                let knows_it = host.has_heard(from, Announced { generation, version });
                let is_quiet = knows_it && host.is_quiet();
                let RingSnapshot { given_up, live, .. } = host.look();
                let live = live.into_iter().collect();
                Ok(Heard { knows_it, is_quiet, given_up, live }.encode(context)?)
            }
            WHERE_IS => {
                let (endpoint, members) = (IpAddr::decode(body, context)?, host.look().members);
                let token = members.ring.token(endpoint).cloned();
                Ok((token, members.leaving.contains(&endpoint)).encode(context)?)
            }
            WHICH_RING => {
                let ring = host.look().members.ring;
                let members = ring.members().map(|(token, it)| (it, token.clone()));
                Ok(members.collect::<Vec<_>>().encode(context)?)
            }
            WHICH_SCHEMA => Ok(host.schema().encode(context)?),
            WHICH_TOKEN => {
                let stores = node.storage.families();
                let load = stores.map(|store| store.statistics().live_bytes).sum::<u64>() as f64;
                Ok((load, halving_token(node).await?).encode(context)?)
            }
            START => {
                let mut reader = ByteReader::new(body);
                let number = u64::read(&mut reader, context)?;
                // A faulty task becomes a failed job, or its caller would repeat it forever.
                let task = Task::decode(reader.rest(), context);
                let this = Arc::clone(self);
                let work = |control| async move { this.work(from, task?, control).await };
                self.jobs.start(number, from, work);
                Ok(Vec::new())
            }
            POLL => Ok(self.jobs.status(u64::decode(body, context)?).encode(context)?),
            CANCEL => {
                self.jobs.cancel(u64::decode(body, context)?);
                Ok(Vec::new())
            }
            _ => {
                let name: String = name.chars().take(100).collect();
                fail(format!("there is no call {name}"))
            }
        }
    }

    async fn work(&self, from: IpAddr, task: Task, control: JobControl) -> Result<Output> {
        let progress = &control.progress;
        match task {
            Task::Ranges(ranges) => {
                let what = format!("{} ranges, of which it becomes a replica", ranges.len());
                let fetch = async {
                    self.catch_up().await?;
                    self.fetcher.fetch(&ranges, progress).await
                };
                collect(from, (Level::Info, &what), &control, fetch).await
            }
            Task::Rows { family, sources } => {
                let rows: usize = sources.iter().map(|(_, keys)| keys.len()).sum();
                let what = format!("{rows} rows that it lacks");
                let fetch = self.fetcher.fetch_rows(family, &sources, progress);
                collect(from, (Level::Debug, &what), &control, fetch).await
            }
            Task::Leaves { scope, shape } => self.validator.leaves(scope, shape, control).await,
            Task::List { scope, after } => self.validator.list(scope, after, control).await,
        }
    }

    /// Reads a page for another node.
    async fn page(&self, from: IpAddr, command: PageCommand) -> Result<Vec<u8>> {
        let PageCommand { family: id, rows, after, max_bytes } = command;
        let (storage, partitioner) = (Arc::clone(&self.node.storage), self.node.partitioner());
        let family = Arc::clone(storage.schema().family(id));
        // A caller whose time is over repeats the call.
        let permit = Arc::clone(&self.reads).acquire_owned().await.map_err(|_| Abandoned)?;
        let job = move || {
            let max_bytes = max_bytes.clamp(1, MAX_PAGE) as usize;
            let page = match rows {
                PageRows::Range(range) => {
                    storage.family(id).read_piece(&range, after.as_ref(), max_bytes)?
                }
                PageRows::Keys(keys) => {
                    let keys = keys.into_iter().map(|key| partitioner.decorate(key));
                    let keys: Vec<DecoratedKey> = keys.collect();
                    if !keys.is_sorted_by(|a, b| a < b) {
                        return fail(
                            "the rows that are asked for are not in the order of their tokens",
                        );
                    }
                    storage.family(id).read_rows_piece(&keys, after.as_ref(), max_bytes)?
                }
            };
            drop(permit);
            let rows = RangeReply { rows: page.rows };
            Ok(PageReply { rows, next: page.next }.encode(&family)?)
        };
        let page = self.node.run(job).await?;
        self.node.sending.add(from, id, page.len());
        Ok(page)
    }
}

fn decode<A: Body>(from: IpAddr, answer: &[u8], context: BodyContext<'_>) -> Result<A> {
    let senseless = |error| format!("the answer of {from} makes no sense: {error}");
    A::decode(answer, context).map_err(|error| OperationError::Failed(senseless(error)))
}

/// Collects rows for a node, until they are here or the job ends.
async fn collect(
    from: IpAddr,
    (level, what): (Level, &str),
    control: &JobControl,
    fetch: impl Future<Output = Result<()>>,
) -> Result<Output> {
    log::log!(level, "{from} has this node collect {what}");
    match control.stop.run_until_cancelled(fetch).await {
        Some(Ok(())) => {
            log::log!(level, "collected for {from}: {} bytes", control.progress.now().bytes);
            Ok(Output::Collected)
        }
        Some(Err(error)) => {
            log::warn!("what {from} ordered cannot be collected: {error}");
            Err(error)
        }
        None => Err(OperationError::GivenUp),
    }
}
