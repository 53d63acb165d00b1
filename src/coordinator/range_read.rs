//! Ranges of rows: pages of several replicas, merged as far as all have reported, and the position
//! of a scan that is made page by page.

use super::consistency::{ReplicaCounts, Requirement};
use super::quorum::{Question, Request};
use super::row_read::Resolved;
use super::view::{Endpoints, ReadReplicas};
use crate::model::key::RowKey;
use crate::model::schema::ColumnFamilySchema;
use crate::model::slice::Slice;
use crate::model::version::RowVersion;
use crate::replica::{Row, VersionedRow};
use crate::ring::{DecoratedKey, Partitioner, RowRange};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::{Bound, RangeBounds};

/// The rows that one replica has sent, at most as many as it was asked for.
#[derive(Debug, Clone)]
pub(super) struct Page {
    /// The replica that sent them.
    pub(super) from: IpAddr,
    /// In the order of their tokens.
    pub(super) rows: Vec<VersionedRow>,
}

/// A row, merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MergedRow {
    /// Its key.
    pub(super) key: RowKey,
    /// The versions of the replicas together.
    pub(super) resolved: Resolved,
    /// Whether more columns have to be read to have as many as are wanted.
    pub(super) is_short: bool,
}

/// A read of a range, asked of as many replicas as are needed, and of others if these are slow.
#[derive(Debug)]
pub(super) struct RangeRead {
    requirement: Requirement,
    live: Endpoints,
    unasked: Endpoints,
    pages: Vec<Page>,
}

impl RangeRead {
    /// A read that may ask these replicas.
    pub(super) fn new(replicas: &ReadReplicas) -> Self {
        let ReadReplicas { live, requirement } = replicas.clone();
        Self { requirement, live, unasked: Endpoints::new(), pages: Vec::new() }
    }

    fn request(to: IpAddr) -> Request<()> {
        Request { to, round: 0, what: () }
    }
}

impl Question for RangeRead {
    type What = ();
    type Reply = Vec<VersionedRow>;
    type Answer = Vec<Page>;

    fn begin(&mut self) -> Vec<Request<()>> {
        let chosen = self.requirement.choose(&self.live);
        let is_unasked = |it: &IpAddr| !chosen.contains(it);
        self.unasked = self.live.iter().copied().filter(is_unasked).collect();
        chosen.into_iter().map(Self::request).collect()
    }

    fn on_reply(&mut self, from: IpAddr, rows: Vec<VersionedRow>) -> Vec<Request<()>> {
        self.pages.push(Page { from, rows });
        Vec::new()
    }

    fn on_slow(&mut self) -> Vec<Request<()>> {
        let next = (!self.unasked.is_empty()).then(|| self.unasked.remove(0));
        next.map(Self::request).into_iter().collect()
    }

    fn on_failure(&mut self, _from: IpAddr) -> Option<Vec<Request<()>>> {
        (self.live.len() > 1).then(|| self.on_slow())
    }

    fn counts(&self) -> ReplicaCounts {
        let counts = self.requirement.check(self.pages.iter().map(|page| page.from));
        let has_data = !self.pages.is_empty();
        ReplicaCounts { has_data, ..counts.err().unwrap_or(ReplicaCounts::NONE) }
    }

    fn take_answer(&mut self) -> Option<Vec<Page>> {
        let is_answered = self.requirement.is_met_by(self.pages.iter().map(|page| page.from));
        is_answered.then(|| std::mem::take(&mut self.pages))
    }
}

/// Whether a page is a valid answer: at most `max_rows` rows of the range, in order.
pub(super) fn is_sound(
    partitioner: Partitioner,
    range: &RowRange,
    max_rows: usize,
    rows: &[VersionedRow],
) -> bool {
    let mut last: Option<DecoratedKey> = None;
    rows.len() <= max_rows
        && rows.iter().all(|(key, _)| {
            let key = partitioner.decorate(key.clone());
            let is_sound = range.contains(key.token()) && last.as_ref().is_none_or(|it| *it < key);
            last = Some(key);
            is_sound
        })
}

/// Merges pages of one range that were asked for at most `max_rows` rows each. So many rows come
/// out of it, or more, unless the range has fewer: all pages count up to the end of the first that
/// ends, which is full.
pub(super) fn merge(
    family: &ColumnFamilySchema,
    partitioner: Partitioner,
    (slice, now): (&Slice, i64),
    max_rows: usize,
    pages: Vec<Page>,
) -> Vec<MergedRow> {
    let cut = pages.iter().filter(|page| page.rows.len() >= max_rows);
    let ends = cut.filter_map(|page| page.rows.last());
    // A full page says nothing of rows after its last one.
    let end = ends.map(|(key, _)| partitioner.decorate(key.clone())).min();
    let endpoints: Vec<IpAddr> = pages.iter().map(|page| page.from).collect();
    let mut by_key: BTreeMap<DecoratedKey, Vec<(IpAddr, RowVersion)>> = BTreeMap::new();
    for page in pages {
        for (key, version) in page.rows {
            let key = partitioner.decorate(key);
            if end.as_ref().is_none_or(|end| key <= *end) {
                by_key.entry(key).or_default().push((page.from, version));
            }
        }
    }
    by_key
        .into_iter()
        .map(|(key, versions)| {
            merge_row(family, (slice, now), &endpoints, key.into_key(), &versions)
        })
        .collect()
}

fn merge_row(
    family: &ColumnFamilySchema,
    (slice, now): (&Slice, i64),
    endpoints: &[IpAddr],
    key: RowKey,
    versions: &[(IpAddr, RowVersion)],
) -> MergedRow {
    let mut version = RowVersion::merge(family, versions.iter().map(|(_, version)| version));
    let is_cut = |version: &&RowVersion| version.is_cut(family, slice, now);
    let is_alike = versions.len() == endpoints.len()
        && versions.iter().all(|(_, other)| other == &versions[0].1);
    let mut is_short = false;
    if !is_alike {
        let cut: Vec<&RowVersion> = versions.iter().map(|(_, v)| v).filter(is_cut).collect();
        for end in &cut {
            version.truncate_to(family, slice, end);
        }
        is_short = !cut.is_empty() && version.count(family, slice, now) < slice.limit();
    }
    let (mut consistent, mut repairs) = (Vec::new(), Vec::new());
    let nothing = RowVersion::default();
    for endpoint in endpoints {
        let theirs = versions.iter().find(|(from, _)| from == endpoint);
        let theirs = theirs.map_or(&nothing, |(_, version)| version);
        match theirs.lacks(family, &version) {
            Some(lacking) => repairs.push((*endpoint, lacking)),
            None => consistent.push(*endpoint),
        }
    }
    MergedRow { key, resolved: Resolved { version, consistent, repairs, now }, is_short }
}

/// A range of which some rows were read, and the rest of it.
///
/// Rows of equal tokens may stand on both sides of the end of a page, and a scan begins with a
/// token, not with a key. So the rows of that token that were read come again, and are left out.
#[derive(Debug)]
pub(super) struct RowCursor {
    partitioner: Partitioner,
    range: RowRange,
    /// The last row that was read.
    last: Option<DecoratedKey>,
    /// Rows that were read and will be read again.
    repeated: usize,
    is_at_end: bool,
}

impl RowCursor {
    /// All of the range is still to be read.
    pub(super) fn new(partitioner: Partitioner, range: RowRange) -> Self {
        Self { partitioner, range, last: None, repeated: 0, is_at_end: false }
    }

    /// The range to scan next.
    pub(super) fn range(&self) -> &RowRange {
        &self.range
    }

    /// Rows to ask for to get this many new ones.
    pub(super) fn rows_for(&self, new: usize) -> usize {
        new.saturating_add(self.repeated)
    }

    /// Whether nothing was read yet.
    pub(super) fn is_at_start(&self) -> bool {
        self.last.is_none()
    }

    /// Whether there are no more.
    pub(super) fn is_at_end(&self) -> bool {
        self.is_at_end
    }

    /// Takes the first rows of the range to scan, of which `asked` were requested. Returns the new
    /// ones; there may be none although others follow.
    pub(super) fn take(&mut self, asked: usize, page: Vec<Row>) -> impl Iterator<Item = Row> {
        self.is_at_end = page.len() < asked;
        let end = page.last().map(|(key, _)| self.partitioner.decorate(key.clone()));
        let before = end.clone().and_then(|end| self.last.replace(end));
        if let Some(end) = end {
            if before.as_ref().is_some_and(|before| end <= *before) {
                // Other replicas may know of more rows that were passed already.
                self.repeated = asked.saturating_mul(2);
                self.last.clone_from(&before);
            } else {
                let token = |(key, _): &&Row| self.partitioner.token(key.as_bytes());
                let is_last = |row: &&Row| token(row) == *end.token();
                self.repeated = page.iter().rev().take_while(is_last).count();
                self.range.start = Bound::Included(end.token().clone());
            }
        }
        let partitioner = self.partitioner;
        let is_old = move |(key, _): &Row| {
            before.as_ref().is_some_and(|before| partitioner.decorate(key.clone()) <= *before)
        };
        page.into_iter().skip_while(is_old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::slice::RowSlice;
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn pages_that_are_not_what_was_asked_for_are_refused() {
        const ORDERED: Partitioner = Partitioner::OrderPreserving;
        let range = RowRange::all();
        let sound = |max, keys: &[&str]| {
            let rows = keys.iter().map(|key| (RowKey::from(*key), RowVersion::default()));
            is_sound(ORDERED, &range, max, &rows.collect::<Vec<_>>())
        };
        assert!(sound(2, &["a", "b"]));
        assert!(!sound(1, &["a", "b"]));
        assert!(!sound(2, &["b", "a"]));
        assert!(!sound(2, &["b", "b"]));
    }

    const COLLATING: Partitioner = Partitioner::CollatingOrderPreserving;

    /// Control characters count for nothing in a collation.
    fn rows() -> impl Strategy<Value = BTreeSet<DecoratedKey>> {
        let key = "[a-c][\u{1}\u{2}]{0,3}";
        let row = key.prop_map(|key| COLLATING.decorate(RowKey::from(key.as_str())));
        btree_set(row, 0..30)
    }

    proptest! {
        #[test]
        fn every_row_comes_once(all in rows(), new in 1..5usize, holes in vec(0..30usize, 0..9)) {
            let mut cursor = RowCursor::new(COLLATING, RowRange::all());
            let (mut read, mut holes) = (Vec::new(), holes.into_iter());
            // Some pages come from replicas that lack a row which all others have.
            let hole = all.iter().nth(holes.next().unwrap_or(99)).cloned();
            while !cursor.is_at_end() {
                let lacks = hole.as_ref().filter(|_| holes.next().is_some_and(|it| it % 2 == 0));
                let asked = cursor.rows_for(new);
                let rows = all.iter().filter(|it| cursor.range().contains(it.token()));
                let rows = rows.filter(|it| lacks != Some(*it)).take(asked);
                let page = rows.map(|it| (it.key().clone(), RowSlice::default())).collect();
                read.extend(cursor.take(asked, page).map(|(key, _)| key));
            }
            let all: Vec<&RowKey> = all.iter().map(DecoratedKey::key).collect();
            let hole = hole.as_ref().map(DecoratedKey::key);
            let sure = |keys: &[&RowKey]| -> Vec<RowKey> {
                keys.iter().filter(|it| hole != Some(**it)).map(|it| (*it).clone()).collect()
            };
            prop_assert_eq!(sure(&read.iter().collect::<Vec<_>>()), sure(&all));
            let different: BTreeSet<&RowKey> = read.iter().collect();
            prop_assert_eq!(different.len(), read.len());
        }
    }
}
