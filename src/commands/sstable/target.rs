//! What a command works on: files that it is given, or column families of a configuration.

use crate::base::fs::{DirEntry, FileSystem, Lock, OsFileSystem};
use crate::config::settings::ColumnFamilySettings;
use crate::config::{ConfigErrors, Loader, Properties, Settings};
use crate::model::comparator::ComparatorRegistry;
use crate::model::schema::ColumnFamilySchema;
use crate::node;
use crate::ring::Partitioner;
use crate::storage::check::Expected;
use crate::storage::commitlog::holds_segments;
use crate::storage::error::{FileContext, FileError, ReadError};
use crate::storage::files::{FileName, LOCK_FILE};
use crate::storage::json::{ExportError, ImportError};
use crate::storage::offline::{OfflineError, OfflineServer, lock_around};
use crate::storage::sstable::scan::Frame;
use crate::storage::sstable::{Properties as FileProperties, WriterOptions};
use crate::storage::system::log_guard::LogGuard;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The variable that names the configuration where no option does.
const STORAGE_CONFIG: &str = "STORAGE_CONFIG";

/// Where the configuration is.
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

/// Why a command could not do its work.
#[derive(Debug, thiserror::Error)]
pub(super) enum ToolError {
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    #[error(transparent)]
    Offline(#[from] OfflineError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error(transparent)]
    Import(#[from] ImportError),
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
    /// The arguments make no sense together.
    #[error("{0}")]
    Usage(String),
}

impl ToolError {
    pub(super) fn is_broken_pipe(&self) -> bool {
        let (Self::Output(error) | Self::Export(ExportError::Write(error))) = self else {
            return false;
        };
        error.kind() == io::ErrorKind::BrokenPipe
    }
}

impl ConfigArguments {
    /// Whether targets are files and folders. Otherwise they name a keyspace of the configuration
    /// and column families of it: always if an option names the configuration, else if the first
    /// one is no file and could be the name of a keyspace.
    pub(super) fn takes_files(&self, targets: &[PathBuf]) -> bool {
        let is_option = self.config.is_some()
            || Properties::parse(&self.properties).config_directory().is_some();
        let is_in_names = |letter: char| letter.is_alphanumeric() || letter == '_';
        let is_file = |target: &PathBuf| {
            target.exists() || !target.to_string_lossy().chars().all(is_in_names)
        };
        !is_option && targets.first().is_some_and(is_file)
    }

    /// Reads the configuration.
    pub(super) fn load(&self) -> Result<Settings, ToolError> {
        let comparators = ComparatorRegistry::default();
        let properties = Properties::parse(&self.properties);
        let path = self.config.clone().or_else(|| properties.config_directory());
        let variable = std::env::var_os(STORAGE_CONFIG).filter(|value| !value.is_empty());
        let path = path.or_else(|| variable.map(PathBuf::from));
        Ok(Loader::for_tools(&comparators).load(path.as_deref())?.settings)
    }

    /// Reads the configuration and locks its directories.
    pub(super) fn open(&self) -> Result<Configured, ToolError> {
        let settings = self.load()?;
        let fs: Arc<dyn FileSystem> = Arc::new(OsFileSystem);
        let directories = &settings.directories;
        let server = OfflineServer::lock(&fs, &directories.data, &directories.commit_log)?;
        Ok(Configured { settings, fs, server })
    }
}

/// The directories of a configuration, in which no server runs while this lives.
#[derive(Debug)]
pub(super) struct Configured {
    pub(super) settings: Settings,
    pub(super) fs: Arc<dyn FileSystem>,
    pub(super) server: OfflineServer,
}

impl Configured {
    /// Column families by name: all of a keyspace, or of all keyspaces, `system` included.
    pub(super) fn families(
        &self,
        keyspace: Option<&str>,
        names: &[String],
    ) -> Result<Vec<ColumnFamilySettings>, ToolError> {
        let system = self.settings.system_column_families();
        let own = self.settings.keyspaces.iter().flat_map(|keyspace| &keyspace.column_families);
        let all: Vec<&ColumnFamilySettings> = system.iter().chain(own).collect();
        let Some(keyspace) = keyspace else { return Ok(all.into_iter().cloned().collect()) };
        let in_keyspace: Vec<&ColumnFamilySettings> =
            all.into_iter().filter(|family| family.schema.keyspace == keyspace).collect();
        if in_keyspace.is_empty() && self.settings.keyspace(keyspace).is_none() {
            return Err(ToolError::Usage(format!("Keyspace {keyspace} does not exist")));
        }
        if names.is_empty() {
            return Ok(in_keyspace.into_iter().cloned().collect());
        }
        let found = names.iter().map(|name| {
            let family = in_keyspace.iter().find(|family| family.schema.name == *name);
            family.map(|family| (*family).clone()).ok_or_else(|| {
                ToolError::Usage(format!("there is no column family {name} in {keyspace}"))
            })
        });
        found.collect()
    }

    /// Expectations of SSTables of this column family.
    pub(super) fn expected(&self, family: &Arc<ColumnFamilySchema>) -> Expected {
        let (family, partitioner) = (Some(Arc::clone(family)), Some(self.settings.partitioner));
        Expected { family, partitioner }
    }

    /// Says if there are writes that no tool sees.
    pub(super) fn tell_of_commit_log(&self) {
        let directory = &self.settings.directories.commit_log;
        let data = &self.settings.directories.data;
        if let Ok(Some(lost)) = LogGuard::find_loss(&*self.fs, data, directory) {
            complain!("note: {lost}");
        } else if holds_segments(&*self.fs, directory) {
            complain!(
                "note: the commit log in {} holds writes that are in no SSTable yet. Start the \
                 server and stop it in order to have them written",
                directory.display()
            );
        }
    }
}

/// How SSTables of a column family are written.
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
        let mut folders: Vec<&Path> = paths.iter().filter_map(|path| path.parent()).collect();
        folders.sort_unstable();
        folders.dedup();
        let absolute = |folder: &Path| {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            folder.canonicalize().unwrap_or_else(|_| folder.to_owned())
        };
        let mut folders: Vec<PathBuf> = folders.into_iter().map(absolute).collect();
        // The same data directory above two folders would be locked twice, and refused.
        folders.sort_unstable_by(|a, b| a.parent().cmp(&b.parent()));
        folders.dedup_by(|a, b| a.parent() == b.parent());
        let mut locks = Vec::new();
        for folder in folders {
            locks.extend(lock_around(&*fs, &folder)?);
        }
        Ok(Self { fs, paths, _locks: locks })
    }
}

/// How far above a file a data directory may be: of its keyspace, and of a snapshot there.
const LEVELS_IN_DATA: usize = 4;

/// Refuses a name for a new SSTable among the files of a server: one that no manifest names is not
/// read there, and may be in the way of the server's next one.
pub(super) fn check_output(fs: &dyn FileSystem, output: &Path) -> Result<(), ToolError> {
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let absolute = folder.canonicalize().context("open", folder)?;
    let is_of_family =
        |entry: &DirEntry| matches!(FileName::parse(&entry.name), FileName::Manifest(_));
    let mut is_of_server = fs.list(&absolute).context("list", &absolute)?.iter().any(is_of_family);
    for level in absolute.ancestors().take(LEVELS_IN_DATA) {
        let lock = level.join(LOCK_FILE);
        is_of_server |= fs.try_exists(&lock).context("look for", &lock)?;
    }
    if is_of_server {
        return Err(ToolError::Usage(format!(
            "{} would lie among the files of a server, which reads only what its manifests name: \
             write it elsewhere. Rows come into a column family by `alexandra sstable import` \
             without --output, and a damaged file is replaced by `scrub` without --output",
            output.display()
        )));
    }
    Ok(())
}

fn sstables_in(fs: &dyn FileSystem, folder: &Path) -> Result<Vec<PathBuf>, ToolError> {
    let entries = fs.list(folder).context("list", folder)?;
    let mut found: Vec<(String, u64)> = entries
        .iter()
        .filter_map(|entry| match FileName::parse(&entry.name) {
            FileName::SsTable(family, generation) => Some((family, generation)),
            _ => None,
        })
        .collect();
    found.sort();
    if found.is_empty() {
        let text = format!("there are no SSTables in {}", folder.display());
        return Err(ToolError::Usage(text));
    }
    let path =
        |(family, generation): &(String, u64)| folder.join(format!("{family}-{generation}.sst"));
    Ok(found.iter().map(path).collect())
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
        return Err(ToolError::Usage(text));
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
        return Err(ToolError::Usage(text));
    };
    Ok((properties, Arc::new(family), partitioner))
}
