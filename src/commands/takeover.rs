//! `alexandra takeover --dry-run`: what a start on directories of Apache Cassandra would do.
//!
//! It reads all that the start would read, and more: every row of every SSTable. It changes nothing
//! and locks nothing, so that Cassandra may run meanwhile.

use super::output;
use super::serve::start_logging;
use super::sstable::{FAILED, ToolError, all_families, exit, open_original, verify_original_file};
use crate::base::fs::{FileSystem, OsFileSystem};
use crate::config::settings::{ColumnFamilySettings, SYSTEM_KEYSPACE};
use crate::config::{Properties, Settings};
use crate::model::cell::Cell;
use crate::model::mutation::DecodeError;
use crate::model::schema::Schema;
use crate::replica::ORIGINAL_HINTS;
use crate::storage::check::{Item, OriginalRows, Report};
use crate::storage::error::{FileContext, ReadError};
use crate::storage::files::OriginalPart;
use crate::storage::legacy::commitlog::{SegmentError, SegmentReader};
use crate::storage::legacy::takeover::{self, Preview, SNAPSHOT_TAG, Stage};
use crate::storage::system::{LOCATION_INFO, ROW, Saved};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct Arguments {
    /// The storage-conf.xml of the server, or the directory that holds it
    #[arg(long, value_name = "FILE_OR_DIR")]
    config: Option<PathBuf>,

    /// A system property as of old, such as -Dcassandra.accept_data_loss=true
    #[arg(short = 'D', value_name = "NAME=VALUE")]
    properties: Vec<String>,

    /// Tells what the start would do, and changes nothing
    #[arg(long)]
    dry_run: bool,

    /// As of `alexandra serve`: goes on although a part of the commit log cannot be read
    #[arg(long)]
    accept_commitlog_loss: bool,
}

const EXIT_CODES: &str = "\
Exit codes: 0 all is sound, or nothing is to be taken over; 1 something is damaged, or the start \
would refuse; 2 it cannot be told.

The takeover itself is what `alexandra serve` does when it is started on such directories.";

pub(super) fn run(arguments: &Arguments) -> ExitCode {
    start_logging("error");
    let done = if arguments.dry_run {
        preview(arguments)
    } else {
        let text = "directories are taken over by the first start on them: `alexandra serve`, with \
                    the same configuration. --dry-run tells what that would do";
        Err(text.into())
    };
    output::finish_telling(exit(done), FAILED)
}

/// A preview under way.
struct Run {
    settings: Settings,
    accepts_data_loss: bool,
    accepts_log_loss: bool,
    fs: Arc<dyn FileSystem>,
    is_sound: bool,
    /// Reasons for which the start would refuse.
    refusals: Vec<String>,
    /// Cells of the row that says who the node is.
    identity: Vec<Cell>,
    hints: u64,
}

/// Prints the preview; true if all is sound and the start would go on.
fn preview(arguments: &Arguments) -> Result<bool, ToolError> {
    let properties = Properties::parse(&arguments.properties);
    let config = arguments.config.clone().or_else(|| properties.config_directory());
    let mut run = Run {
        settings: super::offline::load_settings(config.as_deref())?,
        accepts_data_loss: properties.accept_data_loss(),
        accepts_log_loss: arguments.accept_commitlog_loss,
        fs: Arc::new(OsFileSystem),
        is_sound: true,
        refusals: Vec::new(),
        identity: Vec::new(),
        hints: 0,
    };
    let (data, log) =
        (run.settings.directories.data.clone(), run.settings.directories.commit_log.clone());
    let preview = Preview::read(&*run.fs, &data, &log)?;
    if let Err(error) = takeover::check(&*run.fs, &data, &log) {
        run.refusals.push(error.to_string());
    }
    if tell_stage(&preview.stage) {
        run.tell_tables(&preview)?;
        let mutations = run.tell_segments(&preview);
        run.tell_identity(&preview);
        run.tell_space(&data);
        if run.refusals.is_empty() {
            tell_start(&preview, mutations);
        }
    }
    for refusal in &run.refusals {
        say!("The start would refuse: {refusal}");
    }
    Ok(run.is_sound && run.refusals.is_empty())
}

fn tell_start(preview: &Preview, mutations: u64) {
    let snapshot = match &preview.stage {
        Stage::Begun(snapshot) => snapshot.clone(),
        _ => format!("<milliseconds>-{SNAPSHOT_TAG}"),
    };
    say!(
        "The start would keep {} files by a second name in snapshot {snapshot}, which takes no \
         room at first; replay {mutations} mutations; and serve",
        preview.kept
    );
}

/// Says whose directories these are; true if there is something to take over.
fn tell_stage(stage: &Stage) -> bool {
    match stage {
        Stage::Original => {
            say!("The directories are those of Apache Cassandra, and are not taken over yet");
        }
        Stage::Begun(snapshot) => {
            say!("A takeover was begun, with snapshot {snapshot}: the next start goes on with it");
        }
        Stage::Complete(snapshot) => say!(
            "The directories are taken over already. The files of Apache Cassandra are in \
                 snapshot {snapshot}, unless it was cleared. `alexandra sstable verify` checks \
                 what is live"
        ),
        Stage::Ours => {
            say!("The directories are those of Alexandra: nothing is to be taken over");
        }
        Stage::Empty => say!("The directories hold no data: nothing is to be taken over"),
    }
    matches!(stage, Stage::Original | Stage::Begun(_))
}

impl Run {
    fn tell_tables(&mut self, preview: &Preview) -> Result<(), ToolError> {
        let families: BTreeMap<_, _> = all_families(&self.settings)
            .map(|it| ((it.schema.keyspace.clone(), it.schema.name.clone()), it))
            .collect();
        for (name, files) in &preview.tables {
            match families.get(name) {
                Some(family) => self.tell_family(family, files)?,
                None => say!(
                    "{}.{}: {} SSTables stay where they are, and nobody reads them: the \
                     configuration does not have this column family",
                    name.0,
                    name.1,
                    files.len()
                ),
            }
        }
        for path in &preview.leftovers {
            say!("{}: half done or replaced, the start removes it", path.display());
        }
        for path in &preview.others {
            say!("{}: no file of an SSTable, it stays where it is", path.display());
        }
        Ok(())
    }

    fn tell_family(
        &mut self,
        family: &ColumnFamilySettings,
        files: &[PathBuf],
    ) -> Result<(), ToolError> {
        let schema = &family.schema;
        let (mut bytes, mut tombstones, mut found) = (0, 0, (0, 0));
        let (mut reports, mut gone) = (Vec::new(), 0);
        let mut generations = BTreeSet::new();
        for path in files {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let generation = OriginalPart::parse(&name).map_or(0, |(_, generation, _)| generation);
            if !generations.insert(generation) {
                let text = format!("two SSTables of {schema} have the number {generation}");
                self.refusals.push(format!("{text}: rename the files of one"));
            }
            let checked = verify_original_file(&*self.fs, path, schema, self.settings.partitioner);
            let report = match checked {
                Ok(report) => report,
                Err(_) if !path.exists() => {
                    gone += 1;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let (rows, cells) = report.found.unwrap_or_default();
            found = (found.0 + rows, found.1 + cells);
            (bytes, tombstones) = (bytes + report.size, tombstones + report.tombstones);
            self.note_rows(family, path, &report)?;
            if !report.is_sound() {
                self.check_start(family, path);
                reports.push(report);
            }
        }
        let (rows, cells) = found;
        say!(
            "{schema}: {} SSTables, {rows} rows, {cells} cells, {tombstones} tombstones, {bytes} \
             bytes",
            files.len() - gone
        );
        if gone > 0 {
            say!("  {gone} are gone meanwhile: Cassandra runs and has compacted them");
        }
        for report in reports {
            self.is_sound = false;
            say!("  {}: DAMAGED", report.file.display());
            report.damages.iter().for_each(|damage| say!("    {damage}"));
            if report.more_damages > 0 {
                say!("    and {} more", report.more_damages);
            }
        }
        Ok(())
    }

    /// Whether a start could open a damaged SSTable.
    fn check_start(&mut self, family: &ColumnFamilySettings, path: &Path) {
        let opened = open_original(&self.fs, path, 1, &self.settings, family);
        let Err(error) = opened else { return };
        if self.accepts_data_loss {
            say!("{}: the start would move it to the folder damaged, and lose it", path.display());
        } else {
            self.refusals.push(format!(
                "{error}. -Dcassandra.accept_data_loss=true starts without this SSTable"
            ));
        }
    }

    /// Notes what an SSTable of the keyspace `system` says of the node.
    fn note_rows(
        &mut self,
        family: &ColumnFamilySettings,
        path: &Path,
        report: &Report,
    ) -> Result<(), ToolError> {
        if family.schema.keyspace != SYSTEM_KEYSPACE {
            return Ok(());
        }
        if family.schema.name == ORIGINAL_HINTS {
            self.hints += report.found.map_or(0, |(_, cells)| cells - report.tombstones);
        }
        if family.schema.name == LOCATION_INFO {
            let partitioner = self.settings.partitioner;
            let mut rows = OriginalRows::open(&*self.fs, path, &family.schema, partitioner)?;
            let mut is_own = false;
            while let Some(item) = rows.advance() {
                match item {
                    Item::Row { key, .. } => is_own = key.key().as_bytes() == ROW.as_bytes(),
                    Item::Cell(cell) if is_own => self.identity.push(cell),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Prints what the commit log holds, and returns the number of mutations.
    fn tell_segments(&mut self, preview: &Preview) -> u64 {
        let schema = Schema::new(all_families(&self.settings).map(|it| it.schema));
        let mut total = 0;
        for path in &preview.segments {
            let (mut mutations, mut faults) = (0_u64, BTreeMap::<String, u64>::new());
            match SegmentReader::open(&*self.fs, path) {
                Err(error) => *faults.entry(error.to_string()).or_default() += 1,
                Ok(mut reader) => loop {
                    match reader.next_mutation(&schema) {
                        Ok(None) => break,
                        Ok(Some(mutation)) => {
                            mutations += 1;
                            let own = schema.family_id(SYSTEM_KEYSPACE, LOCATION_INFO);
                            let is_own = mutation.key.as_bytes() == ROW.as_bytes();
                            let families = mutation.families.into_iter();
                            for change in families.filter(|it| is_own && Some(it.family) == own) {
                                self.identity.extend(change.cells);
                            }
                        }
                        Err(error) => {
                            *faults.entry(fault(&error)).or_default() += 1;
                            if matches!(error, SegmentError::Read(ReadError::Io(_))) {
                                break;
                            }
                        }
                    }
                },
            }
            say!("{}: {mutations} mutations to replay", path.display());
            for (fault, times) in faults {
                self.is_sound = false;
                say!("  DAMAGED: {fault} ({times} times)");
                if !self.accepts_log_loss {
                    let text = "--accept-commitlog-loss starts without these mutations";
                    self.refusals.push(format!("{fault}. {text}"));
                }
            }
            total += mutations;
        }
        total
    }

    fn tell_identity(&mut self, preview: &Preview) {
        self.identity.sort_by_key(Cell::timestamp);
        let saved = Saved::of(std::mem::take(&mut self.identity));
        let (partitioner, cluster) = (self.settings.partitioner, &self.settings.cluster_name);
        let token = saved.token.as_ref().map(|bytes| partitioner.token_from_bytes(bytes));
        match (token, saved.generation()) {
            (Some(Ok(token)), Some(generation)) => say!(
                "Node: cluster \"{}\", {}, token {}, generation {generation}",
                saved.cluster_name().as_ref().unwrap_or(cluster),
                partitioner.class_name(),
                partitioner.display_token(&token)
            ),
            (None, None) if preview.tables.keys().all(|(name, _)| name != SYSTEM_KEYSPACE) => {
                say!("Node: nothing says who it is: it would begin as a new one");
            }
            _ => self.refusals.push(
                "Couldn't read system generation or token. Did you change the partitioner?"
                    .to_owned(),
            ),
        }
        if let Err(error) = saved.check(cluster, partitioner) {
            self.refusals.push(error.to_string());
        }
        if self.hints > 0 {
            say!("Hints: {} for other nodes, which the start takes over", self.hints);
        }
    }

    fn tell_space(&self, data: &[PathBuf]) {
        for directory in data {
            match self.fs.available_space(directory).context("look at", directory) {
                Ok(bytes) => say!("{}: {bytes} bytes free", directory.display()),
                Err(error) => say!("{error}"),
            }
        }
    }
}

/// Text about a mutation that cannot be read, the same for all of a column family.
fn fault(error: &SegmentError) -> String {
    match error {
        SegmentError::Write { source: source @ DecodeError::UnknownFamily { .. }, .. } => {
            source.to_string()
        }
        SegmentError::Read(ReadError::Corrupt(damage)) => damage.to_string(),
        error => error.to_string(),
    }
}
