//! The owner of a log of hints: the node that gets them. It is the target, or the node that has
//! taken the place of the target on the ring, mostly the target under another address. On disk,
//! under the name `heir`:
//!
//! ```text
//! alexandra hints heir 1
//! heir <address>
//! crc <CRC32 of all lines before, in hexadecimal>
//! ```

use std::net::IpAddr;

use crate::storage::checked_file::{self, CheckedState, field};
use crate::storage::error::FileContext;

use super::format;
use super::store::{HintError, HintStore};
use super::target::TargetLog;

/// The node that gets the hints of a log.
#[derive(Debug, Default)]
pub(super) struct HintOwner {
    /// `None` for the target.
    pub(super) address: Option<IpAddr>,
    /// Whether the file may hold another one.
    pub(super) is_unsaved: bool,
}

/// Address of an owner, as stored in the folder of the target.
#[derive(Debug)]
pub(super) struct SavedOwner(pub(super) IpAddr);

impl CheckedState for SavedOwner {
    const KIND: &'static str = "hints heir";
    const VERSION: u32 = 1;

    fn encode(&self) -> String {
        format!("heir {}\n", self.0)
    }

    fn decode(_version: u32, lines: &str) -> Option<Self> {
        field(lines, "heir")?.parse().ok().map(Self)
    }
}

impl HintStore {
    /// The node that gets the hints for a target.
    pub fn recipient(&self, target: IpAddr) -> IpAddr {
        let target = target.to_canonical();
        self.log(target).and_then(|log| log.lock().owner.address).unwrap_or(target)
    }

    /// Targets with hints and the nodes that get these, in the order of the targets.
    pub fn waiting(&self) -> Vec<(IpAddr, IpAddr)> {
        let logs = self.all();
        let with_hints = logs.iter().filter_map(|log| {
            let state = log.lock();
            let recipient = state.owner.address.unwrap_or(log.target);
            (!state.segments.is_empty()).then_some((log.target, recipient))
        });
        with_hints.collect()
    }

    /// Makes another node, which has taken the place of a target, the owner of its hints and of
    /// those that the target was to get instead of others. Durable after
    /// [`HintStore::write_owners`], or the next [`HintStore::sync`].
    pub fn set_owner(&self, target: IpAddr, owner: IpAddr) {
        let (target, owner) = (target.to_canonical(), owner.to_canonical());
        // There may be hints yet to come: of writes that are under way.
        self.log_or_new(target);
        for log in self.all() {
            let mut state = log.lock();
            if log.target == target || state.owner.address == Some(target) {
                state.owner.set((log.target != owner).then_some(owner));
            }
        }
    }

    /// A target has a place of its own and gets its hints itself; to be made durable as for
    /// [`HintStore::set_owner`]. Whether another node was to get them.
    pub fn clear_owner(&self, target: IpAddr) -> bool {
        let log = self.log(target.to_canonical());
        log.is_some_and(|log| log.lock().owner.set(None))
    }

    /// Makes changed owners durable. Waits for a sync that is
    /// under way. Returns the first failure and does the rest all the same; what has failed is
    /// tried again with the next sync.
    pub fn write_owners(&self) -> Result<(), HintError> {
        let mut result = Ok(());
        for log in self.all() {
            if log.has_unsaved_owner() {
                let _turn = log.upkeep.lock();
                result = result.and(log.write_owner());
            }
        }
        result
    }
}

impl TargetLog {
    /// Whether there are hints whose owner is not on disk.
    fn has_unsaved_owner(&self) -> bool {
        let state = self.lock();
        state.owner.is_unsaved && !state.segments.is_empty()
    }

    /// Makes the owner durable, as long as there are hints. The caller holds the lock for upkeep.
    pub(super) fn write_owner(&self) -> Result<(), HintError> {
        if !self.has_unsaved_owner() {
            return Ok(());
        }
        let owner = self.lock().owner.address;
        let path = format::owner_path(&self.folder);
        if let Some(owner) = owner {
            checked_file::store(self.fs(), &path, &SavedOwner(owner))?;
        } else if self.fs().exists(&path) {
            self.fs().remove_file(&path).context("remove", &path)?;
        }
        self.shared.names.sync(self.fs(), &self.folder)?;
        let mut state = self.lock();
        state.owner.is_unsaved = state.owner.address != owner;
        Ok(())
    }
}

impl HintOwner {
    /// Returns whether this changes it.
    fn set(&mut self, address: Option<IpAddr>) -> bool {
        let is_new = std::mem::replace(&mut self.address, address) != address;
        self.is_unsaved |= is_new;
        is_new
    }
}
