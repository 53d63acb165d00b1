//! Rows of a range, as several replicas have sent them: merged as far as all have told everything.

use super::quorum::{Question, Request};
use super::requirement::Requirement;
use super::view::{Endpoints, ReadReplicas};
use crate::model::key::RowKey;
use crate::model::schema::ColumnFamilySchema;
use crate::model::slice::Slice;
use crate::model::version::RowVersion;
use crate::replica::VersionedRow;
use crate::ring::{DecoratedKey, Partitioner, RowRange};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::RangeBounds;

/// The rows that one replica has sent, at most as many as it was asked for.
#[derive(Debug, Clone)]
pub(super) struct Page {
    /// Who has sent them.
    pub(super) from: IpAddr,
    /// In the order of their tokens.
    pub(super) rows: Vec<VersionedRow>,
}

/// A row, merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MergedRow {
    /// Its key.
    pub(super) key: RowKey,
    /// What the replicas know of it together.
    pub(super) version: RowVersion,
    /// Whether more columns have to be read to have as many as are wanted.
    pub(super) is_short: bool,
    /// Replicas that have all of this.
    pub(super) consistent: Vec<IpAddr>,
    /// Replicas that lack something, and what.
    pub(super) repairs: Vec<(IpAddr, RowVersion)>,
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

    fn is_exhausted(&self) -> bool {
        self.unasked.is_empty()
    }

    fn is_answered(&self) -> bool {
        self.requirement.is_met_by(self.pages.iter().map(|page| page.from))
    }

    fn answer(self) -> Option<Vec<Page>> {
        Some(self.pages)
    }
}

/// Whether a page is what was asked for: so many rows at most, of the range, in their order.
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
    slice: &Slice,
    max_rows: usize,
    pages: Vec<Page>,
) -> Vec<MergedRow> {
    let cut = pages.iter().filter(|page| page.rows.len() >= max_rows);
    let ends = cut.filter_map(|page| page.rows.last());
    // A page says nothing of what lies behind its last row, if it is full.
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
        .map(|(key, versions)| merge_row(family, slice, &endpoints, key.into_key(), &versions))
        .collect()
}

fn merge_row(
    family: &ColumnFamilySchema,
    slice: &Slice,
    endpoints: &[IpAddr],
    key: RowKey,
    versions: &[(IpAddr, RowVersion)],
) -> MergedRow {
    let mut version = RowVersion::merge(family, versions.iter().map(|(_, version)| version));
    let is_cut = |version: &&RowVersion| version.is_cut(family, slice);
    let is_alike = versions.len() == endpoints.len()
        && versions.iter().all(|(_, other)| other == &versions[0].1);
    let mut is_short = false;
    if !is_alike {
        let cut: Vec<&RowVersion> = versions.iter().map(|(_, v)| v).filter(is_cut).collect();
        for end in &cut {
            version.truncate_to(family, slice, end);
        }
        is_short = !cut.is_empty() && version.count(family, slice) < slice.limit();
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
    MergedRow { key, version, is_short, consistent, repairs }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
