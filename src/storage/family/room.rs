//! Which data directory a new SSTable goes to.

use super::ColumnFamily;
use crate::storage::error::{FileContext, FileError};
use std::path::Path;

/// Folders have about as much room as the roomiest if no more than this part of it is missing.
const ABOUT_AS_MUCH_ROOM: u64 = 16;

/// A compaction takes at most nine tenths of the room, as in 0.6: the commit log and flushes need
/// some as well, or writes would stop.
const LEFT_TO_OTHERS: u64 = 10;

impl ColumnFamily {
    /// The folder for an SSTable of this number: one of those with most room. Folders with about
    /// as much room as that take turns, so that those of one disk or of equal disks all get some.
    /// One whose room cannot be told is left out; it is an error if that is so for all.
    pub fn roomiest_folder(&self, generation: u64) -> Result<&Path, FileError> {
        if let [only] = &self.folders[..] {
            return Ok(only);
        }
        let spaces = self.spaces()?;
        let most = spaces.iter().map(|(_, space)| *space).max().unwrap_or(0);
        let enough = most - most / ABOUT_AS_MUCH_ROOM;
        let mut roomy: Vec<_> = spaces.into_iter().filter(|(_, space)| *space >= enough).collect();
        let turn = generation as usize % roomy.len();
        Ok(roomy.swap_remove(turn).0)
    }

    /// Whether some folder has room for so many bytes of a compaction.
    pub fn has_room_for(&self, bytes: u64) -> bool {
        let Ok(spaces) = self.spaces() else {
            // Whoever writes there will hear of it.
            return true;
        };
        let most = spaces.iter().map(|(_, space)| *space).max().unwrap_or(0);
        bytes <= most - most / LEFT_TO_OTHERS
    }

    /// The folders whose room is known, at least one, with their room.
    fn spaces(&self) -> Result<Vec<(&Path, u64)>, FileError> {
        let mut spaces = Vec::with_capacity(self.folders.len());
        let mut failure = None;
        for folder in &self.folders {
            let space = self.environment.fs.available_space(folder);
            match space.context("look at the space of", folder) {
                Ok(space) => spaces.push((folder.as_path(), space)),
                Err(error) => {
                    log::warn!("{error}: it gets no new file");
                    failure = Some(error);
                }
            }
        }
        if spaces.is_empty() {
            return Err(failure.expect("a node has at least one data directory"));
        }
        Ok(spaces)
    }
}
