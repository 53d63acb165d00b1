//! The keys of a cache in a file, in the form of 0.6, so that a directory that it has left warms
//! the caches here, and the other way round.
//!
//! `<SavedCachesDirectory>/<keyspace>-<column family>-KeyCache` and `…-RowCache` hold row keys
//! only. They are what Java's object streams make of plain data: a header, then blocks of up to
//! 1024 bytes, across which the data go on.
//!
//! ```text
//! ac ed 00 05                          magic and version of an object stream
//! 77 | u8 length | data                a block of up to 255 bytes
//! 7a | u32 length | data               a longer one
//!
//! data: u32 length, row key            again and again
//! ```
//!
//! A file only names rows that may be worth reading. A mistake in it costs no more than warmth.

use crate::base::fs::{File, FileSystem};
use crate::model::key::RowKey;
use crate::storage::error::{Corrupt, FileContext, FileError, ReadError};
use crate::storage::files;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

/// One of the caches of a column family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, derive_more::Display)]
pub enum CacheKind {
    /// Places of rows.
    #[display("key")]
    Keys,
    /// Whole rows.
    #[display("row")]
    Rows,
}

const STREAM_HEADER: [u8; 4] = [0xac, 0xed, 0, 5];
const SHORT_BLOCK: u8 = 0x77;
const LONG_BLOCK: u8 = 0x7a;

/// Bytes of data after which Java ends a block.
const BLOCK_BYTES: usize = 1024;

/// Longest row key, in bytes, as everywhere.
const MAX_KEY_BYTES: usize = 65535;

/// Most bytes of keys that are taken from a file, whatever it holds.
const MAX_BYTES: usize = 64 << 20;

/// Bytes that are read and written at once.
const BUFFER_BYTES: usize = 64 << 10;

/// Replaces a file by one with these keys. Returns their number.
pub fn write(
    fs: &dyn FileSystem,
    path: &Path,
    keys: impl IntoIterator<Item = RowKey>,
) -> Result<u64, FileError> {
    let temporary = files::temporary(path);
    let mut count = 0;
    let mut out = Writer::new(files::create_anew(fs, &temporary)?);
    for key in keys {
        out.put(key.as_bytes()).context("write", &temporary)?;
        count += 1;
    }
    out.finish().context("write", &temporary)?;
    fs.rename(&temporary, path).context("rename", &temporary)?;
    Ok(count)
}

/// Reads the keys of a file, at most `most`; none if there is no file. Keys before a damaged place
/// are returned with the error.
pub fn read(fs: &dyn FileSystem, path: &Path, most: u64) -> (Vec<RowKey>, Result<(), ReadError>) {
    let mut keys = Vec::new();
    match fs.try_exists(path).context("look for", path) {
        Ok(true) => {}
        Ok(false) => return (keys, Ok(())),
        Err(error) => return (keys, Err(error.into())),
    }
    let result = fs.open(path).context("open", path).map_err(ReadError::from).and_then(|file| {
        read_keys(&*file, most, &mut keys).map_err(|damage| match damage {
            Damage::Io(error) => FileError::new("read", path, error).into(),
            Damage::Malformed(offset, reason) => Corrupt::new(path, offset, reason).into(),
        })
    });
    (keys, result)
}

/// The file of a cache.
pub fn file_name(keyspace: &str, family: &str, kind: CacheKind) -> String {
    let kind = match kind {
        CacheKind::Keys => "KeyCache",
        CacheKind::Rows => "RowCache",
    };
    format!("{keyspace}-{family}-{kind}")
}

/// Cuts data into blocks.
struct Writer {
    file: Arc<dyn File>,
    written: u64,
    /// Whole blocks that are not written yet.
    blocks: Vec<u8>,
    /// The data of the block that is not full yet.
    data: Vec<u8>,
}

impl Writer {
    fn new(file: Arc<dyn File>) -> Self {
        let data = Vec::with_capacity(BLOCK_BYTES);
        Self { file, written: 0, blocks: STREAM_HEADER.to_vec(), data }
    }

    fn put(&mut self, key: &[u8]) -> io::Result<()> {
        let length = u32::try_from(key.len()).expect("row keys have at most 65535 bytes");
        for mut part in [&length.to_be_bytes()[..], key] {
            while !part.is_empty() {
                if self.data.len() == BLOCK_BYTES {
                    self.end_block();
                }
                let room = (BLOCK_BYTES - self.data.len()).min(part.len());
                let (now, later) = part.split_at(room);
                self.data.extend_from_slice(now);
                part = later;
            }
        }
        if self.blocks.len() >= BUFFER_BYTES { self.write_out() } else { Ok(()) }
    }

    fn end_block(&mut self) {
        if let Ok(length) = u8::try_from(self.data.len()) {
            self.blocks.extend_from_slice(&[SHORT_BLOCK, length]);
        } else {
            self.blocks.push(LONG_BLOCK);
            self.blocks.extend_from_slice(&(self.data.len() as u32).to_be_bytes());
        }
        self.blocks.append(&mut self.data);
    }

    fn write_out(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.blocks, self.written)?;
        self.written += self.blocks.len() as u64;
        self.blocks.clear();
        Ok(())
    }

    /// The content is durable before the file gets its name, or a power loss would leave half of
    /// it under the name.
    fn finish(mut self) -> io::Result<()> {
        if !self.data.is_empty() {
            self.end_block();
        }
        self.write_out()?;
        self.file.sync()
    }
}

/// Reason why a file cannot be read to its end.
enum Damage {
    Io(io::Error),
    /// Place and reason.
    Malformed(u64, &'static str),
}

impl From<io::Error> for Damage {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn read_keys(file: &dyn File, most: u64, keys: &mut Vec<RowKey>) -> Result<(), Damage> {
    let mut blocks = Blocks::open(file)?;
    let mut bytes = 0;
    while (keys.len() as u64) < most && blocks.has_more()? {
        let mut length = [0; 4];
        blocks.fill(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if length > MAX_KEY_BYTES {
            return Err(blocks.malformed("a key is longer than keys can be"));
        }
        bytes += length;
        if bytes > MAX_BYTES {
            break;
        }
        let mut key = vec![0; length];
        blocks.fill(&mut key)?;
        keys.push(RowKey::new(&key));
    }
    Ok(())
}

/// The data of a stream, across its blocks.
struct Blocks<'a> {
    file: BufReader<Sequential<'a>>,
    /// Bytes that were read from the file.
    at: u64,
    /// Bytes of the present block that are still to come.
    left: usize,
}

impl<'a> Blocks<'a> {
    fn open(file: &'a dyn File) -> Result<Self, Damage> {
        let file = BufReader::with_capacity(BUFFER_BYTES, Sequential { file, at: 0 });
        let mut blocks = Self { file, at: 0, left: 0 };
        let mut header = [0; 4];
        blocks.raw(&mut header)?;
        if header != STREAM_HEADER {
            return Err(Damage::Malformed(0, "it does not begin as saved caches do"));
        }
        Ok(blocks)
    }

    fn malformed(&self, reason: &'static str) -> Damage {
        Damage::Malformed(self.at, reason)
    }

    fn raw(&mut self, out: &mut [u8]) -> Result<(), Damage> {
        self.file.read_exact(out).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.malformed("it ends in the middle of something"),
            _ => Damage::Io(error),
        })?;
        self.at += out.len() as u64;
        Ok(())
    }

    /// Whether more data follow.
    fn has_more(&mut self) -> Result<bool, Damage> {
        while self.left == 0 {
            if self.file.fill_buf()?.is_empty() {
                return Ok(false);
            }
            let mut kind = [0];
            self.raw(&mut kind)?;
            self.left = match kind {
                [SHORT_BLOCK] => {
                    let mut length = [0];
                    self.raw(&mut length)?;
                    usize::from(length[0])
                }
                [LONG_BLOCK] => {
                    let mut length = [0; 4];
                    self.raw(&mut length)?;
                    let length = i32::from_be_bytes(length);
                    usize::try_from(length).map_err(|_| self.malformed("a length is negative"))?
                }
                _ => return Err(self.malformed("something else than a block of data stands here")),
            };
        }
        Ok(true)
    }

    fn fill(&mut self, mut out: &mut [u8]) -> Result<(), Damage> {
        while !out.is_empty() {
            if !self.has_more()? {
                return Err(self.malformed("it ends in the middle of a key"));
            }
            let (now, later) = out.split_at_mut(self.left.min(out.len()));
            self.raw(now)?;
            self.left -= now.len();
            out = later;
        }
        Ok(())
    }
}

/// A file from its beginning on.
struct Sequential<'a> {
    file: &'a dyn File,
    at: u64,
}

impl Read for Sequential<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buf, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::disk::SimFileSystem;
    use proptest::prelude::*;

    fn path() -> &'static Path {
        Path::new("/Blog-Authors-KeyCache")
    }

    fn keys(count: usize) -> Vec<RowKey> {
        (0..count).map(|i| RowKey::from(format!("key-{i}").as_str())).collect()
    }

    fn saved(keys: Vec<RowKey>) -> Vec<u8> {
        let fs = SimFileSystem::new(1);
        let count = keys.len() as u64;
        assert_eq!(write(&fs, path(), keys).unwrap(), count);
        fs.read(path()).unwrap()
    }

    fn read_bytes(bytes: &[u8], most: u64) -> (Vec<RowKey>, Result<(), ReadError>) {
        let fs = SimFileSystem::new(1);
        fs.create(path()).unwrap().write_all_at(bytes, 0).unwrap();
        read(&fs, path(), most)
    }

    /// The checksums are those of what `java.io.ObjectOutputStream` of Java 17 writes when it is
    /// given the same keys, each by `writeInt` and `write`.
    #[test]
    fn java_writes_the_same_bytes() {
        let three = b"\xac\xed\x00\x05\x77\x1b\0\0\0\x05key-0\0\0\0\x05key-1\0\0\0\x05key-2";
        assert_eq!(saved(keys(3)), three);
        assert_eq!(saved(Vec::new()), STREAM_HEADER);
        let many = saved(keys(2000));
        assert_eq!((many.len(), crc32fast::hash(&many)), (23009, CRC_OF_2000));
        let long = RowKey::from("café".repeat(600).as_str());
        let with_long = saved(keys(200).into_iter().chain([long]).collect());
        assert_eq!((with_long.len(), crc32fast::hash(&with_long)), (5123, CRC_OF_LONG));
    }

    const CRC_OF_2000: u32 = 0xf83e_fea7;
    const CRC_OF_LONG: u32 = 0x0372_eb69;

    #[test]
    fn keys_are_read_back_and_no_more_than_asked_for() {
        let bytes = saved(keys(2000));
        let (found, result) = read_bytes(&bytes, u64::MAX);
        assert!(result.is_ok() && found == keys(2000));
        let (found, result) = read_bytes(&bytes, 7);
        assert!(result.is_ok() && found == keys(7));
        let (found, result) = read(&SimFileSystem::new(1), path(), 7);
        assert!(result.is_ok() && found.is_empty(), "there is no file");
    }

    #[test]
    fn a_new_file_takes_the_place_of_the_old_one() {
        let fs = SimFileSystem::new(1);
        fs.create(&files::temporary(path())).unwrap();
        write(&fs, path(), keys(3)).unwrap();
        write(&fs, path(), keys(2)).unwrap();
        assert_eq!(read(&fs, path(), u64::MAX).0, keys(2));
        assert!(!fs.exists(&files::temporary(path())));
    }

    #[test]
    fn what_is_wrong_is_named_and_what_stands_before_is_used() {
        let bytes = saved(keys(2000));
        let cut = read_bytes(&bytes[..bytes.len() - 1], u64::MAX);
        assert_eq!(cut.0, keys(1999));
        let error = cut.1.unwrap_err().to_string();
        let expected = "/Blog-Authors-KeyCache is damaged at byte 23001: it ends in the middle";
        assert!(error.starts_with(expected), "{error}");
        let huge = b"\xac\xed\x00\x05\x77\x04\x7f\xff\xff\xff";
        let error = read_bytes(huge, u64::MAX).1.unwrap_err().to_string();
        assert!(error.ends_with("a key is longer than keys can be"), "{error}");
        let object = b"\xac\xed\x00\x05\x74\x00\x01a";
        assert!(read_bytes(object, u64::MAX).1.is_err());
        assert!(read_bytes(b"", u64::MAX).1.is_err());
    }

    proptest! {
        #[test]
        fn mutated_files_do_no_harm(
            count in 0usize..400,
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = saved(keys(count));
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            bytes.truncate(cut.index(bytes.len() + 1));
            let (found, _) = read_bytes(&bytes, 300);
            prop_assert!(found.len() <= 300);
            prop_assert!(found.iter().all(|key| key.as_bytes().len() <= MAX_KEY_BYTES));
        }

        #[test]
        fn any_keys_are_read_back(keys: Vec<Vec<u8>>) {
            let keys: Vec<_> = keys.iter().map(|key| RowKey::new(key)).collect();
            let (found, result) = read_bytes(&saved(keys.clone()), u64::MAX);
            prop_assert!(result.is_ok());
            prop_assert_eq!(found, keys);
        }
    }
}
