//! Makes rows of the files that nodes of 0.6 announce and send.

use super::LegacyPeers;
use super::inbound::{Arrival, Expected, Session};
use crate::net::bodies::{StreamFile, StreamFinished};
use crate::net::message::{Message, STREAMING_KEYSPACE};
use crate::net::{IncomingFile, Verb};
use crate::repair::error::{OperationError, Result, fail};
use crate::storage::database::{SpooledFile, TakenIn};
use crate::storage::files::OriginalPart;
use log::Level;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Most files of a session.
const MOST_FILES: usize = 30_000;

/// Most bytes of a filter or an index, which are read and dropped.
const MOST_DERIVED_BYTES: u64 = 1 << 40;

/// Longest silence of a connection.
const SILENCE: Duration = Duration::from_mins(1);

/// Longest wait until a source closes a connection after the file.
const CLOSING: Duration = Duration::from_secs(10);

/// Bytes that are read at a time, and those that are written at a time.
const READ_BYTES: usize = 64 << 10;
const WRITE_BYTES: usize = 1 << 20;

impl LegacyPeers {
    /// Handles an announcement of files, which may be none.
    pub(super) fn on_initiate(&self, message: &Message<'_>) -> Result<()> {
        let (from, now) = (message.from, self.node.clock.monotonic());
        let keyspace = message.header(STREAMING_KEYSPACE);
        let keyspace = keyspace.map(|it| String::from_utf8_lossy(it).into_owned());
        let (keyspace, files) = match self.read_initiate(message, keyspace.as_deref()) {
            Ok(announced) => announced,
            Err(error) => {
                if let Some(keyspace) = keyspace {
                    self.inbound.announce(from, &keyspace, Err(error.to_string()), now);
                }
                return Err(error);
            }
        };
        let bytes: u64 = files.iter().map(|file| file.length).sum();
        let count = files.len();
        self.inbound.announce(from, &keyspace, Ok(files), now);
        if count == 0 {
            log::debug!("{from} has nothing of keyspace {keyspace} to send");
            return Ok(());
        }
        let line = format_args!("{from} sends {count} files of keyspace {keyspace}: {bytes} bytes");
        self.log(Level::Info, from, line);
        Ok(self.node.messenger.send(Verb::StreamInitiateDone, b"", from)?)
    }

    /// Reads the keyspace and the announced files.
    fn read_initiate(
        &self,
        message: &Message<'_>,
        keyspace: Option<&str>,
    ) -> Result<(String, Vec<Expected>)> {
        if !self.is_live(message.from)? {
            return fail("it is not known to be alive, and announces files");
        }
        let files = StreamFile::decode(message.body).map_err(|error| {
            let what = "it announces files in a way that cannot be read";
            OperationError::Failed(format!("{what}: {error}"))
        })?;
        let count = files.len();
        if count > MOST_FILES {
            return fail(format!("it announces {count} files at once, more than any node takes"));
        }
        // 0.6 always names it. Without a name it may be the one session that was requested.
        let first = || files.first().map(|file| file.keyspace.clone());
        let only = || {
            let mut awaited = self.inbound.awaited(message.from);
            awaited.pop().filter(|_| awaited.is_empty())
        };
        let Some(keyspace) = keyspace.map(str::to_owned).or_else(first).or_else(only) else {
            return fail("it announces files, and does not say of which keyspace");
        };
        let files = files.into_iter().map(|file| self.expected(file));
        Ok((keyspace, files.collect::<Result<_, _>>()?))
    }

    fn expected(&self, file: StreamFile) -> Result<Expected> {
        let StreamFile { path, length, keyspace } = file;
        let name = path.rsplit(['/', '\\']).next().unwrap_or_default();
        let Some((family, _, part)) = OriginalPart::parse(name) else {
            return fail(format!("it announces {path}, which is no file of an SSTable of 0.6"));
        };
        let Some(id) = self.node.storage.schema().family_id(&keyspace, family) else {
            return fail(format!(
                "it announces a table of {keyspace}.{family}, which is not configured here"
            ));
        };
        if length > MOST_DERIVED_BYTES {
            return fail(format!("it announces {path}, which is too long"));
        }
        Ok(Expected { path, length, family: id, part })
    }

    /// Takes the file that a connection brings, and answers its source.
    pub(crate) async fn take_file(&self, from: IpAddr, file: IncomingFile) {
        let Some((session, expected)) = self.inbound.begin(from, self.node.clock.monotonic())
        else {
            let line = "closing a connection of it that brings a file which was not announced";
            return self.complain(from, &line);
        };
        let taken = self.take(&session, &expected, file).await;
        let Expected { path, length, .. } = expected;
        let taken = taken.map_err(|why| format!("{path} of {from} was not taken: {why}"));
        let why = taken.as_ref().err().cloned().unwrap_or_default();
        let arrival = self.inbound.arrive(&session, taken, self.node.clock.monotonic());
        self.changed.notify_waiters();
        match arrival {
            Arrival::Taken => {}
            Arrival::Again => {
                self.log(Level::Warn, from, format_args!("{why}. It is to be sent again"));
            }
            Arrival::GivenUp => {
                let line = format_args!("{why}. It is not waited for any longer");
                return self.log(Level::Error, from, line);
            }
            Arrival::Over => return,
        }
        let is_received = arrival == Arrival::Taken;
        let told = StreamFinished { path, length, is_received }.encode();
        let told = told
            .map_err(OperationError::from)
            .and_then(|body| Ok(self.node.messenger.send(Verb::StreamFinished, &body, from)?));
        if let Err(error) = told {
            self.complain(from, &error);
        }
    }

    /// Makes rows of a data file. Other files follow from these, and are dropped.
    async fn take(
        &self,
        session: &Session,
        expected: &Expected,
        mut file: IncomingFile,
    ) -> Result<TakenIn> {
        let node = &self.node;
        let (family, length) = (expected.family, expected.length);
        let mut spooled = None;
        if expected.part == OriginalPart::Data {
            let storage = Arc::clone(&node.storage);
            spooled = Some(node.run(move || storage.spool(family, length)).await?);
        }
        let (mut got, mut waiting) = (0, Vec::with_capacity(READ_BYTES));
        let mut room = vec![0; READ_BYTES];
        while got < length {
            let most = (length - got).min(READ_BYTES as u64) as usize;
            let read = tokio::time::timeout(SILENCE, file.read(&mut room[..most])).await;
            let Ok(count) = read else {
                return fail(format!("nothing has come for {} s", SILENCE.as_secs()));
            };
            let count = count?;
            if count == 0 {
                return fail(format!("it ends after {got} of {length} bytes"));
            }
            got += count as u64;
            session.touch(node.clock.monotonic());
            node.receiving.add(session.source, family, count);
            node.throttle.take(count).await;
            if spooled.is_some() {
                waiting.extend_from_slice(&room[..count]);
            }
            if waiting.len() >= WRITE_BYTES {
                spooled = self.append(spooled, &mut waiting).await?;
            }
        }
        // A longer file is not the announced one.
        if let Ok(Ok(1..)) = tokio::time::timeout(CLOSING, file.read(&mut room[..1])).await {
            return fail(format!("it is longer than the {length} bytes that were announced"));
        }
        let Some(spooled) = self.append(spooled, &mut waiting).await? else {
            return Ok(TakenIn::default());
        };
        let (storage, stopping) = (Arc::clone(&node.storage), Arc::clone(&node.stopping));
        node.run(move || storage.take_in(family, &spooled, &stopping)).await
    }

    async fn append(
        &self,
        spooled: Option<SpooledFile>,
        waiting: &mut Vec<u8>,
    ) -> Result<Option<SpooledFile>> {
        let Some(mut spooled) = spooled else { return Ok(None) };
        let bytes = std::mem::take(waiting);
        self.node.run(move || spooled.append(&bytes).map(|()| Some(spooled))).await
    }
}
