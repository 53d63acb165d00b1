//! The manifest of a column family: which SSTables count. Replacing it is the one step that makes
//! the result of a flush or compaction count, whole or not at all.
//!
//! A small text file, written anew under a temporary name, synced, and renamed:
//!
//! ```text
//! alexandra manifest 2
//! family <keyspace>.<family>         whose it is
//! node <16 hexadecimal digits>       the node that has written it; not in a snapshot, which any
//!                                    node may serve
//! sequence <number>                  grows with each version: of two the greater is the newer
//! sstable <generation> <bytes> <properties>  one line for each SSTable that counts, with the
//!                                    CRC32 of its properties in hexadecimal
//! obsolete <generation>              one for each that was replaced and may still be there
//! flushed <segment> <offset>         what the commit log holds up to here is in SSTables
//! crc <CRC32 of all lines before, in hexadecimal>
//! ```
//!
//! Version 1 has no lines before those of the SSTables, and belongs to any family and node.

use super::commitlog::Position;
use super::error::{Corrupt, FileContext, FileError, ReadError};
use super::{files, small_file};
use crate::base::fs::FileSystem;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

const HEAD: &str = "alexandra manifest 2";
const HEAD_1: &str = "alexandra manifest 1";

/// What tells an SSTable from other files of its name: an older one, or one of another family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TableIdentity {
    /// Its size in bytes.
    pub bytes: u64,
    /// CRC32 of its properties, which say when and for whom it was written and what is in it.
    pub properties_crc: u32,
}

/// Which SSTables of a column family count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Keyspace and column family, as messages name them; `None` in version 1.
    pub family: Option<String>,
    /// Number of the node that has written it; `None` in a snapshot and in version 1.
    pub node: Option<u64>,
    /// Grows with each version.
    pub sequence: u64,
    /// The SSTables that count, by generation.
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
        Self { family: Some(small_file::on_one_line(family)), ..Self::default() }
    }

    /// Whether it belongs to this column family, as far as it says.
    pub fn is_of(&self, family: &str) -> bool {
        self.family.as_ref().is_none_or(|own| *own == small_file::on_one_line(family))
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
        if !fs.try_exists(path).context("look for", path)? {
            return Ok(None);
        }
        let content = fs.read(path).context("read", path)?;
        match Self::parse(&content) {
            Ok(manifest) => Ok(Some(manifest)),
            Err((offset, reason)) => Err(Corrupt::new(path, offset as u64, reason).into()),
        }
    }

    /// Replaces the manifest on disk by this one. Its content is durable then, that it is the
    /// manifest only after a sync of its folder.
    pub fn store(&self, fs: &dyn FileSystem, path: &Path) -> Result<(), FileError> {
        small_file::rewrite(fs, path, self.render().as_bytes())
    }

    fn render(&self) -> String {
        let mut text = format!("{HEAD}\n");
        if let Some(family) = &self.family {
            let _ = writeln!(text, "family {family}");
        }
        if let Some(node) = self.node {
            let _ = writeln!(text, "node {node:016x}");
        }
        let _ = writeln!(text, "sequence {}", self.sequence);
        for (generation, TableIdentity { bytes, properties_crc }) in &self.sstables {
            let _ = writeln!(text, "sstable {generation} {bytes} {properties_crc:08x}");
        }
        for generation in &self.obsolete {
            let _ = writeln!(text, "obsolete {generation}");
        }
        let Position { segment, offset } = self.flushed;
        let _ = writeln!(text, "flushed {segment} {offset}");
        small_file::seal(&text)
    }

    fn parse(content: &[u8]) -> Result<Self, (usize, &'static str)> {
        let mut lines = small_file::unseal(content)?.lines();
        if !lines.next().is_some_and(|head| [HEAD, HEAD_1].contains(&head)) {
            return Err((0, "its version is not known"));
        }
        let mut manifest = Self::default();
        for line in lines {
            let words: Vec<_> = line.split(' ').collect();
            let bad = (0, "a number cannot be read");
            let number = |word: &str| word.parse().map_err(|_| bad);
            let generation = |word: &str| files::parse_generation(word).ok_or(bad);
            match words[..] {
                ["family", ..] => manifest.family = Some(line["family ".len()..].to_owned()),
                ["node", node] => {
                    manifest.node = Some(u64::from_str_radix(node, 16).map_err(|_| bad)?);
                }
                ["sequence", sequence] => manifest.sequence = number(sequence)?,
                ["sstable", table, bytes, crc] => {
                    let properties_crc = u32::from_str_radix(crc, 16).map_err(|_| bad)?;
                    let identity = TableIdentity { bytes: number(bytes)?, properties_crc };
                    manifest.sstables.insert(generation(table)?, identity);
                }
                ["obsolete", table] => {
                    manifest.obsolete.insert(generation(table)?);
                }
                ["flushed", segment, offset] => {
                    let (segment, offset) = (number(segment)?, number(offset)?);
                    manifest.flushed = Position { segment, offset };
                }
                _ => return Err((0, "it holds a line that is not known")),
            }
        }
        Ok(manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::fs::OsFileSystem;

    #[test]
    fn a_manifest_is_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("Authors.manifest");
        assert_eq!(Manifest::load(&OsFileSystem, &path).unwrap(), None);
        let mut manifest = Manifest::new("Blog.Authors, a family");
        for generation in [3, 1, 12] {
            let (bytes, properties_crc) = (generation * 100, generation as u32);
            manifest = Manifest { node: Some(generation << 40), ..manifest.successor() };
            manifest.sstables.insert(generation, TableIdentity { bytes, properties_crc });
            manifest.obsolete.insert(generation + 1);
            manifest.flushed = Position { segment: generation, offset: 77 };
            manifest.store(&OsFileSystem, &path).unwrap();
            assert_eq!(Manifest::load(&OsFileSystem, &path).unwrap().as_ref(), Some(&manifest));
        }
    }

    #[test]
    fn a_manifest_of_version_1_belongs_to_any_family_and_node() {
        let text = "alexandra manifest 1\nsstable 3 300 0000000a\nobsolete 2\nflushed 5 77\n";
        let manifest = Manifest::parse(small_file::seal(text).as_bytes()).unwrap();
        let identity = TableIdentity { bytes: 300, properties_crc: 10 };
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

    #[test]
    fn every_flipped_bit_is_noticed() {
        let mut manifest = Manifest::new("Blog.Authors");
        let identity = TableIdentity { bytes: 1234, properties_crc: 0xabcd };
        manifest.sstables.insert(7, identity);
        let whole = manifest.render().into_bytes();
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                assert!(Manifest::parse(&damaged).is_err(), "bit {bit} of byte {at}");
            }
            assert!(Manifest::parse(&whole[..at]).is_err(), "cut at {at}");
        }
    }
}
