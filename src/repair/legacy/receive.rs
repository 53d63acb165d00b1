//! Files that nodes of 0.6 announce and send become rows of this node.

use super::LegacyPeers;
use super::inbound::{Expected, Failed, Session};
use crate::net::bodies::{BodyError, StreamFile, StreamFinished};
use crate::net::message::{Message, STREAMING_KEYSPACE};
use crate::net::{IncomingFile, Verb};
use crate::repair::host::Host;
use crate::replica::Abandoned;
use crate::storage::engine::{ExchangeError, SpooledFile, TakenIn};
use crate::storage::error::FileError;
use crate::storage::files::OriginalPart;
use log::Level;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Most files of a session.
const MOST_FILES: usize = 30_000;

/// Most bytes of a filter or an index: these are read and dropped.
const MOST_DERIVED_BYTES: u64 = 1 << 40;

/// How long a connection may bring nothing.
const SILENCE: Duration = Duration::from_mins(1);

/// How long a source may take to close a connection behind the file.
const CLOSING: Duration = Duration::from_secs(10);

/// Bytes that are read at a time, and those that are written at a time.
const READ_BYTES: usize = 64 << 10;
const WRITE_BYTES: usize = 1 << 20;

/// Why files that were announced are not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("it announces files in a way that cannot be read: {0}")]
    Body(#[from] BodyError),
    #[error("it announces {0} files at once, more than any node takes")]
    TooMany(usize),
    #[error("it announces files, and does not say of which keyspace")]
    NoKeyspace,
    #[error("it announces {0}, which is no file of an SSTable of 0.6")]
    Name(String),
    #[error("it announces a table of {0}.{1}, which is not configured here")]
    NoFamily(String, String),
    #[error("it announces {0}, which is too long")]
    TooLong(String),
    #[error("it is not known to be alive, and announces files")]
    Stranger,
}

/// Why a file did not become rows.
#[derive(Debug, thiserror::Error)]
enum FileFailure {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("nothing has come for {} s", SILENCE.as_secs())]
    Silent,
    #[error("it ends after {got} of {told} bytes")]
    Short { got: u64, told: u64 },
    #[error("it is longer than the {0} bytes that were announced")]
    Long(u64),
    #[error(transparent)]
    Spool(#[from] FileError),
    #[error(transparent)]
    Take(#[from] ExchangeError),
    #[error(transparent)]
    Abandoned(#[from] Abandoned),
}

impl LegacyPeers {
    /// Files are announced, or that there are none.
    pub(super) fn on_initiate(&self, message: &Message<'_>, host: &dyn Host) {
        let (from, now) = (message.from, self.clock.monotonic());
        let keyspace = message.header(STREAMING_KEYSPACE).map(String::from_utf8_lossy);
        let keyspace = keyspace.map(std::borrow::Cow::into_owned);
        let announced = self.read_initiate(message, keyspace.clone(), host);
        let (keyspace, files) = match announced {
            Ok(announced) => announced,
            Err(refusal) => {
                self.complain(from, &refusal);
                if let Some(keyspace) = keyspace {
                    self.arrivals.refuse(from, &keyspace, &refusal.to_string(), now);
                }
                return;
            }
        };
        let bytes: u64 = files.iter().map(|file| file.length).sum();
        let count = files.len();
        self.arrivals.announce(from, &keyspace, files, now);
        if count == 0 {
            log::debug!("{from} has nothing of keyspace {keyspace} to send");
            return;
        }
        self.messenger.log(
            Level::Info,
            from,
            format_args!("{from} sends {count} files of keyspace {keyspace}: {bytes} bytes"),
        );
        if let Err(error) = self.messenger.send(Verb::StreamInitiateDone, b"", from) {
            self.complain(from, &error);
        }
    }

    /// The keyspace, and which files will come.
    fn read_initiate(
        &self,
        message: &Message<'_>,
        keyspace: Option<String>,
        host: &dyn Host,
    ) -> Result<(String, Vec<Expected>), Refusal> {
        if !host.look().live.contains(&message.from) {
            return Err(Refusal::Stranger);
        }
        let files = StreamFile::decode(message.body)?;
        if files.len() > MOST_FILES {
            return Err(Refusal::TooMany(files.len()));
        }
        // Nodes of 0.6 say it always. What says nothing may be what was asked for alone.
        let first = || files.first().map(|file| file.keyspace.clone());
        let only = || {
            let mut awaited = self.arrivals.awaited(message.from);
            awaited.pop().filter(|_| awaited.is_empty())
        };
        let keyspace = keyspace.or_else(first).or_else(only).ok_or(Refusal::NoKeyspace)?;
        let files = files.into_iter().map(|file| self.expected(file));
        Ok((keyspace, files.collect::<Result<_, _>>()?))
    }

    fn expected(&self, file: StreamFile) -> Result<Expected, Refusal> {
        let StreamFile { path, length, keyspace } = file;
        let name = path.rsplit(['/', '\\']).next().unwrap_or_default();
        let Some((family, _, part)) = OriginalPart::parse(name) else {
            return Err(Refusal::Name(path));
        };
        let Some(id) = self.storage.schema().family_id(&keyspace, family) else {
            return Err(Refusal::NoFamily(keyspace, family.to_owned()));
        };
        if length > MOST_DERIVED_BYTES {
            return Err(Refusal::TooLong(path));
        }
        Ok(Expected { path, length, family: id, part })
    }

    /// Takes the file that a connection brings, up to its end, and tells its source.
    pub(super) async fn take_file(&self, from: IpAddr, file: IncomingFile) {
        let Some((session, expected)) = self.arrivals.begin(from, self.clock.monotonic()) else {
            let line = "closing a connection of it that brings a file which was not announced";
            self.complain(from, &line);
            return;
        };
        let taken = self.take(&session, &expected, file).await;
        let now = self.clock.monotonic();
        let is_received = match taken {
            Ok(taken) => {
                if !self.arrivals.done(&session, taken, now) {
                    return;
                }
                true
            }
            Err(failure) => {
                let why = format!("{} of {from} was not taken: {failure}", expected.path);
                match self.arrivals.failed(&session, &why, now) {
                    Failed::Over => return,
                    Failed::Again => self.messenger.log(
                        Level::Warn,
                        from,
                        format_args!("{why}. It is to be sent again"),
                    ),
                    Failed::GivenUp => {
                        self.messenger.log(
                            Level::Error,
                            from,
                            format_args!("{why}. It is not waited for any longer"),
                        );
                        return;
                    }
                }
                false
            }
        };
        let Expected { path, length, .. } = expected;
        let told = StreamFinished { path, length, is_received }.encode();
        let told = told.map(|body| self.messenger.send(Verb::StreamFinished, &body, from));
        if let Err(error) | Ok(Err(error)) = told
            .map_err(|error| error.to_string())
            .map(|sent| sent.map_err(|error| error.to_string()))
        {
            self.complain(from, &error);
        }
    }

    /// Makes rows of a data file. Other files follow from these, so that nothing of them is kept.
    async fn take(
        &self,
        session: &Session,
        expected: &Expected,
        mut file: IncomingFile,
    ) -> Result<TakenIn, FileFailure> {
        let mut spooled = None;
        if expected.part == OriginalPart::Data {
            let (storage, family, length) =
                (Arc::clone(&self.storage), expected.family, expected.length);
            spooled = Some(self.blocking.run(move || storage.spool(family, length)).await??);
        }
        let (mut got, mut waiting) = (0, Vec::with_capacity(READ_BYTES));
        let mut room = vec![0; READ_BYTES];
        while got < expected.length {
            let most = (expected.length - got).min(READ_BYTES as u64) as usize;
            let read = tokio::time::timeout(SILENCE, file.read(&mut room[..most])).await;
            let count = read.map_err(|_| FileFailure::Silent)??;
            if count == 0 {
                return Err(FileFailure::Short { got, told: expected.length });
            }
            got += count as u64;
            session.touch(self.clock.monotonic());
            self.incoming.add(session.source, expected.family, count);
            self.throttle.take(count).await;
            if spooled.is_some() {
                waiting.extend_from_slice(&room[..count]);
            }
            if waiting.len() >= WRITE_BYTES {
                spooled = self.append(spooled, &mut waiting).await?;
            }
        }
        // Whoever sends more than was announced means another file.
        if let Ok(Ok(1..)) = tokio::time::timeout(CLOSING, file.read(&mut room[..1])).await {
            return Err(FileFailure::Long(expected.length));
        }
        let Some(spooled) = self.append(spooled, &mut waiting).await? else {
            return Ok(TakenIn::default());
        };
        let (storage, family) = (Arc::clone(&self.storage), expected.family);
        let stopping = Arc::clone(&self.stopping);
        let take_in = move || storage.take_in(family, &spooled, &stopping);
        Ok(self.blocking.run(take_in).await??)
    }

    async fn append(
        &self,
        spooled: Option<SpooledFile>,
        waiting: &mut Vec<u8>,
    ) -> Result<Option<SpooledFile>, FileFailure> {
        let Some(mut spooled) = spooled else { return Ok(None) };
        let bytes = std::mem::take(waiting);
        let append = move || spooled.append(&bytes).map(|()| spooled);
        Ok(Some(self.blocking.run(append).await??))
    }
}
