//! The manifest of a column family: which SSTables count. Replacing it is the one step that makes
//! the result of a flush or compaction count, whole or not at all.
//!
//! A small text file, written anew under a temporary name, synced, and renamed:
//!
//! ```text
//! alexandra manifest 1
//! sstable <generation> <bytes> <properties>  one line for each SSTable that counts, with the
//!                                    CRC32 of its properties in hexadecimal
//! obsolete <generation>              one for each that was replaced and may still be there
//! flushed <segment> <offset>         what the commit log holds up to here is in SSTables
//! crc <CRC32 of all lines before, in hexadecimal>
//! ```

use super::commitlog::Position;
use super::error::{Corrupt, FileContext, FileError, ReadError};
use super::{files, small_file};
use crate::base::fs::FileSystem;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

const HEAD: &str = "alexandra manifest 1";

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
    /// The SSTables that count, by generation.
    pub sstables: BTreeMap<u64, TableIdentity>,
    /// Generations that were replaced and whose files may still be there.
    pub obsolete: BTreeSet<u64>,
    /// Everything that the commit log holds of the family up to here has gone to SSTables. It must
    /// not be replayed: what deleted it may have been purged since.
    pub flushed: Position,
}

impl Manifest {
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
        if lines.next() != Some(HEAD) {
            return Err((0, "its version is not known"));
        }
        let mut manifest = Self::default();
        for line in lines {
            let words: Vec<_> = line.split(' ').collect();
            let bad = (0, "a number cannot be read");
            let number = |word: &str| word.parse().map_err(|_| bad);
            let generation = |word: &str| files::parse_generation(word).ok_or(bad);
            match words[..] {
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
        let mut manifest = Manifest::default();
        for generation in [3, 1, 12] {
            let (bytes, properties_crc) = (generation * 100, generation as u32);
            manifest.sstables.insert(generation, TableIdentity { bytes, properties_crc });
            manifest.obsolete.insert(generation + 1);
            manifest.flushed = Position { segment: generation, offset: 77 };
            manifest.store(&OsFileSystem, &path).unwrap();
            assert_eq!(Manifest::load(&OsFileSystem, &path).unwrap().as_ref(), Some(&manifest));
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let mut manifest = Manifest::default();
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
