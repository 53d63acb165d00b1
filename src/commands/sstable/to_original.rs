//! `alexandra sstable export --format`: data directories for a server of 0.4 to 0.6.

use super::export::Arguments;
use super::target::{Configured, ToolError, families};
use crate::commands::progress::Progress;
use crate::config::settings::{ColumnFamilySettings, Release, SYSTEM_KEYSPACE};
use crate::model::comparator::Comparator;
use crate::model::schema::ColumnFamilySchema;
use crate::replica::hint_targets;
use crate::storage::legacy::export::{ExportFolder, LeftOut};
use crate::storage::system::{LOCATION_INFO, identity_for_original};
use std::path::Path;

pub(super) fn run(arguments: &Arguments, release: &str, to: &Path) -> Result<bool, ToolError> {
    let release = Release::ALL.into_iter().find(|known| known.to_string() == release);
    let release = release.ok_or("--format is 0.4, 0.5 or 0.6: all files of 0.6 have one form")?;
    let settings = arguments.config.load()?;
    let source = match &arguments.snapshot {
        Some(name) => Configured::of_snapshot(settings, name)?,
        None => Configured::lock(settings)?,
    };
    if arguments.snapshot.is_none() {
        source.check_commit_log()?;
    }
    let families = families(&source.settings, &arguments.targets)?;
    let (partitioner, storage) = (source.settings.partitioner, &source.settings.storage);
    let size = storage.column_index_bytes;
    let mut folder = ExportFolder::open(&source.fs, to, release, partitioner, size)?;
    let mut is_complete = true;
    for family in families.iter().filter(|it| it.schema.keyspace != SYSTEM_KEYSPACE) {
        if let Some(reason) = what_is_later(&family.schema) {
            is_complete = false;
            complain!(
                "NOT EXPORTED: {}: Apache Cassandra {release} has no {reason}",
                family.schema
            );
            continue;
        }
        export(&source, family, &mut folder)?;
    }
    if arguments.targets.is_empty() {
        let is_own = |it: &&ColumnFamilySettings| it.schema.name == LOCATION_INFO;
        let own = families.iter().find(is_own).expect("the keyspace system has it");
        let tables = source.open_tables(own)?;
        let identity = identity_for_original(&own.schema, &tables, release)?;
        folder.finish(&own.schema, &identity)?;
    }
    is_complete &= tell_of_left_out(&folder) & tell_of_hints(&source)?;
    tell_of_the_next_step(arguments, release, to, is_complete);
    Ok(is_complete)
}

/// The part of a column family that came after 0.6: all of it, or a comparator. One of a user's
/// own may have been there.
fn what_is_later(family: &ColumnFamilySchema) -> Option<&str> {
    if ColumnFamilySchema::is_of_cql(&family.name) {
        return Some(
            "tables made over CQL: move its rows by an application into a column family of \
             storage-conf.xml",
        );
    }
    let mut all = [Some(family.comparator()), family.subcolumn_comparator()].into_iter().flatten();
    all.find_map(|it| match it {
        Comparator::Custom(it) => {
            Some(it.class_name()).filter(|name| name.starts_with("org.apache.cassandra."))
        }
        _ => None,
    })
}

/// Exports the SSTables of a column family that were not exported before.
fn export(
    source: &Configured,
    family: &ColumnFamilySettings,
    folder: &mut ExportFolder,
) -> Result<(), ToolError> {
    let tables = source.open_tables(family)?;
    let (mut live, mut new) = (Vec::new(), 0);
    for table in &tables {
        let (number, identity) = (table.generation(), table.identity());
        live.push((number, identity));
        if folder.has(&family.schema, number, &identity) {
            continue;
        }
        let progress = Progress::new("Exporting", table.path(), table.size());
        let mut tell = |bytes| progress.set(bytes);
        folder.add(&family.schema, table, &mut tell).map_err(|error| {
            format!("{}: {error}. Repeat the command to go on", table.path().display())
        })?;
        new += 1;
    }
    folder.retain(&family.schema, &live)?;
    if !live.is_empty() {
        let before = live.len() - new;
        say!("{}: {new} SSTables exported, {before} were before", family.schema);
    }
    Ok(())
}

/// Says for which nodes there are hints, which are not exported. True if there are none.
fn tell_of_hints(source: &Configured) -> Result<bool, ToolError> {
    let targets = hint_targets(&*source.fs, &source.settings.directories.hints)?;
    for target in &targets {
        complain!(
            "NOT EXPORTED: hints for {target}. Let it come up while this server runs, or run \
             `nodetool repair` there afterwards"
        );
    }
    Ok(targets.is_empty())
}

/// Lists the rows that the format cannot hold. True if there are none.
fn tell_of_left_out(folder: &ExportFolder) -> bool {
    let mut is_complete = true;
    for table in folder.tables() {
        let name = format!("{}.{}", table.keyspace, table.family);
        is_complete &= is_whole("EXPORTED", &name, &table.left_out);
    }
    is_complete
}

/// Lists the rows of a column family that the format cannot hold. True if there are none.
pub(super) fn is_whole(done: &str, family: &str, left_out: &[LeftOut]) -> bool {
    for LeftOut { rows, reason, keys } in left_out {
        complain!("NOT {done}: {rows} rows of {family}, {reason}: {}", keys.join(", "));
    }
    left_out.is_empty()
}

fn tell_of_the_next_step(arguments: &Arguments, release: Release, to: &Path, is_complete: bool) {
    let to = to.display();
    if !arguments.targets.is_empty() {
        say!("{to} is not complete: repeat the command without names for the rest");
        return;
    }
    let state = if is_complete { "is complete" } else { "has all but what is NOT EXPORTED" };
    say!(
        "{to} {state}. Name it in DataFileDirectories of Apache Cassandra {release}, with an \
         empty CommitLogDirectory"
    );
    if arguments.snapshot.is_some() {
        say!(
            "To add what was written after the snapshot: `alexandra nodetool drain`, stop the \
             server, and repeat the command without --snapshot"
        );
    }
}
