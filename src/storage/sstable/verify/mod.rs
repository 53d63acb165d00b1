//! Checks everything in an SSTable that can be checked, and goes on behind what is damaged.
//!
//! All blocks are read in their order, from the header to the footer, with nothing between them.
//! The checksum of each is looked at, and what it holds; then what different parts of the file say
//! of the same thing must agree: the rows that data blocks tell with the row index and its extents,
//! the summary with the row index blocks, the filter with the keys, the properties with what was
//! counted. Memory depends neither on the number of rows nor on their size, but for what is in
//! memory of every open file: filter and summary.

mod extents;
mod report;
mod rows;
#[cfg(test)]
mod tests;

pub use report::{Damage, DamagedRows, Fault, NamedRows, Report};

use super::block::{self, Block, BlockHandle, BlockKind};
use super::filter::Filter;
use super::properties::Properties;
use super::scan::{BlockScan, Frame, Piece};
use super::summary;
use super::{FOOTER_LENGTH, HEADER_LENGTH};
use crate::base::fs::{File, FileSystem};
use crate::model::comparator::{Comparator, ComparatorRegistry};
use crate::model::schema::ColumnFamilySchema;
use crate::ring::Partitioner;
use crate::storage::error::{FileContext, FileError};
use report::Damages;
use rows::RowCheck;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// What a file should be, as far as the caller knows.
#[derive(Debug, Clone, Default)]
pub struct Expected {
    /// The column family; else what the file says of itself.
    pub family: Option<Arc<ColumnFamilySchema>>,
    /// The partitioner; else the one that the file names.
    pub partitioner: Option<Partitioner>,
}

/// Verifies a file. Errors are of the operating system, and before anything was read; a disk that
/// refuses to read a part of the file shows as damage. `progress` hears how many bytes are done.
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
        run.damages.add(0..HEADER_LENGTH.min(size), None, Fault::Bytes(reason));
    }
    let mut footer_told = frame.footer.is_some();
    for piece in BlockScan::within(&*file, &frame) {
        match piece {
            Piece::Block { handle, kind, block } => {
                progress(handle.offset + u64::from(handle.length));
                run.blocks += 1;
                run.sound(handle, kind, &block);
            }
            Piece::Damage { offset, length, kind, reason } => {
                let range = offset..offset + length;
                progress(range.end);
                let is_end = frame.footer.is_none() && range.end == size && kind.is_none();
                footer_told |= is_end;
                let reason = if is_end { NO_FOOTER } else { reason };
                run.damaged(range, kind, reason, frame.may_hold_data(offset));
            }
        }
    }
    if !footer_told {
        run.damages.add(size..size, None, Fault::Bytes(NO_FOOTER));
    }
    run.finish(&frame, size);
    progress(size);
    let Run { rows, damages, properties, blocks, is_foreign, .. } = run;
    let has_rows = rows.is_some();
    let (rows, cells) = rows.map_or((0, 0), |rows| (rows.totals.rows, rows.totals.cells));
    Ok(Report {
        file: path.to_owned(),
        size,
        properties: properties.map(|(_, properties)| properties),
        rows,
        cells,
        has_rows,
        blocks,
        is_foreign,
        damages: damages.list,
        more_damages: damages.more,
    })
}

const NO_FOOTER: &str = "the end is missing or damaged: it may be truncated";

/// What a file says of itself, if its properties can be found and read.
pub fn read_properties(file: &dyn File, frame: &Frame) -> Option<(BlockHandle, Properties)> {
    let (handle, block) = properties_block(file, frame)?;
    Some((handle, Properties::decode(block.bytes()).ok()?))
}

/// CRC32 of the properties as they are stored, by which a manifest knows the file.
pub fn read_properties_crc(file: &dyn File, frame: &Frame) -> Option<u32> {
    properties_block(file, frame).map(|(_, block)| crc32fast::hash(block.bytes()))
}

fn properties_block(file: &dyn File, frame: &Frame) -> Option<(BlockHandle, Block)> {
    let handle = match frame.footer {
        Some([_, _, handle]) => handle,
        // Without a footer it is the last block, if that is there.
        None => find_last(file, frame, BlockKind::Properties)?,
    };
    let block = block::read(file, Path::new(""), handle, BlockKind::Properties).ok()?;
    Some((handle, block))
}

fn find_last(file: &dyn File, frame: &Frame, kind: BlockKind) -> Option<BlockHandle> {
    let found = BlockScan::within(file, frame).filter_map(|piece| match piece {
        Piece::Block { handle, kind: found, .. } if found == kind => Some(handle),
        _ => None,
    });
    found.last()
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
        let properties = read_properties(file, frame);
        let own = properties.as_ref().map(|(_, properties)| properties);
        let family = expected.family.clone();
        let family = family.or_else(|| own?.schema(comparators).map(Arc::new));
        let partitioner = own.and_then(Properties::partitioner).or(expected.partitioner);
        let filter = frame.footer.and_then(|[_, handle, _]| {
            let block = block::read(file, Path::new(""), handle, BlockKind::Filter).ok()?;
            Filter::decode(block.bytes()).ok()
        });
        let rows = family.zip(partitioner);
        let rows = rows.map(|(family, partitioner)| RowCheck::new(family, partitioner, filter));
        let last = [None; 3];
        let damages = Damages::default();
        Self { file, expected, damages, properties, rows, blocks: 0, last, is_foreign: false }
    }

    fn sound(&mut self, handle: BlockHandle, kind: BlockKind, block: &block::Block) {
        let behind_the_end = self.last.iter().any(Option::is_some);
        let fault = |damages: &mut Damages, reason| {
            damages.add(range_of(handle), Some(kind), Fault::Bytes(reason));
        };
        let slot = match kind {
            BlockKind::Data | BlockKind::ColumnIndex | BlockKind::RowIndex => {
                if behind_the_end {
                    fault(&mut self.damages, "it stands behind the summary");
                }
                if let Some(rows) = &mut self.rows {
                    match kind {
                        BlockKind::Data => rows.data_block(handle, block, &mut self.damages),
                        BlockKind::ColumnIndex => rows.column_index_block(handle),
                        _ => rows.row_index_block(self.file, handle, block, &mut self.damages),
                    }
                }
                return;
            }
            BlockKind::Summary => 0,
            BlockKind::Filter => 1,
            BlockKind::Properties => 2,
        };
        if self.last[slot].is_some() || self.last[slot + 1..].iter().any(Option::is_some) {
            fault(&mut self.damages, "it is there twice or in the wrong place");
        }
        self.last[slot] = Some(handle);
        match kind {
            BlockKind::Summary => self.check_summary(handle, block),
            BlockKind::Filter if Filter::decode(block.bytes()).is_err() => {
                fault(&mut self.damages, "the filter cannot be read");
            }
            BlockKind::Properties if self.properties.is_none() => {
                fault(&mut self.damages, "the properties cannot be read");
            }
            _ => {}
        }
    }

    fn damaged(
        &mut self,
        range: Range<u64>,
        kind: Option<BlockKind>,
        reason: &'static str,
        may_hold_data: bool,
    ) {
        let number = self.damages.add(range, kind, Fault::Bytes(reason));
        if let Some(rows) = self.rows.as_mut().filter(|_| may_hold_data) {
            rows.note_damage(number, kind);
        }
    }

    fn check_summary(&mut self, handle: BlockHandle, block: &block::Block) {
        let Some(rows) = &mut self.rows else { return };
        let listed = summary::decode(rows.partitioner, block.bytes());
        if let Ok(listed) = &listed {
            rows.find_index_blocks(listed, &mut self.damages);
        }
        rows.settle(&mut self.damages);
        let mut fault = |reason| {
            self.damages.add(range_of(handle), Some(BlockKind::Summary), Fault::Bytes(reason));
        };
        match listed {
            Err(_) => fault("the summary cannot be read"),
            Ok(listed) if !rows.agrees_with_summary(&listed) => {
                fault("the summary does not list the row index blocks");
            }
            Ok(_) => {}
        }
    }

    fn finish(&mut self, frame: &Frame, size: u64) {
        if let Some(rows) = &mut self.rows {
            rows.settle(&mut self.damages);
        }
        if let Some(footer) = frame.footer {
            let footer_range = frame.blocks.end..size;
            debug_assert_eq!(footer_range.end - footer_range.start, FOOTER_LENGTH as u64);
            let told = footer.iter().zip(&self.last);
            // A part that is damaged was told of already.
            let differs = told.into_iter().any(|(footer, last)| last.is_some_and(|l| l != *footer));
            let is_missing = self.last.iter().any(Option::is_none) && self.damages.is_empty();
            if differs || is_missing {
                let reason = "the footer points to other places than where these blocks are";
                self.damages.add(footer_range, None, Fault::Bytes(reason));
            }
        }
        self.check_kind_of_data();
        self.check_counts();
    }

    /// Whether it was written for the column family that is expected, and rows and cells sort as
    /// they do there.
    fn check_kind_of_data(&mut self) {
        let Some((handle, properties)) = &self.properties else { return };
        let mut stated = Vec::new();
        let mut compare = |what, stated_now: &str, expected: String, is_same: bool| {
            if !is_same {
                stated.push((what, stated_now.to_owned(), expected));
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
        let range = range_of(*handle);
        for (what, stated, found) in stated {
            self.is_foreign = true;
            let fault = Fault::Stated { what, stated, found };
            self.damages.add(range.clone(), Some(BlockKind::Properties), fault);
        }
    }

    /// Whether the properties count what is there. Where something is damaged they cannot.
    fn check_counts(&mut self) {
        let (Some((handle, properties)), Some(rows)) = (&self.properties, &self.rows) else {
            return;
        };
        if !self.damages.is_empty() {
            self.damages.count_small(properties.rows.saturating_sub(rows.totals.rows));
            return;
        }
        let range = range_of(*handle);
        for (what, stated, found) in rows.totals.differences(properties) {
            let fault = Fault::Stated { what, stated, found };
            self.damages.add(range.clone(), Some(BlockKind::Properties), fault);
        }
    }
}

pub(super) fn range_of(handle: BlockHandle) -> Range<u64> {
    handle.offset..handle.offset + u64::from(handle.length)
}
