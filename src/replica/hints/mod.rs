//! Writes that a node keeps for others that were down or too slow: the mutations themselves, in one
//! log for each target, in the order in which they were to be applied there.
//!
//! ```text
//!   store        HintStore: all logs of a node, and its counters
//!     target     the log of one target: appends hints and makes them durable
//!       delivery   reads hints in order, and decides which may still be delivered
//!       opening    the state of a log at the start
//!     owner      the node that gets the hints: the target, or the node that has taken its place
//!     format     names and bytes of files
//!   original   hints that the original has left, as hints of ours
//! ```
//!
//! # Files
//!
//! A log is a folder named like the address of its target. In it are segments, `<number>.hints`,
//! and a small text, `delivered`, which says how far the first of them was delivered. Segments
//! that were delivered are removed, and so is the folder when nothing is left. A second text,
//! `heir`, is there if another node gets the hints, which has taken the place of the target on the
//! ring: it is durable before the ring is saved without the target, and goes when the target has a
//! place again. A segment is one of the common [record log](crate::storage::log):
//!
//! ```text
//! segment   header | record | record | ... | seal
//!
//! header     0  8  magic "AlexHint"
//!            8  4  version, 3; in version 2 mutations have no cells that 0.6 does not have, and
//!                  version 1 differs in the tags and checksums of its records
//!           12  8  number of the segment, as in its name
//!           20  8  random number, from which the salt is made
//!           28  4  CRC32 of bytes 0..28
//!
//! hint       0  8  when it was stored, in milliseconds since the Unix epoch
//!            8     the mutation, as in the commit log
//!
//! seal       0  8  number of hints in the segment
//!            8  8  when the newest of them was stored, in milliseconds since the Unix epoch
//! ```
//!
//! A seal is a control record, the last one of a segment that was ended in order. A segment without
//! it was being written when the node stopped, and may end in the middle of a record.
//!
//! # Promises
//!
//! A hint is in the hands of the system when [`HintStore::store`] returns, so that the end of the
//! process does not lose it, and on the disk after the next [`HintStore::sync`]. A file that could
//! not be written or synced takes no further hints, and nothing in it counts as durable that did
//! not before; the next hint begins another. Progress of a delivery is written down now and then:
//! after a crash some hints are delivered once more, which changes nothing.
//!
//! A hint that its target does not take is put aside: it stands once more at the end of the log, as
//! old as it was, and its first place goes from the disk when the second one is durable. So the
//! places of a log are not in the order of age where hints were put aside, and each is judged for
//! itself.
//!
//! Damage costs the damaged hints and no others. It is logged, and never keeps a node from
//! starting.

mod added;
mod delivery;
mod format;
mod opening;
mod original;
mod owner;
mod store;
mod target;
#[cfg(test)]
mod tests;

use crate::base::fs::FileSystem;
use crate::storage::error::{FileContext, FileError};
use std::net::IpAddr;
use std::path::Path;

pub use delivery::{Hint, HintBatch};
pub use original::{FAMILY as ORIGINAL_FAMILY, convert, has_original_hints};
pub use store::{HintError, HintOptions, HintStats, HintStore, SEGMENT_BYTES, TargetStats};
pub use target::{DurableCallback, HintPosition};

/// Targets of the hints in a directory, which may be missing.
pub fn targets_in(fs: &dyn FileSystem, directory: &Path) -> Result<Vec<IpAddr>, FileError> {
    if !fs.try_exists(directory).context("look for", directory)? {
        return Ok(Vec::new());
    }
    let entries = fs.list(directory).context("list", directory)?;
    Ok(entries.iter().filter_map(|entry| format::target_of(&entry.name)).collect())
}
