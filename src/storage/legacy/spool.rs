//! Bytes that wait until the bytes before them are known.

use super::remove;
use crate::base::fs::{File, FileSystem};
use crate::storage::error::{FileContext, FileError};
use crate::storage::files::create_anew;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes that are kept in memory before a file takes them.
const MEMORY_BYTES: usize = 4 << 20;

/// Bytes that are read back at a time.
const CHUNK_BYTES: usize = 256 << 10;

/// A row of an SSTable of 0.6 begins with what follows from all its columns. These are kept here
/// meanwhile: in memory, and in a file if there are many.
#[derive(Debug)]
pub struct Spool {
    place: Option<(Arc<dyn FileSystem>, PathBuf)>,
    file: Option<Arc<dyn File>>,
    /// Bytes in the file. Those in memory follow.
    in_file: u64,
    memory: Vec<u8>,
    memory_bytes: usize,
}

impl Spool {
    /// A spool that keeps everything in memory.
    pub fn in_memory() -> Self {
        let memory = Vec::new();
        Self { place: None, file: None, in_file: 0, memory, memory_bytes: usize::MAX }
    }

    /// A spool that makes this file when it has many bytes. What is there of that name is
    /// replaced. The file goes with the spool.
    pub fn in_file(fs: Arc<dyn FileSystem>, path: PathBuf) -> Self {
        let mut spool = Self::in_memory();
        (spool.place, spool.memory_bytes) = (Some((fs, path)), MEMORY_BYTES);
        spool
    }

    #[cfg(test)]
    pub(super) fn keeping(mut self, bytes: usize) -> Self {
        self.memory_bytes = bytes;
        self
    }

    /// Number of bytes.
    pub fn len(&self) -> u64 {
        self.in_file + self.memory.len() as u64
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends bytes, which stay together.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        if self.memory.len() >= self.memory_bytes {
            self.empty_memory()?;
        }
        self.memory.extend_from_slice(bytes);
        Ok(())
    }

    fn empty_memory(&mut self) -> Result<(), FileError> {
        let Some((fs, path)) = &self.place else { return Ok(()) };
        if self.file.is_none() {
            self.file = Some(create_anew(&**fs, path)?);
        }
        let Some(file) = &self.file else { return Ok(()) };
        file.write_all_at(&self.memory, self.in_file).context("write", path)?;
        self.in_file += self.memory.len() as u64;
        self.memory.clear();
        Ok(())
    }

    /// Replaces bytes that were pushed together.
    pub fn replace(&mut self, at: u64, bytes: &[u8]) -> Result<(), FileError> {
        if let Some(start) = at.checked_sub(self.in_file) {
            let start = start as usize;
            self.memory[start..start + bytes.len()].copy_from_slice(bytes);
            return Ok(());
        }
        let (Some(file), Some((_, path))) = (&self.file, &self.place) else { return Ok(()) };
        file.write_all_at(bytes, at).context("write", path)
    }

    /// Gives all bytes, in pieces of whole pushes if these have a length that divides 256 KB.
    pub fn read<E: From<FileError>>(
        &self,
        take: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if let (Some(file), Some((_, path))) = (&self.file, &self.place) {
            let mut chunk = vec![0; CHUNK_BYTES.min(self.in_file as usize)];
            let mut at = 0;
            while at < self.in_file {
                let length = (self.in_file - at).min(CHUNK_BYTES as u64) as usize;
                file.read_exact_at(&mut chunk[..length], at).context("read", path)?;
                take(&chunk[..length])?;
                at += length as u64;
            }
        }
        take(&self.memory)
    }

    /// Forgets all bytes.
    pub fn clear(&mut self) {
        self.in_file = 0;
        self.memory.clear();
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if let (Some(_), Some((fs, path))) = (self.file.take(), &self.place) {
            remove(&**fs, path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::disk::SimFileSystem;
    use std::path::Path;

    #[test]
    fn bytes_come_back_from_memory_and_from_a_file() {
        let fs: Arc<dyn FileSystem> = Arc::new(SimFileSystem::new(1));
        fs.create_dir_all(Path::new("d")).unwrap();
        let path = Path::new("d/spool");
        for mut spool in
            [Spool::in_memory(), Spool::in_file(Arc::clone(&fs), path.into()).keeping(10)]
        {
            for round in 0..2u32 {
                let mut expected = Vec::new();
                for i in 0..100u32 {
                    spool.push(&(i + round).to_be_bytes()).unwrap();
                    expected.extend_from_slice(&(i + round).to_be_bytes());
                }
                for at in [0, 44, 396] {
                    spool.replace(at as u64, &[9; 4]).unwrap();
                    expected[at..at + 4].copy_from_slice(&[9; 4]);
                }
                let mut read = Vec::new();
                let mut take = |bytes: &[u8]| {
                    read.extend_from_slice(bytes);
                    Ok::<_, FileError>(())
                };
                spool.read(&mut take).unwrap();
                assert_eq!((spool.len(), read), (400, expected));
                spool.clear();
            }
        }
        assert!(!fs.exists(path), "the file goes with the spool");
    }
}
