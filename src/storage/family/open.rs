//! Opens a column family: finds its files, and finishes or undoes steps that a crash has cut off.

use super::adopt::OriginalFiles;
use super::caches::CacheSizes;
use super::claims::Claims;
use super::{ColumnFamily, Environment, View};
use crate::base::fs::FileSystem;
use crate::base::latest::Latest;
use crate::base::lock::{Mutex, RwLock};
use crate::base::operations::Operations;
use crate::model::comparator::Comparator;
use crate::model::schema::{ColumnFamilySchema, FamilyId};
use crate::storage::compaction::Pressure;
use crate::storage::error::{Corrupt, FileContext, FileError, ReadError};
use crate::storage::files::{self, FileName, OriginalPart};
use crate::storage::manifest::{Manifest, TableIdentity};
use crate::storage::memtable::Memtable;
use crate::storage::options::FamilyOptions;
use crate::storage::sstable::{SsTable, discard};
use crate::storage::system::node_id::NodeId;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

/// Reason why a column family cannot be opened.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OpenError {
    /// A file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// An SSTable is damaged in a part that every read needs.
    #[error(
        "{damage}. `alexandra sstable scrub --config CONF {}` makes the file anew from what is \
         sound of it",
        arguments(family)
    )]
    Damaged {
        /// The damage.
        damage: Corrupt,
        /// The column family.
        family: String,
    },
    /// The manifest is damaged.
    #[error(
        "{damage}. Put a copy of it back that is as old as the SSTables. If there is none, \
         `alexandra sstable scrub --accept-loss --config CONF {}` makes one of the SSTables that \
         are there",
        arguments(family)
    )]
    DamagedManifest {
        /// The damage.
        damage: Corrupt,
        /// The column family.
        family: String,
    },
    /// The manifest names a file that is not there.
    #[error(
        "{file} of {family} is missing. {manifest} says that it holds data; put the file back into \
         one of the data directories. If it is lost for good, `alexandra sstable scrub \
         --accept-loss --config CONF {}` goes on without it",
        arguments(family),
        file = file.display(),
        manifest = manifest.display()
    )]
    Missing {
        /// The column family.
        family: String,
        /// The missing file, where it may have been.
        file: PathBuf,
        /// The manifest that names it.
        manifest: PathBuf,
    },
    /// A file has another size than the manifest says.
    #[error(
        "{file} has {found} bytes instead of {expected}: it is truncated or another file. Put the \
         right one back. If there is none, `alexandra sstable scrub --config CONF {}` makes it \
         anew from what is sound of it",
        arguments(family),
        file = file.display()
    )]
    WrongSize {
        /// The column family.
        family: String,
        /// The file.
        file: PathBuf,
        /// Its size.
        found: u64,
        /// The size in the manifest.
        expected: u64,
    },
    /// A file has the number and size in the manifest, and is another one.
    #[error(
        "{file} is not the file of this name that {manifest} means: it was written at another \
         time. Put the right one back into its place, be it the file or the manifest. If the \
         manifest is lost for good, `alexandra sstable scrub --accept-loss --config CONF {}` makes \
         one of the SSTables that are there",
        arguments(family),
        file = file.display(),
        manifest = manifest.display()
    )]
    OtherFile {
        /// The column family.
        family: String,
        /// The file.
        file: PathBuf,
        /// The manifest.
        manifest: PathBuf,
    },
    /// A file was written for another column family.
    #[error(
        "{file} was written for {saved}, and lies where the files of {family} are: it is not read \
         as one of them. Put it back where it belongs, and the right one here. Rows are moved to \
         another column family by `alexandra sstable export` and `import`",
        file = file.display()
    )]
    OtherFamily {
        /// The file.
        file: PathBuf,
        /// Keyspace and column family that it was written for.
        saved: String,
        /// Those where it lies.
        family: String,
    },
    /// A column family has two manifests.
    #[error(
        "{first} (version {}) and {second} (version {}) both say which SSTables of the column \
         family count: only one of them belongs to this server. Move the files that do not out of \
         the way",
        sequences[0],
        sequences[1],
        first = first.display(),
        second = second.display()
    )]
    TwoManifests {
        /// The one in the earlier data directory.
        first: PathBuf,
        /// The other.
        second: PathBuf,
        /// The numbers of their versions: the older one has the smaller number. 0 for one that
        /// cannot be read.
        sequences: [u64; 2],
    },
    /// The manifest is that of another column family.
    #[error(
        "{manifest} is the manifest of {saved}, and lies where that of {family} belongs: put the \
         right one back. If it is lost for good, `alexandra sstable scrub --accept-loss --config \
         CONF {}` makes one of the SSTables that are there",
        arguments(family),
        manifest = manifest.display()
    )]
    OtherManifest {
        /// The manifest.
        manifest: PathBuf,
        /// The column family that it was written for.
        saved: String,
        /// The column family where it lies.
        family: String,
    },
    /// The manifest is that of another node.
    #[error(
        "{manifest} of {family} was written by another node than {own}: only one of them belongs \
         to this server. Put the right one back. If it is lost for good, `alexandra sstable scrub \
         --accept-loss --config CONF {}` makes one of the SSTables that are there. The rows of \
         another node are brought here by a snapshot of it",
        arguments(family),
        manifest = manifest.display(),
        own = own.display()
    )]
    OtherNode {
        /// The column family.
        family: String,
        /// Its manifest.
        manifest: PathBuf,
        /// A manifest of a node that has at least as many here.
        own: PathBuf,
    },
    /// A complete SSTable is unknown to the manifest.
    #[error(
        "{file} is not in {manifest} (version {sequence}). If that is an older manifest, put the \
         newest one back; if it is lost for good, `alexandra sstable scrub --accept-loss --config \
         CONF {}` makes one of the SSTables that are there. If the file was put there by hand, or \
         was brought back by a failing disk, move it away",
        arguments(family),
        file = file.display(),
        manifest = manifest.display()
    )]
    OldManifest {
        /// The column family.
        family: String,
        /// The SSTable.
        file: PathBuf,
        /// The manifest.
        manifest: PathBuf,
        /// The number of its version.
        sequence: u64,
    },
    /// Several files have one number, and any may be the right one.
    #[error(
        "{}: the manifest names one SSTable of this number. Move the others out of the way",
        files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(" and ")
    )]
    TwoFiles {
        /// The files.
        files: Vec<PathBuf>,
    },
    /// A file was written when the column family had other comparators.
    #[error(
        "{file} was written with {saved}, but the configuration says {configured} for {family}: \
         its columns stand in another order. Set the comparator back",
        file = file.display()
    )]
    OtherComparator {
        /// The file.
        file: PathBuf,
        /// The column family.
        family: String,
        /// Class name of the comparator that it was written with.
        saved: String,
        /// Class name of the configured comparator.
        configured: String,
    },
    /// A file was written when the column family had another type.
    #[error(
        "{file} was written when {family} had ColumnType {saved}, but the configuration says \
         {configured}. Set it back",
        file = file.display()
    )]
    OtherType {
        /// The file.
        file: PathBuf,
        /// The column family.
        family: String,
        /// The type that it was written with.
        saved: &'static str,
        /// The configured type.
        configured: &'static str,
    },
    /// An SSTable of the original is damaged, so that not all of its rows can be found.
    #[error(
        "{damage}. It is an SSTable of Apache Cassandra, of {family}: put the right file back. If \
         there is none: at the first start -Dcassandra.accept_data_loss=true goes on without it, \
         and keeps it in the folder `damaged`; later `alexandra sstable scrub --config CONF {}` \
         makes a new file of what can be read. A repair then brings what other replicas have",
        arguments(family)
    )]
    DamagedOriginal {
        /// The damage.
        damage: Corrupt,
        /// The column family.
        family: String,
    },
    /// Two SSTables of the original have one number.
    #[error(
        "{}: both SSTables of Apache Cassandra have one number. If both hold data that are needed, \
         rename the three files of one to the number {free}; else move them away",
        files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(" and ")
    )]
    SameNumber {
        /// The data files.
        files: Vec<PathBuf>,
        /// A number that is free.
        free: u64,
    },
    /// An SSTable of the original came into directories that were taken over before.
    #[error(
        "{file} is an SSTable of Apache Cassandra, and was put where the files of {family} are \
         after these directories were taken over. Move its files elsewhere. What sstable2json of \
         Apache Cassandra makes of them is loaded by `alexandra sstable import`",
        file = file.display()
    )]
    NotTakenOver {
        /// The column family.
        family: String,
        /// The data file.
        file: PathBuf,
    },
    /// There are SSTables but no manifest.
    #[error(
        "{folder} has SSTables of {family} but the manifest is missing: put it back, or move the \
         files out of the way. If it is lost for good, `alexandra sstable scrub --accept-loss \
         --config CONF {}` makes one of the SSTables that are there",
        arguments(family),
        folder = folder.display()
    )]
    NoManifest {
        /// The column family.
        family: String,
        /// Where the SSTables are.
        folder: PathBuf,
    },
}

/// A column family as an argument of a command.
fn arguments(family: &str) -> String {
    family.replacen('.', " ", 1)
}

impl From<FileError> for OpenError {
    fn from(error: FileError) -> Self {
        Self::Read(error.into())
    }
}

/// The files of a column family, by generation.
#[derive(Debug, Default)]
pub(in crate::storage) struct Found {
    pub(in crate::storage) tables: BTreeMap<u64, (PathBuf, u64)>,
    /// All files of a number that several have, in different directories.
    pub(in crate::storage) copies: BTreeMap<u64, Vec<(PathBuf, u64)>>,
    /// SSTables of the original.
    pub(in crate::storage) originals: OriginalFiles,
    pub(in crate::storage) unfinished: BTreeMap<u64, (PathBuf, u64)>,
    pub(in crate::storage) unfinished_manifests: Vec<PathBuf>,
    pub(in crate::storage) manifest: Option<PathBuf>,
}

impl Found {
    /// The manifest that belongs to the files; an empty one if there are none. Its folder becomes
    /// the first: it stays where it is when directories are added or change places.
    pub(in crate::storage) fn manifest(
        &self,
        fs: &dyn FileSystem,
        folders: &mut [PathBuf],
        file_name: &str,
        name: &str,
    ) -> Result<Manifest, OpenError> {
        if let Some(folder) = self.manifest.as_deref().and_then(Path::parent) {
            let at = folders.iter().position(|f| f == folder).unwrap_or(0);
            folders.swap(0, at);
        }
        let path = &files::manifest(&folders[0], file_name);
        let family = name.to_owned();
        let manifest = match Manifest::load(fs, path) {
            Ok(Some(manifest)) => manifest,
            Ok(None) => match self.tables.values().find_map(|(table, _)| table.parent()) {
                None => return Ok(Manifest::new(name)),
                Some(folder) => {
                    return Err(OpenError::NoManifest { family, folder: folder.to_owned() });
                }
            },
            Err(ReadError::Corrupt(damage)) => {
                return Err(OpenError::DamagedManifest { damage, family });
            }
            Err(error) => return Err(error.into()),
        };
        let at = path.clone();
        if !manifest.is_of(name) {
            let saved = manifest.family.unwrap_or_default();
            return Err(OpenError::OtherManifest { manifest: at, saved, family });
        }
        if let Some(file) = self.unknown_table(&manifest) {
            let (file, sequence) = (file.to_owned(), manifest.sequence);
            return Err(OpenError::OldManifest { family, file, manifest: at, sequence });
        }
        Ok(Manifest { family: Manifest::new(name).family, ..manifest })
    }

    /// The greatest number of an SSTable.
    pub(in crate::storage) fn newest(&self, manifest: &Manifest) -> u64 {
        let seen = self.tables.keys().chain(self.unfinished.keys()).chain(&manifest.obsolete);
        seen.chain(manifest.sstables.keys())
            .chain(self.originals.keys())
            .max()
            .copied()
            .unwrap_or(0)
    }

    /// An SSTable that the manifest does not know. A crash leaves none: until the manifest names
    /// a file, or after it has ceased to, the file has its temporary name or is listed as obsolete.
    fn unknown_table(&self, manifest: &Manifest) -> Option<&Path> {
        let is_known =
            |it: &u64| manifest.sstables.contains_key(it) || manifest.obsolete.contains(it);
        let own = self.tables.iter().map(|(generation, (path, _))| (generation, path));
        let all = own.chain(self.originals.iter().filter_map(|(at, it)| Some((at, it.first()?))));
        all.filter(|(generation, _)| !is_known(generation)).map(|(_, path)| &**path).next()
    }

    fn add_table(&mut self, generation: u64, file: (PathBuf, u64)) {
        match self.tables.get(&generation) {
            None => drop(self.tables.insert(generation, file)),
            Some(first) => {
                let copies = self.copies.entry(generation).or_insert_with(|| vec![first.clone()]);
                copies.push(file);
            }
        }
    }
}

impl ColumnFamily {
    /// Opens the column family, with the folders of its keyspace in each data directory.
    pub fn open(
        environment: &Arc<Environment>,
        id: FamilyId,
        schema: &Arc<ColumnFamilySchema>,
        options: FamilyOptions,
        mut folders: Vec<PathBuf>,
    ) -> Result<Self, OpenError> {
        let fs = &*environment.fs;
        let found = find(fs, &folders, &schema.name)?;
        found.unfinished_manifests.iter().for_each(|path| discard(fs, path));
        let manifest = found.manifest(fs, &mut folders, &schema.name, &schema.to_string())?;
        let path = files::manifest(&folders[0], &schema.name);
        check_node(&environment.node, &manifest, &path)?;
        let view = View {
            active: Arc::new(Memtable::new(Arc::clone(schema), environment.clock.monotonic())),
            flushing: Vec::new(),
            tables: Vec::new(),
            key_cache: None,
            row_cache: None,
            epoch: 0,
        };
        let thresholds = options.thresholds();
        let sizes = CacheSizes { keys: options.keys_cached, rows: options.rows_cached };
        let family = Self {
            id,
            schema: Latest::new(Arc::clone(schema)),
            options: Latest::new(options),
            environment: Arc::clone(environment),
            folders,
            next_generation: AtomicU64::new(found.newest(&manifest) + 1),
            manifest: Mutex::new(manifest.clone()),
            view: RwLock::new(Arc::new(view)),
            flushing: Mutex::numbered(id.0.into(), ()),
            gate: RwLock::numbered(id.0.into(), ()),
            claims: Claims::default(),
            thresholds: Mutex::new(thresholds),
            pressure: Pressure::default(),
            replaced: Mutex::default(),
            merges: Mutex::default(),
            cache_sizes: Mutex::new(sizes),
            failure: OnceLock::new(),
            refuses_writes: AtomicBool::new(false),
            is_dropped: AtomicBool::new(false),
            operations: <[Operations; 3]>::default(),
            memtable_switches: AtomicU64::new(0),
        };
        if manifest.sequence == 0 && !found.originals.is_empty() {
            family.adopt(&found.originals)?;
            family.resize_caches();
        } else {
            family.open_tables(&manifest, found)?;
        }
        Ok(family)
    }

    fn open_tables(&self, manifest: &Manifest, mut found: Found) -> Result<(), OpenError> {
        let mut tables = self.open_legacy_tables(manifest, &mut found)?;
        let name = || self.schema.to_string();
        let own = manifest.sstables.iter().filter(|(_, expected)| !expected.is_legacy);
        for (&generation, &expected) in own {
            let (file, bytes) = self.take_file(&mut found, generation, expected)?;
            if bytes != expected.bytes {
                let (family, found, expected) = (name(), bytes, expected.bytes);
                return Err(OpenError::WrongSize { family, file, found, expected });
            }
            let table = self.open_table(&file, generation).map_err(|error| match error {
                ReadError::Corrupt(damage) => OpenError::Damaged { damage, family: name() },
                other => other.into(),
            })?;
            self.check_family(&table)?;
            if table.identity() != expected {
                let (family, manifest) = (name(), self.manifest_path());
                return Err(OpenError::OtherFile { family, file, manifest });
            }
            self.check_comparators(&table)?;
            tables.push(Arc::new(table));
            log::debug!("Sampling index for {}", file.display());
        }
        // A file of another family may have been put where a replaced one was: it is not removed.
        for (path, _) in found.tables.values().chain(found.copies.values().flatten()) {
            self.open_table(path, 0).map_or(Ok(()), |table| self.check_family(&table))?;
        }
        tables.sort_by_key(|table| table.generation());
        self.publish(|view| view.tables = tables);
        self.resize_caches();
        self.clean_up(found);
        Ok(())
    }

    /// Opens the live SSTables of the original, and takes them out of those found.
    fn open_legacy_tables(
        &self,
        manifest: &Manifest,
        found: &mut Found,
    ) -> Result<Vec<Arc<SsTable>>, OpenError> {
        let live = manifest.sstables.iter().filter(|(_, expected)| expected.is_legacy);
        let files = live.clone().map(|(&generation, &expected)| {
            let file = self.take_original(&mut found.originals, generation, expected)?;
            Ok((generation, file))
        });
        let files = files.collect::<Result<Vec<_>, OpenError>>()?;
        let opened = self.open_originals(files.iter().map(|(at, path)| (*at, &**path)).collect());
        let mut tables = Vec::with_capacity(manifest.sstables.len());
        for (table, (_, expected)) in opened.into_iter().zip(live) {
            let family = self.schema.to_string();
            let table = table.map_err(|error| match error {
                ReadError::Corrupt(damage) => OpenError::DamagedOriginal { damage, family },
                other => other.into(),
            })?;
            let (family, file) = (self.schema.to_string(), table.path().to_owned());
            let (found, expected_bytes) = (table.size(), expected.bytes);
            if found != expected_bytes {
                let expected = expected_bytes;
                return Err(OpenError::WrongSize { family, file, found, expected });
            }
            if table.identity() != *expected {
                let manifest = self.manifest_path();
                return Err(OpenError::OtherFile { family, file, manifest });
            }
            tables.push(Arc::new(table));
        }
        Ok(tables)
    }

    /// Takes the file of a live SSTable, and its size, out of those found.
    fn take_file(
        &self,
        found: &mut Found,
        generation: u64,
        expected: TableIdentity,
    ) -> Result<(PathBuf, u64), OpenError> {
        let finished = found.tables.remove(&generation);
        let unfinished = found.unfinished.remove(&generation);
        if let Some(copies) = found.copies.remove(&generation) {
            return self.meant(generation, expected, copies);
        }
        if let Some(finished) = finished {
            return Ok(finished);
        }
        let Some((temporary, size)) = unfinished else {
            let file = files::sstable(&self.folders[0], &self.schema.name, generation);
            let (family, manifest) = (self.schema.to_string(), self.manifest_path());
            return Err(OpenError::Missing { family, file, manifest });
        };
        // It is live, only its last step was cut off.
        let path = temporary.with_extension("");
        self.environment.fs.rename(&temporary, &path).context("rename", &temporary)?;
        Ok((path, size))
    }

    /// The one of several files of a number that the manifest names.
    fn meant(
        &self,
        generation: u64,
        expected: TableIdentity,
        copies: Vec<(PathBuf, u64)>,
    ) -> Result<(PathBuf, u64), OpenError> {
        let is_meant = |(path, bytes): &&(PathBuf, u64)| {
            let opened = || self.open_table(path, generation);
            *bytes == expected.bytes && opened().is_ok_and(|table| table.identity() == expected)
        };
        let mut meant = copies.iter().filter(is_meant);
        let (Some(only), None) = (meant.next(), meant.next()) else {
            let files = copies.into_iter().map(|(path, _)| path).collect();
            return Err(OpenError::TwoFiles { files });
        };
        for (path, _) in copies.iter().filter(|copy| *copy != only) {
            log::warn!(
                "{} is not the file of this number that the manifest means, and is not read. It \
                 was put there by hand, or a failing disk has brought it back: move it away",
                path.display()
            );
        }
        Ok(only.clone())
    }

    /// Rows of another column family must not be read as those of this one, however alike they are.
    fn check_family(&self, table: &SsTable) -> Result<(), OpenError> {
        let (saved, family) = (table.properties().family_name(), self.schema.to_string());
        if saved == family {
            return Ok(());
        }
        Err(OpenError::OtherFamily { file: table.path().to_owned(), saved, family })
    }

    fn check_comparators(&self, table: &SsTable) -> Result<(), OpenError> {
        let properties = table.properties();
        let subcolumns = self.schema.subcolumn_comparator();
        let was_super = !properties.subcolumn_comparator.is_empty();
        if was_super != subcolumns.is_some() {
            let (file, family) = (table.path().to_owned(), self.schema.to_string());
            let types = ("Standard", "Super");
            let (saved, configured) = if was_super { (types.1, types.0) } else { types };
            return Err(OpenError::OtherType { file, family, saved, configured });
        }
        let pairs = [
            (&properties.comparator, self.schema.comparator().class_name()),
            (
                &properties.subcolumn_comparator,
                subcolumns.map_or_else(String::new, |comparator| comparator.class_name()),
            ),
        ];
        for (saved, configured) in pairs {
            if !Comparator::same_order(saved, &configured) {
                let (file, family) = (table.path().to_owned(), self.schema.to_string());
                let saved = saved.clone();
                return Err(OpenError::OtherComparator { file, family, saved, configured });
            }
        }
        Ok(())
    }

    /// Removes unfinished files, and the rest of those found: the manifest lists them as obsolete.
    fn clean_up(&self, found: Found) {
        let fs = &*self.environment.fs;
        for (path, _) in found.unfinished.into_values() {
            discard(fs, &path);
        }
        let copies = found.copies.into_values().flat_map(|copies| copies.into_iter().skip(1));
        for (path, _) in found.tables.into_values().chain(copies) {
            discard(fs, &path);
            log::info!("Deleted {}", path.display());
        }
        let parts = [OriginalPart::Data, OriginalPart::Index, OriginalPart::Filter];
        for data in found.originals.into_values().flatten() {
            let paths = parts.map(|part| files::sibling(&data, part));
            paths.iter().filter(|path| fs.exists(path)).for_each(|path| discard(fs, path));
            log::info!("Deleted {}", data.display());
        }
    }
}

/// Refuses the manifest of another node.
pub(in crate::storage) fn check_node(
    own: &NodeId,
    manifest: &Manifest,
    path: &Path,
) -> Result<(), OpenError> {
    match manifest.node.and_then(|node| own.contradicting(node)) {
        Some(other) => Err(OpenError::OtherNode {
            family: manifest.family.clone().unwrap_or_default(),
            manifest: path.to_owned(),
            own: other.to_owned(),
        }),
        None => Ok(()),
    }
}

/// Looks for the files of a column family in the folders of its keyspace.
pub(in crate::storage) fn find(
    fs: &dyn FileSystem,
    folders: &[PathBuf],
    family: &str,
) -> Result<Found, OpenError> {
    let mut found = Found::default();
    for folder in folders {
        for entry in fs.list(folder).context("list", folder)? {
            let path = folder.join(&entry.name);
            match FileName::parse(&entry.name) {
                FileName::SsTable(name, generation) if name == family => {
                    found.add_table(generation, (path, entry.size));
                }
                FileName::UnfinishedSsTable(name, generation) if name == family => {
                    found.unfinished.insert(generation, (path, entry.size));
                }
                FileName::Manifest(name) if name == family => {
                    if let Some(first) = found.manifest {
                        let load = |path| Manifest::load(fs, path).ok().flatten();
                        let sequences =
                            [&first, &path].map(|path| load(path).map_or(0, |it| it.sequence));
                        return Err(OpenError::TwoManifests { first, second: path, sequences });
                    }
                    found.manifest = Some(path);
                }
                FileName::UnfinishedManifest(name) if name == family => {
                    found.unfinished_manifests.push(path);
                }
                _ => {
                    if let Some((name, generation, OriginalPart::Data)) =
                        OriginalPart::parse(&entry.name)
                        && name == family
                    {
                        found.originals.entry(generation).or_default().push(path);
                    }
                }
            }
        }
    }
    Ok(found)
}
