//! Rows go to a node of 0.6, as files.

use super::outbound::{News, Turn};
use super::{LegacyPeers, Peer};
use crate::base::fs::File;
use crate::model::schema::FamilyId;
use crate::net::bodies::StreamFile;
use crate::net::message::{Header, STREAMING_KEYSPACE};
use crate::net::{FileConnection, Verb};
use crate::repair::compare::ranges::straight;
use crate::repair::error::{OperationError, Result, fail};
use crate::replica::Abandoned;
use crate::ring::{RowRange, TokenRange};
use crate::storage::database::{OutgoingTable, TakenIn};
use crate::storage::error::FileContext;
use log::Level;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

/// Most attempts to connect for a file, as in 0.6; and the longest pause in between.
const DIALS: u32 = 8;
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// Most attempts to send a file.
const ATTEMPTS: u32 = 3;

/// Longest wait until a target is ready for files, and until it has taken one in.
const READY: Duration = Duration::from_mins(2);
const FINISHED: Duration = Duration::from_mins(15);

/// Longest time that it may take none of the bytes of a file.
const STALLED: Duration = Duration::from_mins(1);

/// Bytes that are read and sent at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// Rows that go to a target in a session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load<'a> {
    pub(crate) keyspace: &'a str,
    pub(crate) ranges: &'a [TokenRange],
    /// None for all of the keyspace.
    pub(crate) family: Option<FamilyId>,
}

impl LegacyPeers {
    /// Sends a node all that this one has of some ranges, in one session, and in another one if the
    /// node is restarted meanwhile. When this returns the node has it. Returns how much it was.
    pub(crate) async fn push(&self, target: IpAddr, load: Load<'_>) -> Result<TakenIn> {
        let mut sessions = 0;
        loop {
            sessions += 1;
            match self.push_to(self.peer(target)?, load).await {
                Err(error @ OperationError::Restarted) if sessions < ATTEMPTS => {
                    let line = format_args!("{target}: {error}. It gets them again");
                    self.log(Level::Warn, target, line);
                }
                pushed => return pushed,
            }
        }
    }

    /// The same, only as long as the node runs.
    pub(super) async fn push_to(&self, target: Peer, load: Load<'_>) -> Result<TakenIn> {
        let turn = self.outbound.turn(target.at).await;
        self.check(target)?;
        let tables = self.write_out(load).await?;
        turn.listen();
        let sent = self.send_all(target, load.keyspace, tables, &turn).await?;
        let (at, keyspace) = (target.at, load.keyspace);
        let (rows, bytes) = (sent.rows, sent.bytes);
        let line =
            format_args!("{at} has {rows} rows of keyspace {keyspace} from here: {bytes} bytes");
        self.log(Level::Info, at, line);
        Ok(sent)
    }

    /// Writes what is to go to files.
    async fn write_out(&self, load: Load<'_>) -> Result<Vec<(FamilyId, OutgoingTable)>> {
        let pieces = straight(load.ranges);
        let rows: Arc<[RowRange]> = pieces.iter().flat_map(TokenRange::row_ranges).collect();
        let families = self.node.storage.schema().families();
        let families = families.filter(|(id, family)| {
            family.keyspace == load.keyspace && load.family.is_none_or(|only| only == *id)
        });
        let _permit = self.writing.acquire().await.map_err(|_| Abandoned)?;
        let mut tables = Vec::new();
        for (id, _) in families {
            let (storage, rows) = (Arc::clone(&self.node.storage), Arc::clone(&rows));
            let stopping = Arc::clone(&self.stopping);
            let write_out = move || storage.write_out(id, &rows, &stopping);
            let table = self.node.run(write_out).await.map_err(|error| {
                OperationError::Failed(format!("the rows cannot be written to files: {error}"))
            })?;
            tables.extend(table.map(|table| (id, table)));
        }
        Ok(tables)
    }

    async fn send_all(
        &self,
        target: Peer,
        keyspace: &str,
        tables: Vec<(FamilyId, OutgoingTable)>,
        turn: &Turn<'_>,
    ) -> Result<TakenIn> {
        let file = |(path, length): &(PathBuf, u64)| StreamFile {
            path: path.to_string_lossy().into_owned(),
            length: *length,
            keyspace: keyspace.to_owned(),
        };
        let files: Vec<StreamFile> =
            tables.iter().flat_map(|(_, table)| table.table().files.iter().map(file)).collect();
        let body = StreamFile::encode(&files)?;
        let headers = vec![Header { name: STREAMING_KEYSPACE.into(), value: keyspace.as_bytes() }];
        self.check(target)?;
        self.node.messenger.send_with(Verb::StreamInitiate, headers, &body, target.at)?;
        let mut sent = TakenIn::default();
        if files.is_empty() {
            return Ok(sent);
        }
        let is_ready = |news| (news == News::Ready).then_some(());
        if self.hear(turn, target, READY, is_ready).await?.is_none() {
            return fail("it does not say that it is ready for files");
        }
        for (family, table) in tables {
            for (path, length) in &table.table().files {
                let name = path.to_string_lossy().into_owned();
                let outgoing = Outgoing { family, path, length: *length, name };
                self.send_file(target, &table, &outgoing, turn).await?;
                sent.bytes += length;
            }
            sent.rows += table.table().rows;
        }
        Ok(sent)
    }

    /// Sends a file until the target says that it has it.
    async fn send_file(
        &self,
        target: Peer,
        table: &OutgoingTable,
        outgoing: &Outgoing<'_>,
        turn: &Turn<'_>,
    ) -> Result<()> {
        let (at, name) = (target.at, &outgoing.name);
        for _ in 0..ATTEMPTS {
            let file = table.open(outgoing.path)?;
            let connection = self.dial(target).await?;
            if let Err(error) = self.copy(at, outgoing, file, connection).await {
                self.log(Level::Warn, at, format_args!("{name} on its way to {at}: {error}"));
            }
            let is_of_it = |news| match news {
                News::Finished(finished) if finished.path == *name => Some(finished.is_received),
                _ => None,
            };
            match self.hear(turn, target, FINISHED, is_of_it).await? {
                Some(true) => return Ok(()),
                Some(false) => {
                    self.log(Level::Warn, at, format_args!("{at} wants {name} to be sent again"));
                }
                None => return fail(format!("it does not say whether {name} has arrived")),
            }
        }
        fail(format!("{name} was sent {ATTEMPTS} times, and did not arrive"))
    }

    /// Connects, more and more patiently.
    async fn dial(&self, target: Peer) -> Result<FileConnection> {
        let at = target.at;
        let mut pause = self.node.messenger.timeout();
        let mut dials = 0;
        loop {
            let error = match self.node.messenger.transport().dial_for_file(at).await {
                Ok(connection) => return Ok(connection),
                Err(error) => error,
            };
            dials += 1;
            if dials >= DIALS {
                return fail(format!("no connection can be made to it: {error}"));
            }
            self.check(target)?;
            if !self.is_live(at)? {
                return Err(OperationError::Down(at));
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
            self.log(
                Level::Warn,
                at,
                format_args!("cannot connect to {at} to send it a file, trying again: {error}"),
            );
            tokio::time::sleep(pause).await;
        }
    }

    async fn copy(
        &self,
        target: IpAddr,
        Outgoing { family, path, length, .. }: &Outgoing<'_>,
        file: Arc<dyn File>,
        mut connection: FileConnection,
    ) -> Result<()> {
        let stalled = |_| io::Error::from(io::ErrorKind::TimedOut);
        let mut at = 0;
        while at < *length {
            let count = (length - at).min(CHUNK_BYTES as u64) as usize;
            let (file, path) = (Arc::clone(&file), path.to_path_buf());
            let read = move || {
                let mut chunk = vec![0; count];
                file.read_exact_at(&mut chunk, at).context("read", &path).map(|()| chunk)
            };
            let chunk = self.node.run(read).await?;
            self.node.throttle.take(count).await;
            let written = tokio::time::timeout(STALLED, connection.write_all(&chunk)).await;
            written.map_err(stalled)??;
            self.node.sending.add(target, *family, count);
            at += count as u64;
        }
        let closed = tokio::time::timeout(STALLED, connection.shutdown()).await;
        Ok(closed.map_err(stalled)??)
    }

    /// Waits for something that a target says. None if it does not come in time.
    async fn hear<T>(
        &self,
        turn: &Turn<'_>,
        target: Peer,
        patience: Duration,
        choose: impl Fn(News) -> Option<T>,
    ) -> Result<Option<T>> {
        let find = || {
            let heard = std::iter::from_fn(|| turn.hear()).find_map(&choose);
            if heard.is_none() {
                self.check(target)?;
            }
            Ok(heard)
        };
        self.wait_for(target.at, patience, find).await
    }
}

/// A file on its way.
struct Outgoing<'a> {
    family: FamilyId,
    path: &'a Path,
    length: u64,
    /// Its path, as the target repeats it.
    name: String,
}
