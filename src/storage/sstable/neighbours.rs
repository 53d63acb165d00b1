//! Between which rows a damaged place of a file is, where nothing else tells which rows it
//! concerns.

use super::block::BlockKind;
use crate::model::key::RowKey;
use crate::ring::DecoratedKey;

/// The sound rows around each damaged place of a file that is read from its front. Data blocks and
/// the row index each have their rows in order; small rows stand in the row index alone.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    places: Vec<Place>,
    last_data: Option<DecoratedKey>,
    last_indexed: Option<DecoratedKey>,
    /// Places from this one on have no row of data, or of the index, behind them yet.
    open_data: usize,
    open_index: usize,
}

/// A damaged place.
#[derive(Debug)]
struct Place {
    id: usize,
    kind: Option<BlockKind>,
    data: Gap,
    index: Gap,
}

/// The last row before something and the first behind it, where there are such.
#[derive(Debug, Clone, Default)]
struct Gap {
    before: Option<DecoratedKey>,
    behind: Option<DecoratedKey>,
}

impl Neighbours {
    /// The next damaged place, by a number of the caller's, and what seems to have stood there.
    pub(super) fn damage(&mut self, id: usize, kind: Option<BlockKind>) {
        let before = self.last_indexed.clone();
        let index = Gap { before, behind: None };
        // All data that stand behind a row index block are of rows behind all of its rows.
        let before = self.last_data.as_ref().max(self.last_indexed.as_ref()).cloned();
        let data = Gap { before, behind: None };
        self.places.push(Place { id, kind, data, index });
    }

    /// What has stood at the damaged place of this number, if that shows only later.
    pub(super) fn settle_kind(&mut self, id: usize, kind: BlockKind) {
        if let Some(place) = self.places.iter_mut().find(|place| place.id == id) {
            place.kind = Some(kind);
        }
    }

    /// The next row of a data block.
    pub(super) fn data_row(&mut self, key: &DecoratedKey) {
        for place in &mut self.places[self.open_data..] {
            place.data.behind = Some(key.clone());
        }
        self.open_data = self.places.len();
        self.last_data = Some(key.clone());
    }

    /// The next row of the row index.
    pub(super) fn index_row(&mut self, key: &DecoratedKey) {
        for place in &mut self.places[self.open_index..] {
            place.index.behind = Some(key.clone());
        }
        self.open_index = self.places.len();
        self.last_indexed = Some(key.clone());
    }

    /// The damaged places where data of this row may have stood.
    pub(super) fn holding_data_of(&self, key: &DecoratedKey) -> impl Iterator<Item = usize> {
        let may_hold = move |place: &&Place| {
            let Gap { before, behind } = &place.data;
            before.as_ref().is_none_or(|before| before < key)
                && behind.as_ref().is_none_or(|behind| key < behind)
        };
        self.places.iter().filter(may_hold).map(|place| place.id)
    }

    /// All damaged places, each with the last row before it and the first behind it.
    pub(super) fn finish(self) -> impl Iterator<Item = (usize, Option<RowKey>, Option<RowKey>)> {
        self.places.into_iter().map(|Place { id, kind, data, index }| {
            let gap = match kind {
                Some(BlockKind::Data | BlockKind::ColumnIndex) => data,
                Some(_) => index,
                // Both, of which one may have no rows at all.
                None => Gap {
                    before: data.before.min(index.before),
                    behind: data.behind.max(index.behind),
                },
            };
            let [before, behind] = [gap.before, gap.behind].map(|key| key.map(|k| k.into_key()));
            (id, before, behind)
        })
    }
}
