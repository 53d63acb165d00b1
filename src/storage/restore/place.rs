//! Files coming and going: the mark of a restore, what is moved aside, what takes its place.

use super::plan::Plan;
use super::{Request, RestoreError, Setup};
use crate::base::fs::FileSystem;
use crate::storage::archive::History;
use crate::storage::checked_file::{self, CheckedState, field, on_one_line};
use crate::storage::commitlog::segment_files;
use crate::storage::directory;
use crate::storage::error::{FileContext, FileError};
use crate::storage::files::{self, RESTORING_FILE};
use crate::storage::snapshot::keyspace_folder;
use crate::storage::system::log_guard::LogGuard;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Mark of a restore that is not complete, in a data directory.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RestoreMark {
    /// The command line, for people to repeat.
    pub(super) command: String,
    pub(super) newest_segment: u64,
    pub(super) keyspaces: Vec<String>,
}

impl CheckedState for RestoreMark {
    const KIND: &'static str = "restore";
    const VERSION: u32 = 1;

    fn encode(&self) -> String {
        let Self { command, newest_segment, keyspaces } = self;
        let keyspaces = keyspaces.iter().map(|name| format!("keyspace {name}\n"));
        let keyspaces: String = keyspaces.collect();
        format!("command {}\nnewest {newest_segment}\n{keyspaces}", on_one_line(command))
    }

    fn decode(_version: u32, lines: &str) -> Option<Self> {
        let keyspaces = lines.lines().filter_map(|line| line.strip_prefix("keyspace "));
        Some(Self {
            command: field(lines, "command")?.to_owned(),
            newest_segment: field(lines, "newest")?.parse().ok()?,
            keyspaces: keyspaces.map(str::to_owned).collect(),
        })
    }
}

impl RestoreMark {
    /// Reads the mark that one of the data directories has.
    pub(super) fn read(fs: &dyn FileSystem, dirs: &[PathBuf]) -> Result<Option<Self>, FileError> {
        checked_file::load_first(fs, dirs, RESTORING_FILE)
    }
}

/// Marks the data directories: from now on the restore has to be completed.
pub(super) fn begin(setup: &Setup, request: &Request, plan: &Plan) -> Result<(), FileError> {
    let fs = &*setup.components.fs;
    let keyspaces = plan.snapshots.iter().map(|snapshot| snapshot.keyspace.clone());
    let mark = RestoreMark {
        command: request.command.clone(),
        newest_segment: plan.newest.segment,
        keyspaces: keyspaces.collect(),
    };
    for directory in &setup.options.data_directories {
        checked_file::store(fs, &directory.join(RESTORING_FILE), &mark)?;
        fs.sync_dir(directory).context("sync", directory)?;
    }
    Ok(())
}

/// Removes the marks: the restore is complete. The history of the archive ends with it, and the
/// commit log is empty as it should be unless it is kept.
pub(super) fn end(setup: &Setup, plan: &Plan) -> Result<(), FileError> {
    let (fs, directories) = (&*setup.components.fs, &setup.options.data_directories);
    History::end(fs, directories)?;
    if !plan.keeps_log {
        LogGuard::remove(fs, directories)?;
    }
    checked_file::remove(fs, directories, RESTORING_FILE)
}

/// Moves present files aside.
pub(super) fn move_aside(setup: &Setup, plan: &Plan) -> Result<(), FileError> {
    let fs = &*setup.components.fs;
    for (folder, files) in present(setup, plan)? {
        move_to(fs, &folder, &plan.aside, &files)?;
    }
    Ok(())
}

/// Finds the files of the keyspaces, and segments of the commit log that no keyspace needs, by the
/// folders in which there are any.
pub(super) fn present(
    setup: &Setup,
    plan: &Plan,
) -> Result<Vec<(PathBuf, Vec<PathBuf>)>, FileError> {
    let fs = &*setup.components.fs;
    let mut found = Vec::new();
    for directory in &setup.options.data_directories {
        for snapshot in &plan.snapshots {
            let folder = files::keyspace_folder(directory, &snapshot.keyspace);
            if !fs.exists(&folder) {
                continue;
            }
            let entries = fs.list(&folder).context("list", &folder)?;
            let present = entries.into_iter().filter(|entry| !entry.is_dir);
            let present: Vec<_> = present.map(|entry| folder.join(entry.name)).collect();
            found.push((folder, present));
        }
    }
    if !plan.keeps_log {
        let log = &setup.options.commit_log_directory;
        found.push((log.clone(), segment_files(fs, log).context("list", log)?));
    }
    found.retain(|(_, files)| !files.is_empty());
    Ok(found)
}

fn move_to(
    fs: &dyn FileSystem,
    folder: &Path,
    aside: &str,
    present: &[PathBuf],
) -> Result<(), FileError> {
    let aside = folder.join(aside);
    directory::create(fs, &aside).context("create", &aside)?;
    for path in present {
        let name = path.file_name().expect("an entry of a directory has a name");
        fs.rename(path, &aside.join(name)).context("move", path)?;
    }
    fs.sync_dir(&aside).context("sync", &aside)?;
    fs.sync_dir(folder).context("sync", folder)
}

/// Links the files of the snapshots to their place, and writes the manifests that name them.
pub(super) fn link(setup: &Setup, plan: &Plan) -> Result<(), RestoreError> {
    let fs = &*setup.components.fs;
    let mut folders = BTreeSet::new();
    for family in &plan.families {
        for table in &family.tables {
            let folder = keyspace_folder(table.parent().unwrap_or(table));
            let name = table.file_name().expect("an entry of a directory has a name");
            let target = folder.join(name);
            fs.hard_link(table, &target).context("link", &target)?;
            folders.insert(folder);
        }
    }
    // What a manifest names is durable before it.
    for folder in &folders {
        fs.sync_dir(folder).context("sync", folder)?;
    }
    folders.clear();
    for family in &plan.families {
        let folder = keyspace_folder(&family.manifest_folder);
        family.manifest.store(fs, &files::manifest(folder, &family.schema.name))?;
        folders.insert(folder);
    }
    for folder in &folders {
        fs.sync_dir(folder).context("sync", folder)?;
    }
    Ok(())
}
