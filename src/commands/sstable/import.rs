//! `alexandra sstable import`.

use super::scrub;
use super::target::{
    ConfigArguments, Configured, ToolError, check_output, describe_itself, family_of, folder_of,
    is_original, is_table, open_original, taken, writer_options,
};
use super::to_original::is_whole;
use crate::base::clock::{Clock, SystemClock};
use crate::base::fs::{FileSystem, OsFileSystem};
use crate::commands::offline::check_user;
use crate::commands::progress::Progress;
use crate::config::Settings;
use crate::config::settings::{ColumnFamilySettings, Release};
use crate::storage::caches::BlockCache;
use crate::storage::directory;
use crate::storage::error::{FileContext, FileError};
use crate::storage::files::{self, OriginalPart};
use crate::storage::json::{Imported, Importer};
use crate::storage::legacy::{TableOptions, TableWriter, export, takeover};
use crate::storage::sstable::{SsTable, WrittenFile};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    pub(super) config: ConfigArguments,

    /// The keyspace
    #[arg(short = 'K', long, value_name = "KEYSPACE")]
    pub(super) keyspace: String,

    /// The column family
    #[arg(short = 'c', long = "column-family", value_name = "FAMILY")]
    pub(super) family: String,

    /// Writes the SSTable to this file, which no server reads, instead of into the column family
    #[arg(long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,

    /// JSON of export, or of sstable2json of old; or an SSTable, also one of Apache Cassandra
    /// (`-Data.db`)
    #[arg(value_name = "JSON | SSTABLE")]
    pub(super) source: PathBuf,
}

pub(super) fn run(arguments: &Arguments) -> Result<bool, ToolError> {
    let Arguments { config, keyspace, family, output, source } = arguments;
    let settings = config.load()?;
    if let Some(output) = output.as_ref().filter(|_| is_table(source)) {
        let targets = [source.clone(), keyspace.into(), family.into()];
        return scrub::scrub_file(config, &targets, output, false);
    }
    let family = family_of(&settings, keyspace, family)?;
    if let Some(output) = output {
        // The directories of the configuration are not touched: a server may run on them.
        let fs: Arc<dyn FileSystem> = Arc::new(OsFileSystem);
        if is_original(output) {
            return to_original(&fs, &settings, &family, source, output);
        }
        let imported = to_file(&fs, &settings, &family, source, output)?;
        tell(&imported, std::slice::from_ref(output));
        return Ok(true);
    }
    check_user(&settings).map_err(|failure| failure.text)?;
    create_directories(&settings)?;
    let configured = Configured::lock(settings)?;
    if is_table(source) {
        return copy_table(&configured, &family, arguments);
    }
    let (imported, names) = to_store(&configured, &family, source)?;
    tell(&imported, &names);
    Ok(true)
}

/// Imports a sound SSTable into a column family.
fn copy_table(
    configured: &Configured,
    family: &ColumnFamilySettings,
    arguments: &Arguments,
) -> Result<bool, ToolError> {
    let (fs, source, schema) = (&configured.fs, &arguments.source, &family.schema);
    let mut offline = configured.server.family(&schema.keyspace, &schema.name)?;
    let importer = importer(fs, &configured.settings, family);
    let copied = if is_original(source) {
        open_original(fs, source, 0, &configured.settings, family)
    } else {
        let (_, own, partitioner) = describe_itself(&**fs, source)?;
        if partitioner != importer.options.partitioner || !own.sorts_as(schema) {
            let text =
                "its rows sort otherwise: `sstable export` writes it as JSON, which is imported";
            return Err(format!("{}: {text}", source.display()).into());
        }
        SsTable::open(fs, source, 0, partitioner, &Arc::new(BlockCache::new(0)))
    }
    .and_then(|table| {
        let progress = Progress::new("Importing", source, table.size());
        let row_bytes = table.size() as f64 / table.rows().max(1) as f64;
        let mut tell = |rows| progress.set((rows as f64 * row_bytes) as u64);
        importer.copy(&[table], &offline.new_path()?, &mut tell)
    });
    let done = copied.map_err(|error| {
        format!(
            "{error}. Nothing is imported: `sstable verify` lists the damage, and `sstable scrub \
             --output` saves what can be read"
        )
    })?;
    let (names, _) = offline.replace(done.file.as_slice(), &[])?;
    tell(&done, &names);
    Ok(true)
}

fn importer<'a>(
    fs: &'a Arc<dyn FileSystem>,
    settings: &Settings,
    family: &'a ColumnFamilySettings,
) -> Importer<'a> {
    let (options, now_micros) = (writer_options(settings, family), SystemClock::new().now_micros());
    Importer { fs, family: &family.schema, options, now_micros }
}

/// Rows may be imported before the first start of a server.
fn create_directories(settings: &Settings) -> Result<(), ToolError> {
    let directories = &settings.directories;
    let log = directories.commit_log.as_path();
    takeover::check_taken_over(&OsFileSystem, &directories.data, log)?;
    for path in &directories.data {
        directory::create(&OsFileSystem, path).context("create", path)?;
    }
    Ok(())
}

/// Imports into a column family; what is there stays, and the newer of two columns counts.
fn to_store(
    configured: &Configured,
    family: &ColumnFamilySettings,
    json: &Path,
) -> Result<(Imported, Vec<PathBuf>), ToolError> {
    let schema = &family.schema;
    let mut offline = configured.server.family(&schema.keyspace, &schema.name)?;
    let importer = importer(&configured.fs, &configured.settings, family);
    let done = import(&importer, json, &mut || offline.new_path())?;
    let new: Vec<WrittenFile> = done.file.iter().cloned().collect();
    let (names, _) = offline.replace(&new, &[])?;
    Ok((done, names))
}

/// Imports into a file that no server reads.
fn to_file(
    fs: &Arc<dyn FileSystem>,
    settings: &Settings,
    family: &ColumnFamilySettings,
    json: &Path,
    output: &Path,
) -> Result<Imported, ToolError> {
    check_output(&**fs, output)?;
    let importer = importer(fs, settings, family);
    let mut number = 0;
    let mut next_path = || {
        number += 1;
        let mut path = output.as_os_str().to_owned();
        path.push(format!(".{number}"));
        Ok(files::temporary(Path::new(&path)))
    };
    let done = import(&importer, json, &mut next_path)?;
    if let Some(file) = &done.file {
        publish(&**fs, &file.path, output)?;
        let folder = folder_of(output);
        fs.sync_dir(folder).context("sync", folder)?;
    }
    Ok(done)
}

/// Imports into an SSTable of the original that no server reads, by way of one of ours, which takes
/// rows in any order.
fn to_original(
    fs: &Arc<dyn FileSystem>,
    settings: &Settings,
    family: &ColumnFamilySettings,
    json: &Path,
    output: &Path,
) -> Result<bool, ToolError> {
    let (schema, partitioner) = (&family.schema, settings.partitioner);
    let name = output.file_name().unwrap_or_default().to_string_lossy();
    let generation = match OriginalPart::parse(&name) {
        Some((name, generation, _)) if name == schema.name => generation,
        _ => {
            return Err(
                format!("{name} is not of {schema}: name it {}-1-Data.db", schema.name).into()
            );
        }
    };
    files::parts(output).iter().try_for_each(|part| check_output(&**fs, part))?;
    let ours = output.with_extension("sst");
    let imported = to_file(fs, settings, family, json, &ours)?;
    let (mut names, mut left_out) = (Vec::new(), Vec::new());
    if imported.file.is_some() {
        let cache = Arc::new(BlockCache::new(0));
        let table = SsTable::open(fs, &ours, 0, partitioner, &cache)?;
        let column_index_bytes = settings.storage.column_index_bytes;
        let folder = folder_of(output).to_owned();
        let options = TableOptions { folder, generation, partitioner, column_index_bytes };
        let progress = Progress::new("Writing", output, table.size());
        let mut tell = |bytes| progress.set(bytes);
        let written = TableWriter::create(Arc::clone(fs), Arc::clone(schema), options)
            .and_then(|writer| export::write(writer, Release::V06, schema, &table, &mut tell));
        fs.remove_file(&ours).context("remove", &ours)?;
        let (written, without) = written?;
        names.extend(written.map(|_| output.to_owned()));
        left_out = without;
    }
    tell(&imported, &names);
    Ok(is_whole("IMPORTED", &schema.to_string(), &left_out))
}

/// Gives a new file its name, and never takes that from a file that has come meanwhile.
fn publish(fs: &dyn FileSystem, file: &Path, output: &Path) -> Result<(), ToolError> {
    let linked = fs.hard_link(file, output);
    fs.remove_file(file).context("remove", file)?;
    match linked {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(taken(output)),
        linked => Ok(linked.context("link", output)?),
    }
}

fn import(
    importer: &Importer<'_>,
    json: &Path,
    next_path: &mut (dyn FnMut() -> Result<PathBuf, FileError> + Send),
) -> Result<Imported, ToolError> {
    let metadata = json.metadata().context("open", json)?;
    if !metadata.is_file() {
        let text = format!("{}: the text is read twice, write it to a file first", json.display());
        return Err(text.into());
    }
    let size = metadata.len();
    // The text is read twice.
    let progress = Progress::new("Importing", json, 2 * size);
    let mut open = || File::open(json).map(|file| Box::new(file) as Box<dyn Read>);
    let mut tell = |bytes| progress.set(bytes);
    Ok(importer.import(&mut open, next_path, &mut tell)?)
}

fn tell(imported: &Imported, names: &[PathBuf]) {
    let Imported { rows, cells, file } = imported;
    say!("{rows} rows and {cells} cells imported");
    if file.is_none() {
        say!("nothing of it is stored: the rows hold nothing");
        return;
    }
    for name in names {
        say!("{}", name.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::disk::SimFileSystem;

    #[test]
    fn a_file_that_has_come_meanwhile_is_not_replaced() {
        let fs = SimFileSystem::new(1);
        let [new, output] = ["/new.tmp", "/new"].map(Path::new);
        for is_taken in [false, true] {
            fs.create(new).unwrap().write_all_at(&[u8::from(is_taken)], 0).unwrap();
            let published = publish(&fs, new, output);
            assert_eq!(published.is_err(), is_taken);
            assert_eq!((fs.read(output).unwrap(), fs.exists(new)), (vec![0], false));
        }
    }
}
