//! Sends rows to nodes of 0.6, as files.

use super::outbound::{News, Turn};
use super::{LegacyPeers, Peer};
use crate::base::fs::File;
use crate::model::schema::FamilyId;
use crate::net::bodies::StreamFile;
use crate::net::message::{Header, STREAMING_KEYSPACE};
use crate::net::{FileConnection, Verb};
use crate::repair::compare::leaves::row_ranges;
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

/// Longest wait until a target is ready for files, and until it has taken one.
const READY: Duration = Duration::from_mins(2);
const FINISHED: Duration = Duration::from_mins(15);

/// Longest time in which a target takes no bytes of a file.
const STALLED: Duration = Duration::from_mins(1);

/// Bytes that are read and sent at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// Rows for a target in one session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load<'a> {
    pub(crate) keyspace: &'a str,
    pub(crate) ranges: &'a [TokenRange],
    /// `None` for all of the keyspace.
    pub(crate) family: Option<FamilyId>,
}

/// A session with a target.
struct Session<'a> {
    legacy: &'a LegacyPeers,
    target: Peer,
    turn: Turn<'a>,
}

impl LegacyPeers {
    /// Sends a node all of this node's rows of some ranges, in one session, and in another one if
    /// the node is restarted meanwhile. Returns the sent rows when the node has them.
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

    /// The same, in one session.
    pub(super) async fn push_to(&self, target: Peer, load: Load<'_>) -> Result<TakenIn> {
        let (at, keyspace) = (target.at, load.keyspace);
        let session = Session { legacy: self, target, turn: self.outbound.turn(at).await };
        self.check(target)?;
        let tables = self.write_out(load).await?;
        session.turn.listen();
        let sent = session.send_all(keyspace, tables).await?;
        let TakenIn { rows, bytes } = sent;
        let line =
            format_args!("{at} has {rows} rows of keyspace {keyspace} from here: {bytes} bytes");
        self.log(Level::Info, at, line);
        Ok(sent)
    }

    /// Writes the rows to files.
    async fn write_out(&self, load: Load<'_>) -> Result<Vec<(FamilyId, OutgoingTable)>> {
        let rows: Arc<[RowRange]> = row_ranges(load.ranges).into();
        let families = self.node.storage.schema().families();
        let families = families.filter(|(id, family)| {
            family.keyspace == load.keyspace && load.family.is_none_or(|only| only == *id)
        });
        let _permit = self.writing.acquire().await.map_err(|_| Abandoned)?;
        let mut tables = Vec::new();
        for (id, _) in families {
            let (storage, rows) = (Arc::clone(&self.node.storage), Arc::clone(&rows));
            let stopping = Arc::clone(&self.node.stopping);
            let write_out = move || storage.write_out(id, &rows, &stopping);
            let table = self.node.run(write_out).await.map_err(|error| {
                OperationError::Failed(format!("the rows cannot be written to files: {error}"))
            })?;
            tables.extend(table.map(|table| (id, table)));
        }
        Ok(tables)
    }
}

impl Session<'_> {
    async fn send_all(
        &self,
        keyspace: &str,
        tables: Vec<(FamilyId, OutgoingTable)>,
    ) -> Result<TakenIn> {
        let Self { legacy, target, .. } = *self;
        let all = tables.iter().flat_map(|(_, table)| &table.table().files);
        let file = |(path, length): &(PathBuf, u64)| StreamFile {
            path: name(path),
            length: *length,
            keyspace: keyspace.to_owned(),
        };
        let files: Vec<StreamFile> = all.map(file).collect();
        let body = StreamFile::encode(&files)?;
        let headers = vec![Header { name: STREAMING_KEYSPACE.into(), value: keyspace.as_bytes() }];
        legacy.check(target)?;
        legacy.node.messenger.send_with(Verb::StreamInitiate, headers, &body, target.at)?;
        let mut sent = TakenIn::default();
        if files.is_empty() {
            return Ok(sent);
        }
        let is_ready = |news| (news == News::Ready).then_some(());
        if self.hear(READY, is_ready).await?.is_none() {
            return fail("it does not say that it is ready for files");
        }
        for (family, table) in tables {
            for (path, length) in &table.table().files {
                self.send_file(family, &table, path, *length).await?;
                sent.bytes += length;
            }
            sent.rows += table.table().rows;
        }
        Ok(sent)
    }

    /// Sends a file until the target confirms it.
    async fn send_file(
        &self,
        family: FamilyId,
        table: &OutgoingTable,
        path: &Path,
        length: u64,
    ) -> Result<()> {
        let (legacy, at, name) = (self.legacy, self.target.at, name(path));
        for _ in 0..ATTEMPTS {
            let file = table.open(path)?;
            let connection = self.dial().await?;
            if let Err(error) = self.copy(family, file, path, length, connection).await {
                legacy.log(Level::Warn, at, format_args!("{name} on its way to {at}: {error}"));
            }
            let is_of_it = |news| match news {
                News::Finished(finished) if finished.path == name => Some(finished.is_received),
                _ => None,
            };
            match self.hear(FINISHED, is_of_it).await? {
                Some(true) => return Ok(()),
                Some(false) => {
                    legacy.log(Level::Warn, at, format_args!("{at} wants {name} to be sent again"));
                }
                None => return fail(format!("it does not say whether {name} has arrived")),
            }
        }
        fail(format!("{name} was sent {ATTEMPTS} times, and did not arrive"))
    }

    /// Connects, with growing pauses between attempts.
    async fn dial(&self) -> Result<FileConnection> {
        let (legacy, at) = (self.legacy, self.target.at);
        let messenger = &legacy.node.messenger;
        let mut pause = messenger.timeout();
        let mut dials = 0;
        loop {
            let error = match messenger.transport().dial_for_file(at).await {
                Ok(connection) => return Ok(connection),
                Err(error) => error,
            };
            dials += 1;
            if dials >= DIALS {
                return fail(format!("no connection can be made to it: {error}"));
            }
            legacy.check(self.target)?;
            if !legacy.is_live(at)? {
                return Err(OperationError::Down(at));
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
            let line = format!("cannot connect to {at} to send it a file, trying again: {error}");
            legacy.log(Level::Warn, at, line);
            tokio::time::sleep(pause).await;
        }
    }

    async fn copy(
        &self,
        family: FamilyId,
        file: Arc<dyn File>,
        path: &Path,
        length: u64,
        mut connection: FileConnection,
    ) -> Result<()> {
        let node = &self.legacy.node;
        let stalled = |_| io::Error::from(io::ErrorKind::TimedOut);
        let mut at = 0;
        while at < length {
            let count = (length - at).min(CHUNK_BYTES as u64) as usize;
            let (file, path) = (Arc::clone(&file), path.to_path_buf());
            let read = move || {
                let mut chunk = vec![0; count];
                file.read_exact_at(&mut chunk, at).context("read", &path).map(|()| chunk)
            };
            let chunk = node.run(read).await?;
            node.throttle.take(count).await;
            let written = tokio::time::timeout(STALLED, connection.write_all(&chunk)).await;
            written.map_err(stalled)??;
            node.sending.add(self.target.at, family, count);
            at += count as u64;
        }
        let closed = tokio::time::timeout(STALLED, connection.shutdown()).await;
        Ok(closed.map_err(stalled)??)
    }

    /// Waits for a message of the target. `None` if it does not come in time.
    async fn hear<T>(
        &self,
        patience: Duration,
        choose: impl Fn(News) -> Option<T>,
    ) -> Result<Option<T>> {
        let find = || {
            let heard = std::iter::from_fn(|| self.turn.hear()).find_map(&choose);
            if heard.is_none() {
                self.legacy.check(self.target)?;
            }
            Ok(heard)
        };
        self.legacy.wait_for(self.target.at, patience, find).await
    }
}

/// The path of a file, as the target repeats it.
fn name(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
