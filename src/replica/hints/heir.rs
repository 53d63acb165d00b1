//! Who gets the hints for a target that has no place on the ring any more, because another node has
//! taken it: mostly the same node under another address. On disk:
//!
//! ```text
//! alexandra hints heir 1
//! heir <address>
//! crc <CRC32 of all lines before, in hexadecimal>
//! ```

use std::net::IpAddr;
use std::path::Path;

use crate::base::fs::FileSystem;
use crate::storage::error::{FileContext, FileError};
use crate::storage::small_file;

use super::error::HintError;
use super::files;
use super::store::HintStore;
use super::target::TargetLog;

const HEAD: &str = "alexandra hints heir 1";

/// Largest file that is read: a longer one is none of ours.
const MAX_BYTES: u64 = 4096;

/// Who gets the hints of a log.
#[derive(Debug, Default)]
pub(super) struct Heir {
    /// None if that is the target.
    pub(super) address: Option<IpAddr>,
    /// Whether it may not be what is on disk.
    pub(super) is_new: bool,
}

/// Stores it in the folder of the target. Its name is durable after a sync of the folder.
fn write(fs: &dyn FileSystem, folder: &Path, heir: IpAddr) -> Result<(), FileError> {
    let text = small_file::seal(&format!("{HEAD}\nheir {heir}\n"));
    small_file::rewrite(fs, &files::heir(folder), text.as_bytes())
}

/// Reads what was stored in the folder. An error says how it shows that it is not what was written.
pub(super) fn read(
    fs: &dyn FileSystem,
    folder: &Path,
) -> Result<Result<IpAddr, &'static str>, FileError> {
    small_file::read_sealed(fs, &files::heir(folder), MAX_BYTES, parse)
}

fn parse(text: &str) -> Option<IpAddr> {
    let address = text.strip_prefix(HEAD)?.strip_prefix("\nheir ")?.strip_suffix('\n')?;
    address.parse().ok()
}

impl HintStore {
    /// Who gets the hints for a target: its heir, or itself.
    pub fn recipient(&self, target: IpAddr) -> IpAddr {
        let target = target.to_canonical();
        self.log(target).and_then(|log| log.lock().heir.address).unwrap_or(target)
    }

    /// Targets that there are hints for, each with who gets them; in the order of their addresses.
    pub fn waiting(&self) -> Vec<(IpAddr, IpAddr)> {
        let logs = self.all();
        let with_hints = logs.iter().filter_map(|log| {
            let state = log.lock();
            let recipient = state.heir.address.unwrap_or(log.target);
            (!state.segments.is_empty()).then_some((log.target, recipient))
        });
        with_hints.collect()
    }

    /// Another node has taken the place of a target: it gets the hints for the target from now on,
    /// and those that the target was to get instead of others. The next start knows of it after
    /// [`HintStore::write_heirs`], or the next [`HintStore::sync`].
    pub fn bequeath(&self, target: IpAddr, heir: IpAddr) {
        let (target, heir) = (target.to_canonical(), heir.to_canonical());
        // There may be hints yet to come: of writes that are under way.
        self.log_or_new(target);
        for log in self.all() {
            let mut state = log.lock();
            if log.target == target || state.heir.address == Some(target) {
                state.heir.set((log.target != heir).then_some(heir));
            }
        }
    }

    /// A target has a place of its own, so that its hints are for nobody else; to be made durable
    /// as for [`HintStore::bequeath`]. Whether it had an heir.
    pub fn disinherit(&self, target: IpAddr) -> bool {
        let log = self.log(target.to_canonical());
        log.is_some_and(|log| log.lock().heir.set(None))
    }

    /// Makes durable who gets hints for others, where that has changed. Waits for a sync that is
    /// under way. Returns the first failure and does the rest all the same; what has failed is
    /// tried again with the next sync.
    pub fn write_heirs(&self) -> Result<(), HintError> {
        let mut result = Ok(());
        for log in self.all() {
            if log.is_heir_new() {
                let _turn = log.upkeep.lock();
                result = result.and(log.write_heir());
            }
        }
        result
    }
}

impl TargetLog {
    /// Whether it is not on disk who gets the hints.
    fn is_heir_new(&self) -> bool {
        let state = self.lock();
        state.heir.is_new && !state.segments.is_empty()
    }

    /// Makes durable who gets the hints, as long as there are any. For who has the turn of the log.
    pub(super) fn write_heir(&self) -> Result<(), HintError> {
        if !self.is_heir_new() {
            return Ok(());
        }
        let heir = self.lock().heir.address;
        let path = files::heir(&self.folder);
        if let Some(heir) = heir {
            write(self.fs(), &self.folder, heir)?;
        } else if self.fs().exists(&path) {
            self.fs().remove_file(&path).context("remove", &path)?;
        }
        self.shared.names.sync(self.fs(), &self.folder)?;
        let mut state = self.lock();
        state.heir.is_new = state.heir.address != heir;
        Ok(())
    }
}

impl Heir {
    /// Whether this is another one than before.
    fn set(&mut self, heir: Option<IpAddr>) -> bool {
        let is_new = std::mem::replace(&mut self.address, heir) != heir;
        self.is_new |= is_new;
        is_new
    }
}
