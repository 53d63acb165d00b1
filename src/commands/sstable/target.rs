//! Targets of a command: files that it is given, or column families of a configuration.

use super::verify::OTHER_FILE;
use crate::base::fs::{DirEntry, FileSystem, Lock, OsFileSystem};
use crate::commands::offline::load_with_schema;
use crate::config::settings::{ColumnFamilySettings, SYSTEM_KEYSPACE};
use crate::config::{Properties, Settings};
use crate::model::comparator::ComparatorRegistry;
use crate::model::schema::ColumnFamilySchema;
use crate::node;
use crate::ring::Partitioner;
use crate::storage::caches::BlockCache;
use crate::storage::check::Expected;
use crate::storage::commitlog::holds_segments;
use crate::storage::error::{FileContext, ReadError};
use crate::storage::files::{FileName, LOCK_FILE, OriginalPart};
use crate::storage::offline::{
    DAMAGED_FOLDER, OfflineServer, OfflineTable, TableState, lock_around,
};
use crate::storage::snapshot::{self, SnapshotName};
use crate::storage::sstable::scan::Frame;
use crate::storage::sstable::{Properties as FileProperties, SsTable, WriterOptions};
use crate::storage::system::log_guard::LogGuard;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The variable that names the configuration where no option does.
const STORAGE_CONFIG: &str = "STORAGE_CONFIG";

/// Arguments that name the configuration.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct ConfigArguments {
    /// A storage-conf.xml, or the directory that holds it; else the environment variable
    /// STORAGE_CONFIG names it, else the built-in one counts
    #[arg(long, value_name = "FILE_OR_DIR")]
    pub(super) config: Option<PathBuf>,

    /// A system property as of old: -Dstorage-config=DIR
    #[arg(short = 'D', value_name = "NAME=VALUE")]
    pub(super) properties: Vec<String>,
}

/// Why a command could not do its work. An [`std::io::Error`] is of the output.
pub(in crate::commands) type ToolError = Box<dyn Error>;

impl ConfigArguments {
    /// Whether targets are files and folders. Otherwise they name a keyspace of the configuration
    /// and column families of it: if the first one could be the name of a keyspace, and is no file
    /// or an option names the configuration.
    pub(super) fn takes_files(&self, targets: &[PathBuf]) -> bool {
        let is_option = self.is_named();
        let is_in_names = |letter: char| letter.is_alphanumeric() || letter == '_';
        targets.first().is_some_and(|target| {
            let could_be_name = target.to_string_lossy().chars().all(is_in_names);
            !could_be_name || !is_option && target.exists()
        })
    }

    /// Whether an option names the configuration.
    pub(super) fn is_named(&self) -> bool {
        self.config.is_some() || Properties::parse(&self.properties).config_directory().is_some()
    }

    /// Reads the configuration.
    pub(super) fn load(&self) -> Result<Settings, ToolError> {
        let properties = Properties::parse(&self.properties);
        let path = self.config.clone().or_else(|| properties.config_directory());
        let variable = std::env::var_os(STORAGE_CONFIG).filter(|value| !value.is_empty());
        let path = path.or_else(|| variable.map(PathBuf::from));
        Ok(load_with_schema(path.as_deref()).map_err(|failure| failure.text)?)
    }

    /// The column family of an SSTable of the original, by the folder and the name of its data
    /// file, and the partitioner: the file does not tell.
    pub(super) fn of_original(
        &self,
        data: &Path,
    ) -> Result<(ColumnFamilySettings, Settings), ToolError> {
        let settings = self.load()?;
        let folder = folder_of(data).canonicalize().context("open", data)?;
        let is_inner = |level: &&Path| level.ends_with(DAMAGED_FOLDER);
        let keyspace = match folder.parent() {
            Some(snapshots) if snapshots.ends_with("snapshots") => snapshots.parent(),
            above if is_inner(&&*folder) => above,
            _ => Some(&*folder),
        };
        let keyspace = keyspace.and_then(Path::file_name).unwrap_or_default().to_string_lossy();
        let name = data.file_name().unwrap_or_default().to_string_lossy();
        let family = OriginalPart::parse(&name).map_or("", |(family, _, _)| family);
        let family = family_of(&settings, &keyspace, family).map_err(|error| {
            format!(
                "{}: {error}. The configuration, named by --config, must have the column family \
                 of an SSTable of Apache Cassandra; its keyspace is the name of the folder",
                data.display()
            )
        })?;
        Ok((family, settings))
    }

    /// Opens an SSTable that was named, and tells its column family and partitioner.
    pub(super) fn open_table(
        &self,
        fs: &Arc<dyn FileSystem>,
        path: &Path,
    ) -> Result<(SsTable, Arc<ColumnFamilySchema>, Partitioner), ToolError> {
        if is_original(path) {
            let (family, settings) = self.of_original(path)?;
            let table = open_original(fs, path, 0, &settings, &family)?;
            return Ok((table, family.schema, settings.partitioner));
        }
        let (_, family, partitioner) = describe_itself(&**fs, path)?;
        let cache = Arc::new(BlockCache::new(0));
        Ok((SsTable::open(fs, path, 0, partitioner, &cache)?, family, partitioner))
    }

    /// Reads the configuration and locks its directories.
    pub(super) fn open(&self) -> Result<Configured, ToolError> {
        Configured::lock(self.load()?)
    }
}

/// The directories of a configuration, in which no server runs while this lives; or a snapshot in
/// them.
#[derive(Debug)]
pub(super) struct Configured {
    pub(super) settings: Settings,
    pub(super) fs: Arc<dyn FileSystem>,
    pub(super) server: OfflineServer,
}

impl Configured {
    pub(super) fn lock(settings: Settings) -> Result<Self, ToolError> {
        let fs: Arc<dyn FileSystem> = Arc::new(OsFileSystem);
        let directories = &settings.directories;
        let server = OfflineServer::lock(&fs, &directories.data, &directories.commit_log)?;
        Ok(Self { settings, fs, server })
    }

    /// The directories as a snapshot has them, by its name or tag. A server may run on them.
    pub(super) fn of_snapshot(settings: Settings, name: &str) -> Result<Self, ToolError> {
        let fs: Arc<dyn FileSystem> = Arc::new(OsFileSystem);
        let data = &settings.directories.data;
        let found = snapshot::find(&*fs, data, None, Some(name))?;
        let names: BTreeSet<SnapshotName> = found.into_iter().map(|it| it.name).collect();
        let mut names = names.into_iter();
        let found = names.next().ok_or_else(|| {
            format!("there is no snapshot {name}: `alexandra snapshot list` shows all")
        })?;
        if let Some(other) = names.next() {
            return Err(format!("both {found} and {other} are snapshots {name}: name one").into());
        }
        let server = OfflineServer::of_snapshot(&fs, data, found);
        Ok(Self { settings, fs, server })
    }

    /// Opens the live SSTables of a column family. Fails if one is not as the manifest says.
    pub(super) fn open_tables(
        &self,
        family: &ColumnFamilySettings,
    ) -> Result<Vec<SsTable>, ToolError> {
        let ColumnFamilySettings { schema, .. } = family;
        let tables = self.server.family(&schema.keyspace, &schema.name)?.tables();
        tables.into_iter().map(|table| self.open_table(family, &table)).collect()
    }

    /// Opens a live SSTable.
    pub(super) fn open_table(
        &self,
        family: &ColumnFamilySettings,
        table: &OfflineTable,
    ) -> Result<SsTable, ToolError> {
        let OfflineTable { generation, path, state, identity } = table;
        let file = path.display();
        match state {
            TableState::Present | TableState::WrongSize { .. } => {}
            TableState::Other => return Err(format!("{file}: {OTHER_FILE}").into()),
            TableState::Missing => return Err(format!("{file} is missing").into()),
        }
        let (fs, partitioner) = (&self.fs, self.settings.partitioner);
        if !identity.is_legacy {
            let cache = Arc::new(BlockCache::new(0));
            return Ok(SsTable::open(fs, path, *generation, partitioner, &cache)?);
        }
        let table = open_original(fs, path, *generation, &self.settings, family)?;
        if table.identity() != *identity {
            return Err(format!("{file}: {OTHER_FILE}").into());
        }
        Ok(table)
    }

    /// Expectations of SSTables of this column family.
    pub(super) fn expected(&self, family: &Arc<ColumnFamilySchema>) -> Expected {
        let (family, partitioner) = (Some(Arc::clone(family)), Some(self.settings.partitioner));
        Expected { family, partitioner }
    }

    /// Fails if there are writes that no tool sees.
    pub(super) fn check_commit_log(&self) -> Result<(), ToolError> {
        let directory = &self.settings.directories.commit_log;
        let data = &self.settings.directories.data;
        if let Some(lost) = LogGuard::find_loss(&*self.fs, data, directory)? {
            return Err(lost.to_string().into());
        }
        if holds_segments(&*self.fs, directory) {
            let text = format!(
                "the commit log in {} holds writes that are in no SSTable yet. Start the server \
                 and stop it in order to have them written",
                directory.display()
            );
            return Err(text.into());
        }
        Ok(())
    }

    /// Says if there are writes that no tool sees.
    pub(super) fn tell_of_commit_log(&self) {
        if let Err(error) = self.check_commit_log() {
            complain!("note: {error}");
        }
    }
}

/// Opens an SSTable of the original, of this column family.
pub(in crate::commands) fn open_original(
    fs: &Arc<dyn FileSystem>,
    path: &Path,
    generation: u64,
    settings: &Settings,
    family: &ColumnFamilySettings,
) -> Result<SsTable, ReadError> {
    let interval = node::family_options(settings, family).index_interval;
    let (partitioner, cache) = (settings.partitioner, Arc::new(BlockCache::new(0)));
    SsTable::open_legacy(fs, path, generation, partitioner, &cache, (&family.schema, interval))
}

/// Column families by name: those of a keyspace that are named after it, else all of it; all of all
/// keyspaces, `system` included, without names.
pub(super) fn families(
    settings: &Settings,
    names: &[PathBuf],
) -> Result<Vec<ColumnFamilySettings>, ToolError> {
    let names: Vec<String> = names.iter().map(|name| name.display().to_string()).collect();
    match &names[..] {
        [] => Ok(all_families(settings).collect()),
        [keyspace] => {
            let of_keyspace = |it: &ColumnFamilySettings| it.schema.keyspace == *keyspace;
            let found: Vec<_> = all_families(settings).filter(of_keyspace).collect();
            if found.is_empty() {
                check_keyspace(settings, keyspace)?;
            }
            Ok(found)
        }
        [keyspace, names @ ..] => {
            names.iter().map(|name| family_of(settings, keyspace, name)).collect()
        }
    }
}

/// All column families, those of the keyspace `system` first.
pub(in crate::commands) fn all_families(
    settings: &Settings,
) -> impl Iterator<Item = ColumnFamilySettings> {
    let own = settings.keyspaces.iter().flat_map(|keyspace| &keyspace.column_families);
    settings.system_column_families().into_iter().chain(own.cloned())
}

fn check_keyspace(settings: &Settings, keyspace: &str) -> Result<(), ToolError> {
    if keyspace == SYSTEM_KEYSPACE || settings.keyspace(keyspace).is_some() {
        return Ok(());
    }
    Err(format!("Keyspace {keyspace} does not exist").into())
}

/// The settings of a column family, by the name for people or that of its files.
pub(super) fn family_of(
    settings: &Settings,
    keyspace: &str,
    name: &str,
) -> Result<ColumnFamilySettings, ToolError> {
    check_keyspace(settings, keyspace)?;
    let is_it = |family: &ColumnFamilySettings| {
        let names = [family.schema.table_name(), &family.schema.name];
        family.schema.keyspace == keyspace && names.contains(&name)
    };
    all_families(settings)
        .find(is_it)
        .ok_or_else(|| format!("there is no column family {name} in {keyspace}").into())
}

/// Options for writing SSTables of a column family.
pub(super) fn writer_options(settings: &Settings, family: &ColumnFamilySettings) -> WriterOptions {
    let options = node::family_options(settings, family);
    WriterOptions {
        block_bytes: options.block_bytes,
        index_interval: options.index_interval,
        compression: options.compression,
        partitioner: settings.partitioner,
    }
}

/// SSTables that were named one by one, or by the folder they are in, with the locks of the data
/// directories that they are in.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) fs: Arc<dyn FileSystem>,
    pub(super) paths: Vec<PathBuf>,
    _locks: Vec<Box<dyn Lock>>,
}

impl Files {
    pub(super) fn open(named: &[PathBuf]) -> Result<Self, ToolError> {
        let fs: Arc<dyn FileSystem> = Arc::new(OsFileSystem);
        let mut paths = Vec::new();
        for path in named {
            if path.is_dir() {
                paths.extend(sstables_in(&*fs, path)?);
            } else {
                paths.push(path.clone());
            }
        }
        // By the data directory above a folder: it can be locked once.
        let mut folders = BTreeMap::new();
        for path in &paths {
            let folder = folder_of(path);
            let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
            folders.entry(folder.parent().map(Path::to_owned)).or_insert(folder);
        }
        let mut locks = Vec::new();
        for folder in folders.values() {
            locks.extend(lock_around(&*fs, folder)?);
        }
        Ok(Self { fs, paths, _locks: locks })
    }
}

/// Levels that a data directory may be above a file: of its keyspace, and of a snapshot there.
const LEVELS_IN_DATA: usize = 4;

/// The folder that a file is in.
pub(super) fn folder_of(file: &Path) -> &Path {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Refuses the name of a new SSTable if it is taken, or among the files of a server: one that no
/// manifest names is not read there, and may be in the way of the server's next one.
pub(super) fn check_output(fs: &dyn FileSystem, output: &Path) -> Result<(), ToolError> {
    let folder = folder_of(output);
    let absolute = folder.canonicalize().context("open", folder)?;
    let is_of_family =
        |entry: &DirEntry| matches!(FileName::parse(&entry.name), FileName::Manifest(_));
    let mut is_of_server = fs.list(&absolute).context("list", &absolute)?.iter().any(is_of_family);
    for level in absolute.ancestors().take(LEVELS_IN_DATA) {
        let lock = level.join(LOCK_FILE);
        is_of_server |= fs.try_exists(&lock).context("look for", &lock)?;
    }
    if is_of_server {
        return Err(format!(
            "{} would lie among the files of a server, which reads only what its manifests name: \
             write it elsewhere. Rows come into a column family by `alexandra sstable import` \
             without --output, and a damaged file is replaced by `scrub` without --output",
            output.display()
        )
        .into());
    }
    if fs.try_exists(output).context("look for", output)? {
        return Err(taken(output));
    }
    Ok(())
}

/// The error for a new file whose name is taken.
pub(super) fn taken(output: &Path) -> ToolError {
    format!("{} is there already", output.display()).into()
}

/// Whether this is the data file of an SSTable of the original, by its name.
pub(super) fn is_original(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    OriginalPart::parse(&name).is_some_and(|(_, _, part)| part == OriginalPart::Data)
}

/// Whether this is an SSTable, by its name.
pub(super) fn is_table(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    is_original(path) || matches!(FileName::parse(&name), FileName::SsTable(..))
}

fn sstables_in(fs: &dyn FileSystem, folder: &Path) -> Result<Vec<PathBuf>, ToolError> {
    let entries = fs.list(folder).context("list", folder)?;
    let number = |entry: &DirEntry| match FileName::parse(&entry.name) {
        FileName::SsTable(family, generation) => Some((family, generation)),
        _ => match OriginalPart::parse(&entry.name)? {
            (family, generation, OriginalPart::Data) => Some((family.to_owned(), generation)),
            _ => None,
        },
    };
    let numbered = |entry: &DirEntry| Some((number(entry)?, entry.name.clone()));
    let mut found: Vec<_> = entries.iter().filter_map(numbered).collect();
    found.sort();
    if found.is_empty() {
        let text = format!("there are no SSTables in {}", folder.display());
        return Err(text.into());
    }
    Ok(found.into_iter().map(|(_, name)| folder.join(name)).collect())
}

/// The properties of a file, with the column family and the partitioner that it was written for.
pub(super) fn describe_itself(
    fs: &dyn FileSystem,
    path: &Path,
) -> Result<(FileProperties, Arc<ColumnFamilySchema>, Partitioner), ToolError> {
    let file = fs.open(path).context("open", path)?;
    let frame = Frame::read(&*file).context("read", path)?;
    let Some((_, properties)) = frame.properties(&*file) else {
        let reason = frame.header_fault.unwrap_or(
            "its properties cannot be read, which say how its rows sort. `scrub --config CONF FILE \
             KEYSPACE FAMILY --output NEW` saves what is in it",
        );
        let text = format!("{}: {reason}", path.display());
        return Err(text.into());
    };
    let family = properties.schema(&ComparatorRegistry::default());
    let (Some(family), Some(partitioner)) = (family, properties.partitioner()) else {
        let text = format!(
            "{} was written with a comparator or partitioner that is not known: {} {} {}",
            path.display(),
            properties.comparator,
            properties.subcolumn_comparator,
            properties.partitioner,
        );
        return Err(text.into());
    };
    Ok((properties, Arc::new(family), partitioner))
}
