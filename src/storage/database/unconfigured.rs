//! Column families with data that are not configured: renamed, or removed by mistake; and dropped
//! ones, of which a manifest without SSTables is left.

use super::super::commitlog::Position;
use super::super::files::{FileName, KeyspaceFolder, OriginalPart, keyspace_folders};
use super::super::manifest::Manifest;
use super::super::system;
use crate::base::fs::FileSystem;
use crate::model::mutation::{DecodeError, RowMutation};
use crate::model::schema::{ColumnFamilySchema, Schema};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A column family that is not configured, by its manifest or an SSTable of the original.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::storage) struct Unconfigured {
    manifest: PathBuf,
    keyspace: String,
    family: String,
    /// Up to where the commit log holds nothing of it, if it has no SSTables: all were purged or
    /// dropped, or a restore has left it empty.
    empty_up_to: Option<Position>,
}

impl Unconfigured {
    /// Whether there are SSTables.
    pub(super) fn has_data(&self) -> bool {
        self.empty_up_to.is_none()
    }

    /// Whether it has this name.
    pub(super) fn is_of(&self, keyspace: &str, name: &str) -> bool {
        self.keyspace == keyspace && self.family == name
    }

    /// A file of it.
    pub(super) fn path(&self) -> &Path {
        &self.manifest
    }
}

/// Decodes records of the commit log without the parts of families that were dropped since.
#[derive(Debug)]
pub(in crate::storage) struct Records<'a> {
    pub(in crate::storage) schema: &'a Schema,
    pub(in crate::storage) unconfigured: Vec<Unconfigured>,
}

impl Records<'_> {
    /// Reads the record that ends at this position.
    pub(super) fn decode(&self, record: &[u8], at: Position) -> Result<RowMutation, DecodeError> {
        RowMutation::decode_except(record, self.schema, |keyspace, family| {
            let mut named = self.unconfigured.iter();
            let named = named.find(|it| it.keyspace == keyspace && it.family == family);
            let is_empty = named.and_then(|it| it.empty_up_to).is_some_and(|end| at <= end);
            is_empty || ColumnFamilySchema::is_of_cql(family)
        })
    }
}

/// Returns the column families that have a manifest here and are not in the schema, and warns of
/// those with data that are not served.
pub(super) fn find_unconfigured(
    fs: &dyn FileSystem,
    data_directories: &[PathBuf],
    schema: &Schema,
) -> Vec<Unconfigured> {
    let all = find_all(fs, data_directories, schema);
    all.iter().filter(|it| it.has_data()).for_each(|it| log::warn!("{it}"));
    all
}

/// The same without a word on those that are found.
pub(super) fn find_all(
    fs: &dyn FileSystem,
    data_directories: &[PathBuf],
    schema: &Schema,
) -> Vec<Unconfigured> {
    let mut all = Vec::new();
    for directory in data_directories {
        match find(fs, directory, schema) {
            Ok(found) => all.extend(found),
            Err(error) => log::warn!(
                "whether {} has data of column families that are not configured cannot be told: \
                 {error}",
                directory.display()
            ),
        }
    }
    all
}

/// The unconfigured families of a data directory, sorted.
fn find(fs: &dyn FileSystem, directory: &Path, schema: &Schema) -> io::Result<Vec<Unconfigured>> {
    let mut found = Vec::new();
    for KeyspaceFolder { keyspace, path, entries } in keyspace_folders(fs, directory)? {
        for entry in entries {
            if let FileName::Manifest(family) = FileName::parse(&entry.name)
                && schema.family_id(&keyspace, &family).is_none()
            {
                let (manifest, keyspace) = (path.join(&entry.name), keyspace.clone());
                let loaded = Manifest::load(fs, &manifest).unwrap_or_default();
                let empty = loaded.filter(|it| it.sstables.is_empty());
                let empty_up_to = empty.map(|it| it.flushed);
                found.push(Unconfigured { manifest, keyspace, family, empty_up_to });
            }
            if let Some((family, _, OriginalPart::Data)) = OriginalPart::parse(&entry.name)
                && schema.family_id(&keyspace, family).is_none()
                && found.iter().all(|it| (&*it.keyspace, &*it.family) != (&*keyspace, family))
            {
                let (family, manifest) = (family.to_owned(), path.join(&entry.name));
                let keyspace = keyspace.clone();
                found.push(Unconfigured { manifest, keyspace, family, empty_up_to: None });
            }
        }
    }
    found.sort_by(|a, b| a.manifest.cmp(&b.manifest));
    Ok(found)
}

impl fmt::Display for Unconfigured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { manifest, keyspace, family, .. } = self;
        write!(
            f,
            "{}: column family {keyspace}.{family} is not configured, and its data are not served",
            manifest.display()
        )?;
        if ColumnFamilySchema::is_of_cql(family) {
            f.write_str(". It was made over CQL, and is not in the schema any more")?;
        } else if keyspace == system::KEYSPACE {
            f.write_str(". Another version has written it")?;
        } else {
            f.write_str(". Put it back into storage-conf.xml")?;
        }
        f.write_str(". If it is not wanted any more, remove its files")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::disk::SimFileSystem;
    use crate::model::comparator::Comparator;
    use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema};
    use crate::storage::manifest::TableIdentity;
    use std::sync::Arc;

    fn schema(families: &[(&str, &str)]) -> Schema {
        let family = |(keyspace, name): &(&str, &str)| {
            let kind = ColumnFamilyKind::Standard { columns: Comparator::Bytes };
            let (keyspace, name) = ((*keyspace).into(), (*name).into());
            Arc::new(ColumnFamilySchema::new(keyspace, name, kind))
        };
        Schema::new(families.iter().map(family))
    }

    #[test]
    fn data_of_families_that_are_not_configured_are_told_and_stay() {
        let fs = SimFileSystem::new(1);
        let mut with_data = Manifest::default();
        with_data.sstables.insert(1, TableIdentity::default());
        for (path, manifest) in [
            ("/data/Blog/Authors.manifest", &with_data),
            ("/data/Blog/Editors.manifest", &with_data),
            ("/data/Blog/Readers.manifest", &Manifest::default()),
            ("/data/Blog/snapshots/1/Old.manifest", &with_data),
            ("/data/Gone/Authors.manifest", &with_data),
            ("/data/system/Later.manifest", &with_data),
            ("/data/alexandra.commitlog", &with_data),
        ] {
            let path = Path::new(path);
            fs.create_dir_all(path.parent().unwrap()).unwrap();
            manifest.store(&fs, path).unwrap();
        }
        let damaged = Path::new("/data/Blog/Writers.manifest");
        fs.create(damaged).unwrap().write_all_at(b"?", 0).unwrap();
        let told = |schema: &Schema| {
            let found = find(&fs, Path::new("/data"), schema).unwrap();
            let with_data = found.iter().filter(|it| it.empty_up_to.is_none());
            with_data.map(ToString::to_string).collect::<Vec<_>>()
        };
        let served = [("Blog", "Authors"), ("Blog", "Writers"), ("system", "LocationInfo")];
        let lines = told(&schema(&served));
        let files = ["/data/Blog/Editors", "/data/Gone/Authors", "/data/system/Later"];
        assert_eq!(lines.len(), files.len(), "{lines:?}");
        for (line, file) in lines.iter().zip(files) {
            assert!(line.starts_with(&format!("{file}.manifest: column family ")), "{line}");
            assert!(line.contains("are not served") && line.ends_with("remove its files"));
            assert_eq!(line.contains("storage-conf.xml"), !file.contains("system"), "{line}");
        }
        let all = [&served[..], &[("Blog", "Editors"), ("Gone", "Authors"), ("system", "Later")]];
        assert_eq!(told(&schema(&all.concat())), [""; 0]);
        let none = told(&schema(&[]));
        assert!(none.iter().any(|line| line.contains("Writers")), "it is damaged: {none:?}");
    }

    #[test]
    fn a_data_directory_that_cannot_be_listed_does_not_stop_the_start() {
        let fs = SimFileSystem::new(1);
        assert!(find(&fs, Path::new("/data"), &schema(&[])).is_err());
        assert_eq!(find_unconfigured(&fs, &["/data".into()], &schema(&[])), []);
    }
}
