//! One server's storage, its disk and its clock, and what clients and operators ask of it.

use super::files::absolute;
use super::{Output, show};
use crate::kit::disk::{SimFileSystem, Survival};
use crate::storage_model::model::{Target, Write};
use crate::storage_model::rig::{BATCH, KEYSPACE, Outcome, PERIODIC, Rig, Setup, wait_until};
use alexandra::base::context::RequestContext;
use alexandra::base::frequent::Counter;
use alexandra::config::settings::CacheSize;
use alexandra::model::cell::Expiry;
use alexandra::model::comparator::Comparator;
use alexandra::model::deletion::Deletion;
use alexandra::model::key::RowKey;
use alexandra::model::mutation::MutationBuilder;
use alexandra::model::schema::{ColumnFamilyKind, ColumnFamilySchema, FamilyId, Schema};
use alexandra::model::slice::{RowSlice, Slice};
use alexandra::ring::{Partitioner, RowRange, Token, TokenRange};
use alexandra::storage::database::{Ingest, OutgoingTable, SpooledFile, Trouble, ValidationSet};
use alexandra::storage::family::{BusyRows, Sample, Sampling};
use alexandra::storage::snapshot::Snapshot;
use alexandra::storage::sstable::properties::WideRow;
use alexandra::storage::sstable::{Access, SsTable};
use alexandra::storage::system;
use alexandra::storage::{CompactionStrategy, Database, FamilyOptions, Options};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A row of a column family, as a script names it.
pub(super) type Row<'a> = (&'a String, &'a String);

/// State of a script. At first the server does not run, and the disk is empty.
#[derive(Debug)]
pub(crate) struct World {
    pub(super) rig: Rig,
    pub(super) options: Options,
    family_options: FamilyOptions,
    /// Disks that were kept, by name.
    pub(super) disks: BTreeMap<String, SimFileSystem>,
    /// Rows that are being taken in.
    pub(super) ingest: Option<Ingest>,
    /// Files for a node of 0.6, and the bytes of the data file.
    pub(super) outgoing: Option<OutgoingTable>,
    pub(super) written_out: Vec<u8>,
    /// A file that comes from a node of 0.6.
    pub(super) spooled: Option<SpooledFile>,
    /// Operations that are being counted.
    sampling: Option<Sampling>,
    /// SSTables that are held for a comparison.
    pub(super) held: Option<ValidationSet>,
    /// How often the disk had been read when that was asked last.
    pub(super) reads_seen: u64,
}

const GC_GRACE: Duration = Duration::from_hours(240);

/// Two families of standard columns, one of super columns, and one of the server's own.
fn schema(gc_grace: Duration) -> Schema {
    let standard = || ColumnFamilyKind::Standard { columns: Comparator::Utf8 };
    let (super_columns, columns) = (Comparator::Utf8, Comparator::Utf8);
    let families = [
        ("Blog", "Authors", standard()),
        ("Blog", "Editors", standard()),
        ("Blog", "Comments", ColumnFamilyKind::Super { super_columns, columns }),
        (system::KEYSPACE, system::LOCATION_INFO, standard()),
    ];
    Schema::new(families.map(|(keyspace, name, kind)| {
        let (keyspace, name) = (keyspace.to_owned(), name.to_owned());
        Arc::new(ColumnFamilySchema { gc_grace, ..ColumnFamilySchema::new(keyspace, name, kind) })
    }))
}

impl World {
    /// Nothing is flushed or compacted that the script does not ask for.
    pub(super) fn new() -> Self {
        let partitioner = Partitioner::OrderPreserving;
        let mut rig = Rig::unopened(Setup { partitioner, ..Setup::default() }, 1);
        rig.schema = Arc::new(schema(GC_GRACE));
        let options = Options {
            segment_bytes: 1 << 16,
            memtable_budget_bytes: 1 << 20,
            block_cache_bytes: 1 << 20,
            sync: PERIODIC,
            ..Options::new("/data", "/log")
        };
        let family_options = FamilyOptions {
            max_compaction_threshold: 0,
            block_bytes: 1 << 10,
            ..Default::default()
        };
        Self {
            rig,
            options,
            family_options,
            disks: BTreeMap::new(),
            ingest: None,
            outgoing: None,
            written_out: Vec::new(),
            spooled: None,
            sampling: None,
            held: None,
            reads_seen: 0,
        }
    }

    pub(super) fn storage(&self) -> Result<&Database, &'static str> {
        if self.rig.is_open() { Ok(self.rig.storage()) } else { Err("the server does not run") }
    }

    pub(super) fn family(&self, name: &str) -> Result<FamilyId, String> {
        let named = self.rig.schema.families().find(|(_, family)| family.name == name);
        named.map(|(id, _)| id).ok_or_else(|| format!("no column family is called {name}"))
    }

    pub(super) fn range(&self, text: &str) -> Result<RowRange, String> {
        match &self.ranges(text)?[..] {
            [range] => Ok(range.clone()),
            _ => Err(format!("{text} wraps")),
        }
    }

    /// Ranges that `a..f` stands for: two where it wraps.
    pub(super) fn ranges(&self, text: &str) -> Result<Vec<RowRange>, String> {
        if text == "all" {
            return Ok(vec![RowRange::all()]);
        }
        let (start, end) = text.split_once("..").ok_or_else(|| format!("{text} is no range"))?;
        let token = |key: &str| self.rig.setup.partitioner.token(key.as_bytes());
        let start_bound = |token: Token| Bound::Excluded(token);
        Ok(match (start, end) {
            (_, "") => vec![RowRange { start: start_bound(token(start)), end: Bound::Unbounded }],
            ("", _) => vec![RowRange { start: Bound::Unbounded, end: Bound::Included(token(end)) }],
            _ => TokenRange { start: token(start), end: token(end) }.row_ranges(),
        })
    }

    pub(super) fn configure(&mut self, settings: &[(String, String)]) -> Output {
        for (name, value) in settings {
            if name == "without" {
                self.rig.schema.remove(self.family(value)?);
                continue;
            }
            let (options, family) = (&mut self.options, &mut self.family_options);
            match name.as_str() {
                "data" => options.data_directories = value.split(' ').map(absolute).collect(),
                "log" => options.commit_log_directory = absolute(value),
                "archive" => options.commit_log_archive_directory = Some(absolute(value)),
                "sync" if value == "batch" => options.sync = BATCH,
                "sync" if value == "periodic" => options.sync = PERIODIC,
                "seed" => options.seed = value.parse()?,
                "segment" => options.segment_bytes = value.parse()?,
                "memory" => options.memtable_budget_bytes = value.parse()?,
                "snapshot-before-compaction" => {
                    options.snapshot_before_compaction = value.parse()?;
                }
                "operations" => family.memtable_operations = value.parse()?,
                "age" => family.memtable_age = duration(value)?,
                "strategy" if value == "leveled" => {
                    family.compaction_strategy = CompactionStrategy::Leveled;
                }
                "index-interval" => family.index_interval = value.parse()?,
                "level-bytes" => family.leveled_table_bytes = value.parse()?,
                "min" => family.min_compaction_threshold = value.parse()?,
                "max" => family.max_compaction_threshold = value.parse()?,
                "gc-grace" => self.rig.schema = Arc::new(schema(duration(value)?)),
                "rows-cached" => family.rows_cached = CacheSize::Entries(value.parse()?),
                _ => return Err(format!("unknown setting {name}={value}").into()),
            }
        }
        Ok(String::new())
    }

    pub(super) fn open(&mut self, accepts: (bool, bool), settles: bool) -> Output {
        if self.rig.is_open() {
            return Err("the server runs already".into());
        }
        let mut options = self.options.clone();
        (options.accept_commitlog_loss, options.accept_data_loss) = accepts;
        let log = options.commit_log_directory.to_string_lossy().into_owned();
        let replayed = self.names(&log).unwrap_or_default();
        self.rig.open_with(options, &self.family_options)?;
        if settles {
            wait_until("what was replayed is written to disk", || self.has_forgotten(&replayed));
        }
        Ok(String::new())
    }

    /// Whether the segments of this list are gone from the log. Notes that the server has written
    /// meanwhile are flushed, so that they keep no segment that a script looks at.
    fn has_forgotten(&self, segments: &[String]) -> bool {
        if let Ok(own) = self.family(system::LOCATION_INFO) {
            drop(self.rig.storage().flush(own));
        }
        let log = self.options.commit_log_directory.to_string_lossy();
        let names = self.names(&log).unwrap_or_default();
        let is_segment = |name: &str| Path::new(name).extension().is_some_and(|it| it == "alog");
        let is_left = |name: &String| is_segment(name) && names.contains(name);
        !segments.iter().any(is_left)
    }

    pub(super) fn close(&mut self) -> Output {
        self.storage()?;
        self.let_go();
        self.rig.close();
        Ok(String::new())
    }

    /// Drops what keeps the directories locked.
    fn let_go(&mut self) {
        (self.ingest, self.outgoing, self.spooled, self.held) = (None, None, None, None);
    }

    pub(super) fn kill(&mut self) -> Output {
        self.storage()?;
        self.rig.kill();
        self.let_go();
        Ok(String::new())
    }

    pub(super) fn crash(&mut self, survival: &str) -> Output {
        let survival = match survival {
            "nothing" => Survival::Nothing,
            "part" => Survival::Partly,
            "everything" => Survival::Everything,
            other => return Err(format!("unknown survival {other}").into()),
        };
        self.rig.disk.power_off();
        self.let_go();
        self.rig.crash(survival, &mut fastrand::Rng::with_seed(1));
        Ok(String::new())
    }

    pub(super) fn advance(&self, time: &str) -> Output {
        self.rig.clock.advance(duration(time)?);
        Ok(String::new())
    }

    pub(super) fn drain(&self) -> Output {
        self.storage()?.stop_writes();
        Ok(String::new())
    }

    pub(super) fn sync(&self) -> Output {
        self.storage()?.sync()?;
        Ok(String::new())
    }

    pub(super) fn troubles(&self) -> Output {
        let troubles = self.storage()?.troubles();
        let line = |it: &Trouble| format!("{:?}: {}", it.kind, it.text);
        Ok(show::lines(troubles.iter().map(line), "none"))
    }

    pub(super) fn await_troubles(&self, count: usize) -> Output {
        let storage = self.storage()?;
        wait_until("troubles", || storage.troubles().len() == count);
        self.troubles()
    }

    pub(super) fn write(
        &self,
        row: Row<'_>,
        at: Option<i64>,
        columns: &[(String, String)],
    ) -> Output {
        let writes = columns.iter().map(|(name, value)| Write {
            target: target(row.0, name),
            value: Some(value.clone().into_bytes()),
            timestamp: at.unwrap_or(1),
            deleted_at: 0,
            number: 0,
        });
        self.apply(row, writes.collect())
    }

    pub(super) fn fill(&self, (family, prefix): Row<'_>, rows: usize, bytes: usize) -> Output {
        let mut rng = fastrand::Rng::with_seed(1);
        for number in 0..rows {
            let target = target(family, "value");
            let value = Some(chance(bytes, &mut rng));
            let key = format!("{prefix}{number:02}");
            let write = Write { target, value, timestamp: 1, deleted_at: 0, number: 0 };
            self.apply((family, &key), vec![write])?;
        }
        Ok(String::new())
    }

    pub(super) fn delete(&self, row: Row<'_>, column: Option<&str>, at: i64) -> Output {
        let target = column.map_or(Target::Row, |column| target(row.0, column));
        let deleted_at = self.rig.now();
        self.apply(row, vec![Write { target, value: None, timestamp: at, deleted_at, number: 0 }])
    }

    pub(super) fn write_until(
        &self,
        row: Row<'_>,
        (column, value): (&str, &str),
        at: i64,
        seconds: u32,
    ) -> Output {
        let expiry = Expiry { ttl: seconds, at: i64::from(self.rig.now()) + i64::from(seconds) };
        self.mutate(row, |mutation| {
            let place = place(column);
            mutation.insert_expiring(place, value.as_bytes(), at, expiry);
        })
    }

    pub(super) fn delete_prefix(&self, row: Row<'_>, column: &str, at: i64) -> Output {
        let deletion = Deletion::at(at, self.rig.now());
        self.mutate(row, |mutation| {
            mutation.delete_prefix(place(column), deletion);
        })
    }

    pub(super) fn delete_range(
        &self,
        row: Row<'_>,
        from: Option<&str>,
        (to, before): (Option<&str>, Option<&str>),
        at: i64,
    ) -> Output {
        let start = from.map_or(Bound::Unbounded, |it| Bound::Included(it.as_bytes()));
        let end = match (to, before) {
            (Some(to), _) => Bound::Included(to.as_bytes()),
            (None, Some(before)) => Bound::Excluded(before.as_bytes()),
            (None, None) => Bound::Unbounded,
        };
        let deletion = Deletion::at(at, self.rig.now());
        self.mutate(row, |mutation| {
            mutation.delete_range((start, end), deletion);
        })
    }

    fn mutate(
        &self,
        (family, key): Row<'_>,
        change: impl FnOnce(&mut MutationBuilder<'_>),
    ) -> Output {
        self.storage()?;
        let mut builder = MutationBuilder::new(&self.rig.schema, KEYSPACE, key.as_bytes());
        builder.family(self.family(family)?);
        change(&mut builder);
        Self::done(self.rig.apply(&builder.finish()))
    }

    fn apply(&self, (family, key): Row<'_>, writes: Vec<Write>) -> Output {
        self.storage()?;
        Self::done(self.rig.write(key.as_bytes(), &[(self.family(family)?.0, writes)]))
    }

    fn done(outcome: Outcome) -> Output {
        match outcome {
            Outcome::Done => Ok(String::new()),
            Outcome::Refused(error) => Err(error.into()),
            Outcome::Unknown(error) => Err(format!("not acknowledged: {error}").into()),
        }
    }

    pub(super) fn read(&self, (family, key): Row<'_>, columns: &[String]) -> Output {
        self.storage()?;
        let family = self.family(family)?;
        let schema = self.rig.schema.family(family);
        let slice = match columns {
            [] => Slice::all(None),
            names => Slice::names(schema, None, names.iter().map(String::as_bytes)),
        };
        let row = self.rig.read(family.0, key.as_bytes(), &slice)?;
        Ok(show::row(key.as_bytes(), &row.cells) + "\n")
    }

    pub(super) fn scan(&self, family: &str, range: Option<&str>) -> Output {
        let (range, all) = (self.range(range.unwrap_or("all"))?, Slice::all(None));
        let family = self.family(family)?;
        let rows = self.storage()?.family(family).scan(
            &range,
            &all,
            usize::MAX,
            &RequestContext::default(),
            Access::Cached,
        )?;
        let line = |(key, row): &(RowKey, RowSlice)| show::row(key.as_bytes(), &row.cells);
        Ok(show::lines(rows.iter().map(line), "no rows"))
    }

    pub(super) fn version(&self, (family, key): Row<'_>) -> Output {
        let (all, context) = (Slice::all(None), RequestContext::default());
        let (family, row) = (self.family(family)?, RowKey::from(key.as_str()));
        let found =
            self.storage()?.family(family).read_version(&row, &all, &context, Access::Cached)?;
        Ok(show::version(key.as_bytes(), &found) + "\n")
    }

    pub(super) fn add_family(&self, keyspace: &str, name: &str) -> Output {
        let kind = ColumnFamilyKind::Standard { columns: Comparator::Utf8 };
        let family = ColumnFamilySchema::new(keyspace.to_owned(), name.to_owned(), kind);
        self.storage()?.add_family(family, self.family_options.clone())?;
        Ok(String::new())
    }

    pub(super) fn drop_family(&self, name: &str) -> Output {
        self.storage()?.drop_family(self.family(name)?)?;
        Ok(String::new())
    }

    pub(super) fn families(&self, keyspace: &str) -> String {
        let families = self.rig.schema.families_of(keyspace);
        show::lines(families.iter().map(|family| family.name.clone()), "none")
    }

    pub(super) fn flush(&self, family: &str) -> Output {
        self.storage()?.flush(self.family(family)?)?;
        Ok(String::new())
    }

    pub(super) fn compact(&self, family: &str) -> Output {
        self.storage()?.compact(self.family(family)?)?;
        Ok(String::new())
    }

    pub(super) fn tables(&self, family: &str) -> Output {
        let view = self.storage()?.family(self.family(family)?).view();
        let mut tables: Vec<_> = view.tables.iter().collect();
        tables.sort_by_key(|table| table.generation());
        let line = |table: &Arc<SsTable>| {
            let (path, level, facts) = (table.path().display(), table.level(), table.properties());
            let level = if level > 0 { format!(", level {level}") } else { String::new() };
            let (rows, columns, deletions) = (facts.rows, facts.cells, facts.tombstones);
            format!("{path}: rows {rows}, columns {columns}, deletions {deletions}{level}")
        };
        Ok(show::lines(tables.into_iter().map(line), "no SSTables"))
    }

    pub(super) fn await_tables(
        &self,
        family: &str,
        count: usize,
        advancing: Option<&str>,
    ) -> Output {
        let store = self.storage()?.family(self.family(family)?);
        self.wait("SSTables", advancing, || {
            // Files of replaced SSTables go only after the compaction has let go of them.
            store.view().tables.len() == count && store.remove_replaced() == 0
        })?;
        self.tables(family)
    }

    pub(super) fn thresholds(&self, family: &str, min: usize, max: usize) -> Output {
        self.storage()?.set_compaction_thresholds(self.family(family)?, min, max)?;
        Ok(String::new())
    }

    pub(super) fn await_compactions(
        &self,
        (done, failed): (u64, u64),
        advancing: Option<&str>,
    ) -> Output {
        let storage = self.storage()?;
        self.wait("compactions", advancing, || {
            let totals = storage.compaction_totals();
            totals.completed >= done && totals.failed >= failed
        })?;
        Ok(String::new())
    }

    /// Waits for threads in the background. Where these wait for a time, which they may only now
    /// look up, the clock moves with each look.
    fn wait(
        &self,
        what: &str,
        advancing: Option<&str>,
        is_so: impl Fn() -> bool,
    ) -> Result<(), String> {
        let step = advancing.map(duration).transpose()?.unwrap_or_default();
        wait_until(what, || {
            let is_so = is_so();
            if !is_so {
                self.rig.clock.advance(step);
            }
            is_so
        });
        Ok(())
    }

    pub(super) fn cached_rows(&self, family: &str) -> Output {
        let stats = self.storage()?.family(self.family(family)?).cache_stats();
        Ok(format!("{}\n", stats.rows.map_or(0, |rows| rows.size)))
    }

    pub(super) fn widest(&self, family: &str) -> Output {
        let rows = self.storage()?.family(self.family(family)?).widest_rows();
        let line = |(row, sstables): (WideRow, usize)| {
            let WideRow { key, bytes, cells } = row;
            format!("{key}: {bytes} bytes, {cells} columns, in {sstables} SSTables")
        };
        Ok(show::lines(rows.into_iter().map(line), "none"))
    }

    pub(super) fn sample(&mut self, families: &[String], reads: usize, writes: usize) -> Output {
        let families = families.iter().map(|name| self.family(name)).collect::<Result<_, _>>()?;
        let rows = |capacity: usize| (capacity > 0).then(|| BusyRows::new(capacity));
        let sample = Sample { families, reads: rows(reads), writes: rows(writes) };
        let begun = self.storage()?.sampler().begin(sample);
        self.sampling = Some(begun.ok_or("another sample is being taken")?);
        Ok(String::new())
    }

    pub(super) fn sampled(&mut self) -> Output {
        let sampling = self.sampling.take().ok_or("no sample is being taken")?;
        let sample = sampling.end().ok_or("it has ended")?;
        let mut text = String::new();
        for (name, rows) in [("reads", sample.reads), ("writes", sample.writes)] {
            let Some(rows) = rows else { continue };
            writeln!(text, "{name}: {}", rows.total())?;
            for ((id, key), counter) in rows.top() {
                let family = &self.rig.schema.family(*id).name;
                let Counter { count, error } = counter;
                writeln!(text, "  {family} {key}: {count}, {error} less at most")?;
            }
        }
        Ok(text)
    }

    pub(super) fn snapshot(&self, tag: Option<&str>) -> Output {
        Ok(names_of(&self.storage()?.snapshot(None, tag)?))
    }

    pub(super) fn snapshots(&self, sizes: bool) -> Output {
        let found = self.storage()?.snapshots()?;
        if !sizes {
            return Ok(names_of(&found));
        }
        let line = |it: &Snapshot| {
            let (all, own) = (it.total_bytes, it.exclusive_bytes);
            format!("{} {}: {all} bytes, {own} of its own", it.keyspace, it.name)
        };
        Ok(show::lines(found.iter().map(line), "none"))
    }

    pub(super) fn clear_snapshots(&self, tag: Option<&str>) -> Output {
        Ok(names_of(&self.storage()?.clear_snapshots(None, tag)?))
    }
}

fn names_of(snapshots: &[Snapshot]) -> String {
    let line = |it: &Snapshot| format!("{} {}", it.keyspace, it.name);
    show::lines(snapshots.iter().map(line), "none")
}

/// The super column or column that a script writes `super/`, `super/name` or `name`.
fn target(family: &str, text: &str) -> Target {
    match text.split_once('/').filter(|_| family == "Comments") {
        Some((super_name, "")) => Target::SuperColumn(super_name.into()),
        Some((super_name, name)) => Target::Column(super_name.into(), name.into()),
        None => Target::Column(Vec::new(), text.into()),
    }
}

/// The names of a column.
fn place(text: &str) -> (&[u8], &[u8]) {
    let (super_name, name) = text.split_once('/').unwrap_or(("", text));
    (super_name.as_bytes(), name.as_bytes())
}

/// Bytes that cannot be compressed.
pub(super) fn chance(bytes: usize, rng: &mut fastrand::Rng) -> Vec<u8> {
    std::iter::repeat_with(|| rng.u8(..)).take(bytes).collect()
}

/// A time as operators write it: `10s`, `5m`, `2h`, `30d`.
fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.len().saturating_sub(1));
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(format!("{text} has no unit")),
    };
    let number: u64 = number.parse().map_err(|error| format!("{text}: {error}"))?;
    Ok(Duration::from_secs(number * seconds))
}
