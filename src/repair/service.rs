//! Answers the calls of other nodes.

use super::calls::{
    Accepted, Call, Collect, Halving, HasHeard, Heard, HowFar, KnownRing, PIECE, TokenOf, WhereIs,
    WhichRing, WhichToken, Withdraw,
};
use super::compare::Validations;
use super::compare::calls::{CollectRows, Forget, HashRows, ROWS, Validate, Validated};
use super::halving::halving_token;
use super::host::{Announced, Host, RingSnapshot};
use super::orders::Orders;
use super::text_key::TextKey;
use super::traffic::Traffic;
use super::transfer::fetch::{Fetcher, MAX_PIECE};
use crate::base::clock::Clock;
use crate::model::schema::FamilyId;
use crate::net::bodies::{
    BodyError, EncodeError, PieceCommand, PieceReply, RangeReply, RowsCommand,
};
use crate::net::extensions::CALL;
use crate::net::message::Message;
use crate::net::messenger::Messenger;
use crate::replica::{Abandoned, Blocking};
use crate::ring::DecoratedKey;
use crate::storage::Storage;
use crate::storage::error::ReadError;
use crate::storage::store::Piece;
use serde::Serialize;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

/// Calls that are answered at a time, and wait to be. Further ones are dropped: who calls asks
/// again.
const MAX_CALLS: usize = 64;

/// Pieces that are read from disk at a time, so that clients have the rest of it.
const MAX_READS: usize = 2;

/// Answers the calls of other nodes.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) storage: Arc<Storage>,
    pub(super) messenger: Arc<Messenger>,
    pub(super) blocking: Blocking,
    pub(super) fetcher: Arc<Fetcher>,
    pub(super) orders: Arc<Orders>,
    pub(super) validations: Arc<Validations>,
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
    #[error("there is no column family {0}.{1}")]
    NoFamily(String, String),
    #[error("the rows that are asked for are not in the order of their tokens")]
    OutOfOrder,
    #[error("the call cannot be read: {0}")]
    Json(#[from] serde_json::Error),
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
        storage: Arc<Storage>,
        messenger: Arc<Messenger>,
        blocking: Blocking,
        fetcher: Arc<Fetcher>,
        orders: Arc<Orders>,
        clock: Arc<dyn Clock>,
        validations: Arc<Validations>,
    ) -> Self {
        let [calls, reads] = [MAX_CALLS, MAX_READS].map(|it| Arc::new(Semaphore::new(it)));
        let tasks = TaskTracker::new();
        let traffic = Traffic::new(clock);
        Self {
            storage,
            messenger,
            blocking,
            fetcher,
            orders,
            validations,
            calls,
            reads,
            tasks,
            traffic,
        }
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
                Ok(answer) if name == PIECE => service.messenger.reply_in_bulk(from, id, &answer),
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

    /// Waits for what is under way.
    pub(super) async fn drain(&self) {
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
        if !asks_for_ring && let Some(why) = host.turns_away(from) {
            return Err(Refusal::TurnedAway(from, why));
        }
        match name {
            PIECE => self.piece(from, body).await,
            ROWS => self.rows(from, body).await,
            HasHeard::NAME => {
                let HasHeard { generation, version } = serde_json::from_slice(body)?;
                let knows_it = host.has_heard(from, Announced { generation, version });
                let is_quiet = knows_it && host.is_quiet();
                let RingSnapshot { given_up, live, .. } = host.look();
                json(&Heard { knows_it, is_quiet, given_up, live })
            }
            WhereIs::NAME => {
                let WhereIs { endpoint } = serde_json::from_slice(body)?;
                let look = host.look();
                let token = look.members.ring.token(endpoint);
                let token = token.map(|token| self.storage.partitioner().format_token(token));
                let is_leaving = look.members.leaving.contains(&endpoint);
                json(&TokenOf { token, is_leaving })
            }
            WhichRing::NAME => {
                let WhichRing {} = serde_json::from_slice(body)?;
                let (look, partitioner) = (host.look(), self.storage.partitioner());
                let members = look.members.ring.members();
                let members = members.map(|(token, it)| (it, partitioner.format_token(token)));
                json(&KnownRing { members: members.collect() })
            }
            Collect::NAME => {
                let collect = serde_json::from_slice(body)?;
                self.orders.take(from, collect, Arc::clone(&self.fetcher), host);
                json(&Accepted {})
            }
            HowFar::NAME => {
                let HowFar { order } = serde_json::from_slice(body)?;
                json(&self.orders.how_far(order))
            }
            Withdraw::NAME => {
                let Withdraw { order } = serde_json::from_slice(body)?;
                self.orders.withdraw(order);
                json(&Accepted {})
            }
            WhichToken::NAME => {
                let WhichToken {} = serde_json::from_slice(body)?;
                let storage = Arc::clone(&self.storage);
                let halve = move || halving_token(&storage, &*host);
                let token = self.blocking.run(halve).await?;
                let load = self.storage.stores().iter();
                let load = load.map(|store| store.statistics().live_bytes).sum::<u64>() as f64;
                let token = self.storage.partitioner().format_token(&token);
                json(&Halving { load, token })
            }
            _ => self.compare(from, name, body, host),
        }
    }

    /// Answers a call of a node that compares what replicas have.
    fn compare(
        &self,
        from: IpAddr,
        name: &str,
        body: &[u8],
        host: Arc<dyn Host>,
    ) -> Result<Vec<u8>, Refusal> {
        match name {
            Validate::NAME => {
                self.validations.validate(from, serde_json::from_slice(body)?);
                json(&Accepted {})
            }
            HashRows::NAME => {
                self.validations.hash_rows(from, serde_json::from_slice(body)?);
                json(&Accepted {})
            }
            Validated::NAME => {
                let Validated { session, from } = serde_json::from_slice(body)?;
                json(&self.validations.findings(session, from))
            }
            Forget::NAME => {
                let Forget { session } = serde_json::from_slice(body)?;
                self.validations.forget(session);
                json(&Accepted {})
            }
            CollectRows::NAME => {
                let CollectRows { order, keyspace, family, sources } =
                    serde_json::from_slice(body)?;
                let Some(id) = self.storage.schema().family_id(&keyspace, &family) else {
                    return Err(Refusal::NoFamily(keyspace, family));
                };
                let keys = |keys: Vec<TextKey>| keys.into_iter().map(|TextKey(key)| key).collect();
                let sources = sources.into_iter().map(|(source, rows)| (source, keys(rows)));
                let rows = (id, sources.collect());
                self.orders.take_rows(from, order, rows, Arc::clone(&self.fetcher), host);
                json(&Accepted {})
            }
            _ => Err(Refusal::Unknown(name.chars().take(100).collect())),
        }
    }

    async fn rows(&self, from: IpAddr, body: &[u8]) -> Result<Vec<u8>, Refusal> {
        let RowsCommand { family, keys, after, max_bytes } =
            RowsCommand::decode(body, self.storage.schema())?;
        let partitioner = self.storage.partitioner();
        let keys = keys.into_iter().map(|key| partitioner.decorate(key));
        let keys: Vec<DecoratedKey> = keys.collect();
        if !keys.is_sorted_by(|a, b| a < b) {
            return Err(Refusal::OutOfOrder);
        }
        self.read(from, family, max_bytes, move |storage, max_bytes| {
            storage.read_rows_piece(family, &keys, after.as_ref(), max_bytes)
        })
        .await
    }

    async fn piece(&self, from: IpAddr, body: &[u8]) -> Result<Vec<u8>, Refusal> {
        let (schema, partitioner) = (self.storage.schema(), self.storage.partitioner());
        let PieceCommand { family, range, after, max_bytes } =
            PieceCommand::decode(body, schema, partitioner)?;
        self.read(from, family, max_bytes, move |storage, max_bytes| {
            storage.read_piece(family, &range, after.as_ref(), max_bytes)
        })
        .await
    }

    /// Reads a piece for another node, when its turn comes.
    async fn read(
        &self,
        from: IpAddr,
        id: FamilyId,
        max_bytes: u32,
        read: impl FnOnce(&Storage, usize) -> Result<Piece, ReadError> + Send + 'static,
    ) -> Result<Vec<u8>, Refusal> {
        let family = Arc::clone(self.storage.schema().family(id));
        // Whoever waits here for longer than the caller is asked again.
        let permit = Arc::clone(&self.reads).acquire_owned().await.map_err(|_| Abandoned)?;
        let storage = Arc::clone(&self.storage);
        let job = move || {
            let piece = read(&storage, max_bytes.clamp(1, MAX_PIECE) as usize)?;
            drop(permit);
            let rows = RangeReply { rows: piece.rows };
            Ok::<_, Refusal>(PieceReply { rows, next: piece.next }.encode(&family)?)
        };
        let piece = self.blocking.run(job).await??;
        self.traffic.add(from, id, piece.len());
        Ok(piece)
    }
}

fn json(answer: &impl Serialize) -> Result<Vec<u8>, Refusal> {
    Ok(serde_json::to_vec(answer)?)
}
