//! Takes over the directories of a server of 0.4 to 0.6.
//!
//! 1. `Takeover::begin`, when the directories are locked: every file of the original gets a
//!    second name in a snapshot, from which a server of the original can go on as if nothing had
//!    been. Then goes what a start of the original would have removed, too.
//! 2. The column families are opened with their SSTables. What the commit log of the original holds
//!    goes to memtables.
//! 3. `Takeover::finish`, when the node knows who it is and before it takes writes: memtables and
//!    manifests are written, the node's own keyspace is rewritten, and the segments of the commit
//!    log of the original go. A server of the original that is started here by mistake cannot read
//!    the names of our files in the keyspace `system`, and ends before it changes anything.
//!
//! Until the last step the original can be started again. A marker file tells how far it has come;
//! each step may be repeated.

use crate::base::clock::Clock;
use crate::base::fs::FileSystem;
use crate::storage::checked_file::{self, CheckedState, field};
use crate::storage::commitlog::{segment_of_the_original, segments_of_the_original};
use crate::storage::compaction::CompactionError;
use crate::storage::database::Core;
use crate::storage::error::{FileContext, FileError};
use crate::storage::files::{self, FileName, OriginalPart, TAKEOVER_FILE, keyspace_folders};
use crate::storage::{directory, system};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Tag of the snapshot that keeps the files of the original.
pub const SNAPSHOT_TAG: &str = "before-alexandra";

/// File in the folder of keyspace `system` that tells a person why the original does not start. 0.6
/// gives up, too, if there are files of this ending and nothing that says who the node is.
const GUARD_FILE: &str = "taken-over-by-alexandra.db";

/// Why directories cannot be taken over, or not be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TakeoverError {
    /// A server of ours has written to the directories, and the original too.
    #[error(
        "{path} is an SSTable of Apache Cassandra, in directories that this program has written \
         to. Move it elsewhere, and load what sstable2json of Apache Cassandra makes of it by \
         `alexandra sstable import`; or name empty directories in DataFileDirectories",
        path = .0.display()
    )]
    Mixed(PathBuf),
    /// The original has written a commit log after the takeover.
    #[error(
        "{path} is a commit log of Apache Cassandra, in directories that this program has taken \
         over before: what it holds was written by a server that should not have been started. \
         Move it away; what other nodes have of it a repair brings back. If you have gone back to \
         the files of before the takeover, move the files alexandra.* of the data directories away",
        path = .0.display()
    )]
    LateLog(PathBuf),
    /// The directory of the archive holds a segment of the original.
    #[error(
        "{path} is a commit log of Apache Cassandra: name an empty directory in \
         CommitLogArchiveDirectory, or the archive of a server of this program",
        path = .0.display()
    )]
    Archive(PathBuf),
    /// A tool works on files of ours only.
    #[error(
        "{path} is a file of Apache Cassandra, and its directories are not taken over yet: \
         `alexandra takeover --dry-run` looks at them, and the first start of the server takes \
         them over",
        path = .0.display()
    )]
    NotYet(PathBuf),
    /// A column family could not be written.
    #[error("{family} cannot be written: {reason}")]
    Write {
        /// The column family.
        family: String,
        /// The failure.
        reason: String,
    },
    /// A directory or file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}

/// How far a takeover has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Takeover {
    /// Name of the snapshot of the files of the original.
    snapshot: String,
    is_complete: bool,
}

impl CheckedState for Takeover {
    const KIND: &'static str = "takeover";
    const VERSION: u32 = 1;

    fn encode(&self) -> String {
        let state = if self.is_complete { "complete" } else { "begun" };
        format!("snapshot {}\nstate {state}\n", self.snapshot)
    }

    fn decode(_version: u32, lines: &str) -> Option<Self> {
        let is_complete = match field(lines, "state")? {
            "complete" => true,
            "begun" => false,
            _ => return None,
        };
        Some(Self { snapshot: field(lines, "snapshot")?.to_owned(), is_complete })
    }
}

/// Whose directories these are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// Nobody's: they hold no data.
    Empty,
    /// Those of a server of the original.
    Original,
    /// A takeover was begun, with this snapshot, and the next start goes on with it.
    Begun(String),
    /// A takeover was completed, with this snapshot.
    Complete(String),
    /// Those of a server of ours that has taken nothing over.
    Ours,
}

/// Files of directories that a start would take over.
#[derive(Debug)]
pub struct Preview {
    /// Whose directories these are.
    pub stage: Stage,
    /// Data files that would become live, by keyspace and column family.
    pub tables: BTreeMap<(String, String), Vec<PathBuf>>,
    /// Files that would be removed: unfinished and replaced SSTables, and parts of SSTables.
    pub leftovers: Vec<PathBuf>,
    /// Files of the original that are none of an SSTable.
    pub others: Vec<PathBuf>,
    /// Segments of the commit log.
    pub segments: Vec<PathBuf>,
    /// Number of files that the snapshot would keep.
    pub kept: usize,
}

impl Preview {
    /// Lists the files in these directories, and changes nothing.
    pub fn read(
        fs: &dyn FileSystem,
        data_directories: &[PathBuf],
        log_directory: &Path,
    ) -> Result<Self, TakeoverError> {
        let folders = Folder::all(fs, data_directories)?;
        let segments =
            segments_of_the_original(fs, log_directory).context("list", log_directory)?;
        let has_ours = folders.iter().any(|folder| folder.is_ours);
        let has_data = folders.iter().any(|it| it.data_file().is_some()) || !segments.is_empty();
        let stage = match Takeover::find(fs, data_directories)? {
            Some(Takeover { snapshot, is_complete: true }) => Stage::Complete(snapshot),
            Some(Takeover { snapshot, .. }) if has_ours => Stage::Begun(snapshot),
            _ if has_data => Stage::Original,
            _ if has_ours => Stage::Ours,
            _ => Stage::Empty,
        };
        let kept = folders.iter().map(|it| it.names.len()).sum::<usize>() + segments.len();
        let (mut tables, mut leftovers, mut others) = (BTreeMap::new(), Vec::new(), Vec::new());
        for folder in &folders {
            let keyspace = folder.path.file_name().unwrap_or_default().to_string_lossy();
            let removed: Vec<_> = folder.leftovers().collect();
            leftovers.extend(removed.iter().map(|name| folder.path.join(name)));
            for name in folder.names.iter().filter(|name| !removed.contains(&name.as_str())) {
                match OriginalPart::parse(name) {
                    Some((family, _, OriginalPart::Data)) => {
                        let family = (keyspace.clone().into_owned(), family.to_owned());
                        let files: &mut Vec<_> = tables.entry(family).or_default();
                        files.push(folder.path.join(name));
                    }
                    Some(_) => {}
                    None => others.push(folder.path.join(name)),
                }
            }
        }
        Ok(Self { stage, tables, leftovers, others, segments, kept })
    }
}

/// Files of the original in the folder of a keyspace.
struct Folder {
    path: PathBuf,
    /// Names of its files, sorted.
    names: Vec<String>,
    /// Whether it has a manifest of ours.
    is_ours: bool,
}

impl Folder {
    fn all(fs: &dyn FileSystem, data_directories: &[PathBuf]) -> Result<Vec<Self>, FileError> {
        let mut folders = Vec::new();
        for directory in data_directories {
            if !fs.try_exists(directory).context("look for", directory)? {
                continue;
            }
            for folder in keyspace_folders(fs, directory).context("list", directory)? {
                let entries = folder.entries.iter().filter(|entry| !entry.is_dir);
                let names = entries.map(|entry| entry.name.clone());
                let mut names: Vec<_> = names.filter(|name| is_of_the_original(name)).collect();
                names.sort_unstable();
                let is_manifest =
                    |name: &str| matches!(FileName::parse(name), FileName::Manifest(_));
                let is_ours = folder.entries.iter().any(|entry| is_manifest(&entry.name));
                folders.push(Self { path: folder.path, names, is_ours });
            }
        }
        folders.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(folders)
    }

    /// Names that a start of the original removes: unfinished and replaced SSTables, and indexes
    /// and filters without data. The marks of replaced ones go last: without them these would count
    /// again.
    fn leftovers(&self) -> impl Iterator<Item = &str> {
        let has = |name: &str| self.names.binary_search_by(|it| it.as_str().cmp(name)).is_ok();
        let is_left = move |name: &str| {
            let Some((table, _)) = name.rsplit_once('-') else { return false };
            let is_orphan =
                OriginalPart::parse(name).is_some() && !has(&format!("{table}-Data.db"));
            name.contains("-tmp-") || is_orphan || has(&format!("{table}{COMPACTED}"))
        };
        let names = || self.names.iter().map(String::as_str);
        let marks = names().filter(|name| name.ends_with(COMPACTED));
        names().filter(move |name| !name.ends_with(COMPACTED) && is_left(name)).chain(marks)
    }

    /// The first data file.
    fn data_file(&self) -> Option<PathBuf> {
        let is_data = |name: &&String| {
            OriginalPart::parse(name).is_some_and(|(_, _, part)| part == OriginalPart::Data)
        };
        Some(self.path.join(self.names.iter().find(is_data)?))
    }
}

fn is_of_the_original(name: &str) -> bool {
    name != GUARD_FILE && (name.ends_with(DATABASE) || name.ends_with(COMPACTED))
}

/// End of the names of the files of an SSTable.
const DATABASE: &str = ".db";

/// End of the name of a file that says that an SSTable was replaced.
const COMPACTED: &str = "-Compacted";

/// Refuses directories that hold files of the original and can be neither used nor taken over.
pub fn check(
    fs: &dyn FileSystem,
    data_directories: &[PathBuf],
    log_directory: &Path,
) -> Result<(), TakeoverError> {
    let marker = Takeover::find(fs, data_directories)?;
    match marker {
        Some(Takeover { is_complete: true, .. }) => {
            let late = segment_of_the_original(fs, log_directory).context("list", log_directory)?;
            late.map_or(Ok(()), |path| Err(TakeoverError::LateLog(path)))
        }
        Some(_) => Ok(()),
        None => {
            let folders = Folder::all(fs, data_directories)?;
            let is_ours = folders.iter().any(|folder| folder.is_ours);
            let first = folders.iter().find_map(Folder::data_file).filter(|_| is_ours);
            first.map_or(Ok(()), |path| Err(TakeoverError::Mixed(path)))
        }
    }
}

/// Refuses directories of the original that were not taken over: tools would not see what is in
/// them.
pub fn check_taken_over(
    fs: &dyn FileSystem,
    data_directories: &[PathBuf],
    log_directory: &Path,
) -> Result<(), TakeoverError> {
    check(fs, data_directories, log_directory)?;
    if Takeover::find(fs, data_directories)?.is_some_and(|it| it.is_complete) {
        return Ok(());
    }
    let segment = segment_of_the_original(fs, log_directory).context("list", log_directory)?;
    let folders = Folder::all(fs, data_directories)?;
    let first = segment.or_else(|| folders.iter().find_map(Folder::data_file));
    first.map_or(Ok(()), |path| Err(TakeoverError::NotYet(path)))
}

/// Refuses an archive of the commit log that holds segments of the original.
pub fn check_archive(fs: &dyn FileSystem, archive: &Path) -> Result<(), TakeoverError> {
    let found = segment_of_the_original(fs, archive).context("list", archive)?;
    found.map_or(Ok(()), |path| Err(TakeoverError::Archive(path)))
}

impl Takeover {
    fn find(fs: &dyn FileSystem, dirs: &[PathBuf]) -> Result<Option<Self>, TakeoverError> {
        Ok(checked_file::load_first(fs, dirs, TAKEOVER_FILE)?)
    }

    /// Begins to take over directories that are locked, or goes on with that; `None` if they hold
    /// nothing of the original, or were taken over before.
    pub(in crate::storage) fn begin(
        fs: &dyn FileSystem,
        clock: &dyn Clock,
        data_directories: &[PathBuf],
        log_directory: &Path,
    ) -> Result<Option<Self>, TakeoverError> {
        let mut folders = Folder::all(fs, data_directories)?;
        let has_ours = folders.iter().any(|folder| folder.is_ours);
        folders.retain(|folder| !folder.names.is_empty());
        let segments =
            segments_of_the_original(fs, log_directory).context("list", log_directory)?;
        let takeover = match Self::find(fs, data_directories)? {
            Some(Self { is_complete: true, .. }) => return Ok(None),
            // Until there is a file of ours the original may have gone on, with other files.
            Some(begun) if has_ours => begun,
            None if segments.is_empty() && !folders.iter().any(|it| it.data_file().is_some()) => {
                return Ok(None);
            }
            _ => {
                let snapshot = format!("{}-{SNAPSHOT_TAG}", clock.coarse_millis());
                Self { snapshot, is_complete: false }
            }
        };
        let files: usize = folders.iter().map(|folder| folder.names.len()).sum();
        log::info!(
            "The directories were written by Apache Cassandra. A takeover begins: {files} files in \
             {} folders, {} segments of the commit log. All are kept in snapshot {}",
            folders.len(),
            segments.len(),
            takeover.snapshot
        );
        checked_file::store_first(fs, data_directories, TAKEOVER_FILE, &takeover)?;
        for folder in &folders {
            let files = folder.names.iter().map(|name| folder.path.join(name));
            takeover.keep(fs, &folder.path, &files.collect::<Vec<_>>())?;
        }
        let system = files::keyspace_folder(&data_directories[0], system::KEYSPACE);
        takeover.keep(fs, &system, &segments)?;
        folders.iter().try_for_each(|folder| remove_leftovers(fs, folder))?;
        Ok(Some(takeover))
    }

    /// Gives these files a second name in the snapshot in this folder of a keyspace.
    fn keep(&self, fs: &dyn FileSystem, folder: &Path, files: &[PathBuf]) -> Result<(), FileError> {
        if files.is_empty() {
            return Ok(());
        }
        let snapshot = files::snapshot(folder, &self.snapshot);
        directory::create(fs, &snapshot).context("create", &snapshot)?;
        for file in files {
            let kept = snapshot.join(file.file_name().unwrap_or_default());
            if fs.try_exists(&kept).context("look for", &kept)? {
                continue;
            }
            match fs.hard_link(file, &kept) {
                Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                    copy(fs, file, &kept)?;
                }
                linked => linked.context("link", &kept)?,
            }
        }
        fs.sync_dir(&snapshot).context("sync", &snapshot)
    }

    /// Ends the takeover: from here on the original cannot be started on these directories. The
    /// node knows who it is, and has not taken a write yet.
    pub(in crate::storage) fn finish(
        mut self,
        fs: &dyn FileSystem,
        database: &Core,
        data_directories: &[PathBuf],
        log_directory: &Path,
    ) -> Result<(), TakeoverError> {
        for family in database.families() {
            let name = family.schema();
            let failed = |error: CompactionError| TakeoverError::Write {
                family: name.to_string(),
                reason: error.to_string(),
            };
            family.keep_adopted()?;
            database.flush(family.id()).map_err(|error| failed(error.into()))?;
            if name.keyspace == system::KEYSPACE {
                database.compact(family.id()).map_err(failed)?;
            }
        }
        for directory in data_directories {
            let system = files::keyspace_folder(directory, system::KEYSPACE);
            let text = format!(
                "These directories were taken over by Alexandra. Apache Cassandra must not be \
                 started on them: it would not see what was written since. Its files as they were \
                 are in the folders snapshots/{} of the keyspaces.\n",
                self.snapshot
            );
            checked_file::replace(fs, &system.join(GUARD_FILE), text.as_bytes())?;
        }
        for segment in segments_of_the_original(fs, log_directory).context("list", log_directory)? {
            fs.remove_file(&segment).context("remove", &segment)?;
        }
        // Else one could come back that was replayed long ago.
        fs.sync_dir(log_directory).context("sync", log_directory)?;
        self.is_complete = true;
        checked_file::store_first(fs, data_directories, TAKEOVER_FILE, &self)?;
        log::info!(
            "The directories are taken over. The files as they were stay in snapshot {0}, and keep \
             their room on the disk. When they are not needed any more: alexandra snapshot clear \
             --name {SNAPSHOT_TAG}",
            self.snapshot
        );
        Ok(())
    }
}

/// Removes what a start of the original removes.
fn remove_leftovers(fs: &dyn FileSystem, folder: &Folder) -> Result<(), FileError> {
    for name in folder.leftovers() {
        let path = folder.path.join(name);
        log::info!("Removing {}: unfinished, or replaced by a compaction", path.display());
        fs.remove_file(&path).context("remove", &path)?;
    }
    Ok(())
}

fn copy(fs: &dyn FileSystem, from: &Path, to: &Path) -> Result<(), FileError> {
    let content = fs.read(from).context("read", from)?;
    let temporary = files::temporary(to);
    let file = files::create_anew(fs, &temporary)?;
    file.write_all_at(&content, 0).context("write", &temporary)?;
    file.sync().context("sync", &temporary)?;
    fs.rename(&temporary, to).context("rename", &temporary)
}
