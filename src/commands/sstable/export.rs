//! `alexandra sstable export`.

use super::target::{ConfigArguments, Files, ToolError, families};
use super::to_original;
use crate::base::hex::{hex, unhex};
use crate::commands::progress::Progress;
use crate::model::key::RowKey;
use crate::model::schema::ColumnFamilySchema;
use crate::ring::Partitioner;
use crate::storage::json::{Exported, Selection, Shape, export};
use crate::storage::rows::MergedRows;
use crate::storage::sstable::SsTable;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes that are gathered before they are written.
const WRITE_BUFFER: usize = 1 << 20;

#[derive(Debug, Default, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    pub(super) config: ConfigArguments,

    /// Only this row, and others that are named so
    #[arg(short = 'k', long = "key", value_name = "KEY")]
    pub(super) keys: Vec<OsString>,

    /// Without this row, and others that are named so
    #[arg(short = 'x', long = "exclude", value_name = "KEY")]
    pub(super) excluded: Vec<OsString>,

    /// Keys are given, and printed by -e, as hexadecimal digits
    #[arg(long)]
    pub(super) hex_keys: bool,

    /// Prints row keys alone, one in a line
    #[arg(short = 'e', long = "keys-only")]
    pub(super) keys_only: bool,

    /// Exactly what sstable2json of old writes, without deletions of rows; says how many
    #[arg(long)]
    pub(super) original_shape: bool,

    /// Writes to this file instead of standard output
    #[arg(long, short = 'o', value_name = "FILE")]
    pub(super) output: Option<PathBuf>,

    /// Writes a data directory for this release of Apache Cassandra: 0.4, 0.5 or 0.6
    #[arg(long, value_name = "RELEASE", requires = "to")]
    pub(super) format: Option<String>,

    /// The directory, which is empty, or that of an export to go on with
    #[arg(long, value_name = "DIR", requires = "format")]
    pub(super) to: Option<PathBuf>,

    /// With --format: exports this snapshot, also while the server runs
    #[arg(long, value_name = "NAME", requires = "format")]
    pub(super) snapshot: Option<String>,

    /// SSTables of one column family or a folder of them; or a keyspace and a column family of the
    /// configuration, whose live SSTables are merged. With --format a keyspace, with or without
    /// column families; everything without
    #[arg(value_name = "FILE | KEYSPACE FAMILY", required_unless_present = "format")]
    pub(super) targets: Vec<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> Result<bool, ToolError> {
    let Arguments { config, targets, .. } = arguments;
    if let (Some(release), Some(to)) = (&arguments.format, &arguments.to) {
        return to_original::run(arguments, release, to);
    }
    if config.takes_files(targets) {
        let files = Files::open(targets)?;
        let (mut tables, mut first) = (Vec::new(), None);
        for path in &files.paths {
            let (table, family, partitioner) = config.open_table(&files.fs, path)?;
            let (of, _) = &*first.get_or_insert((Arc::clone(&family), partitioner));
            if (&family.keyspace, &family.name) != (&of.keyspace, &of.name) {
                return Err(format!("{} is not of {of}: export it alone", path.display()).into());
            }
            tables.push(table);
        }
        let (family, partitioner) = first.ok_or("name an SSTable")?;
        return run_on(&tables, (&family, partitioner), arguments);
    }
    let [_, _] = &targets[..] else {
        return Err("name SSTables, or a keyspace and a column family of the configuration".into());
    };
    let configured = config.open()?;
    let families = families(&configured.settings, targets)?;
    let family = families.first().expect("one name gives one column family");
    let tables = configured.open_tables(family)?;
    configured.tell_of_commit_log();
    run_on(&tables, (&family.schema, configured.settings.partitioner), arguments)
}

fn run_on(
    tables: &[SsTable],
    (family, partitioner): (&ColumnFamilySchema, Partitioner),
    arguments: &Arguments,
) -> Result<bool, ToolError> {
    let output: Box<dyn Write> = match &arguments.output {
        Some(path) => Box::new(File::create(path)?),
        None => Box::new(io::stdout()),
    };
    let mut output = BufWriter::with_capacity(WRITE_BUFFER, output);
    let selection = Selection {
        keys: keys(&arguments.keys, arguments.hex_keys)?,
        excluded: keys(&arguments.excluded, arguments.hex_keys)?,
    };
    if arguments.keys_only {
        print_keys(tables, &selection, arguments.hex_keys, &mut output)?;
        output.flush()?;
        return Ok(true);
    }
    let shape = if arguments.original_shape { Shape::Original } else { Shape::Full };
    let rows: u64 = tables.iter().map(|table| table.properties().rows).sum();
    let bytes: u64 = tables.iter().map(SsTable::size).sum();
    let name = tables.first().map(|table| table.path().to_owned()).unwrap_or_default();
    let progress = Progress::new("Exporting", &name, bytes);
    let mut tell = |exported: &Exported| {
        // As far as the rows are, so far are about the bytes.
        progress
            .set((u128::from(exported.rows) * u128::from(bytes) / u128::from(rows.max(1))) as u64);
    };
    let what = (family, partitioner);
    let exported = export(tables, what, (&selection, shape), &mut output, &mut tell)?;
    drop(progress);
    for (key, error) in &exported.damaged {
        complain!("WARNING: Corrupt row {key} (written as far as it can be read): {error}");
    }
    if exported.left_out > 0 {
        complain!(
            "WARNING: the shape of sstable2json has no place for {} deletions of rows and of super \
             columns: alexandra sstable export writes them",
            exported.left_out
        );
    }
    Ok(exported.damaged.is_empty())
}

fn keys(named: &[OsString], are_hex: bool) -> Result<BTreeSet<RowKey>, ToolError> {
    let key = |named: &OsString| {
        if !are_hex {
            return Ok(RowKey::new(named.as_bytes()));
        }
        let bytes = named.to_str().and_then(unhex).map(|bytes| RowKey::new(&bytes));
        bytes.ok_or_else(|| format!("{} is not hexadecimal", named.display()).into())
    };
    named.iter().map(key).collect()
}

fn print_keys(
    tables: &[SsTable],
    selection: &Selection,
    as_hex: bool,
    output: &mut dyn Write,
) -> Result<(), ToolError> {
    let mut rows = MergedRows::of_whole(tables)?;
    while let Some((key, _)) = rows.advance()? {
        let bytes = key.key().as_bytes();
        let is_wanted = selection.keys.is_empty() || selection.keys.contains(key.key());
        if is_wanted && !selection.excluded.contains(key.key()) {
            let shown = if as_hex { hex(bytes).into_bytes() } else { bytes.to_vec() };
            output.write_all(&[&shown[..], b"\n"].concat())?;
        }
    }
    Ok(())
}
