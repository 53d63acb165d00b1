//! Files coming and going: the mark of a restore, what is moved aside, what takes its place.

use super::check::Plan;
use super::{Request, RestoreError, Setup};
use crate::base::fs::FileSystem;
use crate::storage::checked_file;
use crate::storage::commitlog::archive::segment_files;
use crate::storage::directory;
use crate::storage::error::{FileContext, FileError};
use crate::storage::files::{self, RESTORING_FILE};
use crate::storage::system::log_guard::LogGuard;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// What a restore that is not complete has left in a data directory.
#[derive(Debug)]
pub(super) struct Mark {
    pub(super) file: PathBuf,
    pub(super) keyspaces: Vec<String>,
    pub(super) newest_segment: u64,
}

/// The marks in the data directories.
pub(super) fn read_marks(
    fs: &dyn FileSystem,
    data_directories: &[PathBuf],
) -> Result<Vec<Mark>, FileError> {
    let mut marks = Vec::new();
    for file in data_directories.iter().map(|directory| directory.join(RESTORING_FILE)) {
        if fs.exists(&file) {
            let text = fs.read(&file).context("read", &file)?;
            let text = String::from_utf8_lossy(&text);
            let values = |name: &str| {
                let lines = text.lines().filter_map(|line| line.split_once(' '));
                lines.filter(|(word, _)| *word == name).map(|(_, v)| v.to_owned()).collect()
            };
            let newest: Vec<String> = values("newest");
            let newest_segment = newest.iter().filter_map(|it| it.parse().ok()).max().unwrap_or(0);
            marks.push(Mark { keyspaces: values("keyspace"), newest_segment, file });
        }
    }
    Ok(marks)
}

/// Marks the data directories: from now on the restore has to be completed.
pub(super) fn begin(setup: &Setup, request: &Request, plan: &Plan) -> Result<(), FileError> {
    let fs = &*setup.components.fs;
    let mut text = format!("{}\n\nnewest {}\n", request.command, plan.newest.segment);
    for snapshot in &plan.snapshots {
        let _ = writeln!(text, "keyspace {}", snapshot.keyspace);
    }
    for directory in &setup.options.data_directories {
        checked_file::replace(fs, &directory.join(RESTORING_FILE), text.as_bytes())?;
    }
    Ok(())
}

/// Takes the marks away: the restore is complete, and the commit log is empty as it should be.
pub(super) fn end(setup: &Setup) -> Result<(), FileError> {
    let fs = &*setup.components.fs;
    LogGuard::remove(fs, &setup.options.data_directories)?;
    for directory in &setup.options.data_directories {
        let path = directory.join(RESTORING_FILE);
        if fs.exists(&path) {
            fs.remove_file(&path).context("remove", &path)?;
        }
        fs.sync_dir(directory).context("sync", directory)?;
    }
    Ok(())
}

/// Moves the files of the keyspaces and the commit log aside.
pub(super) fn move_aside(setup: &Setup, plan: &Plan) -> Result<(), FileError> {
    let fs = &*setup.components.fs;
    for (folder, files) in present(setup, plan)? {
        move_to(fs, &folder, &plan.aside, &files)?;
    }
    Ok(())
}

/// The files of the keyspaces, and the segments of the commit log, by the folders in which there
/// are any.
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
    let log = &setup.options.commit_log_directory;
    found.push((log.clone(), segment_files(fs, log).context("list", log)?));
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
        for (table, folder) in &family.tables {
            let name = table.file_name().expect("an entry of a directory has a name");
            let target = folder.join(name);
            fs.hard_link(table, &target).context("link", &target)?;
            folders.insert(folder.clone());
        }
    }
    // What a manifest names is durable before it.
    for folder in &folders {
        fs.sync_dir(folder).context("sync", folder)?;
    }
    folders.clear();
    for family in &plan.families {
        family.manifest.store(fs, &files::manifest(&family.manifest_folder, &family.name))?;
        folders.insert(family.manifest_folder.clone());
    }
    for folder in &folders {
        fs.sync_dir(folder).context("sync", folder)?;
    }
    Ok(())
}
