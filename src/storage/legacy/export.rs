//! Writes a data directory for a server of 0.4 to 0.6: the way back from a [`super::takeover`].
//!
//! Each SSTable becomes one of the original: in both forms a file never changes, and the timestamps
//! of cells decide, not the numbers of files. A small file in the directory tells what was
//! exported. So an export may be interrupted, and a later one writes only what is new. It also
//! removes the files of SSTables that are not live any more: compactions have put their rows into
//! others.
//!
//! Until the export is complete a guard in the folder of the keyspace `system` keeps the original
//! from starting.

use super::{TableOptions, TableWriter, WriteError, WrittenTable};
use crate::base::fs::FileSystem;
use crate::config::settings::Release;
use crate::model::cell::Cell;
use crate::model::comparator::Comparator;
use crate::model::schema::ColumnFamilySchema;
use crate::model::slice::CellRange;
use crate::model::version::RowVersion;
use crate::ring::{DecoratedKey, Partitioner};
use crate::storage::checked_file::{self, CheckedState, field};
use crate::storage::error::{FileContext, FileError};
use crate::storage::files::{self, EXPORT_FILE, OriginalPart};
use crate::storage::manifest::TableIdentity;
use crate::storage::row::RowReader;
use crate::storage::rows::MergedRows;
use crate::storage::sstable::SsTable;
use crate::storage::{directory, system};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// File that keeps the original from starting: 0.6 gives up for its ending, since nothing tells it
/// who the node is; 0.4 and 0.5 cannot read its name.
const GUARD_FILE: &str = "LocationInfo-export_is_not_complete-Data.db";

/// Bytes of cells that are gathered before they are written.
const STEP_BYTES: usize = 1 << 20;

/// Keys that are remembered of the rows that were left out for one reason.
const MOST_KEYS: usize = 10;

/// Characters of such a key.
const MOST_KEY_CHARACTERS: usize = 60;

/// An SSTable that was exported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// The keyspace.
    pub keyspace: String,
    /// The column family.
    pub family: String,
    /// Number and identity of the SSTable.
    source: (u64, u64, u32),
    /// Number of the files. There are none for a table without rows.
    number: u64,
    /// Rows that were written, if it was not linked.
    pub rows: u64,
    /// Rows that the format cannot hold.
    pub left_out: Vec<LeftOut>,
}

/// Rows that a file of the original cannot have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Number of rows.
    pub rows: u64,
    /// The reason.
    pub reason: String,
    /// The first keys, as they are shown.
    pub keys: Vec<String>,
}

/// Content of the file that tells what was exported.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Progress {
    release: Release,
    partitioner: String,
    is_complete: bool,
    tables: Vec<Exported>,
}

/// A directory that gets the files.
#[derive(Debug)]
pub struct ExportFolder {
    fs: Arc<dyn FileSystem>,
    path: PathBuf,
    partitioner: Partitioner,
    column_index_bytes: u64,
    progress: Progress,
}

impl CheckedState for Progress {
    const KIND: &'static str = "export";
    const VERSION: u32 = 1;

    fn encode(&self) -> String {
        let Self { release, partitioner, is_complete, tables } = self;
        let state = if *is_complete { "complete" } else { "begun" };
        let mut lines = format!("release {release}\npartitioner {partitioner}\nstate {state}\n");
        for table in tables {
            let Exported { keyspace, family, source: (generation, bytes, crc), .. } = table;
            let (number, rows) = (table.number, table.rows);
            let source = format!("{generation} {bytes} {crc:08x}");
            let _ = writeln!(lines, "table {keyspace} {family} {source} {number} {rows}");
            for LeftOut { rows, reason, keys } in &table.left_out {
                let _ = writeln!(lines, "without {rows}\t{reason}\t{}", keys.join("\t"));
            }
        }
        lines
    }

    fn decode(_version: u32, lines: &str) -> Option<Self> {
        let release = field(lines, "release")?;
        let mut tables: Vec<Exported> = Vec::new();
        for line in lines.lines() {
            if let Some(table) = line.strip_prefix("table ") {
                tables.push(Exported::parse(table)?);
            } else if let Some(left_out) = line.strip_prefix("without ") {
                let mut parts = left_out.split('\t');
                let rows = parts.next()?.parse().ok()?;
                let reason = parts.next()?.to_owned();
                let keys = parts.map(str::to_owned).collect();
                tables.last_mut()?.left_out.push(LeftOut { rows, reason, keys });
            }
        }
        Some(Self {
            release: Release::ALL.into_iter().find(|known| known.to_string() == release)?,
            partitioner: field(lines, "partitioner")?.to_owned(),
            is_complete: field(lines, "state")? == "complete",
            tables,
        })
    }
}

impl Exported {
    fn parse(text: &str) -> Option<Self> {
        let [keyspace, family, generation, bytes, crc, number, rows] =
            text.split(' ').collect::<Vec<_>>()[..]
        else {
            return None;
        };
        let crc = u32::from_str_radix(crc, 16).ok()?;
        Some(Self {
            keyspace: keyspace.to_owned(),
            family: family.to_owned(),
            source: (generation.parse().ok()?, bytes.parse().ok()?, crc),
            number: number.parse().ok()?,
            rows: rows.parse().ok()?,
            left_out: Vec::new(),
        })
    }

    fn is_of(&self, family: &ColumnFamilySchema) -> bool {
        (&self.keyspace, &self.family) == (&family.keyspace, &family.name)
    }
}

fn source_of(generation: u64, identity: &TableIdentity) -> (u64, u64, u32) {
    (generation, identity.bytes, identity.properties_crc)
}

impl ExportFolder {
    /// Begins an export to a directory that is empty or not there, or goes on with one. The size is
    /// `ColumnIndexSizeInKB`.
    pub fn open(
        fs: &Arc<dyn FileSystem>,
        path: &Path,
        release: Release,
        partitioner: Partitioner,
        column_index_bytes: u64,
    ) -> Result<Self, WriteError> {
        directory::create(&**fs, path).context("create", path)?;
        let file = path.join(EXPORT_FILE);
        let partitioner_name = partitioner.class_name().to_owned();
        let progress = match checked_file::load::<Progress>(&**fs, &file)? {
            Some(found) if (found.release, &found.partitioner) != (release, &partitioner_name) => {
                return Err(refused(path, "holds an export of another format or partitioner"));
            }
            Some(found) => found,
            None if is_empty(&**fs, path)? => {
                let (partitioner, tables) = (partitioner_name, Vec::new());
                Progress { release, partitioner, is_complete: true, tables }
            }
            None => return Err(refused(path, "is not empty, and holds no export")),
        };
        let (fs, path) = (Arc::clone(fs), path.to_owned());
        let mut folder = Self { fs, path, partitioner, column_index_bytes, progress };
        folder.check_files()?;
        folder.save()?;
        // The guard comes first: what changes from here on no server may have seen.
        let guard = folder.guard();
        let system = guard.parent().unwrap_or(&folder.path);
        directory::create(&*folder.fs, system).context("create", system)?;
        let text = b"Repeat `alexandra sstable export` to complete what is in this directory.\n";
        checked_file::replace(&*folder.fs, &guard, text)?;
        folder.progress.is_complete = false;
        folder.save()?;
        Ok(folder)
    }

    fn guard(&self) -> PathBuf {
        files::keyspace_folder(&self.path, system::KEYSPACE).join(GUARD_FILE)
    }

    fn save(&self) -> Result<(), FileError> {
        checked_file::store_first(
            &*self.fs,
            std::slice::from_ref(&self.path),
            EXPORT_FILE,
            &self.progress,
        )
    }

    /// Refuses a directory in which a server has run since. What an interrupted export has left
    /// unfinished goes: no server can have run then.
    fn check_files(&self) -> Result<(), WriteError> {
        let (fs, path) = (&*self.fs, &self.path);
        for table in self.progress.tables.iter().filter(|table| table.number > 0) {
            let data = self.file(&table.keyspace, &table.family, table.number, OriginalPart::Data);
            if !fs.try_exists(&data).context("look for", &data)? {
                let text = format!("lacks {}: it was changed since its export", data.display());
                return Err(refused(path, &text));
            }
        }
        let guard = self.guard();
        let may_remove =
            !self.progress.is_complete || fs.try_exists(&guard).context("look for", &guard)?;
        for folder in files::keyspace_folders(fs, path).context("list", path)? {
            for entry in folder.entries.iter().filter(|entry| !entry.is_dir) {
                let file = folder.path.join(&entry.name);
                let is_known = OriginalPart::parse(&entry.name).is_some_and(|(name, number, _)| {
                    let mut tables = self.progress.tables.iter();
                    tables.any(|it| {
                        (&*it.keyspace, &*it.family, it.number) == (&folder.keyspace, name, number)
                    })
                });
                if is_known || entry.name.starts_with(GUARD_FILE) {
                    continue;
                }
                if !may_remove {
                    let text = format!("holds {}: a server has run there since", file.display());
                    return Err(refused(path, &text));
                }
                fs.remove_file(&file).context("remove", &file)?;
            }
        }
        Ok(())
    }

    fn file(&self, keyspace: &str, family: &str, number: u64, part: OriginalPart) -> PathBuf {
        let folder = files::keyspace_folder(&self.path, keyspace);
        files::original(&folder, family, number, part)
    }

    /// Everything that was exported, also by earlier runs.
    pub fn tables(&self) -> &[Exported] {
        &self.progress.tables
    }

    /// Whether an SSTable was exported.
    pub fn has(&self, family: &ColumnFamilySchema, number: u64, identity: &TableIdentity) -> bool {
        let source = source_of(number, identity);
        self.progress.tables.iter().any(|table| table.is_of(family) && table.source == source)
    }

    /// Exports an SSTable: links the files if they have the form already, else writes its rows.
    /// `tell` hears how many of its bytes are done.
    pub fn add(
        &mut self,
        family: &Arc<ColumnFamilySchema>,
        table: &SsTable,
        tell: &mut dyn FnMut(u64),
    ) -> Result<(), WriteError> {
        let mut exported = self.next(family, source_of(table.generation(), &table.identity()))?;
        if !self.link(&exported, table)? {
            let writer = self.writer(family, exported.number)?;
            let (written, left_out) = write(writer, self.progress.release, family, table, tell)?;
            exported.left_out = left_out;
            exported.note(written);
        }
        self.progress.tables.push(exported);
        Ok(self.save()?)
    }

    /// Exports rows in their order, as they are, which are in no SSTable.
    fn add_rows(
        &mut self,
        family: &Arc<ColumnFamilySchema>,
        rows: &[(DecoratedKey, RowVersion)],
    ) -> Result<(), WriteError> {
        let mut exported = self.next(family, (0, 0, 0))?;
        let mut writer = self.writer(family, exported.number)?;
        rows.iter().try_for_each(|(key, version)| writer.push(key, version))?;
        exported.note(writer.finish()?);
        self.progress.tables.push(exported);
        Ok(())
    }

    fn next(
        &self,
        family: &ColumnFamilySchema,
        source: (u64, u64, u32),
    ) -> Result<Exported, WriteError> {
        let folder = files::keyspace_folder(&self.path, &family.keyspace);
        directory::create(&*self.fs, &folder).context("create", &folder)?;
        let numbers = self.progress.tables.iter().filter(|table| table.is_of(family));
        let number = numbers.map(|table| table.number).max().unwrap_or(0) + 1;
        let (keyspace, family) = (family.keyspace.clone(), family.name.clone());
        Ok(Exported { keyspace, family, source, number, rows: 0, left_out: Vec::new() })
    }

    fn writer(
        &self,
        family: &Arc<ColumnFamilySchema>,
        generation: u64,
    ) -> Result<TableWriter, WriteError> {
        let options = TableOptions {
            folder: files::keyspace_folder(&self.path, &family.keyspace),
            generation,
            partitioner: self.partitioner,
            column_index_bytes: self.column_index_bytes,
        };
        TableWriter::create(Arc::clone(&self.fs), Arc::clone(family), options)
    }

    /// Links the files of a table of the original, if all are there and sound, and the disk can.
    /// False if its rows are to be written.
    fn link(&self, exported: &Exported, table: &SsTable) -> Result<bool, WriteError> {
        if self.progress.release != Release::V06 || !table.is_whole_original() {
            return Ok(false);
        }
        for part in OriginalPart::STORED {
            let from = files::sibling(table.path(), part);
            let Exported { keyspace, family, number, .. } = exported;
            let to = self.file(keyspace, family, *number, part);
            if self.fs.try_exists(&to).context("look for", &to)? {
                self.fs.remove_file(&to).context("remove", &to)?;
            }
            if let Err(error) = self.fs.hard_link(&from, &to) {
                log::debug!("{}: {error}. Its rows are written", from.display());
                return Ok(false);
            }
        }
        let folder = files::keyspace_folder(&self.path, &exported.keyspace);
        self.fs.sync_dir(&folder).context("sync", &folder)?;
        Ok(true)
    }

    /// Removes the files of the SSTables of a column family that live no more. All that live were
    /// exported.
    pub fn retain(
        &mut self,
        family: &ColumnFamilySchema,
        live: &[(u64, TableIdentity)],
    ) -> Result<(), WriteError> {
        let live: Vec<_> = live.iter().map(|(number, it)| source_of(*number, it)).collect();
        self.retain_if(|table| !table.is_of(family) || live.contains(&table.source))
    }

    fn retain_if(&mut self, keeps: impl Fn(&Exported) -> bool) -> Result<(), WriteError> {
        let all = std::mem::take(&mut self.progress.tables);
        let (kept, gone): (Vec<_>, Vec<_>) = all.into_iter().partition(keeps);
        self.progress.tables = kept;
        if gone.is_empty() {
            return Ok(());
        }
        self.save()?;
        for Exported { keyspace, family, number, .. } in gone.iter().filter(|it| it.number > 0) {
            for part in OriginalPart::STORED {
                let path = self.file(keyspace, family, *number, part);
                self.fs.remove_file(&path).context("remove", &path)?;
            }
        }
        Ok(())
    }

    /// Completes the export by the node's own notes, in place of those of an earlier run.
    pub fn finish(
        &mut self,
        family: &Arc<ColumnFamilySchema>,
        notes: &[(DecoratedKey, RowVersion)],
    ) -> Result<(), WriteError> {
        let before = self.progress.tables.len();
        self.add_rows(family, notes)?;
        self.save()?;
        let own = self.progress.tables[before].number;
        self.retain_if(|table| !table.is_of(family) || table.number == own)?;
        self.progress.is_complete = true;
        self.save()?;
        let guard = self.guard();
        self.fs.remove_file(&guard).context("remove", &guard)?;
        let system = guard.parent().unwrap_or(&self.path);
        Ok(self.fs.sync_dir(system).context("sync", system)?)
    }
}

impl Exported {
    /// Notes the files of the table. One without rows has none.
    fn note(&mut self, written: Option<WrittenTable>) {
        match written {
            Some(written) => self.rows = written.rows,
            None => self.number = 0,
        }
    }
}

/// Writes the rows of an SSTable for a release of the original, and tells which it cannot hold.
/// `tell` hears how many bytes of the SSTable are done.
pub fn write(
    mut writer: TableWriter,
    release: Release,
    family: &ColumnFamilySchema,
    table: &SsTable,
    tell: &mut dyn FnMut(u64),
) -> Result<(Option<WrittenTable>, Vec<LeftOut>), WriteError> {
    let (total, bytes) = (u128::from(table.rows().max(1)), u128::from(table.size()));
    let mut rows = MergedRows::of_whole([table])?;
    let (mut seen, mut left_out) = (0, Vec::new());
    while let Some((key, sources)) = rows.advance()? {
        let reader = RowReader::of_everything(family, sources);
        if let Err(error) = write_row(&mut writer, release, family, key, &reader) {
            leave_out(&mut left_out, key, error)?;
            writer.abandon_row();
        }
        seen += 1;
        // As far as the rows are, so far are about the bytes.
        tell((bytes * seen / total) as u64);
    }
    Ok((writer.finish()?, left_out))
}

fn write_row(
    writer: &mut TableWriter,
    release: Release,
    family: &ColumnFamilySchema,
    key: &DecoratedKey,
    reader: &RowReader<'_, '_>,
) -> Result<(), WriteError> {
    let mut cells = reader.cells(CellRange::ALL, false)?;
    let mut part = RowVersion { deletion: reader.deletion(), cells: Vec::new() };
    let (mut bytes, mut last): (usize, Option<Cell>) = (0, None);
    while let Some(cell) = cells.advance()? {
        if release < Release::V06 {
            if last.as_ref().is_some_and(|last| !is_in_old_order(family, last, &cell)) {
                return Err(WriteError::OtherOrder(key.key().clone()));
            }
            last = Some(cell.clone());
        }
        bytes += cell.encoded_length();
        part.cells.push(cell);
        if bytes >= STEP_BYTES {
            writer.push(key, &part)?;
            part.cells.clear();
            bytes = 0;
        }
    }
    writer.push(key, &part)?;
    writer.end_row()
}

/// Notes a row that the format cannot hold; any other error stays one.
fn leave_out(
    all: &mut Vec<LeftOut>,
    key: &DecoratedKey,
    error: WriteError,
) -> Result<(), WriteError> {
    let reason = match error {
        WriteError::KeyNotText(_) => "keys that are empty or not UTF-8",
        WriteError::KeyTooLong(_) => "keys that are too long",
        WriteError::RowTooLarge(_) => "rows of 2 GB and more",
        WriteError::OtherOrder(_) => "columns that 0.4 and 0.5 sort otherwise, or know as one",
        WriteError::LaterCells(_) => "values that expire, or deletions that only CQL has",
        other => return Err(other),
    };
    let known = all.iter().position(|it| it.reason == reason);
    let at = known.unwrap_or_else(|| {
        all.push(LeftOut { reason: reason.to_owned(), ..LeftOut::default() });
        all.len() - 1
    });
    let left_out = &mut all[at];
    left_out.rows += 1;
    if left_out.keys.len() < MOST_KEYS {
        let shown = key.key().to_string();
        left_out.keys.push(shown.chars().take(MOST_KEY_CHARACTERS).collect());
    }
    Ok(())
}

/// Whether a directory holds nothing but the beginning of an export.
fn is_empty(fs: &dyn FileSystem, path: &Path) -> Result<bool, FileError> {
    let entries = fs.list(path).context("list", path)?;
    Ok(entries.iter().all(|entry| entry.name.starts_with(EXPORT_FILE)))
}

fn refused(path: &Path, reason: &str) -> WriteError {
    let advice = "Name a directory that is empty, or that of an export to go on with";
    WriteError::Folder(format!("{} {reason}. {advice}", path.display()))
}

/// Whether 0.4 and 0.5 sort a cell after another, too: text by its UTF-16 units, and UUIDs by their
/// times alone.
fn is_in_old_order(family: &ColumnFamilySchema, last: &Cell, cell: &Cell) -> bool {
    let is_one = family.is_super() && last.super_name() == cell.super_name();
    let (comparator, last, name) = match family.subcolumn_comparator() {
        Some(columns) if is_one && !last.name().is_empty() => (columns, last.name(), cell.name()),
        Some(_) if is_one => return true,
        Some(_) => (family.comparator(), last.super_name(), cell.super_name()),
        None => (family.comparator(), last.name(), cell.name()),
    };
    let utf16 = |name| String::from_utf8_lossy(name).encode_utf16().collect::<Vec<_>>();
    match comparator {
        Comparator::Utf8 => utf16(last) < utf16(name),
        Comparator::TimeUuid => last.get(..8) != name.get(..8),
        _ => true,
    }
}
