//! Which parts of an archive were left behind.
//!
//! Positions of the log only grow. A restore leads back to the data of an earlier position: what
//! the log holds between that and the moment of the restore is of a time line that is not followed
//! any more, and no later restore may replay it. For each column family the archive notes where
//! each restore has led back from and to.
//!
//! A small text file, written anew under a temporary name, synced, and renamed:
//!
//! ```text
//! alexandra history 1
//! restored <milliseconds> <segment> <offset> <segment> <offset> <keyspace> <family>
//! crc <CRC32 of all lines before, in hexadecimal>
//! ```
//!
//! A line says when a restore happened, to which position, and from which: the greatest there could
//! be. In names every byte but letters, digits, `_` and `.` is written as `%` and two hexadecimal
//! digits.

use super::super::Position;
use super::timeline::Timeline;
use crate::base::fs::FileSystem;
use crate::storage::checked_file::{self, CheckedState};
use crate::storage::error::{FileError, ReadError};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The restores that an archive knows of, in the order in which they happened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// One entry for each column family and restore.
    pub restored: Vec<Restored>,
}

/// A restore of one column family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// When it happened, in milliseconds since the Unix epoch.
    pub millis: u64,
    /// Everything up to here counts.
    pub to: Position,
    /// What is between `to` and this is left behind; what is written later is greater.
    pub from: Position,
    /// The keyspace.
    pub keyspace: String,
    /// The column family.
    pub family: String,
}

impl History {
    /// Reads the history of an archive; it is empty if there is no such file.
    pub fn load(fs: &dyn FileSystem, archive: &Path) -> Result<Self, ReadError> {
        Ok(checked_file::load(fs, &path(archive))?.unwrap_or_default())
    }

    /// Replaces the history of an archive by this one, durably.
    pub fn store(&self, fs: &dyn FileSystem, archive: &Path) -> Result<(), FileError> {
        checked_file::store_first(fs, &[archive.to_owned()], "history", self)
    }

    /// The positions that lead to the present of a column family.
    pub fn timeline(&self, keyspace: &str, family: &str) -> Timeline {
        let of_family = |it: &&Restored| it.keyspace == keyspace && it.family == family;
        let mut restored: Vec<_> = self.restored.iter().filter(of_family).collect();
        restored.sort_by_key(|restored| restored.from);
        let mut parts = Vec::new();
        let mut end = Position::MAX;
        for Restored { to, from, .. } in restored.into_iter().rev() {
            // A restore that happened after the end of the line did not change how it came there.
            if *from < end {
                parts.push((*from, end));
                end = *to;
            }
        }
        parts.push((Position::default(), end));
        parts.reverse();
        Timeline::new(parts)
    }

    /// Forgets the restores of a column family that happened after this position: nothing behind it
    /// counts as left behind any more.
    pub fn forget(&mut self, keyspace: &str, family: &str, base: Position) {
        self.restored
            .retain(|it| it.from <= base || it.keyspace != keyspace || it.family != family);
    }
}

impl CheckedState for History {
    const KIND: &'static str = "history";
    const VERSION: u32 = 1;

    fn encode(&self) -> String {
        let mut text = String::new();
        for Restored { millis, to, from, keyspace, family } in &self.restored {
            let [keyspace, family] = [keyspace, family].map(|name| escape(name));
            let (to, from) = ((to.segment, to.offset), (from.segment, from.offset));
            let _ = writeln!(
                text,
                "restored {millis} {} {} {} {} {keyspace} {family}",
                to.0, to.1, from.0, from.1
            );
        }
        text
    }

    fn decode(_version: u32, lines: &str) -> Option<Self> {
        Some(Self { restored: lines.lines().map(parse_line).collect::<Option<_>>()? })
    }
}

fn parse_line(line: &str) -> Option<Restored> {
    let words: Vec<_> = line.split(' ').collect();
    let ["restored", millis, to, to_offset, from, from_offset, keyspace, family] = words[..] else {
        return None;
    };
    let position = |segment: &str, offset: &str| {
        Some(Position { segment: segment.parse().ok()?, offset: offset.parse().ok()? })
    };
    Some(Restored {
        millis: millis.parse().ok()?,
        to: position(to, to_offset)?,
        from: position(from, from_offset)?,
        keyspace: unescape(keyspace)?,
        family: unescape(family)?,
    })
}

fn path(archive: &Path) -> PathBuf {
    archive.join("history")
}

fn escape(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.') {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02x}");
        }
    }
    text
}

fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            let digits = std::str::from_utf8(&digits).ok()?.to_owned();
            bytes.push(u8::from_str_radix(&digits, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::disk::SimFileSystem;

    fn at(segment: u64, offset: u64) -> Position {
        Position { segment, offset }
    }

    fn restored(to: Position, from: Position) -> Restored {
        let (keyspace, family) = ("Key space-1%".to_owned(), "Größe".to_owned());
        Restored { millis: 1_290_000_000_123, to, from, keyspace, family }
    }

    #[test]
    fn a_history_is_read_back_and_every_changed_byte_is_noticed() {
        let fs = SimFileSystem::new(1);
        let archive = Path::new("/archive");
        fs.create_dir_all(archive).unwrap();
        assert_eq!(History::load(&fs, archive).unwrap(), History::default());
        let mut history = History::default();
        for n in 1..4 {
            history.restored.push(restored(at(n, 7), at(n + 5, u64::MAX)));
            history.store(&fs, archive).unwrap();
            assert_eq!(History::load(&fs, archive).unwrap(), history);
        }
    }

    #[test]
    fn what_a_restore_has_left_behind_is_not_on_the_way_to_the_present() {
        let timeline = |restored: &[(Position, Position)]| {
            let restored = restored.iter().map(|(to, from)| self::restored(*to, *from));
            let history = History { restored: restored.collect() };
            history.timeline("Key space-1%", "Größe")
        };
        let all = Timeline::new(vec![(at(0, 0), Position::MAX)]);
        assert_eq!(timeline(&[]), all);
        assert_eq!(History::default().timeline("a", "b"), all);
        let once = (at(5, 100), at(9, u64::MAX));
        let expected = vec![(at(0, 0), once.0), (once.1, Position::MAX)];
        assert_eq!(timeline(&[once]), Timeline::new(expected));
        // Repeated, it leads from further on to the same place.
        let repeated = (once.0, at(12, u64::MAX));
        let expected = vec![(at(0, 0), once.0), (repeated.1, Position::MAX)];
        assert_eq!(timeline(&[once, repeated]), Timeline::new(expected), "a repeated restore");
        // Back to before the first restore.
        let twice = (at(3, 50), at(12, u64::MAX));
        let expected = vec![(at(0, 0), twice.0), (twice.1, Position::MAX)];
        assert_eq!(timeline(&[once, twice]), Timeline::new(expected));
        // To what the first restore had left behind: that is the way again.
        let twice = (at(7, 50), at(12, u64::MAX));
        let expected = vec![(at(0, 0), twice.0), (twice.1, Position::MAX)];
        assert_eq!(timeline(&[once, twice]), Timeline::new(expected));
        // To what was written after the first.
        let twice = (at(11, 50), at(12, u64::MAX));
        let expected = vec![(at(0, 0), once.0), (once.1, twice.0), (twice.1, Position::MAX)];
        assert_eq!(timeline(&[once, twice]), Timeline::new(expected));
    }

    #[test]
    fn who_stops_in_a_part_that_was_left_behind_comes_no_further_than_the_way_leads() {
        let first = at(9, u64::MAX);
        let mut history = History { restored: vec![restored(at(5, 100), first)] };
        let way = history.timeline("Key space-1%", "Größe").behind(at(2, 7)).unwrap();
        let left = [at(5, 101), at(5, u64::MAX), at(8, 3), first];
        for (stops, reached) in [
            (&[at(1, 0), at(2, 7)][..], at(2, 7)),
            (&[at(3, 50)], at(3, 50)),
            (&[at(5, 100)], at(5, 100)),
            (&left, at(5, 100)),
            (&[at(10, 1)], at(10, 1)),
        ] {
            for stop in stops {
                assert_eq!(way.up_to(*stop), reached, "up to {stop}");
            }
        }
        assert_eq!(way.gaps().collect::<Vec<_>>(), [(at(5, 100), first)]);
        // What is noted of a restore that stops there must not bring the part back.
        for stop in left {
            let second = restored(way.up_to(stop), at(12, u64::MAX));
            let history = History { restored: vec![history.restored[0].clone(), second] };
            let way = history.timeline("Key space-1%", "Größe");
            assert!(left.iter().all(|position| !way.contains(*position)), "after {stop}");
        }
        history.forget("Key space-1%", "another", at(2, 7));
        history.forget("Key space-1%", "Größe", first);
        assert_eq!(history.restored.len(), 1, "the snapshot was taken later");
        history.forget("Key space-1%", "Größe", at(2, 7));
        assert_eq!(history, History::default());
    }
}
