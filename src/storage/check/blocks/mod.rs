//! Our own SSTables as a source of rows and faults.
//!
//! [`verify`] checks everything in a file that can be checked, and continues after damage. It reads
//! all blocks in their order, from the header to the footer, and leaves out no byte between them.
//! It checks the checksum and the contents of each block, then compares the parts of the file that
//! tell of the same thing: the rows of data blocks with the row index and its extents, the summary
//! with the row index blocks, the filter with the keys, the properties with the counts. Memory
//! depends neither on the number of rows nor on their size, except for filter and summary, which
//! every open file has in memory.

mod damages;
mod rows;
mod sound_rows;

pub use sound_rows::SoundRows;

use super::{Expected, Report};
use crate::base::fs::{File, FileSystem};
use crate::base::hex::hex;
use crate::model::comparator::{Comparator, ComparatorRegistry};
use crate::storage::error::{FileContext, FileError};
use crate::storage::sstable::Properties;
use crate::storage::sstable::block::{self, Block, BlockHandle, BlockKind};
use crate::storage::sstable::entry::decode_summary;
use crate::storage::sstable::filter::Filter;
use crate::storage::sstable::scan::{BlockScan, Frame, Piece};
use damages::Damages;
use rows::{RowCheck, Scope};
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

const NO_FOOTER: &str = "the end is missing or damaged: it may be truncated";

/// Verifies a file. It fails only if the file cannot be opened: a disk that refuses to read a part
/// of the file shows as damage. `progress` gets the number of bytes that are done.
pub fn verify(
    fs: &dyn FileSystem,
    path: &Path,
    expected: &Expected,
    comparators: &ComparatorRegistry,
    progress: &mut dyn FnMut(u64),
) -> Result<Report, FileError> {
    let file = fs.open(path).context("open", path)?;
    let size = file.size().context("open", path)?;
    let frame = Frame::read(&*file).context("read", path)?;
    let mut run = Run::begin(&*file, &frame, expected, comparators);
    if let Some(reason) = frame.header_fault {
        run.damages.add(0..frame.blocks.start, None, reason);
    }
    let mut footer_told = frame.footer.is_some();
    for piece in BlockScan::within(&*file, &frame) {
        match piece {
            Piece::Block { handle, kind, block } => {
                progress(handle.range().end);
                run.blocks += 1;
                run.sound(handle, kind, &block);
            }
            Piece::Damage { range, kind, reason } => {
                progress(range.end);
                let is_end = frame.footer.is_none() && range.end == size && kind.is_none();
                footer_told |= is_end;
                let told = if is_end { NO_FOOTER } else { reason };
                let may_hold_data = frame.may_hold_data(range.start);
                let number = run.damages.add(range, kind, told);
                if let Some(rows) = run.rows.as_mut().filter(|_| may_hold_data) {
                    rows.note_damage(number, kind, reason, &mut run.damages);
                }
            }
        }
    }
    if !footer_told {
        run.damages.add(size..size, None, NO_FOOTER);
    }
    run.finish(&frame, size);
    progress(size);
    Ok(run.report(&frame, path, size))
}

/// A verification under way.
struct Run<'a> {
    file: &'a dyn File,
    expected: &'a Expected,
    damages: Damages,
    properties: Option<(BlockHandle, Properties)>,
    /// `None` if neither the caller nor the file says how rows and cells sort.
    rows: Option<RowCheck>,
    blocks: u64,
    /// The last blocks, as the footer should name them.
    last: [Option<BlockHandle>; 3],
    /// Whether it was written with another comparator or partitioner than is expected.
    is_foreign: bool,
}

impl<'a> Run<'a> {
    fn begin(
        file: &'a dyn File,
        frame: &Frame,
        expected: &'a Expected,
        comparators: &ComparatorRegistry,
    ) -> Self {
        let properties = frame.properties(file);
        let own = properties.as_ref().map(|(_, properties)| properties);
        let family = expected.family.clone();
        let family = family.or_else(|| own?.schema(comparators).map(Arc::new));
        let partitioner = own.and_then(Properties::partitioner).or(expected.partitioner);
        let filter = frame.footer.and_then(|[_, handle, _]| {
            let block = block::read(file, Path::new(""), handle, BlockKind::Filter).ok()?;
            Filter::decode(block.bytes()).ok()
        });
        let scope = family.zip(partitioner);
        let scope = scope.map(|(family, partitioner)| Scope { family, partitioner, filter });
        Self {
            file,
            expected,
            damages: Damages::default(),
            properties,
            rows: scope.map(RowCheck::new),
            blocks: 0,
            last: [None; 3],
            is_foreign: false,
        }
    }

    fn sound(&mut self, handle: BlockHandle, kind: BlockKind, block: &Block) {
        let slot = match kind {
            BlockKind::Data | BlockKind::ColumnIndex | BlockKind::RowIndex => {
                return self.sound_rows(handle, kind, block);
            }
            BlockKind::Summary => 0,
            BlockKind::Filter => 1,
            BlockKind::Properties => 2,
        };
        if self.last[slot].is_some() || self.last[slot + 1..].iter().any(Option::is_some) {
            self.damages.block(handle, kind, "it is there twice or in the wrong place");
        }
        self.last[slot] = Some(handle);
        match kind {
            BlockKind::Summary => self.check_summary(handle, block),
            BlockKind::Filter if Filter::decode(block.bytes()).is_err() => {
                self.damages.block(handle, kind, "the filter cannot be read");
            }
            BlockKind::Properties if self.properties.is_none() => {
                self.damages.block(handle, kind, "the properties cannot be read");
            }
            _ => {}
        }
    }

    /// Checks a block of data, or of an index of them.
    fn sound_rows(&mut self, handle: BlockHandle, kind: BlockKind, block: &Block) {
        let damages = &mut self.damages;
        if self.last.iter().any(Option::is_some) {
            damages.block(handle, kind, "it stands behind the summary");
        }
        let Some(rows) = &mut self.rows else { return };
        match kind {
            BlockKind::Data => rows.data_block(handle, block, damages),
            BlockKind::ColumnIndex => drop(rows.unclaimed.insert(handle.offset)),
            _ => rows.row_index_block(self.file, handle, block, damages),
        }
    }

    fn check_summary(&mut self, handle: BlockHandle, block: &Block) {
        let Some(rows) = &mut self.rows else { return };
        let listed = decode_summary(rows.scope.partitioner, block.bytes());
        if let Ok(listed) = &listed {
            let blocks: Vec<_> = listed.iter().map(|(head, _)| head.block.range()).collect();
            self.damages.find_index_blocks(&blocks);
        }
        rows.settle(&mut self.damages);
        let reason = match listed {
            Err(_) => "the summary cannot be read",
            Ok(listed) if !rows.agrees_with(&listed) => {
                "the summary does not list the row index blocks"
            }
            Ok(_) => return,
        };
        self.damages.block(handle, BlockKind::Summary, reason);
    }

    fn finish(&mut self, frame: &Frame, size: u64) {
        if let Some(rows) = &mut self.rows {
            rows.settle(&mut self.damages);
        }
        if let Some(footer) = frame.footer {
            let told = footer.iter().zip(&self.last);
            // A damaged part is in the list already.
            let differs = told.into_iter().any(|(footer, last)| last.is_some_and(|l| l != *footer));
            let is_missing = self.last.iter().any(Option::is_none) && self.damages.is_empty();
            if differs || is_missing {
                let reason = "the footer points to other places than where these blocks are";
                self.damages.add(frame.blocks.end..size, None, reason);
            }
        }
        self.check_kind_of_data();
        self.check_counts();
    }

    /// Checks that the file was written for the expected column family, whose rows and cells have
    /// the same order.
    fn check_kind_of_data(&mut self) {
        let Some((handle, properties)) = &self.properties else { return };
        let mut wrong = Vec::new();
        let mut compare = |what, stated: &str, expected: String, is_same: bool| {
            if !is_same {
                wrong.push(statement(what, stated, expected));
            }
        };
        if let Some(partitioner) = self.expected.partitioner {
            let class = partitioner.class_name().to_owned();
            let is_same = properties.partitioner == class;
            compare("the configured partitioner", &properties.partitioner, class, is_same);
        }
        if let Some(family) = &self.expected.family {
            let stated = properties.family_name();
            let is_same = stated == family.to_string();
            compare("the column family", &stated, family.to_string(), is_same);
            let class = family.comparator().class_name();
            let is_same = Comparator::same_order(&properties.comparator, &class);
            compare("the configured comparator", &properties.comparator, class, is_same);
            let columns = family.subcolumn_comparator();
            let class = columns.map_or_else(String::new, Comparator::class_name);
            let saved = &properties.subcolumn_comparator;
            let is_same = saved.is_empty() == class.is_empty();
            let is_same = is_same && (class.is_empty() || Comparator::same_order(saved, &class));
            compare("the configured comparator of subcolumns", saved, class, is_same);
        }
        self.is_foreign |= !wrong.is_empty();
        for reason in wrong {
            self.damages.add(handle.range(), Some(BlockKind::Properties), reason);
        }
    }

    /// Checks the counts in the properties, as far as nothing is damaged.
    fn check_counts(&mut self) {
        let (Some((handle, properties)), Some(rows)) = (&self.properties, &self.rows) else {
            return;
        };
        if !self.damages.is_empty() {
            self.damages.count_small(properties.rows.saturating_sub(rows.totals.rows));
            return;
        }
        for reason in differences(properties, &rows.totals) {
            self.damages.add(handle.range(), Some(BlockKind::Properties), reason);
        }
    }

    fn report(self, frame: &Frame, path: &Path, size: u64) -> Report {
        let counts = |properties: &Properties| (properties.rows, properties.cells);
        // Without a footer the properties are the last block.
        let is_complete = frame.footer.is_some() || self.last[2].is_some();
        let missing_end = if is_complete { None } else { self.damages.gap_at_end(size) };
        let ((damages, more_damages), (mut gaps, more_gaps)) = self.damages.finish();
        gaps.extend(missing_end);
        Report {
            file: path.to_owned(),
            size,
            stated: self.properties.map(|(_, properties)| counts(&properties)),
            tombstones: self.rows.as_ref().map_or(0, |rows| rows.totals.tombstones),
            found: self.rows.map(|rows| counts(&rows.totals)),
            blocks: Some(self.blocks),
            is_foreign: self.is_foreign,
            damages,
            more_damages,
            gaps,
            more_gaps,
        }
    }
}

/// Reason of damage of a wrong statement.
fn statement(what: &str, stated: impl Display, found: impl Display) -> String {
    format!("{what} is {found}, not {stated}")
}

/// Statements of the properties that differ from what was found.
fn differences(stated: &Properties, found: &Properties) -> Vec<String> {
    let numbers = |of: &Properties| {
        let longest_index_block = of.index_interval.max(stated.index_interval);
        [
            ("the number of rows", i128::from(of.rows)),
            ("the number of cells", of.cells.into()),
            ("the number of tombstones", of.tombstones.into()),
            ("the set of states that 0.6 does not have", of.states.into()),
            ("the least local deletion time", of.min_local_deletion_time.into()),
            ("the least timestamp", of.min_timestamp.into()),
            ("the greatest timestamp", of.max_timestamp.into()),
            ("the size of all cells", of.raw_bytes.into()),
            ("the size of the largest row", of.largest_row_bytes.into()),
            ("the number of rows of the longest row index block", longest_index_block.into()),
        ]
    };
    let pairs = numbers(stated).into_iter().zip(numbers(found));
    let differing = pairs.filter(|(stated, found)| stated != found);
    let mut wrong: Vec<_> =
        differing.map(|((what, stated), (_, found))| statement(what, stated, found)).collect();
    if stated.last_key != found.last_key {
        wrong.push(statement("the last row key", hex(&stated.last_key), hex(&found.last_key)));
    }
    wrong
}
