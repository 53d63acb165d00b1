//! Reads segments of the commit log of 0.4, 0.5 and 0.6.
//!
//! ```text
//! i64  bytes of the header:
//!     BitSet   numbers of the column families whose writes here are not all in SSTables, as Java
//!              serializes it
//!     i32      number of column families, each: i32 offset of the first such write, or 0
//! for each write, to the end of the file:
//!     i64      bytes of the write
//!     the write, as `model::original_mutation` has it
//!     i64      CRC-32 of the write       not in 0.4, where families do not repeat their names
//! ```
//!
//! Any change of the configuration numbers the families anew, so that only the least offset of a
//! header counts. The header is rewritten in place and has no checksum: an offset where no sound
//! write stands is not believed. 0.4 applies writes to memtables in another order than it logs
//! them, so that its offsets do not tell what was flushed: such a segment is read from its first
//! write.

use super::reader::Window;
use crate::base::bytes::{ByteReader, Malformed};
use crate::base::fs::FileSystem;
use crate::base::java::JavaReader;
use crate::model::mutation::{DecodeError, RowMutation};
use crate::model::original_mutation::{COLUMN_TYPES, Room, read_mutation};
use crate::model::schema::Schema;
use crate::storage::error::ReadError;
use std::path::{Path, PathBuf};

/// A header of more bytes is none. There are four bytes for each column family.
const MOST_HEADER_BYTES: u64 = 1 << 20;

/// Beginning of a serialized `BitSet`.
const BIT_SET: &[u8] = b"\xac\xed\0\x05sr\0\x10java.util.BitSet";

/// Bytes of a serialized `BitSet` before the number of its words.
const BIT_SET_BYTES: usize = 68;

/// Mark after the words, in all but the oldest versions of Java.
const END_OF_OBJECT: u8 = b'x';

/// Bytes of the size of a write, and of its checksum.
const NUMBER_BYTES: u64 = 8;

/// Fewest bytes of a write: keyspace and key of one character, and a number of families.
const LEAST_BYTES: u64 = 3 + 3 + 4;

/// Enough for keyspace, key and the names of a family.
const MOST_NAMES_BYTES: u64 = 6 << 16;

/// Form of the writes of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// That of 0.4.
    Unchecked,
    /// That of 0.5 and 0.6.
    Checked,
}

/// Reads the writes of a segment in their order. Memory depends on the size of a single write.
#[derive(Debug)]
pub struct SegmentReader {
    window: Window,
    form: Form,
}

/// Why a write cannot be read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SegmentError {
    /// The file cannot be read, or a part of it is damaged.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The write is sound, but not one of this configuration.
    #[error("{file}, write at byte {offset}: {source}", file = file.display())]
    Write {
        /// The segment.
        file: PathBuf,
        /// Start of the write.
        offset: u64,
        /// The reason.
        source: DecodeError,
    },
}

impl SegmentReader {
    /// Opens a segment. One that was killed before its header was written is empty.
    pub fn open(fs: &dyn FileSystem, path: &Path) -> Result<Self, ReadError> {
        let mut window = Window::open(fs, path)?;
        let header = Header::read(&mut window)?;
        let (shown, size) = (path.display(), window.size());
        let begin = |start, form| Ok(Self { window: window.again(start), form });
        if let Header::Sound { lowest: None, .. } = header {
            return begin(size, Form::Checked);
        }
        let found = find(&window, header.first(), None)?;
        match (header, found) {
            (Header::Sound { lowest: Some(lowest), first }, Some((_, Form::Checked))) => {
                let here = form_at(&mut window.again(lowest), Some(Form::Checked))?;
                let is_start = lowest >= first && (lowest == size || here.is_some());
                if !is_start && lowest != 0 {
                    log::warn!("{shown}: no write stands at byte {lowest}, so all are replayed");
                }
                begin(if is_start { lowest } else { first }, Form::Checked)
            }
            (Header::Sound { first, .. }, found) => {
                begin(first, found.map_or(Form::Checked, |(_, form)| form))
            }
            // Rewriting a header does not change its size. If that is damaged, so may be more.
            (Header::Damaged { end }, Some((at, form))) => {
                log::warn!("{shown}: the header is damaged, so all writes are replayed");
                begin(if at == end { at } else { NUMBER_BYTES }, form)
            }
            (Header::Damaged { end }, None) if end > size => {
                log::info!("{shown} ends within its header after {size} bytes: it is empty");
                begin(size, Form::Checked)
            }
            (Header::Damaged { .. }, None) => {
                Err(window.again(0).corrupt("neither a header nor a write of a commit log is here"))
            }
        }
    }

    /// Returns the numbers of bytes that were read and that there are.
    pub fn progress(&self) -> (u64, u64) {
        (self.window.position(), self.window.size())
    }

    /// Reads the next write; `None` at the end of the segment, or where it was cut short.
    ///
    /// After damage, or a write that this configuration cannot take, the next call goes on with
    /// what comes after it. Damage has a sound write after it: a process that is killed leaves no
    /// such thing.
    pub fn next_mutation(&mut self, schema: &Schema) -> Result<Option<RowMutation>, SegmentError> {
        let (offset, left) = (self.window.position(), self.window.left());
        if left == 0 {
            return Ok(None);
        }
        let is_checked = self.form == Form::Checked;
        if form_at(&mut self.window, Some(self.form))?.is_some() {
            let length = length_at(&mut self.window)?.unwrap_or_default();
            self.window.fill(NUMBER_BYTES + length)?;
            let body = &self.window.bytes()[NUMBER_BYTES as usize..][..length as usize];
            let read = read_mutation(body, schema, &mut Room::for_body(body), is_checked);
            // Without a checksum a write that was cut short may look like one until its end.
            if is_checked || !matches!(read, Err(DecodeError::Malformed(_))) {
                self.window.skip(self.form.size(length))?;
                let file = self.window.path().to_owned();
                return read.map(Some).map_err(|source| SegmentError::Write {
                    file,
                    offset,
                    source,
                });
            }
        }
        let Some(next) = self.after_damage(offset)? else {
            let path = self.window.path().display();
            log::warn!("{path}: the last {left} bytes, from byte {offset} on, are no whole write");
            self.window.seek(self.window.size());
            return Ok(None);
        };
        let damage = self.window.corrupt("no sound write stands here, but one comes after it");
        self.window.seek(next);
        Err(damage.into())
    }

    /// Finds the next sound write, where the size of the damaged one says or anywhere.
    fn after_damage(&self, offset: u64) -> Result<Option<u64>, ReadError> {
        if let Some(length) = length_at(&mut self.window.again(offset))? {
            let next = offset + self.form.size(length);
            if form_at(&mut self.window.again(next), Some(self.form))?.is_some() {
                return Ok(Some(next));
            }
        }
        Ok(find(&self.window, offset + 1, Some(self.form))?.map(|(at, _)| at))
    }
}

impl Form {
    /// Bytes that a write takes with its size and checksum.
    fn size(self, length: u64) -> u64 {
        let checksum = if self == Self::Checked { NUMBER_BYTES } else { 0 };
        NUMBER_BYTES + length + checksum
    }
}

/// The beginning of a segment.
#[derive(Debug, Clone, Copy)]
enum Header {
    Sound {
        /// Offset of the first write.
        first: u64,
        /// Offset of the first write that may not be in SSTables; 0 if the header does not say.
        lowest: Option<u64>,
    },
    Damaged {
        /// Its end, if its size is right.
        end: u64,
    },
}

impl Header {
    fn read(window: &mut Window) -> Result<Self, ReadError> {
        if window.left() < NUMBER_BYTES {
            return Ok(Self::Damaged { end: NUMBER_BYTES });
        }
        let length = u64::from_be_bytes(window.array()?);
        if length > MOST_HEADER_BYTES {
            return Ok(Self::Damaged { end: 0 });
        }
        let first = NUMBER_BYTES + length;
        if length > window.left() {
            return Ok(Self::Damaged { end: first });
        }
        window.fill(length)?;
        let parsed = parse_header(&window.bytes()[..length as usize]);
        Ok(parsed.map_or(Self::Damaged { end: first }, |lowest| Self::Sound { first, lowest }))
    }

    /// Offset from which writes are looked for.
    fn first(self) -> u64 {
        match self {
            Self::Sound { first, .. } => first,
            Self::Damaged { .. } => NUMBER_BYTES,
        }
    }
}

/// Returns the least offset in a header; 0 if it does not have all that it should have, or one
/// beyond the 2 GB that it can name.
fn parse_header(header: &[u8]) -> Result<Option<u64>, Malformed> {
    let mut reader = ByteReader::new(header);
    if !reader.take(BIT_SET_BYTES)?.starts_with(BIT_SET) {
        return Err(Malformed(0));
    }
    let words = reader.count(8)?;
    let is_dirty = reader.take(words * 8)?.iter().any(|byte| *byte != 0);
    if reader.rest().first() == Some(&END_OF_OBJECT) {
        reader.u8()?;
    }
    let families = reader.count(4)?;
    let (offsets, _) = reader.take(families * 4)?.as_chunks::<4>();
    if !reader.is_empty() {
        return Err(Malformed(reader.position()));
    }
    let offsets = offsets.iter().map(|it| i32::from_be_bytes(*it)).filter(|it| *it != 0);
    let lowest = offsets.map(|it| u64::try_from(it).unwrap_or_default()).min();
    Ok(lowest.or(is_dirty.then_some(0)))
}

/// Finds the first sound write from an offset on.
fn find(
    window: &Window,
    offset: u64,
    form: Option<Form>,
) -> Result<Option<(u64, Form)>, ReadError> {
    let mut window = window.again(offset);
    while window.left() > 0 {
        if let Some(form) = form_at(&mut window, form)? {
            return Ok(Some((window.position(), form)));
        }
        window.skip(1)?;
    }
    Ok(None)
}

/// Returns the size that a write here would have; `None` if there is not as much.
fn length_at(window: &mut Window) -> Result<Option<u64>, ReadError> {
    if window.left() < NUMBER_BYTES {
        return Ok(None);
    }
    window.fill(NUMBER_BYTES)?;
    let length = window.bytes().first_chunk().map_or(0, |it| u64::from_be_bytes(*it));
    let most = (window.left() - NUMBER_BYTES).min(i32::MAX as u64);
    Ok((LEAST_BYTES..=most).contains(&length).then_some(length))
}

/// Returns the form of the write that stands here, if it is sound and, where the form is known, of
/// that form.
fn form_at(window: &mut Window, known: Option<Form>) -> Result<Option<Form>, ReadError> {
    let Some(length) = length_at(window)? else { return Ok(None) };
    window.fill(NUMBER_BYTES + length.min(MOST_NAMES_BYTES))?;
    let names = &window.bytes()[NUMBER_BYTES as usize..];
    let forms = forms_by_names(&names[..names.len().min(length as usize)]).unwrap_or_default();
    let may_be = |form| forms.contains(&form) && known.is_none_or(|it| it == form);
    let size = Form::Checked.size(length);
    if may_be(Form::Checked) && size <= window.left() {
        window.fill(size)?;
        let (body, after) = window.bytes()[NUMBER_BYTES as usize..].split_at(length as usize);
        let crc = after.first_chunk().map_or(0, |it| u64::from_be_bytes(*it));
        if crc == u64::from(crc32fast::hash(body)) {
            return Ok(Some(Form::Checked));
        }
    }
    let is_unchecked = may_be(Form::Unchecked) && !may_be(Form::Checked);
    Ok(is_unchecked.then_some(Form::Unchecked))
}

/// Returns the forms that a write may have that begins with these bytes.
fn forms_by_names(names: &[u8]) -> Result<&'static [Form], Malformed> {
    let mut reader = ByteReader::new(names);
    let (keyspace, key, count) = (reader.utf()?, reader.utf()?, reader.i32()?);
    if keyspace.is_empty() || key.is_empty() || count < 0 {
        return Ok(&[]);
    }
    if count == 0 {
        return Ok(if reader.is_empty() { &[Form::Checked, Form::Unchecked] } else { &[] });
    }
    let (name, second, third) = (reader.utf()?, reader.utf()?, reader.utf()?);
    let is_type = |text: &str| COLUMN_TYPES.contains(&text);
    Ok(match (is_type(&second), is_type(&third)) {
        (_, true) if name == second => &[Form::Checked],
        (true, false) => &[Form::Unchecked],
        _ => &[],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::disk::SimFileSystem;
    use crate::model::cell::CellState;
    use crate::model::comparator::Comparator;
    use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema};
    use proptest::prelude::*;
    use std::io::Read;
    use std::sync::Arc;

    /// Places of the offsets in the headers of the recorded segments, and of the first write.
    const OFFSETS_AT: usize = 93;
    const FIRST: usize = 0x79;

    /// Segments of real servers that got the same writes, and were killed.
    const RECORDED: [&[u8]; 4] = [
        include_bytes!("../../../tests/fixtures/legacy/commitlog-0.4.2.log.gz"),
        include_bytes!("../../../tests/fixtures/legacy/commitlog-0.5.1.log.gz"),
        include_bytes!("../../../tests/fixtures/legacy/commitlog-0.6.0.log.gz"),
        include_bytes!("../../../tests/fixtures/legacy/commitlog-0.6.13.log.gz"),
    ];

    const SYSTEM: &str = "column family system.LocationInfo is not configured";

    /// The writes of the recorded segments, but for those of the system keyspace.
    const WRITES: [&str; 10] = [
        "k1 Standard1 c1=v1@1",
        "k1 Standard1 c2=@2",
        "k1 Standard1 c2 deleted@9",
        "k2 Standard1 c1=gone@1",
        "k2 Standard1 deleted@7",
        "k\u{e9}\u{1f600} StandardUTF8 \u{e9}=u@1",
        "k1 Super1 s1/a=xa@5",
        "k1 Super1 s1 deleted@6",
        "k1 Super1 s2/b deleted@8",
        "k3 Super1 s1/x=y@4 Standard1 c1=b1@3",
    ];

    fn unpacked(packed: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
        bytes
    }

    fn of_0_4() -> Vec<u8> {
        unpacked(RECORDED[0])
    }

    fn of_0_6() -> Vec<u8> {
        unpacked(RECORDED[3])
    }

    fn schema() -> Schema {
        let (bytes, text) = (Comparator::Bytes, Comparator::Utf8);
        let standard = |columns| ColumnFamilyKind::Standard { columns };
        let both = ColumnFamilyKind::Super { super_columns: bytes.clone(), columns: bytes.clone() };
        let families = [
            ("Standard1", standard(bytes)),
            ("Standard2", standard(text.clone())),
            ("StandardUTF8", standard(text)),
            ("Super1", both),
        ];
        let family = |(name, kind): (&str, ColumnFamilyKind)| {
            Arc::new(ColumnFamilySchema::new("Keyspace1".into(), name.into(), kind))
        };
        Schema::new(families.map(family))
    }

    /// A write as a line.
    fn line(mutation: &RowMutation, schema: &Schema) -> String {
        let text = |bytes: &[u8]| match bytes {
            [first, .., last] if bytes.len() > 100 => format!("{first}..{last}"),
            _ => String::from_utf8_lossy(bytes).into_owned(),
        };
        let mut words = vec![text(mutation.key.as_bytes())];
        for part in &mutation.families {
            words.push(schema.family(part.family).name.clone());
            if !part.deletion.is_none() {
                words.push(format!("deleted@{}", part.deletion.marked_for_delete_at));
            }
            for cell in &part.cells {
                let (within, name) = (text(cell.super_name()), text(cell.name()));
                let slash = if within.is_empty() || name.is_empty() { "" } else { "/" };
                let value = match cell.state() {
                    CellState::Live => format!("={}", text(cell.value())),
                    _ => " deleted".into(),
                };
                words.push(format!("{within}{slash}{name}{value}@{}", cell.timestamp()));
            }
        }
        words.join(" ")
    }

    /// Writes as lines, and errors, in the order of the reader.
    fn read_by(bytes: &[u8], schema: &Schema) -> Result<Vec<Result<String, String>>, ReadError> {
        let fs = SimFileSystem::new(1);
        let path = Path::new("CommitLog-1.log");
        fs.create(path).unwrap().write_all_at(bytes, 0).unwrap();
        let mut reader = SegmentReader::open(&fs, path)?;
        let next = || match reader.next_mutation(schema) {
            Ok(mutation) => mutation.map(|it| Ok(line(&it, schema))),
            Err(error) => Some(Err(error.to_string())),
        };
        let all = std::iter::from_fn(next).collect();
        assert_eq!(reader.progress(), (bytes.len() as u64, bytes.len() as u64));
        Ok(all)
    }

    /// Writes and errors of a segment, without what concerns the system keyspace.
    fn read(bytes: &[u8]) -> (Vec<String>, Vec<String>) {
        let all = read_by(bytes, &schema()).unwrap();
        let (mut writes, mut errors) = (Vec::new(), Vec::new());
        for one in all {
            match one {
                Ok(write) => writes.push(write),
                Err(error) if error.ends_with(SYSTEM) => {}
                Err(error) => errors.push(error),
            }
        }
        (writes, errors)
    }

    /// Offsets of all writes, and the end.
    fn bounds(bytes: &[u8], form: Form) -> Vec<usize> {
        let next = |at: &usize| {
            let length = bytes.get(*at..)?.first_chunk().map(|it| u64::from_be_bytes(*it))?;
            Some(at + form.size(length) as usize)
        };
        std::iter::successors(Some(FIRST), next).collect()
    }

    /// The segment with these offsets in its header, and with marks for all families.
    fn with_offsets(mut bytes: Vec<u8>, offset: impl Fn(usize) -> i32) -> Vec<u8> {
        for (number, at) in (OFFSETS_AT..FIRST).step_by(4).enumerate() {
            bytes[at..at + 4].copy_from_slice(&offset(number).to_be_bytes());
        }
        bytes
    }

    #[test]
    fn all_generations_tell_the_same_story() {
        for packed in RECORDED {
            let (writes, errors) = read(&unpacked(packed));
            assert_eq!(writes, WRITES);
            assert!(errors.is_empty(), "{errors:?}");
        }
    }

    #[test]
    fn a_segment_is_read_from_the_first_write_that_may_not_be_in_an_sstable() {
        let packed = include_bytes!("../../../tests/fixtures/legacy/commitlog-0.6.13-rp.log.gz");
        let (mut writes, errors) = read(&unpacked(packed));
        assert!(errors.is_empty(), "{errors:?}");
        let mut expected = Vec::new();
        let mut add = |text: String| expected.push(text);
        let emoji = "emoji\u{1f600}";
        for key in ["user1", "user2", "foo", "a", "caf\u{e9}", emoji, "with:colon", "UPPER"] {
            add(format!("{key} Standard1 name=value-{key}@1000"));
            add(format!("{key} Standard1 empty=@1001"));
        }
        for text in [
            "user1 Standard1 name deleted@2000",
            "user2 Standard1 name=newer@9000",
            "delrow Standard1 x=1@1000",
            "delrow Standard1 deleted@3000",
            "delrow Standard1 y=2@4000",
            "onlytomb Standard1 deleted@5000",
            "super1 Super1 sc1 deleted@2000",
            "super1 Super1 sc1/new=alive@3000",
            "super1 Super1 sc2/col0 deleted@2000",
            "logsuper Super1 s/c=v@1000",
        ] {
            add(text.into());
        }
        for i in 0..300 {
            let byte = i % 256;
            add(format!("wide Standard1 c{i:05}={byte}..{byte}@{}", 1000 + i));
        }
        for (i, j) in (0..9).map(|it| (it / 3, it % 3)) {
            add(format!("super1 Super1 sc{i}/col{j}=v{i}{j}@1000"));
        }
        (0..200).for_each(|i| add(format!("key{i:04} Standard2 col=val{i}@1000")));
        (0..10).for_each(|i| add(format!("log{i:04} Standard2 col=unflushed{i}@1000")));
        writes.sort();
        expected.sort();
        assert_eq!(writes.len(), expected.len());
        writes.iter().zip(&expected).for_each(|(write, text)| assert_eq!(write, text));
    }

    #[test]
    fn a_torn_tail_is_no_damage() {
        for (bytes, form) in [(of_0_4(), Form::Unchecked), (of_0_6(), Form::Checked)] {
            let ends = bounds(&bytes, form);
            let systems = ends.len() - 1 - WRITES.len();
            for length in 0..bytes.len() {
                let (writes, errors) = read(&bytes[..length]);
                let whole = ends[1..].iter().filter(|end| **end <= length).count();
                assert_eq!(writes, WRITES[..whole.saturating_sub(systems)], "{length}");
                assert!(errors.is_empty(), "{length}: {errors:?}");
            }
            let zeroes = [&bytes[..ends[9] + 20], &[0; 1000][..]].concat();
            let (writes, errors) = read(&zeroes);
            assert_eq!(writes, WRITES[..9 - systems]);
            assert!(errors.is_empty(), "{errors:?}");
        }
    }

    #[test]
    fn damage_between_sound_writes_is_told_and_passed_over() {
        let bytes = of_0_6();
        let bounds = bounds(&bytes, Form::Checked);
        for at in bounds[3]..bounds[6] {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x10;
            let (writes, errors) = read(&bytes);
            let number = bounds.iter().rposition(|begin| *begin <= at).unwrap();
            let rest = [&WRITES[..number - 2], &WRITES[number - 1..]].concat();
            assert_eq!(writes, rest, "{at}");
            let begin = bounds[number];
            let damage = format!("CommitLog-1.log is damaged at byte {begin}: no sound write");
            assert!(errors.len() == 1 && errors[0].starts_with(&damage), "{at}: {errors:?}");
        }
    }

    #[test]
    fn offsets_are_believed_where_a_write_stands() {
        let bytes = of_0_6();
        let bounds = bounds(&bytes, Form::Checked);
        let end = *bounds.last().unwrap() as i32;
        let fourth = bounds[5] as i32;
        let places = [fourth, end, fourth + 1, end + 1, 1, -1];
        for (offset, left_out) in places.into_iter().zip([3, 10, 0, 0, 0, 0]) {
            let some = |number| if number == 2 { offset } else { 0 };
            let (read, errors) = read(&with_offsets(bytes.clone(), some));
            assert!(
                read == WRITES[left_out..] && errors.is_empty(),
                "{offset}: {read:?} {errors:?}"
            );
        }
        // Marks without offsets are torn; without marks nothing is left to do.
        let mut clean = with_offsets(bytes, |_| 0);
        assert_eq!(read(&clean).0, WRITES);
        clean[NUMBER_BYTES as usize + BIT_SET_BYTES + 4..][..8].fill(0);
        assert_eq!(read_by(&clean, &schema()).unwrap(), []);
    }

    #[test]
    fn offsets_of_0_4_do_not_count() {
        let bytes = of_0_4();
        let fourth = bounds(&bytes, Form::Unchecked)[4] as i32;
        assert_eq!(read(&with_offsets(bytes, |_| fourth)).0, WRITES);
    }

    #[test]
    fn all_is_read_where_the_header_is_torn() {
        for bytes in [of_0_4(), of_0_6()] {
            let mut torn = bytes.clone();
            torn[8..FIRST].fill(0);
            assert_eq!(read(&torn), (WRITES.map(String::from).into(), Vec::new()));
            // Its size does not change, so that this is more than that.
            torn[..8].fill(0);
            let (writes, errors) = read(&torn);
            assert_eq!(writes, WRITES);
            assert!(errors[0].starts_with("CommitLog-1.log is damaged at byte 8"), "{errors:?}");
            torn[FIRST..].fill(0);
            let error = read_by(&torn, &schema()).unwrap_err().to_string();
            assert!(error.starts_with("CommitLog-1.log is damaged at byte 0"), "{error}");
        }
    }

    #[test]
    fn a_write_of_another_configuration_is_told_and_passed_over() {
        let mut families: Vec<_> = schema().families_of("Keyspace1").into_iter().cloned().collect();
        families.retain(|family| family.name != "StandardUTF8");
        for family in families.iter_mut().filter(|family| family.name == "Standard1") {
            let kind = ColumnFamilyKind::Standard { columns: Comparator::Ascii };
            *family = Arc::new(ColumnFamilySchema { kind, ..(**family).clone() });
        }
        let all = read_by(&of_0_6(), &Schema::new(families)).unwrap();
        let errors: Vec<_> = all.iter().filter_map(|it| it.as_ref().err()).collect();
        let writes: Vec<_> = all.iter().filter_map(|it| it.as_ref().ok()).collect();
        assert_eq!(writes, [WRITES[6], WRITES[7], WRITES[8]]);
        assert_eq!(*errors[0], format!("CommitLog-1.log, write at byte 420: {SYSTEM}"));
        assert_eq!(
            *errors[1],
            "CommitLog-1.log, write at byte 575: column family Keyspace1.Standard1 has the \
             comparator org.apache.cassandra.db.marshal.AsciiType here, and \
             org.apache.cassandra.db.marshal.BytesType where it was written"
        );
        assert!(errors[6].ends_with("Keyspace1.StandardUTF8 is not configured"), "{}", errors[6]);
        assert_eq!(errors.len(), 8);
    }

    proptest! {
        #[test]
        fn no_damage_makes_a_write(
            packed in proptest::sample::select(RECORDED.to_vec()),
            flips in proptest::collection::vec((any::<u16>(), 0u8..8), 0..4),
            cut in any::<u16>(),
            is_cut: bool,
        ) {
            let mut bytes = unpacked(packed);
            for (at, bit) in flips {
                let at = usize::from(at) % bytes.len();
                bytes[at] ^= 1 << bit;
            }
            if is_cut {
                bytes.truncate(usize::from(cut) % bytes.len());
            }
            if let Ok(all) = read_by(&bytes, &schema()) {
                // Writes of 0.4 have no checksum.
                let mut known = WRITES.iter();
                let writes = all.into_iter().filter_map(Result::ok);
                for write in writes.filter(|_| packed != RECORDED[0]) {
                    prop_assert!(known.any(|it| *it == write), "{}", write);
                }
            }
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>) {
            let _ = read_by(&bytes, &schema());
        }
    }
}
