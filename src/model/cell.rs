//! A cell: one column at its place in a row.
//!
//! Rows of both kinds are kept flat, as cells in the order of (super column name, column name); in
//! a standard column family the super column names are empty. The deletion of a whole super column
//! is a cell as well: it has an empty column name and so stands before the columns it deletes.
//! A slice of a super column thereby touches only that slice, however large the super column is.

use super::deletion::Deletion;
use crate::base::clock::Now;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// Longest name of a column or super column, in bytes, as in 0.6.
pub const MAX_NAME_LENGTH: usize = 65535;

/// Statement of a cell about its place. The numbers are stored: do not change them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CellState {
    /// The column has the value.
    Live = 0,
    /// The column is deleted; the value is the local deletion time, four bytes big-endian.
    Tombstone = 1,
    /// The whole super column is deleted up to the timestamp; the value as in a tombstone.
    SuperTombstone = 2,
    /// The column has the value until a time, and is deleted then: see [`Expiry`].
    Expiring = 3,
    /// All columns of the same super column whose names go on from this one with a zero byte are
    /// deleted up to the timestamp; the value as in a tombstone. The column itself has no value.
    PrefixTombstone = 4,
    /// A range of names is deleted up to the timestamp: see [`super::range_deletion`]. The value
    /// as in a tombstone.
    RangeTombstone = 5,
}

impl CellState {
    /// The state with this stored number.
    pub fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Live),
            1 => Some(Self::Tombstone),
            2 => Some(Self::SuperTombstone),
            3 => Some(Self::Expiring),
            4 => Some(Self::PrefixTombstone),
            5 => Some(Self::RangeTombstone),
            _ => None,
        }
    }

    /// Whether a cell of this state can have a stored value of this length.
    fn can_store(self, length: usize) -> bool {
        match self {
            Self::Live => true,
            Self::Expiring => length >= Expiry::LENGTH,
            _ => length == 4,
        }
    }

    /// A bit of its own, for sets of states.
    pub fn flag(self) -> u8 {
        1 << self as u8
    }

    /// The flags of those that 0.6 does not have.
    pub const LATER: u8 = !0b111;

    /// Whether 0.6 has it, too.
    pub fn is_original(self) -> bool {
        self.flag() & Self::LATER == 0
    }

    /// Rank among cells of one place and timestamp: deletions hide what has a value.
    fn rank(self) -> u8 {
        if self == Self::Expiring { Self::Live as u8 } else { self as u8 }
    }
}

/// The end of a value. The stored value of an expiring cell begins with it: `u32` time to live,
/// `i64` second, both big-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expiry {
    /// Seconds for which the value was to live, as the client gave them.
    pub ttl: u32,
    /// The second since the Unix epoch in which it is there no more.
    pub at: i64,
}

impl Expiry {
    /// Bytes of the stored form.
    pub const LENGTH: usize = 4 + 8;

    /// The stored form.
    pub fn encode(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..4].copy_from_slice(&self.ttl.to_be_bytes());
        bytes[4..].copy_from_slice(&self.at.to_be_bytes());
        bytes
    }

    fn decode(stored: &[u8]) -> Option<Self> {
        let (ttl, rest) = stored.split_first_chunk()?;
        let at = i64::from_be_bytes(*rest.first_chunk()?);
        Some(Self { ttl: u32::from_be_bytes(*ttl), at })
    }
}

/// A column at its place in a row: immutable, a view into shared bytes, cheap to clone.
///
/// The bytes are those of the mutation that wrote it, or of the block of the file that holds it,
/// and live as long as any cell in them.
#[derive(Clone)]
pub struct Cell {
    /// Holds super column name, column name and value, in this order, without gaps.
    bytes: Arc<[u8]>,
    start: u32,
    value_length: u32,
    super_length: u16,
    name_length: u16,
    state: CellState,
    timestamp: i64,
}

impl Cell {
    /// Bytes of an encoded cell before its names: state, timestamp and three lengths.
    pub const HEADER_LENGTH: usize = 1 + 8 + 2 + 2 + 4;

    /// A live column.
    pub fn live(super_name: &[u8], name: &[u8], value: &[u8], timestamp: i64) -> Self {
        let bytes: Arc<[u8]> = [super_name, name, value].concat().into();
        Self {
            bytes,
            start: 0,
            value_length: u32::try_from(value.len()).expect("requests are bounded far below 4 GB"),
            super_length: name_length(super_name),
            name_length: name_length(name),
            state: CellState::Live,
            timestamp,
        }
    }

    /// A column with a value that expires.
    pub fn expiring(place: (&[u8], &[u8]), value: &[u8], timestamp: i64, expiry: Expiry) -> Self {
        let stored = [&expiry.encode(), value].concat();
        let live = Self::live(place.0, place.1, &stored, timestamp);
        Self { state: CellState::Expiring, ..live }
    }

    /// A deleted column.
    pub fn tombstone(super_name: &[u8], name: &[u8], deletion: Deletion) -> Self {
        let time = deletion.local_deletion_time.to_be_bytes();
        let live = Self::live(super_name, name, &time, deletion.marked_for_delete_at);
        Self { state: CellState::Tombstone, ..live }
    }

    /// A deleted super column.
    pub fn super_tombstone(super_name: &[u8], deletion: Deletion) -> Self {
        Self { state: CellState::SuperTombstone, ..Self::tombstone(super_name, b"", deletion) }
    }

    /// A deleted prefix of column names.
    pub fn prefix_tombstone((super_name, name): (&[u8], &[u8]), deletion: Deletion) -> Self {
        let state = CellState::PrefixTombstone;
        Self { state, ..Self::tombstone(super_name, name, deletion) }
    }

    /// A deleted range of names of this place, which the column family tells.
    pub fn range_tombstone((super_name, name): (&[u8], &[u8]), deletion: Deletion) -> Self {
        let state = CellState::RangeTombstone;
        Self { state, ..Self::tombstone(super_name, name, deletion) }
    }

    /// The prefix of the name by which a prefix tombstone could delete it: what stands before the
    /// first zero byte.
    pub fn prefix(&self) -> Option<&[u8]> {
        prefix_of(self.name())
    }

    /// Appends the stored form: state, timestamp, lengths of super column name, column name and
    /// value (big-endian), then these three.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let parts = CellParts {
            state: self.state,
            super_name: self.super_name(),
            name: self.name(),
            value: self.stored_value(),
            timestamp: self.timestamp,
        };
        parts.encode(out);
    }

    /// State, timestamp and length of the stored form of each of the cells that stand in these
    /// bytes one after the other, in their order. It ends with `None` for what is not a cell.
    pub fn heads(mut bytes: &[u8]) -> impl Iterator<Item = Option<(CellState, i64, usize)>> {
        std::iter::from_fn(move || {
            if bytes.is_empty() {
                return None;
            }
            let head = Self::head(bytes);
            bytes = head.map_or(&[][..], |(_, _, length)| &bytes[length..]);
            Some(head)
        })
    }

    fn head(bytes: &[u8]) -> Option<(CellState, i64, usize)> {
        let length = Self::length_at(bytes, 0).filter(|length| *length <= bytes.len())?;
        let (state, timestamp) = (CellState::from_byte(bytes[0])?, bytes[1..9].first_chunk()?);
        let value_length = u32::from_be_bytes(*bytes[13..17].first_chunk()?);
        let is_sound = state.can_store(value_length as usize);
        is_sound.then_some((state, i64::from_be_bytes(*timestamp), length))
    }

    /// The cell that is encoded at `start`, sharing the bytes; `None` if they are not a cell.
    pub fn decode(bytes: &Arc<[u8]>, start: usize) -> Option<Self> {
        let header = bytes.get(start..)?.first_chunk::<{ Self::HEADER_LENGTH }>()?;
        let [state, t0, t1, t2, t3, t4, t5, t6, t7, s0, s1, n0, n1, v0, v1, v2, v3] = *header;
        let cell = Self {
            bytes: Arc::clone(bytes),
            start: u32::try_from(start + Self::HEADER_LENGTH).ok()?,
            value_length: u32::from_be_bytes([v0, v1, v2, v3]),
            super_length: u16::from_be_bytes([s0, s1]),
            name_length: u16::from_be_bytes([n0, n1]),
            state: CellState::from_byte(state)?,
            timestamp: i64::from_be_bytes([t0, t1, t2, t3, t4, t5, t6, t7]),
        };
        let fits = start.checked_add(cell.encoded_length())? <= bytes.len();
        let sound = cell.state.can_store(cell.value_length as usize);
        (fits && sound).then_some(cell)
    }

    /// The place of the cell that is encoded at `start`, for searching without decoding.
    pub fn place_at(bytes: &[u8], start: usize) -> Option<(&[u8], &[u8])> {
        let header = bytes.get(start..)?.first_chunk::<{ Self::HEADER_LENGTH }>()?;
        let super_length = u16::from_be_bytes([header[9], header[10]]) as usize;
        let name_length = u16::from_be_bytes([header[11], header[12]]) as usize;
        let names = bytes.get(start + Self::HEADER_LENGTH..)?;
        Some((names.get(..super_length)?, names.get(super_length..super_length + name_length)?))
    }

    /// Length of the stored form of the cell that is encoded at `start`, as its header tells it.
    pub fn length_at(bytes: &[u8], start: usize) -> Option<usize> {
        let header = bytes.get(start..)?.first_chunk::<{ Self::HEADER_LENGTH }>()?;
        let [.., s0, s1, n0, n1, v0, v1, v2, v3] = *header;
        let names = u16::from_be_bytes([s0, s1]) as usize + u16::from_be_bytes([n0, n1]) as usize;
        names.checked_add(u32::from_be_bytes([v0, v1, v2, v3]) as usize + Self::HEADER_LENGTH)
    }

    /// Length of the stored form in bytes.
    pub fn encoded_length(&self) -> usize {
        Self::HEADER_LENGTH + self.data_length()
    }

    fn data_length(&self) -> usize {
        self.super_length as usize + self.name_length as usize + self.value_length as usize
    }

    fn part(&self, offset: usize, length: usize) -> &[u8] {
        let start = self.start as usize + offset;
        &self.bytes[start..start + length]
    }

    /// Name of the super column; empty in a standard column family.
    pub fn super_name(&self) -> &[u8] {
        self.part(0, self.super_length as usize)
    }

    /// Name of the column; empty for the deletion of a super column.
    pub fn name(&self) -> &[u8] {
        self.part(self.super_length as usize, self.name_length as usize)
    }

    /// The value that the client gave; for a tombstone its local deletion time.
    pub fn value(&self) -> &[u8] {
        let prefix = if self.state == CellState::Expiring { Expiry::LENGTH } else { 0 };
        &self.stored_value()[prefix..]
    }

    /// The value as it is stored: that of an expiring cell begins with its [`Expiry`].
    pub fn stored_value(&self) -> &[u8] {
        let names = self.super_length as usize + self.name_length as usize;
        self.part(names, self.value_length as usize)
    }

    /// The end of the value, if it has one.
    pub fn expiry(&self) -> Option<Expiry> {
        (self.state == CellState::Expiring).then(|| Expiry::decode(self.stored_value())).flatten()
    }

    /// The place in the row, as [`super::schema::ColumnFamilySchema::compare`] takes it.
    pub fn place(&self) -> (&[u8], &[u8]) {
        (self.super_name(), self.name())
    }

    /// The timestamp that the client gave.
    pub fn timestamp(&self) -> i64 {
        self.timestamp
    }

    /// Live, deleted, or something else.
    pub fn state(&self) -> CellState {
        self.state
    }

    /// Whether the column has a value that stays.
    pub fn is_live(&self) -> bool {
        self.state == CellState::Live
    }

    /// Whether the column has a value at a time.
    pub fn is_live_at(&self, now: &mut Now<'_>) -> bool {
        self.is_live() || self.expiry().is_some_and(|expiry| now.second() < expiry.at)
    }

    /// The deletion of a super column, if this cell is one.
    pub fn super_deletion(&self) -> Option<Deletion> {
        self.deletion().filter(|_| self.state == CellState::SuperTombstone)
    }

    /// The part that a tombstone deletes and when it was made; `None` for a live column. An
    /// expiring one counts as the tombstone that it becomes: its grace period is over only after
    /// its own end.
    pub fn deletion(&self) -> Option<Deletion> {
        let time = match self.state {
            CellState::Live => return None,
            CellState::Expiring => self.expiry().map(|it| i32::try_from(it.at).unwrap_or(i32::MAX)),
            _ => self.stored_value().first_chunk().copied().map(i32::from_be_bytes),
        };
        Some(Deletion::at(self.timestamp, time.unwrap_or(i32::MIN)))
    }

    /// Bytes that the column counts against `MemtableThroughputInMB`: its serialized size in 0.6.
    pub fn weight(&self) -> usize {
        2 + 1 + 8 + 4 + self.data_length()
    }

    /// Which of two cells of one place counts. Commutative and associative, so that replicas and
    /// files can be merged in any order: the greater timestamp; on a tie a tombstone before what
    /// has a value; of two values the greater, then the one that lasts longer; of two tombstones
    /// the later deletion time. At last the greater name, where the order knows several names for
    /// one place. The present time has no say: replicas would differ by their clocks.
    #[must_use]
    pub fn reconcile(self, other: Self) -> Self {
        let rank = |cell: &Self| (cell.timestamp, cell.state.rank());
        let by_name = || (self.super_name(), self.name()).cmp(&(other.super_name(), other.name()));
        let by_value = || self.compare_values(&other);
        match rank(&self).cmp(&rank(&other)).then_with(by_value).then_with(by_name) {
            Ordering::Less => other,
            _ => self,
        }
    }

    /// The order of what two cells of one rank say.
    fn compare_values(&self, other: &Self) -> Ordering {
        match self.state {
            CellState::Live | CellState::Expiring => {
                let end = |cell: &Self| cell.expiry().map(|it| (it.at, it.ttl));
                // None of both is one without an end.
                let is_endless = |cell: &Self| cell.state == CellState::Live;
                let by_end = || (is_endless(self), end(self)).cmp(&(is_endless(other), end(other)));
                self.value().cmp(other.value()).then_with(by_end)
            }
            CellState::Tombstone => self.stored_value().cmp(other.stored_value()),
            _ => {
                let time = |cell: &Self| cell.deletion().map(|it| it.local_deletion_time);
                time(self).cmp(&time(other))
            }
        }
    }
}

/// The part of a column name before the first zero byte, unless it is empty.
pub fn prefix_of(name: &[u8]) -> Option<&[u8]> {
    let end = name.iter().position(|byte| *byte == 0).filter(|end| *end > 0)?;
    Some(&name[..end])
}

fn name_length(name: &[u8]) -> u16 {
    u16::try_from(name.len()).expect("names are validated to 65535 bytes")
}

/// The parts of a cell that is about to be encoded.
#[derive(Debug, Clone, Copy)]
pub struct CellParts<'a> {
    /// Statement of the cell.
    pub state: CellState,
    /// Name of the super column, or empty.
    pub super_name: &'a [u8],
    /// Name of the column, or empty.
    pub name: &'a [u8],
    /// The value as it is stored, or the local deletion time.
    pub value: &'a [u8],
    /// The client's timestamp.
    pub timestamp: i64,
}

impl<'a> CellParts<'a> {
    /// The parts of the cell that is encoded at the front, and its length; `None` if there is none.
    pub fn decode(bytes: &'a [u8]) -> Option<(Self, usize)> {
        let (state, timestamp, length) = Cell::head(bytes)?;
        let (super_name, name) = Cell::place_at(bytes, 0)?;
        let value = bytes.get(Cell::HEADER_LENGTH + super_name.len() + name.len()..length)?;
        Some((Self { state, super_name, name, value, timestamp }, length))
    }

    /// Appends the stored form that [`Cell::decode`] reads.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let value_length =
            u32::try_from(self.value.len()).expect("requests are bounded far below 4 GB");
        out.push(self.state as u8);
        out.extend_from_slice(&self.timestamp.to_be_bytes());
        out.extend_from_slice(&name_length(self.super_name).to_be_bytes());
        out.extend_from_slice(&name_length(self.name).to_be_bytes());
        out.extend_from_slice(&value_length.to_be_bytes());
        out.extend_from_slice(self.super_name);
        out.extend_from_slice(self.name);
        out.extend_from_slice(self.value);
    }
}

impl PartialEq for Cell {
    fn eq(&self, other: &Self) -> bool {
        self.place() == other.place()
            && self.stored_value() == other.stored_value()
            && self.timestamp == other.timestamp
            && self.state == other.state
    }
}

impl Eq for Cell {}

impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (super_name, name) = self.place();
        if !super_name.is_empty() {
            write!(f, "{}:", super_name.escape_ascii())?;
        }
        write!(f, "{}@{}", name.escape_ascii(), self.timestamp)?;
        match self.state {
            CellState::Live => write!(f, "={}", self.value().escape_ascii()),
            CellState::Expiring => {
                write!(f, "={} {:?}", self.value().escape_ascii(), self.expiry())
            }
            state => write!(f, " {state:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_cell() -> impl Strategy<Value = Cell> {
        let value = proptest::collection::vec(0u8..3, 0..3);
        (0i64..3, 0i32..3, value, 0u8..4).prop_map(|(timestamp, time, value, kind)| match kind {
            0 => Cell::live(b"s", b"n", &value, timestamp),
            1 => Cell::tombstone(b"s", b"n", Deletion::at(timestamp, time)),
            2 => Cell::prefix_tombstone((b"s", b"n"), Deletion::at(timestamp, time)),
            _ => {
                let expiry = Expiry { ttl: timestamp as u32, at: time.into() };
                Cell::expiring((b"s", b"n"), &value, timestamp / 2, expiry)
            }
        })
    }

    fn any_super_tombstone() -> impl Strategy<Value = Cell> {
        (0i64..3, -1i32..2)
            .prop_map(|(at, time)| Cell::super_tombstone(b"s", Deletion::at(at, time)))
    }

    fn laws(a: &Cell, b: &Cell, c: &Cell) {
        let merge = |x: &Cell, y: &Cell| x.clone().reconcile(y.clone());
        assert_eq!(merge(a, b), merge(b, a));
        assert_eq!(merge(&merge(a, b), c), merge(a, &merge(b, c)));
        assert_eq!(merge(a, a), a.clone());
    }

    proptest! {
        #[test]
        fn reconciling_commutes_associates_and_is_idempotent(
            a in any_cell(), b in any_cell(), c in any_cell()
        ) {
            laws(&a, &b, &c);
        }

        #[test]
        fn so_does_merging_super_tombstones(
            a in any_super_tombstone(), b in any_super_tombstone(), c in any_super_tombstone()
        ) {
            laws(&a, &b, &c);
        }

        #[test]
        fn decoding_arbitrary_bytes_never_reads_outside(bytes: Vec<u8>, start in 0usize..40) {
            let bytes: Arc<[u8]> = bytes.into();
            let _ = Cell::place_at(&bytes, start);
            let cell = Cell::decode(&bytes, start);
            if let Some(cell) = &cell {
                prop_assert!(start + cell.encoded_length() <= bytes.len());
                let _ = (cell.super_name(), cell.name(), cell.value(), cell.deletion());
            }
            let head = bytes.get(start..).and_then(|rest| Cell::heads(rest).next());
            let told = |cell: &Cell| (cell.state(), cell.timestamp(), cell.encoded_length());
            prop_assert_eq!(head.flatten(), cell.as_ref().map(told));
            let parts = bytes.get(start..).and_then(CellParts::decode).map(|(parts, length)| {
                let mut encoded = Vec::new();
                parts.encode(&mut encoded);
                (encoded, length)
            });
            let encoded = cell.map(|cell| {
                let mut encoded = Vec::new();
                cell.encode(&mut encoded);
                (encoded, cell.encoded_length())
            });
            prop_assert_eq!(parts, encoded);
        }
    }

    #[test]
    fn the_stored_form_is_read_back() {
        let cells = [
            Cell::live(b"sup", b"name", b"value", -5),
            Cell::live(b"", b"n", b"", i64::MAX),
            Cell::tombstone(b"", b"n", Deletion::at(7, 1_300_000_000)),
            Cell::super_tombstone(b"sup", Deletion::at(i64::MIN, -1)),
            Cell::expiring((b"s", b"n"), b"value", 3, Expiry { ttl: 60, at: 1 << 33 }),
            Cell::prefix_tombstone((b"s", b"n"), Deletion::at(5, 6)),
            Cell::range_tombstone((b"", &[0; 3]), Deletion::at(7, 8)),
        ];
        let mut bytes = vec![0xee; 3];
        for cell in &cells {
            cell.encode(&mut bytes);
        }
        let bytes: Arc<[u8]> = bytes.into();
        let mut at = 3;
        for cell in &cells {
            let read = Cell::decode(&bytes, at).unwrap();
            assert_eq!(Cell::place_at(&bytes, at), Some(cell.place()));
            assert_eq!(&read, cell);
            at += read.encoded_length();
        }
        assert_eq!(at, bytes.len());
        let told = |cell: &Cell| (cell.state(), cell.timestamp(), cell.encoded_length());
        assert!(Cell::heads(&bytes[3..]).eq(cells.iter().map(|cell| Some(told(cell)))));
        let cut: Vec<_> = Cell::heads(&bytes[3..bytes.len() - 1]).collect();
        assert_eq!((cut.len(), cut[cells.len() - 1]), (cells.len(), None));
    }

    #[test]
    fn ties_go_to_the_tombstone_then_to_the_greater_value() {
        let old = Cell::live(b"", b"n", b"z", 1);
        let new = Cell::live(b"", b"n", b"a", 2);
        let same = Cell::live(b"", b"n", b"ab", 2);
        let dead = Cell::tombstone(b"", b"n", Deletion::at(2, 0));
        assert_eq!(old.clone().reconcile(new.clone()), new);
        assert_eq!(new.clone().reconcile(same.clone()), same);
        assert_eq!(same.reconcile(dead.clone()), dead);
        // The original keeps whichever it sees first.
        let deleted_later = Cell::tombstone(b"", b"n", Deletion::at(2, 1));
        assert_eq!(dead.clone().reconcile(deleted_later.clone()), deleted_later);
        assert_eq!(deleted_later.clone().reconcile(dead), deleted_later);
        // The original subtracts timestamps and lets the wrong one win when that overflows.
        let (least, greatest) =
            (Cell::live(b"", b"n", b"", -5), Cell::live(b"", b"n", b"", i64::MAX));
        assert_eq!(least.reconcile(greatest.clone()), greatest);
    }
}
