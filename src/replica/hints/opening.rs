//! The state of a log at the start. Sealed segments are not read here: their seals say how much is
//! in them.

use super::format::{
    self, BadHeader, CREATED_BYTES, FileName, HEADER_BYTES, HEADER_NUMBERS, Header, HintReader,
    Item, Progress, SEAL_BYTES, Seal, decode_hint,
};
use super::owner::SavedOwner;
use super::store::Shared;
use super::target::{Extent, Segment, State, TargetLog, remove};
use crate::base::fs::File;
use crate::storage::checked_file;
use crate::storage::error::{FileContext, FileError, ReadError};
use crate::storage::log::{HEAD_BYTES, Head, Salt, SegmentReader};
use log::{info, warn};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

/// Content of a file with the name of a segment.
enum Found {
    Hints(Segment),
    /// It has no hint, and never had a promised one.
    Nothing,
    /// Something that this program cannot read, for this reason.
    Strange(String),
}

/// Opens the log in the folder of a target. An error means that the folder cannot be looked at;
/// whatever is in it is none.
pub(super) fn open(shared: &Arc<Shared>, target: IpAddr) -> Result<TargetLog, FileError> {
    let mut state = State { has_folder: true, names_made: 1, ..State::default() };
    let log = TargetLog::new(shared.clone(), target, State::default());
    let mut names = shared.fs.list(&log.folder).context("list", &log.folder)?;
    names.sort_by(|a, b| a.name.cmp(&b.name));
    let (mut has_progress, mut has_owner) = (false, false);
    for entry in names {
        let path = log.folder.join(&entry.name);
        match FileName::parse(&entry.name) {
            FileName::Segment(number) if !entry.is_dir => {
                state.next_number = state.next_number.max(number + 1);
                match segment(&log, number) {
                    Ok(Found::Hints(segment)) => state.segments.push(segment),
                    Ok(Found::Nothing) => remove(log.fs(), &path),
                    Ok(Found::Strange(reason)) => {
                        shared.count(|stats| stats.damaged_bytes += entry.size);
                        let (path, bytes) = (path.display(), entry.size);
                        warn!("{path} is left alone, {bytes} bytes are not delivered: {reason}");
                    }
                    Err(error) => warn!("{} is left alone: {error}", path.display()),
                }
            }
            FileName::Progress if !entry.is_dir => has_progress = true,
            FileName::Owner if !entry.is_dir => has_owner = true,
            FileName::Unfinished if !entry.is_dir => remove(log.fs(), &path),
            _ => warn!("{} is no file of hints and is left alone", path.display()),
        }
    }
    state.segments.sort_by_key(|segment| segment.extent.number);
    if has_progress {
        resume(&log, &mut state);
    }
    if has_owner {
        load_owner(&log, &mut state);
    }
    state.bytes = state.segments.iter().map(|segment| segment.extent.end).sum();
    if state.segments.is_empty() {
        // A folder with something else in it stays.
        let _ = log.fs().remove_dir(&log.folder);
        state.has_folder = false;
    }
    *log.lock() = state;
    Ok(log)
}

/// Reads the owner of the hints. If it cannot be read it is the target.
fn load_owner(log: &TargetLog, state: &mut State) {
    let path = format::owner_path(&log.folder);
    if state.segments.is_empty() {
        return remove(log.fs(), &path);
    }
    match checked_file::load(log.fs(), &path) {
        Ok(owner) => state.owner.address = owner.map(|SavedOwner(address)| address),
        Err(ReadError::Corrupt(damage)) => {
            warn!(
                "{damage}. Who has taken the place of {} does not get its hints; repair that node \
                 (nodetool repair)",
                log.target
            );
            remove(log.fs(), &path);
        }
        Err(error) => warn!("the hints are kept for {}: {error}", log.target),
    }
}

/// Resumes the delivery. Hints of unknown progress are delivered once more.
fn resume(log: &TargetLog, state: &mut State) {
    let path = format::progress_path(&log.folder);
    let (segment, salt, offset) = match checked_file::load(log.fs(), &path) {
        Ok(None) => return,
        Ok(Some(Progress { segment, salt, offset })) => (segment, salt, offset),
        Err(error) => {
            warn!("hints are delivered once more: {error}");
            if matches!(error, ReadError::Corrupt(_)) {
                remove(log.fs(), &path);
            }
            return;
        }
    };
    if state.segment(segment).is_none_or(|found| found.extent.salt.number() != salt) {
        return remove(log.fs(), &path);
    }
    state.delivered = (segment, offset);
    let is_done =
        |found: &mut Segment| (found.extent.number, found.extent.hints_end()) <= (segment, offset);
    for done in state.segments.extract_if(.., is_done) {
        remove(log.fs(), &log.path(done.extent.number));
    }
    if state.segments.is_empty() {
        remove(log.fs(), &path);
    }
}

fn segment(log: &TargetLog, number: u64) -> io::Result<Found> {
    let file = log.fs().open(&log.path(number))?;
    let mut reader = SegmentReader::new(file.clone())?;
    let header = match Header::decode(reader.header(HEADER_NUMBERS)?) {
        Ok(header) => header,
        Err(BadHeader::Unfinished) => return Ok(Found::Nothing),
        Err(BadHeader::Invalid) => return Ok(Found::Strange("its header is damaged".into())),
        Err(BadHeader::Version(version)) => {
            let reason = format!("it has version {version}, which this program cannot read");
            return Ok(Found::Strange(reason));
        }
    };
    if header.number != number {
        return Ok(Found::Strange(format!("it was segment {}", header.number)));
    }
    let mut extent = Extent::new(header, reader.size());
    match seal(&mut reader, header.salt)? {
        Some(Seal { hints, newest_ms }) => {
            let oldest_ms = first_created(&mut reader, header.salt)?.unwrap_or(newest_ms);
            extent = Extent { is_sealed: true, hints, oldest_ms, newest_ms, ..extent };
        }
        None => survey(log, file, &mut extent)?,
    }
    // A process that was killed may have left it to the system to write this.
    let segment = Segment { extent, file: None, synced: 0, failed: None };
    Ok(if extent.hints == 0 { Found::Nothing } else { Found::Hints(segment) })
}

/// The seal at the end of a file.
fn seal(reader: &mut SegmentReader, salt: Salt) -> io::Result<Option<Seal>> {
    let Some(at) = reader.size().checked_sub(SEAL_BYTES).filter(|at| *at >= HEADER_BYTES) else {
        return Ok(None);
    };
    let record = reader.read(at, salt)?.ok().filter(|record| record.is_control);
    Ok(record.and_then(|record| Seal::decode(reader.body(record))))
}

/// Time of the first hint, if its head can be trusted alone.
fn first_created(reader: &mut SegmentReader, salt: Salt) -> io::Result<Option<u64>> {
    let head = reader.head(HEADER_BYTES)?;
    if head.is_none_or(|head| Head::decode(&head, salt, HEADER_BYTES).is_err()) {
        return Ok(None);
    }
    let created = reader.bytes(HEADER_BYTES + HEAD_BYTES, CREATED_BYTES)?;
    Ok(created.and_then(decode_hint).map(|(created_ms, _)| created_ms))
}

/// Reads through a segment that was being written when the node stopped. The rest of a last record
/// that a crash cut is cut off.
fn survey(log: &TargetLog, file: Arc<dyn File>, extent: &mut Extent) -> io::Result<()> {
    extent.is_whole = false;
    let mut reader = HintReader::new(file, extent.salt, HEADER_BYTES, extent.end)?;
    while let Some(item) = reader.next()? {
        match item {
            Item::Hint { created_ms, .. } => extent.add(created_ms),
            Item::Unreadable { offset, bytes, is_tail: true } => {
                log.shared.count(|stats| stats.torn_bytes += bytes);
                let path = log.path(extent.number);
                info!("{} ends at byte {offset} in a hint that was cut short", path.display());
                extent.end = offset;
            }
            // Told when it is to be delivered.
            Item::Unreadable { .. } | Item::Seal => {}
        }
    }
    Ok(())
}
