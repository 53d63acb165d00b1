//! Collects the damages of a file, each with the rows that it concerns.

use crate::model::key::RowKey;
use crate::ring::DecoratedKey;
use crate::storage::check::{Damage, Loss, MOST_LISTED};
use crate::storage::sstable::block::{BlockHandle, BlockKind};
use std::borrow::Cow;
use std::ops::Range;

/// Damages in the order in which they were found. A damage is known by its number.
#[derive(Debug, Default)]
pub(super) struct Damages {
    list: Vec<Found>,
    more: u64,
    /// Number of gaps that are not in the list.
    more_gaps: u64,
    /// The last rows so far. Data blocks and the row index each have their rows in order; small
    /// rows stand in the row index alone.
    last_data: Option<DecoratedKey>,
    last_indexed: Option<DecoratedKey>,
    /// Damages from this one on have no row of data, or of the index, after them yet.
    open_data: usize,
    open_index: usize,
}

#[derive(Debug)]
struct Found {
    damage: Damage,
    kind: Option<BlockKind>,
    /// The sound rows around it, if it may have taken rows.
    gap: Option<Gap>,
}

#[derive(Debug)]
struct Gap {
    reason: &'static str,
    data: Around,
    index: Around,
}

/// The last row before a place and the first after it, where there are such.
#[derive(Debug, Clone, Default)]
struct Around {
    before: Option<DecoratedKey>,
    after: Option<DecoratedKey>,
}

impl Gap {
    /// The gap as a loss. Its place is of this kind, if that is known.
    fn loss(self, range: Range<u64>, kind: Option<BlockKind>) -> Loss {
        let Self { reason, data, index } = self;
        let Around { before, after } = match kind {
            Some(BlockKind::Data | BlockKind::ColumnIndex) => data,
            Some(_) => index,
            // Both, of which one may have no rows at all.
            None => {
                Around { before: data.before.min(index.before), after: data.after.max(index.after) }
            }
        };
        let [after, before] = [before, after].map(|key| key.map(DecoratedKey::into_key));
        Loss::Unknown { range, reason, after, before }
    }
}

impl Damages {
    /// Adds a damage; returns its number, unless there are too many already.
    pub(super) fn add(
        &mut self,
        range: Range<u64>,
        kind: Option<BlockKind>,
        reason: impl Into<Cow<'static, str>>,
    ) -> Option<usize> {
        if self.list.len() >= MOST_LISTED {
            self.more += 1;
            return None;
        }
        self.list.push(Found { damage: Damage::new(range, None, reason), kind, gap: None });
        Some(self.list.len() - 1)
    }

    /// Adds a damage of a whole block.
    pub(super) fn block(
        &mut self,
        handle: BlockHandle,
        kind: BlockKind,
        reason: &'static str,
    ) -> Option<usize> {
        self.add(handle.range(), Some(kind), reason)
    }

    /// Adds a damage of a block that concerns one row.
    pub(super) fn row(
        &mut self,
        handle: BlockHandle,
        kind: BlockKind,
        reason: &'static str,
        key: &RowKey,
    ) {
        if let Some(number) = self.block(handle, kind, reason) {
            self.list[number].damage.named.add(key);
        }
    }

    /// Notes that rows may be lost at the damage that was just added.
    pub(super) fn open_gap(&mut self, number: Option<usize>, reason: &'static str) {
        let gap = self.gap_here(reason);
        match number.and_then(|number| self.list.get_mut(number)) {
            Some(found) => found.gap = Some(gap),
            None => self.more_gaps += 1,
        }
    }

    fn gap_here(&self, reason: &'static str) -> Gap {
        let index = Around { before: self.last_indexed.clone(), after: None };
        // All data that follow a row index block are of rows after all of its rows.
        let before = self.last_data.as_ref().max(self.last_indexed.as_ref()).cloned();
        Gap { reason, data: Around { before, after: None }, index }
    }

    /// Notes the next row of a data block.
    pub(super) fn data_row(&mut self, key: &DecoratedKey) {
        for gap in self.list[self.open_data..].iter_mut().filter_map(|it| it.gap.as_mut()) {
            gap.data.after = Some(key.clone());
        }
        self.open_data = self.list.len();
        self.last_data = Some(key.clone());
    }

    /// Notes the next row of the row index.
    pub(super) fn index_row(&mut self, key: &DecoratedKey) {
        for gap in self.list[self.open_index..].iter_mut().filter_map(|it| it.gap.as_mut()) {
            gap.index.after = Some(key.clone());
        }
        self.open_index = self.list.len();
        self.last_indexed = Some(key.clone());
    }

    /// The damage of this number.
    pub(super) fn get_mut(&mut self, number: usize) -> Option<&mut Damage> {
        self.list.get_mut(number).map(|found| &mut found.damage)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Names a row in the damages of these bytes; false if there are none.
    pub(super) fn concern(&mut self, range: &Range<u64>, key: &RowKey) -> bool {
        let mut any = false;
        for damage in self.list.iter_mut().map(|found| &mut found.damage) {
            if damage.range.start < range.end && range.start < damage.range.end {
                damage.named.add(key);
                any = true;
            }
        }
        any
    }

    /// Names a row in the damages where data of it may have stood; false if there are none.
    pub(super) fn concern_data(&mut self, key: &DecoratedKey) -> bool {
        let mut any = self.more > 0;
        for Found { damage, gap, .. } in &mut self.list {
            let Some(Gap { data: Around { before, after }, .. }) = gap else { continue };
            if before.as_ref().is_none_or(|before| before < key)
                && after.as_ref().is_none_or(|after| key < after)
            {
                damage.named.add(key.key());
                any = true;
            }
        }
        any
    }

    /// Takes damages of unknown kind for row index blocks where these blocks stood.
    pub(super) fn find_index_blocks(&mut self, blocks: &[Range<u64>]) {
        for Found { damage, kind, .. } in &mut self.list {
            if kind.is_none() && blocks.contains(&damage.range) {
                *kind = Some(BlockKind::RowIndex);
            }
        }
    }

    /// Notes that rows are missing. If only the row index is damaged, they are small ones.
    pub(super) fn count_small(&mut self, lost: u64) {
        // With several damages the number in each is not known.
        let is_clear = lost == 0 || self.list.len() == 1;
        let is_of_index = |found: &Found| found.kind == Some(BlockKind::RowIndex);
        if is_clear && self.more == 0 && self.list.iter().all(is_of_index) {
            for found in &mut self.list {
                found.damage.small = Some(Some(lost));
            }
        }
    }

    /// The gap of a file that ends at this byte without a trace of damage to data.
    pub(super) fn gap_at_end(&self, end: u64) -> Option<Loss> {
        let has_gaps = self.more_gaps > 0 || self.list.iter().any(|found| found.gap.is_some());
        let gap = || self.gap_here("the end of the file is missing");
        (!has_gaps).then(|| gap().loss(end..end, None))
    }

    /// The damages and the gaps, each with the number of those that are not in its list.
    pub(super) fn finish(self) -> ((Vec<Damage>, u64), (Vec<Loss>, u64)) {
        let (mut damages, mut gaps) = (Vec::new(), Vec::new());
        for Found { mut damage, kind, gap } in self.list {
            if let Some(gap) = gap {
                let loss = gap.loss(damage.range.clone(), kind);
                if let Loss::Unknown { after, before, .. } = &loss {
                    damage.between = Some((after.clone(), before.clone()));
                }
                gaps.push(loss);
            }
            match kind {
                Some(BlockKind::RowIndex) if damage.between.is_some() => {
                    damage.small.get_or_insert(None);
                }
                Some(BlockKind::Data | BlockKind::RowIndex) | None => damage.small = None,
                // All that these hold can be derived from other blocks.
                Some(_) if damage.named.keys.is_empty() => {
                    damage = Damage::new(damage.range, None, damage.reason);
                }
                Some(_) => {}
            }
            damage.part = kind.map(BlockKind::name);
            damages.push(damage);
        }
        ((damages, self.more), (gaps, self.more_gaps))
    }
}
