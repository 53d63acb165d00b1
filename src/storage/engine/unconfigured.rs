//! Column families that have data here and are not configured: renamed, or taken out by mistake.

use super::super::files::FileName;
use super::super::keyspace_folders::{self, KeyspaceFolder};
use super::super::manifest::Manifest;
use super::super::system;
use crate::base::fs::FileSystem;
use crate::model::schema::Schema;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A column family that is not configured, by its manifest.
#[derive(Debug, PartialEq, Eq)]
struct Unconfigured {
    manifest: PathBuf,
    keyspace: String,
    family: String,
}

/// Says which column families have data here that nobody will see.
pub(super) fn warn_of_unconfigured(fs: &dyn FileSystem, data_directories: &[PathBuf], of: &Schema) {
    for directory in data_directories {
        match find(fs, directory, of) {
            Ok(found) => found.iter().for_each(|it| log::warn!("{it}")),
            Err(error) => log::warn!(
                "whether {} has data of column families that are not configured cannot be told: \
                 {error}",
                directory.display()
            ),
        }
    }
}

/// Those in a data directory, sorted.
fn find(fs: &dyn FileSystem, directory: &Path, schema: &Schema) -> io::Result<Vec<Unconfigured>> {
    let mut found = Vec::new();
    for KeyspaceFolder { keyspace, path, entries } in keyspace_folders::list(fs, directory)? {
        for entry in entries {
            if let FileName::Manifest(family) = FileName::parse(&entry.name)
                && schema.family_id(&keyspace, &family).is_none()
                && may_have_data(fs, &path.join(&entry.name))
            {
                let (manifest, keyspace) = (path.join(entry.name), keyspace.clone());
                found.push(Unconfigured { manifest, keyspace, family });
            }
        }
    }
    found.sort_by(|a, b| a.manifest.cmp(&b.manifest));
    Ok(found)
}

/// A manifest of which all SSTables were purged, or that a restore has left empty, hides nothing.
fn may_have_data(fs: &dyn FileSystem, manifest: &Path) -> bool {
    match Manifest::load(fs, manifest) {
        Ok(manifest) => manifest.is_some_and(|it| !it.sstables.is_empty()),
        Err(_) => true,
    }
}

impl fmt::Display for Unconfigured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { manifest, keyspace, family } = self;
        write!(
            f,
            "{}: column family {keyspace}.{family} is not configured, and its data are not served",
            manifest.display()
        )?;
        if keyspace == system::KEYSPACE {
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
            Arc::new(ColumnFamilySchema { keyspace, name, kind, comment: None })
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
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
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
        warn_of_unconfigured(&fs, &["/data".into()], &schema(&[]));
    }
}
