//! The manifest of a column family: its live SSTables. Replacing it is the one step that makes the
//! result of a flush or compaction live, whole or not at all.
//!
//! A small text file, which is written under a temporary name, synced, and renamed:
//!
//! ```text
//! alexandra manifest 3
//! family <keyspace>.<family>         the column family
//! node <16 hexadecimal digits>       the node that has written it; not in a snapshot, which any
//!                                    node may serve
//! sequence <number>                  grows with each version: of two the greater is the newer
//! sstable <generation> <bytes> <properties>  one line for each SSTable that counts, with the
//!                                    CRC32 of its properties in hexadecimal
//! original <generation> <bytes> <index>      one line for each of the original, with the bytes of
//!                                    its data file and the CRC32 of its index
//! obsolete <generation>              one for each that was replaced and may still be there
//! flushed <segment> <offset>         what the commit log holds up to here is in SSTables
//! crc <CRC32 of all lines before, in hexadecimal>
//! ```
//!
//! Version 1 has no lines before those of the SSTables, and belongs to any family and node. Version
//! 2 has no SSTables of the original.

use super::checked_file::{self, CheckedState, on_one_line};
use super::commitlog::Position;
use super::error::{FileError, ReadError};
use super::files;
use crate::base::fs::FileSystem;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

/// Distinguishes an SSTable from other files of its name: older ones, or those of another family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TableIdentity {
    /// Its size in bytes.
    pub bytes: u64,
    /// CRC32 of its properties, which say when and for whom it was written and what is in it; of
    /// the index of one of the original, which has all row keys and their places.
    pub properties_crc: u32,
    /// Whether it is an SSTable of the original.
    pub is_legacy: bool,
}

/// Live SSTables of a column family.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Keyspace and column family, as messages name them; `None` in version 1.
    pub family: Option<String>,
    /// Number of the node that has written it; `None` in a snapshot and in version 1.
    pub node: Option<u64>,
    /// Grows with each version.
    pub sequence: u64,
    /// The live SSTables, by generation.
    pub sstables: BTreeMap<u64, TableIdentity>,
    /// Generations that were replaced and whose files may still be there.
    pub obsolete: BTreeSet<u64>,
    /// Everything that the commit log holds of the family up to here has gone to SSTables. It must
    /// not be replayed: what deleted it may have been purged since.
    pub flushed: Position,
}

impl Manifest {
    /// Returns the first manifest of a column family, which names no file.
    pub fn new(family: &str) -> Self {
        Self { family: Some(on_one_line(family)), ..Self::default() }
    }

    /// Whether it belongs to this column family, as far as it says.
    pub fn is_of(&self, family: &str) -> bool {
        self.family.as_ref().is_none_or(|own| *own == on_one_line(family))
    }

    /// Returns the next version of it, with the same content.
    #[must_use]
    pub fn successor(&self) -> Self {
        Self { sequence: self.sequence + 1, ..self.clone() }
    }

    /// Returns it as a snapshot keeps it: any node may serve that.
    #[must_use]
    pub fn of_snapshot(&self) -> Self {
        Self { node: None, obsolete: BTreeSet::new(), ..self.clone() }
    }

    /// Reads the manifest; `None` if there is no such file.
    pub fn load(fs: &dyn FileSystem, path: &Path) -> Result<Option<Self>, ReadError> {
        checked_file::load(fs, path)
    }

    /// Replaces the manifest on disk by this one. Its content is durable then, that it is the
    /// manifest only after a sync of its folder.
    pub fn store(&self, fs: &dyn FileSystem, path: &Path) -> Result<(), FileError> {
        checked_file::store(fs, path, self)
    }
}

impl CheckedState for Manifest {
    const KIND: &'static str = "manifest";
    const VERSION: u32 = 3;

    fn encode(&self) -> String {
        let mut text = String::new();
        if let Some(family) = &self.family {
            let _ = writeln!(text, "family {family}");
        }
        if let Some(node) = self.node {
            let _ = writeln!(text, "node {node:016x}");
        }
        let _ = writeln!(text, "sequence {}", self.sequence);
        for (generation, table) in &self.sstables {
            let TableIdentity { bytes, properties_crc, is_legacy } = table;
            let kind = if *is_legacy { "original" } else { "sstable" };
            let _ = writeln!(text, "{kind} {generation} {bytes} {properties_crc:08x}");
        }
        for generation in &self.obsolete {
            let _ = writeln!(text, "obsolete {generation}");
        }
        let Position { segment, offset } = self.flushed;
        let _ = writeln!(text, "flushed {segment} {offset}");
        text
    }

    fn decode(_version: u32, lines: &str) -> Option<Self> {
        let mut manifest = Self::default();
        for line in lines.lines() {
            let words: Vec<_> = line.split(' ').collect();
            match words[..] {
                ["family", ..] => manifest.family = Some(line["family ".len()..].to_owned()),
                ["node", node] => manifest.node = Some(u64::from_str_radix(node, 16).ok()?),
                ["sequence", sequence] => manifest.sequence = sequence.parse().ok()?,
                [kind @ ("sstable" | "original"), table, bytes, crc] => {
                    let (bytes, is_legacy) = (bytes.parse().ok()?, kind == "original");
                    let properties_crc = u32::from_str_radix(crc, 16).ok()?;
                    let identity = TableIdentity { bytes, properties_crc, is_legacy };
                    manifest.sstables.insert(files::parse_generation(table)?, identity);
                }
                ["obsolete", table] => {
                    manifest.obsolete.insert(files::parse_generation(table)?);
                }
                ["flushed", segment, offset] => {
                    let (segment, offset) = (segment.parse().ok()?, offset.parse().ok()?);
                    manifest.flushed = Position { segment, offset };
                }
                _ => return None,
            }
        }
        Some(manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::checked_file::tests::{check_codec, read_lines};

    #[test]
    fn a_manifest_is_read_back_and_every_flipped_bit_is_noticed() {
        let mut manifest = Manifest::new("Blog.Authors, a family");
        check_codec(&manifest);
        for generation in [3, 1, 12] {
            let (bytes, properties_crc) = (generation * 100, generation as u32);
            manifest = Manifest { node: Some(generation << 40), ..manifest.successor() };
            let is_legacy = generation == 3;
            let identity = TableIdentity { bytes, properties_crc, is_legacy };
            manifest.sstables.insert(generation, identity);
            manifest.obsolete.insert(generation + 1);
            manifest.flushed = Position { segment: generation, offset: 77 };
        }
        check_codec(&manifest);
    }

    #[test]
    fn a_manifest_of_version_1_belongs_to_any_family_and_node() {
        let text = "alexandra manifest 1\nsstable 3 300 0000000a\nobsolete 2\nflushed 5 77\n";
        let manifest: Manifest = read_lines(text).unwrap();
        let identity = TableIdentity { bytes: 300, properties_crc: 10, is_legacy: false };
        let expected = Manifest {
            sstables: [(3, identity)].into(),
            obsolete: [2].into(),
            flushed: Position { segment: 5, offset: 77 },
            ..Manifest::default()
        };
        assert_eq!(manifest, expected);
        assert!(manifest.is_of("Blog.Authors"));
        assert!(!Manifest::new("Blog.Authors").is_of("Blog.Editors"));
    }
}
