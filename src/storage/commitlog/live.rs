//! Which segments are still needed, and by whom.

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

/// A segment that is no longer needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Obsolete {
    /// Its id.
    pub(super) id: u64,
    /// Where it lies.
    pub(super) path: PathBuf,
}

/// The segments that exist, in the order of their ids; the last is the active one. The segments
/// that were found at the start come first, until the caller has flushed what was in them.
#[derive(Debug, Default)]
pub(super) struct LiveSegments {
    replayed: Vec<Replayed>,
    segments: VecDeque<Live>,
}

#[derive(Debug)]
struct Replayed {
    id: u64,
    path: PathBuf,
    bytes: u64,
}

#[derive(Debug)]
struct Live {
    id: u64,
    path: PathBuf,
    /// How far it is written.
    end: u64,
    /// Families with unflushed data, sorted, each with where its last record ends. A handful in
    /// practice: searching them costs less than hashing.
    dirty: Vec<(u32, u64)>,
}

impl LiveSegments {
    /// Adds a segment of an earlier run.
    pub(super) fn add_replayed(&mut self, id: u64, path: PathBuf, bytes: u64) {
        self.replayed.push(Replayed { id, path, bytes });
    }

    /// Adds a segment, which is the active one from now on.
    pub(super) fn activate(&mut self, id: u64, path: PathBuf) {
        self.segments.push_back(Live { id, path, end: 0, dirty: Vec::new() });
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

    /// How many segments exist.
    pub(super) fn len(&self) -> usize {
        self.replayed.len() + self.segments.len()
    }

    /// Ids of all segments, ascending.
    pub(super) fn ids(&self) -> Vec<u64> {
        let replayed = self.replayed.iter().map(|replayed| replayed.id);
        replayed.chain(self.segments.iter().map(|live| live.id)).collect()
    }

    /// Whether [`LiveSegments::take_obsolete`] would return anything.
    pub(super) fn has_obsolete(&self) -> bool {
        self.inactive().any(|live| live.dirty.is_empty())
    }

    /// Removes and returns the segments without dirty families, except the active one.
    pub(super) fn take_obsolete(&mut self) -> Vec<Obsolete> {
        let active = self.segments.back().map(|live| live.id);
        let mut obsolete = Vec::new();
        self.segments.retain(|live| {
            let keep = !live.dirty.is_empty() || Some(live.id) == active;
            if !keep {
                obsolete.push(Obsolete { id: live.id, path: live.path.clone() });
            }
            keep
        });
        obsolete
    }

    /// Whether [`LiveSegments::take_replayed`] would return anything.
    pub(super) fn has_replayed(&self) -> bool {
        !self.replayed.is_empty()
    }

    /// Removes and returns the segments of earlier runs.
    pub(super) fn take_replayed(&mut self) -> Vec<Obsolete> {
        let of = |replayed: Replayed| Obsolete { id: replayed.id, path: replayed.path };
        self.replayed.drain(..).map(of).collect()
    }

    /// The active segment, if it is the only one and holds nothing that is not flushed.
    pub(super) fn last_unneeded(&self) -> Option<PathBuf> {
        let last = self.segments.back()?;
        (self.len() == 1 && last.dirty.is_empty()).then(|| last.path.clone())
    }

    /// Bytes that have been written into the segments that exist.
    pub(super) fn total_bytes(&self) -> u64 {
        let replayed: u64 = self.replayed.iter().map(|replayed| replayed.bytes).sum();
        replayed + self.segments.iter().map(|live| live.end).sum::<u64>()
    }

    /// Who pins the oldest segment that has unflushed data, be it the active one.
    pub(super) fn oldest_dirty(&self) -> Option<OldestDirty> {
        let oldest = self.segments.iter().find(|live| !live.dirty.is_empty())?;
        let families = oldest.dirty.iter().map(|dirty| dirty.0).collect();
        Some(OldestDirty { segment: oldest.id, families })
    }

    fn inactive(&self) -> impl Iterator<Item = &Live> {
        let count = self.segments.len().saturating_sub(1);
        self.segments.iter().take(count)
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
        live.activate(1, "1".into());
        live.mark(&[7, 3], 100);
        live.mark(&[3], 200);
        live.activate(2, "2".into());
        live.mark(&[9], 50);
        assert_eq!(live.oldest_dirty().unwrap().families, vec![3, 7]);
        live.clean(7, at(1, 99));
        assert_eq!(live.oldest_dirty().unwrap().families, vec![3, 7], "a later record of 7");
        live.clean(7, at(1, 100));
        live.clean(3, at(1, 199));
        assert_eq!(live.oldest_dirty().unwrap().families, vec![3]);
        assert!(!live.has_obsolete());
        live.clean(3, at(2, 0));
        live.clean(9, at(2, 50));
        assert_eq!(live.oldest_dirty(), None);
        assert_eq!(live.total_bytes(), 250);
        assert_eq!(live.take_obsolete(), vec![Obsolete { id: 1, path: "1".into() }]);
        assert_eq!(live.ids(), vec![2]);
    }

    #[test]
    fn a_clean_segment_between_dirty_ones_is_obsolete() {
        let mut live = LiveSegments::default();
        live.add_replayed(5, "5".into(), 10);
        for id in 11..14 {
            live.activate(id, id.to_string().into());
            live.mark(&[id as u32], 100);
        }
        live.clean(12, at(12, 100));
        assert_eq!(live.take_obsolete().len(), 1);
        assert_eq!(live.ids(), vec![5, 11, 13]);
        assert_eq!(live.take_replayed().len(), 1);
        assert_eq!(live.total_bytes(), 200);
    }
}
