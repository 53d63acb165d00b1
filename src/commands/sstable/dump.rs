//! `alexandra sstable dump`.

use super::target::{ConfigArguments, Files, ToolError, family_of, is_original};
use crate::base::fs::{File, FileSystem};
use crate::base::utc::UtcTime;
use crate::config::Settings;
use crate::model::cell::{Cell, CellState, Expiry};
use crate::model::comparator::{Comparator, ComparatorRegistry};
use crate::model::deletion::Deletion;
use crate::model::range_deletion::decode_range;
use crate::model::schema::ColumnFamilySchema;
use crate::model::types::{CqlType, Native};
use crate::ring::{DecoratedKey, Partitioner};
use crate::storage::check::{Item, SoundRows};
use crate::storage::error::FileContext;
use crate::storage::sstable::Properties;
use crate::storage::sstable::scan::{BlockScan, Frame, Piece};
use std::fmt::Display;
use std::io::{self, BufWriter, Write};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a value that are shown.
const SHOWN_VALUE: usize = 64;

const BLOB: CqlType = CqlType::Native(Native::Blob);
const TEXT: CqlType = CqlType::Native(Native::Text);

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArguments,

    /// Prints every row: its key, token, deletion, number of cells, first and last name
    #[arg(long)]
    rows: bool,

    /// Prints every cell, below its row
    #[arg(long)]
    cells: bool,

    /// Prints every block: where it is, what it holds, how long it is
    #[arg(long)]
    blocks: bool,

    /// SSTables, or folders of them
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> Result<bool, ToolError> {
    let files = Files::open(&arguments.files)?;
    let config = &arguments.config;
    let settings = config.is_named().then(|| config.load()).transpose()?;
    let mut out = BufWriter::new(io::stdout());
    let mut is_sound = true;
    for path in &files.paths {
        is_sound &= dump(&*files.fs, path, (arguments, settings.as_ref()), &mut out)?;
    }
    out.flush()?;
    Ok(is_sound)
}

fn dump(
    fs: &dyn FileSystem,
    path: &Path,
    (arguments, settings): (&Arguments, Option<&Settings>),
    out: &mut dyn Write,
) -> Result<bool, ToolError> {
    if is_original(path) {
        let text = "is an SSTable of Apache Cassandra: `sstable verify` counts its rows, and \
                    `sstable export` writes them";
        return Err(format!("{} {text}", path.display()).into());
    }
    writeln!(out, "{}", path.display())?;
    let file = fs.open(path).context("open", path)?;
    let size = file.size().context("open", path)?;
    let frame = Frame::read(&*file).context("read", path)?;
    let properties = frame.properties(&*file).map(|(_, properties)| properties);
    let mut is_sound = frame.header_fault.is_none() && frame.footer.is_some();
    if let Some(properties) = &properties {
        print_properties(properties, size, out)?;
    } else {
        writeln!(out, "  its properties cannot be read: see alexandra sstable verify")?;
        is_sound = false;
    }
    if arguments.blocks {
        is_sound &= print_blocks(&*file, &frame, out)?;
    }
    if (arguments.rows || arguments.cells)
        && let Some(properties) = properties
    {
        let partitioner = properties.partitioner();
        let family = properties.schema(&ComparatorRegistry::default());
        let (Some(partitioner), Some(mut family)) = (partitioner, family) else {
            writeln!(out, "  its rows cannot be shown: its comparator is not known")?;
            return Ok(is_sound);
        };
        if let Some(settings) = settings {
            let declared = family_of(settings, &family.keyspace, &family.name)?;
            family.table = Arc::clone(&declared.schema.table);
        }
        let rows = SoundRows::of(&*file, path, partitioner)?;
        let mut printer = RowPrinter { family, partitioner, with_cells: arguments.cells, out };
        is_sound &= printer.print(rows)?;
    }
    Ok(is_sound)
}

fn print_properties(properties: &Properties, size: u64, out: &mut dyn Write) -> io::Result<()> {
    let mut line = |name: &str, value: &dyn Display| writeln!(out, "  {name:<28}{value}");
    line("Keyspace", &properties.keyspace)?;
    line("Column family", &properties.family)?;
    line("Partitioner", &properties.partitioner)?;
    line("Compare with", &properties.comparator)?;
    if !properties.subcolumn_comparator.is_empty() {
        line("Compare subcolumns with", &properties.subcolumn_comparator)?;
    }
    line("Rows", &properties.rows)?;
    line("Cells", &properties.cells)?;
    line("Tombstones", &properties.tombstones)?;
    if properties.tombstones > 0 {
        line("Oldest tombstone", &made_at(properties.min_local_deletion_time))?;
    }
    if properties.min_timestamp <= properties.max_timestamp {
        line("Least timestamp", &properties.min_timestamp)?;
        line("Greatest timestamp", &properties.max_timestamp)?;
    }
    line("Bytes on disk", &size)?;
    line("Bytes of all cells", &properties.raw_bytes)?;
    if properties.raw_bytes > 0 {
        let share = size as f64 / properties.raw_bytes as f64;
        line("Disk bytes per cell byte", &format!("{share:.3}"))?;
    }
    line("Bytes of the largest row", &properties.largest_row_bytes)?;
    line("Index interval", &properties.index_interval)?;
    line("Written at", &UtcTime(properties.created_at_micros / 1000))
}

fn print_blocks(file: &dyn File, frame: &Frame, out: &mut dyn Write) -> io::Result<bool> {
    writeln!(out, "  {:>14} {:>10} {:>10} {:>8}  kind", "offset", "length", "raw", "entries")?;
    let mut is_sound = true;
    for piece in BlockScan::within(file, frame) {
        match piece {
            Piece::Block { handle, kind, block } => {
                let (offset, length, raw) = (handle.offset, handle.length, block.bytes().len());
                let (entries, kind) = (block.len(), kind.name());
                writeln!(out, "  {offset:>14} {length:>10} {raw:>10} {entries:>8}  {kind}")?;
            }
            Piece::Damage { range, reason, .. } => {
                let (offset, length) = (range.start, range.end - range.start);
                is_sound = false;
                writeln!(out, "  {offset:>14} {length:>10} {:>10} {:>8}  {reason}", "", "")?;
            }
        }
    }
    Ok(is_sound)
}

/// Prints the rows of a file, and names what cannot be read.
struct RowPrinter<'a> {
    family: ColumnFamilySchema,
    partitioner: Partitioner,
    with_cells: bool,
    out: &'a mut dyn Write,
}

impl RowPrinter<'_> {
    fn print(&mut self, mut rows: SoundRows<'_>) -> io::Result<bool> {
        let mut is_sound = true;
        let mut row = PrintedRow::default();
        while let Some(item) = rows.advance() {
            match item {
                Item::Row { key, deletion, stated } => {
                    is_sound &= self.end(std::mem::take(&mut row))?;
                    self.head(&key, deletion, stated)?;
                    row.stated = stated.map_or(0, |(cells, _)| cells);
                }
                Item::Cell(cell) => {
                    row.cells += 1;
                    if self.with_cells {
                        print_cell(&self.family, &cell, self.out)?;
                    } else {
                        row.first.get_or_insert_with(|| cell.clone());
                        row.last = Some(cell);
                    }
                }
                Item::Damage(damage) => {
                    writeln!(self.out, "  DAMAGED: {damage}")?;
                    is_sound = false;
                }
            }
        }
        Ok(is_sound & self.end(row)?)
    }

    fn head(
        &mut self,
        key: &DecoratedKey,
        deletion: Deletion,
        stated: Option<(u64, Option<i64>)>,
    ) -> io::Result<()> {
        let token = self.partitioner.display_token(key.token());
        let kind = if self.family.is_super() { "super row" } else { "row" };
        let key_type = self.family.table.columns.first().map(|column| &column.of_type);
        let shown = match key_type {
            Some(it) if *it != TEXT => in_one_line(&it.render(key.key().as_bytes())),
            _ => format!("\"{}\"", key.key()),
        };
        write!(self.out, "  {kind} {shown}, token {token}")?;
        if let Some((cells, timestamp)) = stated {
            write!(self.out, ", {cells} cells")?;
            if let Some(timestamp) = timestamp {
                write!(self.out, ", greatest timestamp {timestamp}")?;
            }
        }
        if !deletion.is_none() {
            let (at, time) = (deletion.marked_for_delete_at, deletion.local_deletion_time);
            write!(self.out, ", deleted at {at} (made at {})", made_at(time))?;
        }
        writeln!(self.out)
    }

    /// Prints what is to be said after the cells of a row.
    fn end(&mut self, row: PrintedRow) -> io::Result<bool> {
        if let (Some(first), Some(last)) = (row.first, row.last) {
            let [first, last] = [&first, &last].map(|cell| place(&self.family, cell.place()));
            writeln!(self.out, "    from {first} to {last}")?;
        }
        if row.cells < row.stated {
            writeln!(self.out, "    DAMAGED: only {} cells can be read", row.cells)?;
        }
        Ok(row.cells >= row.stated)
    }
}

/// The row that is being printed.
#[derive(Default)]
struct PrintedRow {
    stated: u64,
    cells: u64,
    first: Option<Cell>,
    last: Option<Cell>,
}

/// The time at which a deletion was made, by the second since the Unix epoch that it carries.
fn made_at(local_deletion_time: i32) -> UtcTime {
    UtcTime(u64::try_from(local_deletion_time).unwrap_or(0) * 1000)
}

fn print_cell(family: &ColumnFamilySchema, cell: &Cell, out: &mut dyn Write) -> io::Result<()> {
    let place = place(family, cell.place());
    let timestamp = cell.timestamp();
    if let (None, Some(deletion)) = (cell.expiry(), cell.deletion()) {
        let time = made_at(deletion.local_deletion_time);
        let part = if cell.state() == CellState::PrefixTombstone { "elements of " } else { "" };
        return writeln!(out, "    {part}{place} @{timestamp} deleted (made at {time})");
    }
    let end = cell.expiry().map_or_else(String::new, |Expiry { ttl, at }| {
        let at = UtcTime(u64::try_from(at).unwrap_or(0).saturating_mul(1000));
        format!(", until {at} ({ttl} seconds)")
    });
    let value = cell.value();
    let start = &value[..value.len().min(SHOWN_VALUE)];
    let text = match family.table.value_type(cell.name()) {
        _ if start.len() < value.len() => format!("\"{}\"…", start.escape_ascii()),
        Some(it) if *it != BLOB => in_one_line(&it.render(value)),
        _ => format!("\"{}\"", value.escape_ascii()),
    };
    writeln!(out, "    {place} @{timestamp} = {text} ({} bytes){end}", value.len())
}

/// Names as their comparators print them.
pub(super) fn place(family: &ColumnFamilySchema, (super_name, name): (&[u8], &[u8])) -> String {
    if family.is_range_deletion((super_name, name)) {
        let Some((start, end)) = decode_range(name) else { return "a range".into() };
        let names = family.comparator();
        let from = match start {
            Bound::Unbounded => "from the first".into(),
            Bound::Included(name) => format!("from {}", shown(names, name)),
            Bound::Excluded(name) => format!("after {}", shown(names, name)),
        };
        let to = match end {
            Bound::Unbounded => "to the last".into(),
            Bound::Included(name) => format!("to {}", shown(names, name)),
            Bound::Excluded(name) => format!("before {}", shown(names, name)),
        };
        return format!("{from} {to}");
    }
    match family.subcolumn_comparator() {
        Some(columns) => {
            format!("{}:{}", shown(family.comparator(), super_name), shown(columns, name))
        }
        None => shown(family.comparator(), name),
    }
}

fn shown(comparator: &Comparator, name: &[u8]) -> String {
    in_one_line(&comparator.render(name))
}

/// A name or value in one line, whatever is in it.
fn in_one_line(rendered: &str) -> String {
    let mut shown = String::with_capacity(rendered.len());
    for character in rendered.chars() {
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}
