//! Segments that are still needed, and the families that need them.

use std::collections::VecDeque;
use std::path::PathBuf;

use super::Position;

/// The column families that keep the oldest dirty segment from being discarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldestDirty {
    /// Id of the segment.
    pub segment: u64,
    /// Ids of the families with unflushed data in it, ascending.
    pub families: Vec<u32>,
}

/// The segments that exist, in the order of their ids; the last is the active one. Those that were
/// found at the start stay until the caller has flushed what was in them. Where there is an
/// archive, a segment stays until the archive has it.
#[derive(Debug, Default)]
pub(in crate::storage) struct LiveSegments {
    segments: VecDeque<Live>,
    /// Whether the caller has flushed what was in the segments of earlier runs.
    pub(super) replayed_is_flushed: bool,
    /// Whether segments have to be archived before they are removed.
    pub(super) archives: bool,
}

#[derive(Debug)]
struct Live {
    id: u64,
    path: PathBuf,
    /// End of what is written.
    end: u64,
    /// Families with unflushed data, sorted, each with where its last record ends. A handful in
    /// practice: searching them costs less than hashing. Unknown for earlier runs.
    dirty: Vec<(u32, u64)>,
    /// Whether it is of an earlier run.
    is_replayed: bool,
    archived: bool,
}

impl LiveSegments {
    /// No segments; with an archive they stay until [`LiveSegments::note_archived`].
    pub(super) fn new(archives: bool) -> Self {
        Self { archives, ..Self::default() }
    }

    /// Adds the segment after all others: one that takes records now, or a replayed one of this
    /// many bytes.
    pub(super) fn add(&mut self, id: u64, path: PathBuf, replayed: Option<u64>) {
        let (dirty, end, is_replayed) = (Vec::new(), replayed.unwrap_or(0), replayed.is_some());
        self.segments.push_back(Live { id, path, end, dirty, is_replayed, archived: false });
    }

    /// Notes that the active segment is written up to `end`, last by a record of these families.
    pub(super) fn mark(&mut self, families: &[u32], end: u64) {
        let Some(active) = self.segments.back_mut() else { return };
        active.end = end;
        for &family in families {
            match active.dirty.binary_search_by_key(&family, |dirty| dirty.0) {
                Ok(at) => active.dirty[at].1 = end,
                Err(at) => active.dirty.insert(at, (family, end)),
            }
        }
    }

    /// Notes that all data of the family up to this position are flushed.
    pub(super) fn clean(&mut self, family: u32, up_to: Position) {
        for segment in self.segments.iter_mut().take_while(|live| live.id <= up_to.segment) {
            let is_flushed = |end: u64| Position { segment: segment.id, offset: end } <= up_to;
            segment.dirty.retain(|&(id, end)| id != family || !is_flushed(end));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.segments.len()
    }

    /// Ids of all segments, ascending.
    pub(super) fn ids(&self) -> Vec<u64> {
        self.segments.iter().map(|live| live.id).collect()
    }

    /// Notes that the archive has a segment.
    pub(in crate::storage) fn note_archived(&mut self, id: u64) {
        if let Some(live) = self.segments.iter_mut().find(|live| live.id == id) {
            live.archived = true;
        }
    }

    /// The segments of this run that the archive does not have, with the active one.
    pub(super) fn unarchived(&self) -> Vec<(u64, PathBuf)> {
        let unarchived = self.segments.iter().filter(|live| !live.is_replayed && !live.archived);
        unarchived.map(|live| (live.id, live.path.clone())).collect()
    }

    /// Number of segments that [`LiveSegments::take_obsolete`] would return.
    pub(super) fn count_obsolete(&self) -> usize {
        let inactive = self.segments.iter().take(self.len().saturating_sub(1));
        inactive.filter(|live| self.may_go(live)).count()
    }

    /// Whether the active segment holds nothing that is not flushed.
    pub(super) fn is_active_clean(&self) -> bool {
        self.segments.back().is_some_and(|live| !self.is_dirty(live))
    }

    /// Removes the segments without unflushed data, except the active one. Returns their paths.
    pub(super) fn take_obsolete(&mut self) -> Vec<PathBuf> {
        let active = self.segments.pop_back();
        let all = std::mem::take(&mut self.segments);
        let (gone, mut kept): (VecDeque<_>, VecDeque<_>) =
            all.into_iter().partition(|live| self.may_go(live));
        kept.extend(active);
        self.segments = kept;
        gone.into_iter().map(|live| live.path).collect()
    }

    /// The active segment, if it is the only one and holds nothing that is not flushed.
    pub(super) fn last_unneeded(&self) -> Option<PathBuf> {
        let last = self.segments.back()?;
        (self.len() == 1 && self.may_go(last)).then(|| last.path.clone())
    }

    /// Bytes in the segments that are needed. Those that only wait for the archive do not count,
    /// since no flush frees them.
    pub(super) fn total_bytes(&self) -> u64 {
        let active = self.segments.back().map(|live| live.id);
        let is_needed = |live: &&Live| self.is_dirty(live) || Some(live.id) == active;
        self.segments.iter().filter(is_needed).map(|live| live.end).sum()
    }

    /// The families that keep the oldest segment of this run with unflushed data.
    pub(super) fn oldest_dirty(&self) -> Option<OldestDirty> {
        let oldest = self.segments.iter().find(|live| !live.dirty.is_empty())?;
        let families = oldest.dirty.iter().map(|dirty| dirty.0).collect();
        Some(OldestDirty { segment: oldest.id, families })
    }

    fn is_dirty(&self, live: &Live) -> bool {
        if live.is_replayed { !self.replayed_is_flushed } else { !live.dirty.is_empty() }
    }

    fn may_go(&self, live: &Live) -> bool {
        !self.is_dirty(live) && (live.archived || !self.archives)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(segment: u64, offset: u64) -> Position {
        Position { segment, offset }
    }

    #[test]
    fn a_segment_is_obsolete_when_its_last_family_is_flushed_and_never_while_active() {
        let mut live = LiveSegments::default();
        live.add(1, "1".into(), None);
        live.mark(&[7, 3], 100);
        live.mark(&[3], 200);
        live.add(2, "2".into(), None);
        live.mark(&[9], 50);
        assert_eq!(live.oldest_dirty().unwrap().families, vec![3, 7]);
        live.clean(7, at(1, 99));
        assert_eq!(live.oldest_dirty().unwrap().families, vec![3, 7], "a later record of 7");
        live.clean(7, at(1, 100));
        live.clean(3, at(1, 199));
        assert_eq!(live.oldest_dirty().unwrap().families, vec![3]);
        assert_eq!(live.count_obsolete(), 0);
        live.clean(3, at(2, 0));
        live.clean(9, at(2, 50));
        assert_eq!(live.oldest_dirty(), None);
        assert_eq!(live.total_bytes(), 50);
        assert_eq!(live.take_obsolete(), [PathBuf::from("1")]);
        assert_eq!(live.ids(), vec![2]);
    }

    #[test]
    fn a_clean_segment_between_dirty_ones_is_obsolete() {
        let mut live = LiveSegments::default();
        live.add(5, "5".into(), Some(10));
        for id in 11..14 {
            live.add(id, id.to_string().into(), None);
            live.mark(&[id as u32], 100);
        }
        live.clean(12, at(12, 100));
        assert_eq!(live.take_obsolete().len(), 1);
        assert_eq!(live.ids(), vec![5, 11, 13]);
        assert_eq!(live.count_obsolete(), 0);
        live.replayed_is_flushed = true;
        assert_eq!(live.count_obsolete(), 1);
        assert_eq!(live.take_obsolete(), [PathBuf::from("5")]);
        assert_eq!(live.total_bytes(), 200);
    }

    #[test]
    fn with_an_archive_a_segment_stays_until_it_is_there() {
        let mut live = LiveSegments::new(true);
        live.add(5, "5".into(), Some(10));
        for id in 11..13 {
            live.add(id, id.to_string().into(), None);
            live.mark(&[1], 100);
        }
        live.replayed_is_flushed = true;
        live.clean(1, at(12, 100));
        assert_eq!(live.count_obsolete(), 0);
        assert_eq!((live.take_obsolete(), live.total_bytes()), (vec![], 100));
        live.note_archived(11);
        assert_eq!(live.count_obsolete(), 1);
        assert_eq!(live.take_obsolete(), [PathBuf::from("11")]);
        live.note_archived(5);
        assert_eq!(live.take_obsolete(), [PathBuf::from("5")]);
        assert_eq!(live.last_unneeded(), None);
        live.note_archived(12);
        assert_eq!(live.last_unneeded(), Some("12".into()));
    }
}
