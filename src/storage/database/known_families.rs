//! Names of the column families that have had data, kept in the column family `LocationInfo` of the
//! keyspace `system`. A folder that is empty because it is not mounted looks like that of a family
//! without data, and the node would answer that there is nothing.
//!
//! ```text
//! row Families   <keyspace>.<family>   no value: it has had SSTables
//! ```

use super::super::commitlog::{Position, Replayed};
use super::super::family::ColumnFamily;
use super::super::sstable::Access;
use super::super::system::{KEYSPACE, LOCATION_INFO, ROW as OWN_ROW};
use super::{Core, StorageError};
use crate::base::context::RequestContext;
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::model::mutation::MutationBuilder;
use crate::model::schema::FamilyId;
use crate::model::slice::{RowSlice, Slice};
use std::collections::BTreeSet;
use std::sync::Arc;

const ROW: &str = "Families";

/// The families of users of which the data directories hold nothing.
pub(super) fn without_files(families: &[Arc<ColumnFamily>]) -> BTreeSet<FamilyId> {
    let families = families.iter().filter(|family| is_of_users(family) && !has_files(family));
    families.map(|family| family.id()).collect()
}

/// Fails if one of these families is noted as one that has had data; if that loss is accepted,
/// returns those.
pub(super) fn check(
    families: &[Arc<ColumnFamily>],
    noted: &BTreeSet<FamilyId>,
    without_files: &BTreeSet<FamilyId>,
    accepts_loss: bool,
) -> Result<Vec<FamilyId>, StorageError> {
    let lost: Vec<FamilyId> = without_files.intersection(noted).copied().collect();
    match lost.first() {
        Some(family) if !accepts_loss => {
            let family = families[family.0 as usize].schema().to_string();
            Err(StorageError::LostFamily { family, count: lost.len() })
        }
        _ => {
            for family in &lost {
                let family = families[family.0 as usize].schema();
                log::error!(
                    "{family} has had data, of which nothing is left: this loss is accepted"
                );
            }
            Ok(lost)
        }
    }
}

/// Returns the families that earlier starts have noted.
pub(super) fn noted(families: &[Arc<ColumnFamily>]) -> Result<BTreeSet<FamilyId>, StorageError> {
    let Some(info) = location_info(families) else { return Ok(BTreeSet::new()) };
    let row = read(info, ROW)?;
    let is_noted = |family: &&Arc<ColumnFamily>| {
        let name = family.schema().to_string();
        row.cells.iter().any(|cell| cell.name() == name.as_bytes())
    };
    Ok(families.iter().filter(is_noted).map(|family| family.id()).collect())
}

/// Fails if the node's own keyspace is lost: a family of users has files that this node has written
/// and not noted, and nothing says who the node is. Before the first flush of what it keeps about
/// itself all of it is in the commit log. That loss may be accepted.
pub(super) fn check_own(
    families: &[Arc<ColumnFamily>],
    noted: &BTreeSet<FamilyId>,
    replayed: &Replayed,
    accepts_loss: bool,
) -> Result<(), StorageError> {
    let info = location_info(families).filter(|info| !has_files(info) && !accepts_loss);
    let Some(info) = info else { return Ok(()) };
    // A crash may have come between a flush and the note.
    let is_just_flushed = |it: &Arc<ColumnFamily>| {
        replayed.segments.iter().any(|segment| segment.id == it.flushed_position().segment)
    };
    let is_lost = |it: &&Arc<ColumnFamily>| {
        is_of_users(it) && it.is_of_node() && !noted.contains(&it.id()) && !is_just_flushed(it)
    };
    let Some(family) = families.iter().find(is_lost) else { return Ok(()) };
    if !read(info, OWN_ROW)?.cells.is_empty() {
        return Ok(());
    }
    Err(StorageError::LostSystem { family: family.schema().to_string() })
}

fn location_info(families: &[Arc<ColumnFamily>]) -> Option<&Arc<ColumnFamily>> {
    families.iter().find(|family| !is_of_users(family) && family.schema().name == LOCATION_INFO)
}

fn read(info: &ColumnFamily, row: &str) -> Result<RowSlice, StorageError> {
    let (key, all) = (RowKey::from(row), Slice::all(None));
    let read = info.read(&key, &all, &RequestContext::default(), Access::Cached);
    read.map_err(StorageError::Families)
}

pub(super) fn is_of_users(family: &ColumnFamily) -> bool {
    family.schema().keyspace != KEYSPACE
}

/// Whether a family has SSTables, or had some that were purged or abandoned by an operator.
fn has_files(family: &ColumnFamily) -> bool {
    family.has_manifest()
        || family.flushed_position() > Position::default()
        || !family.view().tables.is_empty()
}

impl Core {
    /// Notes the families of users that have data now. Durable with the next sync of the commit
    /// log. A failure is logged; the next flush or start tries again.
    pub(super) fn note_families(&self) {
        let mut noted = self.noted_families.lock();
        let is_new = |family: &&Arc<ColumnFamily>| {
            is_of_users(family) && has_files(family) && !noted.contains(&family.id())
        };
        let new = self.families().filter(is_new).map(|family| family.id());
        let new: Vec<FamilyId> = new.collect();
        let is_written = self.write_families(&new, |row, name, millis| {
            row.insert((b"", name), b"", millis);
        });
        if is_written {
            noted.extend(new);
        }
    }

    /// Forgets that these families have had data.
    pub(super) fn forget_families(&self, lost: &[FamilyId]) {
        let mut noted = self.noted_families.lock();
        noted.retain(|family| !lost.contains(family));
        drop(noted);
        self.write_families(lost, |row, name, millis| {
            let secs = i32::try_from(millis / 1000).unwrap_or(i32::MAX);
            row.delete_column((b"", name), Deletion::at(millis, secs));
        });
    }

    /// Writes something about each of these families. Returns whether that is done.
    fn write_families(
        &self,
        families: &[FamilyId],
        write: impl Fn(&mut MutationBuilder<'_>, &[u8], i64),
    ) -> bool {
        let Some(info) = self.schema.family_id(KEYSPACE, LOCATION_INFO) else { return false };
        if families.is_empty() {
            return true;
        }
        let millis = self.environment.clock.now_micros() / 1000;
        let mut row = MutationBuilder::new(&self.schema, KEYSPACE, ROW.as_bytes());
        row.family(info);
        for family in families {
            write(&mut row, self.family(*family).schema().to_string().as_bytes(), millis);
        }
        let written = self.apply_note(row.finish());
        if let Err(error) = &written {
            log::warn!("it is not noted which column families have data: {error}");
        }
        written.is_ok()
    }
}
