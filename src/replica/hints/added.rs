//! When column families were added to the configuration of a running node. An older hint is for an
//! earlier family of the same name, which was removed with its rows. On disk, in the directory of
//! the hints, under the name `added`:
//!
//! ```text
//! alexandra hints added 1
//! <milliseconds since the Unix epoch> <keyspace>.<family>
//! crc <CRC32 of all lines before, in hexadecimal>
//! ```

use super::store::{HintStore, Shared};
use crate::base::fs::FileSystem;
use crate::model::schema::{ColumnFamilySchema, FamilyId};
use crate::storage::checked_file::{self, CheckedState};
use crate::storage::error::FileError;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::slice;

/// Name of the file.
pub(super) const FILE: &str = "added";

/// By family, when it was added, in milliseconds since the Unix epoch.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Added(BTreeMap<String, u64>);

impl Added {
    pub(super) fn read(fs: &dyn FileSystem, directory: &PathBuf) -> Result<Self, FileError> {
        let read = checked_file::load_first(fs, slice::from_ref(directory), FILE)?;
        Ok(read.unwrap_or_default())
    }
}

impl CheckedState for Added {
    const KIND: &'static str = "hints added";
    const VERSION: u32 = 1;

    fn encode(&self) -> String {
        let mut lines = String::new();
        for (family, millis) in &self.0 {
            let _ = writeln!(lines, "{millis} {family}");
        }
        lines
    }

    fn decode(_version: u32, lines: &str) -> Option<Self> {
        let line = |line: &str| {
            let (millis, family) = line.split_once(' ')?;
            Some((family.to_owned(), millis.parse().ok()?))
        };
        lines.lines().map(line).collect::<Option<_>>().map(Self)
    }
}

impl HintStore {
    /// Notes durably that a column family is added now: hints that are there are not for it.
    pub fn note_added(&self, family: &ColumnFamilySchema) -> Result<(), FileError> {
        let shared = &self.shared;
        let mut added = shared.added.lock();
        added.0.insert(family.to_string(), shared.clock.coarse_millis());
        let directory = slice::from_ref(&shared.options.directory);
        checked_file::store_first(&*shared.fs, directory, FILE, &*added)
    }
}

impl Shared {
    /// Whether a hint of this time is for an earlier family of the same name.
    pub(super) fn is_of_earlier_family(&self, id: FamilyId, created_ms: u64) -> bool {
        let Added(added) = &*self.added.lock();
        let name = || self.options.schema.family(id).to_string();
        !added.is_empty() && added.get(&name()).is_some_and(|millis| created_ms <= *millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::checked_file::tests::check_codec;

    #[test]
    fn the_file_is_read_as_it_was_written() {
        check_codec(&Added::default());
        check_codec(&Added(BTreeMap::from([("Blog.Authors".to_owned(), 7)])));
    }
}
