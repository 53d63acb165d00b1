use super::*;
use crate::model::comparator::Comparator;
use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema, Schema};
use crate::repair::compare::TreeHash;
use crate::ring::{Partitioner, Token};
use crate::storage::compaction::GcSpan;
use crate::storage::family::MergeNotes;

const FAMILY: FamilyId = FamilyId(0);

/// Families whose columns are in this order.
fn schema(columns: Comparator) -> Schema {
    let kind = ColumnFamilyKind::Standard { columns };
    let family =
        |n: usize| ColumnFamilySchema::new("Blog".into(), format!("Authors{n}"), kind.clone());
    Schema::new((0..20).map(family).map(Arc::new))
}

fn context(schema: &Schema) -> BodyContext<'_> {
    BodyContext { schema, partitioner: Partitioner::Random }
}

fn range(start: u128, end: u128) -> TokenRange {
    TokenRange { start: Token::Random(start), end: Token::Random(end) }
}

fn division(end: u128, depth: u8) -> Division {
    Division { ranges: vec![range(0, end)], shape: Shape::Even(depth) }
}

fn leaves(Division { ranges, shape }: &Division) -> Leaves {
    Leaves::new(Partitioner::Random, ranges, shape).unwrap()
}

fn tables(generations: &[u64]) -> BTreeMap<u64, TableIdentity> {
    let identity =
        |it: u64| TableIdentity { bytes: it * 100, properties_crc: it as u32, is_legacy: it == 2 };
    generations.iter().map(|it| (*it, identity(*it))).collect()
}

fn merge(old: &[u64], new: &[u64], latest_dropped: Option<i32>) -> Arc<Merge> {
    let notes = MergeNotes { latest_dropped, ..MergeNotes::default() };
    Arc::new(Merge { old: old.to_vec(), new: new.to_vec(), notes })
}

/// Hashes of SSTables 1 and 2, with a row in each of two leaves. A deletion of second 20 counts in
/// the second of these, one of second 10 does not count any more.
fn filled() -> Leaves {
    let mut filled = leaves(&division(64, 4));
    filled.add(&Token::Random(5), Some(&TreeHash::from([7; 32])), GcSpan::default());
    let span = GcSpan { latest_dropped: 10, earliest_kept: 20 };
    filled.add(&Token::Random(64), Some(&TreeHash::from([8; 32])), span);
    filled
}

fn remembered() -> Remembered {
    let mut remembered = Remembered::default();
    remembered.keep(FAMILY, tables(&[1, 2]), division(64, 4), filled());
    remembered
}

fn find(now: &[u64], merges: &[Arc<Merge>], division: &Division) -> Option<Known> {
    let now = tables(now);
    let tables = Tables { now: &now, merges };
    remembered().find(FAMILY, tables, division, &leaves(division))
}

/// Number of leaves that have to be read for this time.
fn unknown(known: Option<Known>, gc_before: i32) -> usize {
    known.unwrap().leaves.empty_unknown(gc_before).len()
}

#[test]
fn known_hashes_serve_until_something_changes() {
    let same = division(64, 4);
    let known = find(&[1, 2], &[], &same).unwrap();
    assert_eq!(known, Known { leaves: filled(), added: BTreeSet::new() });
    for (gc_before, count) in [(9, 1), (10, 0), (19, 0), (20, 1)] {
        assert_eq!(unknown(Some(known.clone()), gc_before), count, "{gc_before}");
    }
    let wider = find(&[1, 2], &[], &division(64, 2)).unwrap();
    assert_eq!(wider.leaves.hashes()[0], TreeHash::from([7; 32]));
    assert_eq!(unknown(Some(wider), 20), 1);
    assert_eq!(find(&[1, 2], &[], &division(64, 5)), None, "narrower than what is known");
    assert_eq!(find(&[1, 2], &[], &division(128, 4)), None, "more than what is known");
    assert_eq!(remembered().shape(FAMILY, &same.ranges), Some(&same.shape));
    assert_eq!(remembered().shape(FamilyId(1), &same.ranges), None);
}

#[test]
fn sstables_that_were_added_are_told_and_those_that_are_gone_end_it() {
    let same = division(64, 4);
    let known = find(&[1, 2, 3, 5], &[], &same).unwrap();
    assert_eq!((known.leaves, known.added), (filled(), BTreeSet::from([3, 5])));
    assert_eq!(find(&[1, 3], &[], &same), None);
    let mut other = tables(&[1, 2]);
    other.insert(2, TableIdentity { bytes: 200, properties_crc: 9, is_legacy: false });
    let tables = Tables { now: &other, merges: &[] };
    let found = remembered().find(FAMILY, tables, &same, &leaves(&same));
    assert_eq!(found, None, "another one of the same generation");
}

#[test]
fn merges_change_nothing_but_where_they_drop_a_deletion_that_counts() {
    let same = division(64, 4);
    let one = [merge(&[1, 2], &[3], None)];
    assert_eq!(find(&[3], &one, &same).unwrap(), Known { leaves: filled(), added: [].into() });
    let chain = [
        merge(&[1], &[3, 4], Some(10)),
        merge(&[7, 8], &[9], Some(1000)),
        merge(&[2, 3, 4], &[10], Some(19)),
    ];
    let known = find(&[9, 10], &chain, &same).unwrap();
    assert_eq!((known.leaves, known.added), (filled(), [9].into()));
    // The deletion of second 20 may be gone.
    assert_eq!(unknown(find(&[3], &[merge(&[1, 2], &[3], Some(20))], &same), 15), 1);
    // What came of a merge is gone as well.
    assert_eq!(find(&[4], &one, &same), None);
}

#[test]
fn a_merge_with_unknown_sstables_counts_as_added() {
    let same = division(64, 4);
    let mixed = [merge(&[2, 3], &[4], None), merge(&[4, 5], &[6], Some(7))];
    let known = find(&[1, 6], &mixed, &same).unwrap();
    assert_eq!((known.leaves, known.added), (filled(), [6].into()));
    // A deletion of the unknown one may have taken a row with it that is in no SSTable now.
    assert_eq!(find(&[1, 4], &[merge(&[2, 3], &[4], Some(7))], &same), None);
}

#[test]
fn a_merge_with_recorded_keys_changes_no_other_leaves() {
    let same = division(64, 4);
    let mut named = Merge::clone(&merge(&[2, 3, 4], &[5], Some(10)));
    named.notes.keys = BTreeMap::from([(3, vec![Token::Random(6), Token::Random(7)]), (4, vec![])]);
    let known = find(&[1, 5], &[Arc::new(named.clone())], &same).unwrap();
    assert_eq!(known.added, [].into());
    assert_eq!(known.leaves.hashes(), filled().hashes());
    assert_eq!(unknown(Some(known), 15), 1, "tokens 5 to 8 are one leaf");
    // A deletion that counted may be gone from the SSTable that is known.
    named.notes.latest_dropped = Some(20);
    assert_eq!(unknown(find(&[1, 5], &[Arc::new(named.clone())], &same), 15), 2);
    named.notes.keys.remove(&4);
    assert_eq!(find(&[1, 5], &[Arc::new(named)], &same), None);
}

#[test]
fn there_is_a_bound() {
    let mut remembered = Remembered::default();
    for family in 0..20 {
        let wide = division(1 << 40, 15);
        remembered.keep(FamilyId(family), tables(&[1]), wide.clone(), leaves(&wide));
    }
    assert_eq!(remembered.entries.len(), 8);
    assert_eq!(remembered.entries[0].family, FamilyId(12));
    let content = remembered.save(FamilyId(12), context(&schema(Comparator::Bytes)));
    assert!((content.len() as u64) < MAX_BYTES / 8);
}

#[test]
fn a_wider_division_of_the_same_ranges_follows_from_a_narrower_one() {
    let mut remembered = remembered();
    let (wide, narrow, other) = (division(64, 2), division(64, 6), division(128, 2));
    for division in [&wide, &other, &narrow] {
        remembered.keep(FAMILY, tables(&[1]), division.clone(), leaves(division));
    }
    let kept: Vec<_> = remembered.entries.iter().map(|entry| &entry.division).collect();
    assert_eq!(kept, [&other, &narrow]);
}

#[test]
fn a_file_gives_back_what_was_written_or_nothing() {
    let mut before = remembered();
    let at = Division {
        ranges: vec![range(5, 9), range(90, 1)],
        shape: Shape::At([7, 100].map(Token::Random).to_vec()),
    };
    let mut unknown = leaves(&at);
    unknown.lose_if(|_| true);
    before.keep(FAMILY, tables(&[3]), at, unknown);
    let content = before.save(FAMILY, context(&schema(Comparator::Bytes)));
    let load = |content: &[u8], columns| {
        let mut after = Remembered::default();
        after.load(FAMILY, content, context(&schema(columns)));
        assert!(after.is_loaded(FAMILY));
        after.entries
    };
    assert_eq!(load(&content, Comparator::Bytes), before.entries);
    assert_eq!(load(&content, Comparator::Long), [], "columns have another order");
    assert_eq!(load(&[], Comparator::Bytes), []);
    for at in 0..content.len() {
        let mut damaged = content.clone();
        damaged[at] ^= 1 << (at % 8);
        assert_eq!(load(&damaged, Comparator::Bytes), [], "byte {at}");
        assert_eq!(load(&content[..at], Comparator::Bytes), [], "cut at {at}");
    }
}
