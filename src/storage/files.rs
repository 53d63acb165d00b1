//! The names of all files in the data directories, built and parsed in one place.
//!
//! ```text
//! <data directory>/alexandra.lock                        held while a server runs
//! <data directory>/alexandra.restoring                   there until a restore is complete
//! <data directory>/alexandra.commitlog                   there while the commit log is needed
//! <data directory>/alexandra.archive                     which folder of the archive is in use
//! <data directory>/alexandra.takeover                    how far a takeover has come
//! <data directory>/alexandra.schema                      keyspaces, tables and types made over CQL
//! <data directory>/<keyspace>/<family>-<generation>.sst  an SSTable
//!                             <family>-<generation>.sst.tmp  one that is being written
//!                             <family>.manifest          its live SSTables (first directory)
//!                             <family>.manifest.tmp      its next version
//!                             <family>.hashes            remembered hashes of its rows
//!                             stream/                    tables of 0.6 on their way to its nodes
//!                             snapshots/<name>/          a snapshot
//!                             snapshots/<name>.tmp/      one that is being made or removed
//!                             before-restore-<time>/     what a restore has moved aside
//! ```
//!
//! The last hyphen separates the generation. The name of a table that was made over CQL ends in the
//! id of its rows, after a hyphen of its own. SSTables of
//! the original, `<family>-<generation>-Data.db`, `-Index.db` and `-Filter.db`, lie in the same
//! folders until compactions have replaced them.

use super::error::{FileContext, FileError};
use crate::base::fs::{DirEntry, File, FileSystem};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file that a running server holds locked in each of its directories.
pub const LOCK_FILE: &str = "alexandra.lock";

/// The file that says that a restore was begun and is not complete.
pub const RESTORING_FILE: &str = "alexandra.restoring";

/// The guard of the commit log: says that there is one, and from which segment on.
pub const LOG_GUARD_FILE: &str = "alexandra.commitlog";

/// The file that names the folder of the archive to which the commit log goes.
pub const ARCHIVE_FILE: &str = "alexandra.archive";

/// The file that tells how far the takeover of directories of the original has come.
pub const TAKEOVER_FILE: &str = "alexandra.takeover";

/// The keyspaces, tables and types that were made over CQL.
pub const SCHEMA_FILE: &str = "alexandra.schema";

/// The file that tells what was exported to the directory in which it lies.
pub const EXPORT_FILE: &str = "alexandra.export";

/// Beginning of the name of a folder to which a restore has moved files.
pub const BEFORE_RESTORE: &str = "before-restore-";

const SSTABLE_SUFFIX: &str = ".sst";
/// End of the name of a file until it is complete.
pub const TEMPORARY_SUFFIX: &str = ".tmp";
const MANIFEST_SUFFIX: &str = ".manifest";
const HASHES_SUFFIX: &str = ".hashes";
/// Part before the number in the name of a table of the original until it is complete.
const UNFINISHED_ORIGINAL: &str = "tmp-";

/// Name of a file in the folder of a keyspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileName {
    /// An SSTable of a column family, with its generation.
    SsTable(String, u64),
    /// An SSTable that was not finished, or whose last step was not.
    UnfinishedSsTable(String, u64),
    /// The manifest of a column family.
    Manifest(String),
    /// A manifest that was not finished.
    UnfinishedManifest(String),
    /// Not one of ours.
    Other,
}

impl FileName {
    /// Parses a name.
    pub fn parse(name: &str) -> Self {
        let (name, finished) = match name.strip_suffix(TEMPORARY_SUFFIX) {
            Some(name) => (name, false),
            None => (name, true),
        };
        if let Some(family) = name.strip_suffix(MANIFEST_SUFFIX) {
            let family = family.to_owned();
            return if finished {
                Self::Manifest(family)
            } else {
                Self::UnfinishedManifest(family)
            };
        }
        let numbered = name.strip_suffix(SSTABLE_SUFFIX).and_then(|name| {
            let (family, generation) = name.rsplit_once('-')?;
            Some((family.to_owned(), parse_generation(generation)?))
        });
        match numbered {
            Some((family, generation)) if finished => Self::SsTable(family, generation),
            Some((family, generation)) => Self::UnfinishedSsTable(family, generation),
            None => Self::Other,
        }
    }

    /// The column family of the file.
    pub fn family(&self) -> Option<&str> {
        match self {
            Self::SsTable(family, _)
            | Self::UnfinishedSsTable(family, _)
            | Self::Manifest(family)
            | Self::UnfinishedManifest(family) => Some(family),
            Self::Other => None,
        }
    }
}

/// A file of an SSTable of the original.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OriginalPart {
    /// The rows.
    Data,
    /// Places of the rows.
    Index,
    /// Bloom filter of the rows.
    Filter,
    /// Columns of a row that is being written. It goes with the writer.
    Columns,
    /// Hashes of the names of these.
    Hashes,
}

impl OriginalPart {
    /// The parts of a table that is complete, that of its rows last.
    pub const STORED: [Self; 3] = [Self::Index, Self::Filter, Self::Data];

    /// The column family, the number and the part of a table of the original that is complete, from
    /// the name of one of its three files; none for other names.
    pub fn parse(name: &str) -> Option<(&str, u64, Self)> {
        let (table, part) = name.strip_suffix(".db")?.rsplit_once('-')?;
        let part = Self::STORED.into_iter().find(|known| part == format!("{known:?}"))?;
        let (family, generation) = table.split_once('-')?;
        Some((family, parse_generation(generation)?, part))
    }
}

/// Greatest number of an SSTable: there is always a next one.
const MAX_GENERATION: u64 = 1 << 62;

/// Parses the number of an SSTable; none for digits in another form than [`sstable`] writes.
pub(super) fn parse_generation(digits: &str) -> Option<u64> {
    let generation: u64 = digits.parse().ok()?;
    let is_one = (1..=MAX_GENERATION).contains(&generation);
    (is_one && generation.to_string() == digits).then_some(generation)
}

/// The folder of a keyspace.
pub fn keyspace_folder(data_directory: &Path, keyspace: &str) -> PathBuf {
    data_directory.join(keyspace)
}

/// An SSTable in the folder of its keyspace.
pub fn sstable(folder: &Path, family: &str, generation: u64) -> PathBuf {
    folder.join(format!("{family}-{generation}{SSTABLE_SUFFIX}"))
}

/// A file of an SSTable of the original, in whatever folder.
pub fn original(folder: &Path, family: &str, generation: u64, part: OriginalPart) -> PathBuf {
    folder.join(format!("{family}-{generation}-{part:?}.db"))
}

/// Another file of the SSTable of the original that has this data file.
pub fn sibling(data: &Path, part: OriginalPart) -> PathBuf {
    let name = data.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let table = name.strip_suffix("-Data.db").unwrap_or(name);
    data.with_file_name(format!("{table}-{part:?}.db"))
}

/// Files of the SSTable of this path: one of ours, or the three of the original, of which this is
/// the data file. That is the last: without it the others are nothing.
pub fn parts(table: &Path) -> Vec<PathBuf> {
    let name = table.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if OriginalPart::parse(name).is_none() {
        return vec![table.to_owned()];
    }
    OriginalPart::STORED.map(|part| sibling(table, part)).into()
}

/// A file of an SSTable of the original that is being written. The original removes files of such
/// names when it starts.
pub fn unfinished_original(
    folder: &Path,
    family: &str,
    generation: u64,
    part: OriginalPart,
) -> PathBuf {
    folder.join(format!("{family}-{UNFINISHED_ORIGINAL}{generation}-{part:?}.db"))
}

/// The manifest of a column family in the folder of its keyspace.
pub fn manifest(folder: &Path, family: &str) -> PathBuf {
    folder.join(format!("{family}{MANIFEST_SUFFIX}"))
}

/// Remembered hashes of the rows of a column family, in the folder of its manifest.
pub fn hashes(folder: &Path, family: &str) -> PathBuf {
    folder.join(format!("{family}{HASHES_SUFFIX}"))
}

/// Folder of tables of 0.6 that wait to be sent, in the folder of the keyspace. Nothing there
/// outlives the process.
pub fn stream_folder(folder: &Path) -> PathBuf {
    folder.join("stream")
}

/// Folder of the snapshots of a keyspace.
pub fn snapshots_folder(folder: &Path) -> PathBuf {
    folder.join("snapshots")
}

/// A snapshot in the folder of its keyspace.
pub fn snapshot(folder: &Path, name: &str) -> PathBuf {
    snapshots_folder(folder).join(name)
}

/// A snapshot that is being made or removed.
pub fn unfinished_snapshot(folder: &Path, name: &str) -> PathBuf {
    temporary(&snapshot(folder, name))
}

/// The name that a file or folder has until it is complete.
pub fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(TEMPORARY_SUFFIX);
    name.into()
}

/// Creates a file in place of one that an earlier attempt has left.
pub fn create_anew(fs: &dyn FileSystem, path: &Path) -> Result<Arc<dyn File>, FileError> {
    if fs.exists(path) {
        fs.remove_file(path).context("remove", path)?;
    }
    fs.create(path).context("create", path)
}

/// A folder in a data directory.
#[derive(Debug)]
pub struct KeyspaceFolder {
    /// Name of the keyspace.
    pub keyspace: String,
    /// The folder.
    pub path: PathBuf,
    /// Its entries, in no order.
    pub entries: Vec<DirEntry>,
}

/// The folders in a data directory, in no order. Those that cannot be listed are left out.
pub fn keyspace_folders(fs: &dyn FileSystem, directory: &Path) -> io::Result<Vec<KeyspaceFolder>> {
    let mut found = Vec::new();
    for keyspace in fs.list(directory)?.into_iter().map(|entry| entry.name) {
        let path = keyspace_folder(directory, &keyspace);
        match fs.list(&path) {
            Ok(entries) => found.push(KeyspaceFolder { keyspace, path, entries }),
            // A folder may be a link, so that only this tells it from a file.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {}
            // It may be one of the system's, such as `lost+found`.
            Err(error) => log::info!("cannot look into {}: {error}", path.display()),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_parsed_as_they_are_written() {
        let last = MAX_GENERATION.to_string();
        let FileName::SsTable(_, generation) = FileName::parse(&format!("A-{last}.sst")) else {
            panic!("{last}");
        };
        assert_eq!(generation, MAX_GENERATION);
        let over = (MAX_GENERATION + 1).to_string();
        for other in ["+5", "05", "0", "", " 5", &over, "18446744073709551615"] {
            for ending in [".sst", ".sst.tmp"] {
                let name = format!("A-{other}{ending}");
                assert_eq!(FileName::parse(&name), FileName::Other, "{name}");
            }
        }
    }

    #[test]
    fn names_are_parsed_as_they_are_built() {
        let folder = Path::new("ks");
        let parse = |path: &Path| FileName::parse(path.file_name().unwrap().to_str().unwrap());
        let table = sstable(folder, "Authors", 12);
        assert_eq!(parse(&table), FileName::SsTable("Authors".into(), 12));
        let unfinished = FileName::UnfinishedSsTable("Authors".into(), 12);
        assert_eq!(parse(&temporary(&table)), unfinished);
        let manifest = manifest(folder, "Authors");
        assert_eq!(parse(&manifest), FileName::Manifest("Authors".into()));
        assert_eq!(parse(&temporary(&manifest)), FileName::UnfinishedManifest("Authors".into()));
        let data = original(folder, "Authors", 12, OriginalPart::Data);
        assert_eq!(data, folder.join("Authors-12-Data.db"));
        assert_eq!(
            OriginalPart::parse("Authors-12-Data.db"),
            Some(("Authors", 12, OriginalPart::Data))
        );
        for other in ["A-tmp-12-Data.db", "A-012-Data.db", "A-12-Columns.db", "A-12-Data", "A.db"] {
            assert_eq!(OriginalPart::parse(other), None, "{other}");
        }
        let unfinished = unfinished_original(folder, "Authors", 12, OriginalPart::Index);
        assert_eq!(unfinished, folder.join("Authors-tmp-12-Index.db"));
        for other in ["Authors-12-Index.db", "snapshots", "Authors.sst", "x-y.sst", "notes.tmp"] {
            assert_eq!(FileName::parse(other), FileName::Other, "{other}");
        }
    }
}
