//! The file of the definitions, `alexandra.schema` in the first data directory. It is read before
//! the database is opened, since the commit log can be replayed into known column families only.

use super::definitions::Definitions;
use super::encoding;
use crate::base::fs::FileSystem;
use crate::model::schema::ColumnFamilySchema;
use crate::storage::checked_file::{self, CheckedState};
use crate::storage::error::{FileError, ReadError};
use crate::storage::files::{FileName, SCHEMA_FILE, keyspace_folders};
use std::path::{Path, PathBuf};

/// Begins the lines of leftovers.
const LEFTOVER: &str = "leftover ";

/// Content of the file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SavedSchema {
    /// The definitions.
    pub definitions: Definitions,
    /// Keyspaces and stored names of tables that were dropped, and whose files may be there: the
    /// next start removes them.
    pub leftovers: Vec<(String, String)>,
}

/// Reason why the definitions cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SchemaFileError {
    /// The file cannot be read, or is damaged.
    #[error("the schema that was made over CQL cannot be read: {0}")]
    Read(#[from] ReadError),
    /// A folder cannot be listed.
    #[error(transparent)]
    File(#[from] FileError),
    /// The data directories hold tables of a schema that is not there.
    #[error(
        "{manifest} is of a table that was made over CQL, and no data directory has the file \
         alexandra.schema, which defines it: one may not be mounted, or DataFileDirectories name \
         others. Put it back; a copy of a server with the same schema will do. If the data of all \
         such tables are not wanted any more, remove their files",
        manifest = .0.display()
    )]
    Missing(PathBuf),
}

impl CheckedState for SavedSchema {
    const KIND: &'static str = "schema";
    const VERSION: u32 = 1;

    fn encode(&self) -> String {
        let leftovers = self.leftovers.iter();
        let lines = leftovers.map(|(keyspace, name)| format!("{LEFTOVER}{keyspace}/{name}\n"));
        lines.collect::<String>() + &encoding::encode(&self.definitions)
    }

    fn decode(_version: u32, lines: &str) -> Option<Self> {
        let (mut leftovers, mut rest) = (Vec::new(), lines);
        while let Some((line, after)) = rest.split_once('\n')
            && let Some(leftover) = line.strip_prefix(LEFTOVER)
        {
            // No name has a slash: they are names of files.
            let (keyspace, name) = leftover.split_once('/')?;
            leftovers.push((keyspace.to_owned(), name.to_owned()));
            rest = after;
        }
        Some(Self { definitions: encoding::decode(rest)?, leftovers })
    }
}

/// Reads the definitions of a node with these data directories; none if none were ever made.
pub(super) fn load(
    fs: &dyn FileSystem,
    data_directories: &[PathBuf],
) -> Result<SavedSchema, SchemaFileError> {
    let mut newest: Option<SavedSchema> = None;
    for directory in data_directories {
        // A crash may have left an earlier one where the first directory was before.
        let found = checked_file::load::<SavedSchema>(fs, &directory.join(SCHEMA_FILE))?;
        let version = |it: &SavedSchema| it.definitions.version;
        newest = newest.into_iter().chain(found).max_by_key(version);
    }
    match newest {
        Some(saved) => Ok(saved),
        None => match data_directories.iter().find_map(|it| manifest_over_cql(fs, it)) {
            Some(manifest) => Err(SchemaFileError::Missing(manifest)),
            None => Ok(SavedSchema::default()),
        },
    }
}

/// The manifest of a table that was made over CQL.
fn manifest_over_cql(fs: &dyn FileSystem, directory: &Path) -> Option<PathBuf> {
    let folders = keyspace_folders(fs, directory).unwrap_or_default();
    folders.into_iter().find_map(|folder| {
        let is_it = |name: &str| match FileName::parse(name) {
            FileName::Manifest(family) => ColumnFamilySchema::is_of_cql(&family),
            _ => false,
        };
        let found = folder.entries.iter().find(|entry| is_it(&entry.name))?;
        Some(folder.path.join(&found.name))
    })
}

/// Writes the definitions durably.
pub(super) fn store(
    fs: &dyn FileSystem,
    data_directories: &[PathBuf],
    saved: &SavedSchema,
) -> Result<(), FileError> {
    checked_file::store_first(fs, data_directories, SCHEMA_FILE, saved)
}

#[cfg(test)]
mod tests {
    use super::super::encoding::tests::sample;
    use super::*;
    use crate::kit::disk::SimFileSystem;
    use crate::storage::checked_file::tests::check_codec;

    #[test]
    fn no_damage_of_the_file_passes() {
        let leftovers =
            vec![("k".to_owned(), "t-1".to_owned()), ("k 2".to_owned(), "x".to_owned())];
        check_codec(&SavedSchema { definitions: sample(), leftovers });
        check_codec(&SavedSchema::default());
    }

    #[test]
    fn a_lost_file_is_missed_where_it_has_tables() {
        let fs = SimFileSystem::new(1);
        let directories: Vec<PathBuf> = vec!["/a".into(), "/b".into()];
        for folder in ["/a/k", "/b/k"] {
            fs.create_dir_all(Path::new(folder)).unwrap();
        }
        assert_eq!(load(&fs, &directories).unwrap(), SavedSchema::default());
        let saved = SavedSchema { definitions: sample(), leftovers: Vec::new() };
        for (_, name, table) in sample().tables() {
            let file = format!("{}.manifest", table.stored_name(name));
            fs.create(&Path::new("/b/k").join(file)).unwrap();
        }
        assert!(matches!(load(&fs, &directories), Err(SchemaFileError::Missing(_))));
        store(&fs, &directories, &saved).unwrap();
        assert_eq!(load(&fs, &directories).unwrap(), saved);
        fs.corrupt(Path::new("/a/alexandra.schema"), 20, 1).unwrap();
        assert!(matches!(load(&fs, &directories), Err(SchemaFileError::Read(_))));
    }
}
