//! A file that is read from its beginning to its end.

use crate::base::fs::{File, FileSystem};
use crate::storage::error::{Corrupt, FileContext, ReadError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that are read from the file at a time.
const READ_BYTES: u64 = 256 << 10;

/// The bytes of a file from some place on: as many as were asked for, and some more.
#[derive(Debug)]
pub(super) struct Window {
    file: Arc<dyn File>,
    path: PathBuf,
    size: u64,
    /// Where the bytes begin in the file.
    start: u64,
    bytes: Vec<u8>,
    /// How many of the bytes were read.
    used: usize,
}

impl Window {
    /// A window at the beginning of a file.
    pub(super) fn open(fs: &dyn FileSystem, path: &Path) -> Result<Self, ReadError> {
        let file = fs.open(path).context("open", path)?;
        let size = file.size().context("look at", path)?;
        Ok(Self { file, path: path.to_owned(), size, start: 0, bytes: Vec::new(), used: 0 })
    }

    /// The place in the file.
    pub(super) fn position(&self) -> u64 {
        self.start + self.used as u64
    }

    /// Bytes of the file.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Bytes of the file that were not read yet.
    pub(super) fn left(&self) -> u64 {
        self.size.saturating_sub(self.position())
    }

    /// All bytes that are here from the present place on.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[self.used..]
    }

    /// Makes sure that so many bytes are here. Nothing is allocated for what the file does not
    /// have.
    pub(super) fn fill(&mut self, length: u64) -> Result<(), ReadError> {
        let here = self.bytes().len() as u64;
        if here >= length {
            return Ok(());
        }
        let wanted = length.max(READ_BYTES).min(self.left());
        if wanted < length {
            return Err(self.corrupt("the file ends too early"));
        }
        self.start = self.position();
        self.bytes.drain(..self.used);
        self.used = 0;
        self.bytes.resize(wanted.max(here) as usize, 0);
        let missing = &mut self.bytes[here as usize..];
        let read = self.file.read_exact_at(missing, self.start + here);
        if read.is_err() {
            self.bytes.truncate(here as usize);
        }
        Ok(read.context("read", &self.path)?)
    }

    /// The next `N` bytes.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        self.fill(N as u64)?;
        let array = *self.bytes().first_chunk().expect("they were filled in");
        self.used += N;
        Ok(array)
    }

    /// Goes on by so many bytes, which may be more than are here.
    pub(super) fn skip(&mut self, length: u64) -> Result<(), ReadError> {
        if length > self.left() {
            return Err(self.corrupt("the file ends too early"));
        }
        self.seek(self.position() + length);
        Ok(())
    }

    /// Goes on to a later place.
    pub(super) fn seek(&mut self, position: u64) {
        let place = position - self.start;
        if place <= self.bytes.len() as u64 {
            self.used = place as usize;
        } else {
            self.bytes.clear();
            (self.start, self.used) = (position, 0);
        }
    }

    /// Damage at the present place.
    pub(super) fn corrupt(&self, reason: &'static str) -> ReadError {
        Corrupt::new(&self.path, self.position(), reason).into()
    }
}
