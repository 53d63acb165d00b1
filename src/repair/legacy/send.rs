//! Rows go to a node of 0.6, as files.

use super::LegacyPeers;
use super::outbound::News;
use super::peer_timeout::PeerTimeout;
use crate::base::fs::File;
use crate::base::java::TooLong;
use crate::model::schema::FamilyId;
use crate::net::bodies::{EncodeError, StreamFile, StreamFinished};
use crate::net::message::{Header, Message, STREAMING_KEYSPACE};
use crate::net::{FileConnection, Verb};
use crate::repair::compare::ranges::straight;
use crate::repair::host::Host;
use crate::replica::Abandoned;
use crate::ring::{RowRange, TokenRange};
use crate::storage::engine::{ExchangeError, OutgoingTable, TakenIn};
use crate::storage::error::{FileContext, FileError};
use log::Level;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc::Receiver;

/// How often a connection for a file is tried, as in 0.6; and the longest pause in between.
const DIALS: u32 = 8;
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// How often a file is sent.
const ATTEMPTS: u32 = 3;

/// How long a target may take until it is ready for files, and until it has taken one in.
const READY: Duration = Duration::from_mins(2);
const FINISHED: Duration = Duration::from_mins(15);

/// How long it may take none of the bytes of a file.
const STALLED: Duration = Duration::from_mins(1);

/// How often that is looked at.
const POLL: Duration = Duration::from_secs(1);

/// Bytes that are read and sent at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// Why rows did not get to a node. It may have some of them.
#[derive(Debug, thiserror::Error)]
pub(in crate::repair) enum PushError {
    #[error("the rows cannot be written to files: {0}")]
    Write(#[from] ExchangeError),
    #[error("{0}")]
    File(#[from] FileError),
    #[error("it cannot be told of the files: {0}")]
    Encode(#[from] EncodeError),
    #[error("it cannot be told of the files: {0}")]
    TooLong(#[from] TooLong),
    #[error("it is down")]
    Dead,
    #[error("it was started anew meanwhile, and has forgotten what it was told of the files")]
    Restarted,
    #[error("it does not say that it is ready for files")]
    NotReady,
    #[error("it does not say whether {0} has arrived")]
    NotFinished(String),
    #[error("{0} was sent {ATTEMPTS} times, and did not arrive")]
    NotTaken(String),
    #[error("no connection can be made to it: {0}")]
    Dial(io::Error),
    #[error(transparent)]
    Abandoned(#[from] Abandoned),
}

/// What goes to a target in a session.
#[derive(Debug, Clone, Copy)]
pub(in crate::repair) struct Load<'a> {
    pub(in crate::repair) keyspace: &'a str,
    pub(in crate::repair) ranges: &'a [TokenRange],
    /// None for all of the keyspace.
    pub(in crate::repair) family: Option<FamilyId>,
}

/// A node that files go to, as it runs now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) at: IpAddr,
    /// When it was started.
    start: Option<i32>,
    host: &'a dyn Host,
}

impl<'a> Target<'a> {
    pub(super) fn new(at: IpAddr, host: &'a dyn Host) -> Self {
        Self { at, start: host.look().generations.get(&at).copied(), host }
    }

    /// An error if it has been started anew. It knows nothing of sessions before then, and what it
    /// asks for since is not to be mistaken for what it asked for before.
    pub(super) fn check(&self) -> Result<(), PushError> {
        let is_same = Self::new(self.at, self.host).start == self.start;
        is_same.then_some(()).ok_or(PushError::Restarted)
    }

    pub(super) fn is_live(&self) -> bool {
        self.host.look().live.contains(&self.at)
    }
}

impl LegacyPeers {
    /// Sends a node all that this one has of some ranges, in one session, and in another one if the
    /// node is started anew meanwhile. When this returns the node has it. Returns how much it was.
    pub(in crate::repair) async fn push(
        &self,
        target: IpAddr,
        load: Load<'_>,
        host: &dyn Host,
    ) -> Result<TakenIn, PushError> {
        let mut sessions = 0;
        loop {
            sessions += 1;
            match self.push_to(Target::new(target, host), load).await {
                Err(error @ PushError::Restarted) if sessions < ATTEMPTS => {
                    self.messenger.log(
                        Level::Warn,
                        target,
                        format_args!("{target}: {error}. It gets them again"),
                    );
                }
                pushed => return pushed,
            }
        }
    }

    /// The same, only as long as the node runs.
    pub(super) async fn push_to(
        &self,
        target: Target<'_>,
        load: Load<'_>,
    ) -> Result<TakenIn, PushError> {
        let turn = self.departures.turn(target.at).await;
        target.check()?;
        let tables = self.write_out(load).await?;
        let mut news = turn.listen();
        let sent = self.send_all(target, load.keyspace, tables, &mut news).await?;
        self.messenger.log(
            Level::Info,
            target.at,
            format_args!(
                "{} has {} rows of keyspace {} from here: {} bytes",
                target.at, sent.rows, load.keyspace, sent.bytes
            ),
        );
        Ok(sent)
    }

    /// Writes what is to go to files.
    async fn write_out(&self, load: Load<'_>) -> Result<Vec<(FamilyId, OutgoingTable)>, PushError> {
        let pieces = straight(load.ranges);
        let rows: Vec<RowRange> = pieces.iter().flat_map(TokenRange::row_ranges).collect();
        let rows: Arc<[RowRange]> = rows.into();
        let families = self.storage.schema().families();
        let is_meant = |(id, keyspace): (FamilyId, &str)| {
            keyspace == load.keyspace && load.family.is_none_or(|only| only == id)
        };
        let families = families.filter(|(id, family)| is_meant((*id, &family.keyspace)));
        let families: Vec<FamilyId> = families.map(|(id, _)| id).collect();
        let _permit = self.writing.acquire().await.map_err(|_| Abandoned)?;
        let mut tables = Vec::new();
        for id in families {
            let (storage, rows) = (Arc::clone(&self.storage), Arc::clone(&rows));
            let stopping = Arc::clone(&self.stopping);
            let write_out = move || storage.write_out(id, &rows, &stopping);
            let table = self.blocking.run(write_out).await??;
            tables.extend(table.map(|table| (id, table)));
        }
        Ok(tables)
    }

    async fn send_all(
        &self,
        target: Target<'_>,
        keyspace: &str,
        tables: Vec<(FamilyId, OutgoingTable)>,
        news: &mut Receiver<News>,
    ) -> Result<TakenIn, PushError> {
        let file = |(path, length): &(std::path::PathBuf, u64)| StreamFile {
            path: path.to_string_lossy().into_owned(),
            length: *length,
            keyspace: keyspace.to_owned(),
        };
        let files: Vec<StreamFile> =
            tables.iter().flat_map(|(_, table)| table.table().files.iter().map(file)).collect();
        let body = StreamFile::encode(&files)?;
        let headers = vec![Header { name: STREAMING_KEYSPACE.into(), value: keyspace.as_bytes() }];
        target.check()?;
        self.messenger.send_with(Verb::StreamInitiate, headers, &body, target.at)?;
        let mut sent = TakenIn::default();
        if files.is_empty() {
            return Ok(sent);
        }
        let is_ready = |news| (news == News::Ready).then_some(());
        self.hear(news, target, READY, is_ready).await?.ok_or(PushError::NotReady)?;
        for (family, table) in tables {
            for (path, length) in &table.table().files {
                self.send_file((target, family), &table, (path, *length), news).await?;
                sent.bytes += length;
            }
            sent.rows += table.table().rows;
        }
        Ok(sent)
    }

    /// Sends a file until the target says that it has it.
    async fn send_file(
        &self,
        (target, family): (Target<'_>, FamilyId),
        table: &OutgoingTable,
        (path, length): (&Path, u64),
        news: &mut Receiver<News>,
    ) -> Result<(), PushError> {
        let name = path.to_string_lossy().into_owned();
        for _ in 0..ATTEMPTS {
            let file = table.open(path)?;
            let (connection, at) = (self.dial(target).await?, target.at);
            if let Err(error) = self.copy((at, family), (path, length), file, connection).await {
                self.messenger.log(
                    Level::Warn,
                    at,
                    format_args!("{name} on its way to {at}: {error}"),
                );
            }
            let is_of_it = |news| match news {
                News::Finished(finished) if finished.path == name => Some(finished.is_received),
                _ => None,
            };
            match self.hear(news, target, FINISHED, is_of_it).await? {
                Some(true) => return Ok(()),
                Some(false) => self.messenger.log(
                    Level::Warn,
                    target.at,
                    format_args!("{} wants {name} to be sent again", target.at),
                ),
                None => return Err(PushError::NotFinished(name)),
            }
        }
        Err(PushError::NotTaken(name))
    }

    /// Connects, more and more patiently.
    async fn dial(&self, target: Target<'_>) -> Result<FileConnection, PushError> {
        let at = target.at;
        let mut pause = self.messenger.timeout();
        let mut dials = 0;
        loop {
            let error = match self.messenger.transport().dial_for_file(at).await {
                Ok(connection) => return Ok(connection),
                Err(error) => error,
            };
            dials += 1;
            if dials >= DIALS {
                return Err(PushError::Dial(error));
            }
            target.check()?;
            if !target.is_live() {
                return Err(PushError::Dead);
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
            self.messenger.log(
                Level::Warn,
                at,
                format_args!("cannot connect to {at} to send it a file, trying again: {error}"),
            );
            tokio::time::sleep(pause).await;
        }
    }

    async fn copy(
        &self,
        (target, family): (IpAddr, FamilyId),
        (path, length): (&Path, u64),
        file: Arc<dyn File>,
        mut connection: FileConnection,
    ) -> Result<(), PushError> {
        let stalled = |_| PushError::Dial(io::ErrorKind::TimedOut.into());
        let mut at = 0;
        while at < length {
            let count = (length - at).min(CHUNK_BYTES as u64) as usize;
            let (file, path) = (Arc::clone(&file), path.to_owned());
            let read = move || {
                let mut chunk = vec![0; count];
                file.read_exact_at(&mut chunk, at).context("read", &path)?;
                Ok::<_, FileError>(chunk)
            };
            let chunk = self.blocking.run(read).await??;
            self.throttle.take(count).await;
            let written = tokio::time::timeout(STALLED, connection.write_all(&chunk)).await;
            written.map_err(stalled)?.map_err(PushError::Dial)?;
            self.outgoing.add(target, family, count);
            at += count as u64;
        }
        let closed = tokio::time::timeout(STALLED, connection.shutdown()).await;
        closed.map_err(stalled)?.map_err(PushError::Dial)
    }

    /// Waits for something that a target says. None if it does not come in time.
    async fn hear<T>(
        &self,
        news: &mut Receiver<News>,
        target: Target<'_>,
        patience: Duration,
        mut choose: impl FnMut(News) -> Option<T>,
    ) -> Result<Option<T>, PushError> {
        let mut timeout = PeerTimeout::begin();
        loop {
            match tokio::time::timeout(POLL, news.recv()).await {
                Ok(Some(heard)) => {
                    if let Some(chosen) = choose(heard) {
                        return Ok(Some(chosen));
                    }
                }
                Ok(None) => return Ok(None),
                Err(_) => {}
            }
            target.check()?;
            if timeout.is_lost(target.at, target.host) {
                return Err(PushError::Dead);
            }
            if timeout.lasts() >= patience {
                return Ok(None);
            }
        }
    }

    /// A target says what became of a file.
    pub(super) fn on_finished(&self, message: &Message<'_>) {
        match StreamFinished::decode(message.body) {
            Ok(finished) => self.departures.tell(message.from, News::Finished(finished)),
            Err(error) => self.complain(message.from, &error),
        }
    }
}
