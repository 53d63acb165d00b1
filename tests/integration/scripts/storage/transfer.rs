//! Commands about rows that go to other nodes, come from them, or are theirs now.

use super::world::{Row, World, chance};
use super::{Output, show};
use alexandra::base::context::RequestContext;
use alexandra::model::cell::Cell;
use alexandra::model::deletion::Deletion;
use alexandra::model::key::RowKey;
use alexandra::model::position::RowPosition;
use alexandra::model::version::RowVersion;
use alexandra::model::visibility::COMPARED;
use alexandra::ring::{DecoratedKey, RowRange, Token, TokenRange};
use alexandra::storage::compaction::{CompactionError, GcSpan, RowSink};
use std::cell;
use std::num::NonZero;
use std::sync::atomic::AtomicBool;

#[derive(Debug, goldenscript::Command)]
pub(super) enum Command {
    /// Begins to take rows in.
    Ingest(String),
    /// Takes columns of a row in, with the deletions of its row and of a super column. Their values
    /// are `new`, or so many bytes of chance.
    Push {
        key: String,
        #[arg(key)]
        bytes: Option<usize>,
        #[arg(key)]
        at: Option<i64>,
        #[arg(key = "row-deleted")]
        row_deleted: Option<i64>,
        #[arg(key = "super-deleted")]
        super_deleted: Option<i64>,
        #[arg(optional)]
        columns: Vec<String>,
    },
    /// Makes what was taken in visible.
    Finish,
    /// Gives up taking rows in.
    Abandon,
    /// Drops the rows outside of these ranges, as long as these are looked at so often.
    Cleanup {
        family: String,
        #[arg(optional)]
        ranges: Vec<String>,
        #[arg(key)]
        current: Option<u32>,
    },
    /// Drops everything of a family.
    Discard(String),
    /// Reads a range, or single rows, in pieces of about so many bytes.
    Pieces {
        family: String,
        #[arg(key)]
        bytes: usize,
        #[arg(key)]
        range: Option<String>,
        #[arg(optional)]
        keys: Vec<String>,
    },
    /// One piece behind a row, or behind a column of it.
    Piece {
        family: String,
        range: String,
        #[arg(key)]
        after: String,
        #[arg(key)]
        column: Option<String>,
    },
    /// The rows of ranges as a major compaction would leave them that drops deletions up to a
    /// second.
    Validate {
        family: String,
        #[arg(key = "gc-before")]
        gc_before: i32,
        #[arg(optional)]
        ranges: Vec<String>,
    },
    /// Writes rows of ranges to the files of an SSTable of 0.6, which stay until they are `sent`.
    #[command(name = "write-out")]
    WriteOut { family: String, ranges: Vec<String> },
    /// The files that were written out go.
    Sent,
    /// Takes in the data file that was written out last; `cut` bytes of its end are missing, or it
    /// comes `twice` over.
    #[command(name = "take-in")]
    TakeIn {
        family: String,
        #[arg(key, optional)]
        cut: usize,
        #[arg(key, optional)]
        twice: bool,
    },
    /// Makes room for a file of so many bytes from a node of 0.6.
    Spool { family: String, bytes: u64 },
    /// Takes hold of the SSTables of a family, as for a comparison.
    Hold(String),
    /// The rows of ranges in those that are held, or in some of them: `keys of="1 2" a..b`.
    Keys {
        #[arg(key)]
        of: Option<String>,
        ranges: Vec<String>,
    },
    /// The rows of a range behind a key as they are now, at most so many.
    Visit {
        family: String,
        range: String,
        #[arg(key)]
        after: Option<String>,
        #[arg(key)]
        most: usize,
    },
    /// About how many rows of all families are in a range, which parts of about so many keys it
    /// can be divided into, and the row in its middle.
    Samples {
        start: String,
        end: String,
        #[arg(key = "keys-per-part")]
        keys_per_part: NonZero<i32>,
    },
}

/// Keeps the rows that it is given.
#[derive(Debug, Default)]
struct Kept {
    open: RowVersion,
    rows: String,
    count: usize,
    most: Option<usize>,
    span: GcSpan,
}

impl RowSink for Kept {
    type Error = CompactionError;

    fn begin(&mut self, deletion: Deletion) -> Result<(), CompactionError> {
        self.open = RowVersion { deletion, cells: Vec::new() };
        Ok(())
    }

    fn push(&mut self, cell: &Cell) -> Result<(), CompactionError> {
        self.open.cells.push(cell.clone());
        Ok(())
    }

    fn end(&mut self, key: &DecoratedKey, span: GcSpan) -> Result<bool, CompactionError> {
        self.span.join(span);
        self.count += 1;
        self.rows += &show::version(key.key().as_bytes(), &std::mem::take(&mut self.open));
        self.rows.push('\n');
        Ok(self.most.is_none_or(|most| self.count < most))
    }
}

impl World {
    pub(super) fn run_transfer(&mut self, command: &Command) -> Output {
        match command {
            Command::Ingest(family) => {
                self.ingest = Some(self.storage()?.ingest(self.family(family)?)?);
                Ok(String::new())
            }
            Command::Push { key, bytes, at, row_deleted, super_deleted, columns } => {
                let deletion = |at: &i64| Deletion::at(*at, self.rig.now());
                let deleted = row_deleted.as_ref().map_or(Deletion::NONE, deletion);
                let marker = super_deleted.as_ref().map(deletion);
                let value = match bytes {
                    Some(bytes) => chance(*bytes, &mut fastrand::Rng::with_seed(1)),
                    None => b"new".to_vec(),
                };
                let cells = cells(columns, (&value, at.unwrap_or(1)), marker);
                let version = RowVersion { deletion: deleted, cells };
                let ingest = self.ingest.as_mut().ok_or("nothing is being taken in")?;
                ingest.push(&RowKey::from(key.as_str()), &version)?;
                Ok(String::new())
            }
            Command::Finish => {
                self.ingest.take().ok_or("nothing is being taken in")?.finish()?;
                Ok(String::new())
            }
            Command::Abandon => {
                drop(self.ingest.take());
                Ok(String::new())
            }
            Command::Cleanup { family, ranges, current } => self.cleanup(family, ranges, *current),
            Command::Discard(family) => {
                self.storage()?.discard_all(self.family(family)?)?;
                Ok(String::new())
            }
            Command::Pieces { family, bytes, range, keys } => {
                let range = self.range(range.as_deref().unwrap_or("all"))?;
                self.pieces(family, *bytes, &range, keys)
            }
            Command::Piece { family, range, after, column } => {
                let cell = column.as_ref().map(|name| (Vec::new(), name.clone().into_bytes()));
                let after = RowPosition { key: RowKey::from(after.as_str()), cell };
                let (family, range) = (self.family(family)?, self.range(range)?);
                let piece =
                    self.storage()?.family(family).read_piece(&range, Some(&after), 1000)?;
                Ok(rows_of(&piece.rows, "nothing"))
            }
            Command::Validate { family, gc_before, ranges } => {
                self.validate(family, *gc_before, ranges)
            }
            Command::Visit { family, range, after, most } => {
                self.visit((family, range), after.as_deref(), *most)
            }
            Command::WriteOut { family, ranges } => self.write_out(family, ranges),
            Command::Sent => {
                self.outgoing = None;
                Ok(String::new())
            }
            Command::TakeIn { family, cut, twice } => {
                let whole = &self.written_out[..self.written_out.len() - cut];
                let bytes = if *twice { whole.repeat(2) } else { whole.to_vec() };
                let (storage, family) = (self.storage()?, self.family(family)?);
                let mut spooled = storage.spool(family, bytes.len() as u64)?;
                spooled.append(&bytes)?;
                let taken = storage.take_in(family, &spooled, &AtomicBool::new(false))?;
                Ok(format!("rows {}\n", taken.rows))
            }
            Command::Spool { family, bytes } => {
                let spooled = self.storage()?.spool(self.family(family)?, *bytes)?;
                self.spooled = Some(spooled);
                Ok(String::new())
            }
            Command::Hold(family) => {
                let set = self.storage()?.validation_set(self.family(family)?)?;
                let generations: Vec<u64> = set.now.identities().into_keys().collect();
                let text = format!("SSTables {generations:?}, rows {}\n", set.rows());
                self.held = Some(set);
                Ok(text)
            }
            Command::Keys { of, ranges } => self.keys(of.as_deref(), ranges),
            Command::Samples { start, end, keys_per_part } => {
                self.samples((start, end), *keys_per_part)
            }
        }
    }

    fn all_ranges(&self, texts: &[String]) -> Result<Vec<RowRange>, String> {
        let ranges: Result<Vec<_>, _> = texts.iter().map(|text| self.ranges(text)).collect();
        Ok(ranges?.concat())
    }

    fn cleanup(&self, family: &str, ranges: &[String], current: Option<u32>) -> Output {
        let (keep, looks) = (self.all_ranges(ranges)?, cell::Cell::new(0));
        let are_current = || {
            looks.set(looks.get() + 1);
            current.is_none_or(|current| looks.get() <= current)
        };
        let family = self.family(family)?;
        let done = self.storage()?.cleanup(family, &keep, &are_current)?;
        let cut = if done.is_cut_short { ", cut short" } else { "" };
        let (rewritten, dropped, alone) = (done.rewritten, done.dropped, done.left_alone);
        Ok(format!("rewritten {rewritten}, dropped {dropped}, left alone {alone}{cut}\n"))
    }

    fn pieces(&self, family: &str, bytes: usize, range: &RowRange, keys: &[String]) -> Output {
        let (storage, id) = (self.storage()?, self.family(family)?);
        let decorate = |key: &String| storage.partitioner().decorate(RowKey::from(key.as_str()));
        let keys: Vec<DecoratedKey> = keys.iter().map(decorate).collect();
        let (mut left, mut after, mut output) = (&keys[..], None, String::new());
        loop {
            let piece = if keys.is_empty() {
                storage.family(id).read_piece(range, after.as_ref(), bytes)?
            } else {
                storage.family(id).read_rows_piece(left, after.as_ref(), bytes)?
            };
            output += "piece\n";
            output += &rows_of(&piece.rows, "nothing");
            let Some(next) = piece.next else { return Ok(output) };
            if let Some(at) = left.iter().position(|key| key.key() == &next.key) {
                left = &left[at + usize::from(next.cell.is_none())..];
            }
            // A piece of single rows goes on in a row, not behind one.
            after = (keys.is_empty() || next.cell.is_some()).then_some(next);
        }
    }

    fn write_out(&mut self, family: &str, ranges: &[String]) -> Output {
        let (family, ranges) = (self.family(family)?, self.all_ranges(ranges)?);
        let table = self.storage()?.write_out(family, &ranges, &AtomicBool::new(false))?;
        let Some(table) = table else { return Ok("no rows\n".to_owned()) };
        let (path, length) = &table.table().files[2];
        self.written_out = vec![0; *length as usize];
        table.open(path)?.read_exact_at(&mut self.written_out, 0)?;
        let rows = table.table().rows;
        self.outgoing = Some(table);
        Ok(format!("rows {rows}\n"))
    }

    fn validate(&self, family: &str, gc_before: i32, ranges: &[String]) -> Output {
        let (storage, ranges) = (self.storage()?, self.all_ranges(ranges)?);
        let (mut kept, set) = (Kept::default(), storage.validation_set(self.family(family)?)?);
        storage.validate(&set, &ranges, gc_before, COMPARED, &mut kept)?;
        let Kept { rows, span, .. } = kept;
        let (dropped, earliest) = (span.latest_dropped, span.earliest_kept);
        let dropped = if dropped == i32::MIN { "none".into() } else { format!("{dropped}") };
        let earliest = if earliest == i32::MAX { "none".into() } else { format!("{earliest}") };
        Ok(format!("{rows}latest deletion dropped: {dropped}, earliest kept: {earliest}\n"))
    }

    fn visit(&self, (family, range): Row<'_>, after: Option<&str>, most: usize) -> Output {
        let mut kept = Kept { most: Some(most), ..Kept::default() };
        let (after, range) = (after.map(RowKey::from), self.range(range)?);
        let (storage, family) = (self.storage()?, self.family(family)?);
        let is_done = storage.visit_rows(family, &range, after.as_ref(), 0, &mut kept)?;
        Ok(kept.rows + if is_done { "the end\n" } else { "there may be more\n" })
    }

    fn keys(&self, of: Option<&str>, ranges: &[String]) -> Output {
        let set = self.held.as_ref().ok_or("nothing is held")?;
        let is_meant = |generation: u64| {
            of.is_none_or(|of| of.split(' ').any(|it| it == generation.to_string()))
        };
        let (mut keys, ranges) = (Vec::new(), self.all_ranges(ranges)?);
        let visit = |key: &DecoratedKey| keys.push(show::text(key.key().as_bytes()));
        self.storage()?.visit_keys(set, is_meant, &ranges, visit)?;
        Ok(format!("{}; rows {}\n", keys.join(" "), set.rows_of(is_meant)))
    }

    fn samples(&self, (start, end): Row<'_>, keys_per_part: NonZero<i32>) -> Output {
        let token = |key: &str| self.rig.setup.partitioner.token(key.as_bytes());
        let range = TokenRange { start: token(start), end: token(end) };
        let samples = self.storage()?.row_samples(range, &RequestContext::default())?;
        let (rows, ends) = (samples.rows(), samples.clone().splits(keys_per_part).len());
        let middle = match samples.middle() {
            Some(Token::Ordered(token)) => show::text(token.as_bytes()),
            _ => "none".to_owned(),
        };
        Ok(format!("rows {rows}, parts {}, middle {middle}\n", ends - 1))
    }
}

/// Columns written `name=value` or `super/name=value`, behind the deletion of their super column.
fn cells(
    columns: &[String],
    (value, timestamp): (&[u8], i64),
    marker: Option<Deletion>,
) -> Vec<Cell> {
    let mut cells = Vec::new();
    for column in columns {
        let (super_name, name) = column.split_once('/').unwrap_or(("", column));
        if let Some(deletion) = marker.filter(|_| cells.is_empty()) {
            cells.push(Cell::super_tombstone(super_name.as_bytes(), deletion));
        }
        cells.push(Cell::live(super_name.as_bytes(), name.as_bytes(), value, timestamp));
    }
    cells
}

fn rows_of(rows: &[(RowKey, RowVersion)], if_none: &str) -> String {
    let line = |(key, version): &(RowKey, RowVersion)| show::version(key.as_bytes(), version);
    show::lines(rows.iter().map(line), if_none)
}
