//! How far a log was delivered, on disk.
//!
//! ```text
//! alexandra hints delivered 1
//! segment <number> <salt in hexadecimal>
//! offset <bytes>             everything of the segment before it was delivered
//! crc <CRC32 of all lines before, in hexadecimal>
//! ```
//!
//! It counts only for the segment that has this salt: numbers may be given again after a log was
//! empty.

use std::path::Path;

use crate::base::fs::FileSystem;
use crate::storage::error::FileError;
use crate::storage::small_file;

use super::files;

const HEAD: &str = "alexandra hints delivered 1";

/// Largest file that is read: a longer one is none of ours.
const MAX_BYTES: u64 = 4096;

/// A place in a log before which everything was delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Progress {
    /// The number of the segment.
    pub(super) segment: u64,
    /// The salt of the segment.
    pub(super) salt: u64,
    /// The offset in the segment.
    pub(super) offset: u64,
}

impl Progress {
    /// Stores it in the folder of the target.
    pub(super) fn write(&self, fs: &dyn FileSystem, folder: &Path) -> Result<(), FileError> {
        let Self { segment, salt, offset } = self;
        let text = format!("{HEAD}\nsegment {segment} {salt:016x}\noffset {offset}\n");
        small_file::rewrite(fs, &files::progress(folder), small_file::seal(&text).as_bytes())
    }

    /// Reads what was stored in the folder. An error says how it shows that it is not what was
    /// written.
    pub(super) fn read(
        fs: &dyn FileSystem,
        folder: &Path,
    ) -> Result<Result<Self, &'static str>, FileError> {
        small_file::read_sealed(fs, &files::progress(folder), MAX_BYTES, Self::parse)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next()? != HEAD {
            return None;
        }
        let (segment, salt) = lines.next()?.strip_prefix("segment ")?.split_once(' ')?;
        let offset = lines.next()?.strip_prefix("offset ")?;
        let salt = u64::from_str_radix(salt, 16).ok()?;
        Some(Self { segment: segment.parse().ok()?, salt, offset: offset.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::disk::SimFileSystem;

    #[test]
    fn it_comes_back_and_no_changed_byte_passes() {
        let (fs, folder) = (SimFileSystem::new(1), Path::new("/hints/10.0.0.7"));
        fs.create_dir_all(folder).unwrap();
        let progress = Progress { segment: 12, salt: 0xFEDC_BA98_7654_3210, offset: 4711 };
        progress.write(&fs, folder).unwrap();
        assert_eq!(Progress::read(&fs, folder).unwrap(), Ok(progress));
        let path = files::progress(folder);
        for at in 0..fs.read(&path).unwrap().len() as u64 {
            fs.corrupt(&path, at, 1).unwrap();
            assert!(Progress::read(&fs, folder).unwrap().is_err(), "byte {at}");
            fs.corrupt(&path, at, 1).unwrap();
        }
    }
}
