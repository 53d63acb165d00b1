//! Finding and removing snapshots. Needs no open storage: an operator may do it offline as well.

use super::SnapshotName;
use crate::base::fs::FileSystem;
use crate::storage::error::{FileContext, FileError};
use crate::storage::files::{self, FileName, OriginalPart, TEMPORARY_SUFFIX};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A finished snapshot of one keyspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The keyspace.
    pub keyspace: String,
    /// Its name.
    pub name: SnapshotName,
    /// Bytes of all its files.
    pub total_bytes: u64,
    /// Bytes of those files that only the snapshot keeps on the disk, as far as other snapshots do
    /// not: what clearing it would give back.
    pub exclusive_bytes: u64,
    /// Its folders, one in each data directory that has a part of it.
    pub folders: Vec<PathBuf>,
}

/// Finished and unfinished folders of one snapshot.
#[derive(Debug, Default)]
struct Found {
    folders: Vec<PathBuf>,
    is_unfinished: bool,
}

/// All snapshots in these data directories, or those of one keyspace: by keyspace, then by time.
pub fn list(
    fs: &dyn FileSystem,
    dirs: &[PathBuf],
    keyspace: Option<&str>,
) -> Result<Vec<Snapshot>, FileError> {
    let mut snapshots = Vec::new();
    for ((keyspace, name), found) in search(fs, dirs, keyspace)? {
        let Some(name) = SnapshotName::parse(&name).filter(|_| !found.is_unfinished) else {
            continue;
        };
        let (mut total_bytes, mut exclusive_bytes) = (0, 0);
        for path in &found.folders {
            for entry in fs.list(path).context("list", path)? {
                total_bytes += entry.size;
                let live = keyspace_folder(path).join(&entry.name);
                let is_table = matches!(FileName::parse(&entry.name), FileName::SsTable(..))
                    || OriginalPart::parse(&entry.name).is_some();
                let is_live = is_table && fs.try_exists(&live).context("look for", &live)?;
                exclusive_bytes += if is_live { 0 } else { entry.size };
            }
        }
        let folders = found.folders;
        snapshots.push(Snapshot { keyspace, name, total_bytes, exclusive_bytes, folders });
    }
    snapshots.sort_by(|a, b| (&a.keyspace, &a.name).cmp(&(&b.keyspace, &b.name)));
    Ok(snapshots)
}

/// The snapshots that an operator means by a whole name or a tag; all for no name.
pub fn find(
    fs: &dyn FileSystem,
    dirs: &[PathBuf],
    keyspace: Option<&str>,
    name: Option<&str>,
) -> Result<Vec<Snapshot>, FileError> {
    let mut found = list(fs, dirs, keyspace)?;
    found.retain(|snapshot| name.is_none_or(|name| snapshot.name.is_meant_by(name)));
    Ok(found)
}

/// Removes the snapshots that [`find`] finds, durably, and says which they were. One that cannot be
/// removed leaves the others to be removed all the same; the first failure is returned.
pub fn clear(
    fs: &dyn FileSystem,
    dirs: &[PathBuf],
    keyspace: Option<&str>,
    name: Option<&str>,
) -> Result<Vec<Snapshot>, FileError> {
    let found = find(fs, dirs, keyspace, name)?;
    let mut removed = Ok(());
    for snapshot in &found {
        let folders = snapshot.folders.iter().map(|it| keyspace_folder(it).to_owned());
        let name = snapshot.name.to_string();
        removed = removed.and(remove(fs, &folders.collect::<Vec<_>>(), &name));
    }
    removed.map(|()| found)
}

/// Removes what is left of snapshots that a crash has cut off, and tells the time of the newest
/// one, in milliseconds since the Unix epoch.
/// To be called before any is made.
pub fn tidy(fs: &dyn FileSystem, dirs: &[PathBuf]) -> Result<u64, FileError> {
    let mut newest = 0;
    for ((_, name), found) in search(fs, dirs, None)? {
        newest = SnapshotName::parse(&name).map_or(newest, |name| newest.max(name.millis));
        if found.is_unfinished {
            let folders = found.folders.iter().map(|it| keyspace_folder(it).to_owned());
            if let Err(error) = remove(fs, &folders.collect::<Vec<_>>(), &name) {
                // It costs disk space, and is not listed.
                log::warn!("the unfinished snapshot {name} cannot be removed: {error}");
            }
        }
    }
    Ok(newest)
}

/// Removes the folders of a snapshot below these folders of its keyspace, durably. Some may be
/// unfinished, or not there.
pub(super) fn remove(
    fs: &dyn FileSystem,
    keyspace_folders: &[PathBuf],
    name: &str,
) -> Result<(), FileError> {
    let there = |path: fn(&Path, &str) -> PathBuf| {
        let mut there = Vec::new();
        for path in keyspace_folders.iter().map(|folder| path(folder, name)) {
            if fs.try_exists(&path).context("look for", &path)? {
                there.push(path);
            }
        }
        Ok::<_, FileError>(there)
    };
    let (mut finished, mut unfinished) =
        (there(files::snapshot)?, there(files::unfinished_snapshot)?);
    // As long as one is unfinished the snapshot does not count, so that one goes last.
    if unfinished.is_empty()
        && let Some(last) = finished.pop()
    {
        let temporary = files::temporary(&last);
        fs.rename(&last, &temporary).context("rename", &last)?;
        sync_parent(fs, &last)?;
        unfinished.push(temporary);
    }
    for folder in finished.iter().chain(&unfinished) {
        for entry in fs.list(folder).context("list", folder)? {
            let path = folder.join(entry.name);
            fs.remove_file(&path).context("remove", &path)?;
        }
        fs.remove_dir(folder).context("remove", folder)?;
        sync_parent(fs, folder)?;
    }
    Ok(())
}

/// Returns the folder of the keyspace to which the folder of a snapshot belongs.
pub fn keyspace_folder(snapshot: &Path) -> &Path {
    snapshot.ancestors().nth(2).unwrap_or(snapshot)
}

fn sync_parent(fs: &dyn FileSystem, folder: &Path) -> Result<(), FileError> {
    let parent = folder.parent().unwrap_or(Path::new("."));
    fs.sync_dir(parent).context("sync", parent)
}

/// Every folder of a snapshot, by keyspace and name.
fn search(
    fs: &dyn FileSystem,
    dirs: &[PathBuf],
    keyspace: Option<&str>,
) -> Result<BTreeMap<(String, String), Found>, FileError> {
    let mut all: BTreeMap<(String, String), Found> = BTreeMap::new();
    for directory in dirs.iter().filter(|directory| fs.exists(directory)) {
        for entry in fs.list(directory).context("list", directory)? {
            if !entry.is_dir || keyspace.is_some_and(|keyspace| keyspace != entry.name) {
                continue;
            }
            let keyspace = files::keyspace_folder(directory, &entry.name);
            let snapshots = files::snapshots_folder(&keyspace);
            if !fs.exists(&snapshots) {
                continue;
            }
            for folder in fs.list(&snapshots).context("list", &snapshots)? {
                let unfinished = folder.name.strip_suffix(TEMPORARY_SUFFIX);
                let name = unfinished.unwrap_or(&folder.name);
                if !folder.is_dir || SnapshotName::parse(name).is_none() {
                    continue;
                }
                let found = all.entry((entry.name.clone(), name.to_owned())).or_default();
                found.is_unfinished |= unfinished.is_some();
                found.folders.push(snapshots.join(&folder.name));
            }
        }
    }
    Ok(all)
}
