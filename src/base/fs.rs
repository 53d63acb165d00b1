//! The file layer: the operations that the storage core needs, as a trait. Tests implement it with
//! a file system that fails, fills up, or loses unsynced data.

use std::fmt;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// Whether a write failed for lack of room: the disk, a quota, or the limit for one file that
/// `ulimit -f` sets. All of these pass without a restart.
pub fn is_disk_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// One open file. All access is positional, so that readers and a syncing thread can share it.
pub trait File: Send + Sync + fmt::Debug {
    /// Reads up to `buf.len()` bytes at `offset`; 0 means end of file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Fills `buf` from `offset` if no device has to be waited for, as in the page cache. False if
    /// it would take a wait, failed, or the system cannot tell: `buf` then holds anything.
    fn read_if_ready(&self, _buf: &mut [u8], _offset: u64) -> bool {
        false
    }

    /// Writes all of `buf` at `offset`, extending the file if need be. Not durable before a sync.
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// Makes content and size durable. After an error the content is undefined: do not retry.
    fn sync(&self) -> io::Result<()>;

    /// Present size in bytes.
    fn size(&self) -> io::Result<u64>;

    /// Reserves disk space for `size` bytes without changing what readers see beyond zeroes.
    fn allocate(&self, size: u64) -> io::Result<()>;

    /// Cuts or extends the file to `size` bytes.
    fn set_size(&self, size: u64) -> io::Result<()>;

    /// Fills `buf` from `offset`; an early end of file is an `UnexpectedEof` error.
    fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match self.read_at(buf, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    buf = &mut buf[n..];
                    offset += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The name within the directory.
    pub name: String,
    /// Size in bytes; 0 for a directory.
    pub size: u64,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// Held as long as a directory is locked; dropping it releases the lock.
pub trait Lock: Send + Sync + fmt::Debug {}

/// A file system.
pub trait FileSystem: Send + Sync + fmt::Debug {
    /// Creates a file that must not exist yet, open for reading and writing.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>>;
    /// Opens an existing file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>>;
    /// Whether a file or directory of that name exists; an error if that is unknown.
    fn try_exists(&self, path: &Path) -> io::Result<bool>;
    /// The entries of a directory, in no order. Names that are not UTF-8 are left out.
    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>>;
    /// Creates a directory and its parents; an existing one is fine.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Renames atomically. A file replaces the file that has the name so far; a directory takes
    /// its content along, and replaces at most an empty directory. Durable after
    /// `sync_dir` of the parent.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Gives a file one more name on the same file system, which must not exist yet. The content
    /// stays as durable as it is, the name is durable after `sync_dir` of its parent.
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file. Open handles stay readable.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes the creation, renaming and removal of entries of this directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Bytes that can still be written below `path`.
    fn available_space(&self, path: &Path) -> io::Result<u64>;
    /// Takes an exclusive lock on the file, creating it; `WouldBlock` when another holder exists.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>>;

    /// Whether a file or directory of that name exists, or that is unknown: for callers that open,
    /// list or remove it next, and get the error then. An existing file must never seem absent.
    fn exists(&self, path: &Path) -> bool {
        self.try_exists(path).unwrap_or(true)
    }

    /// The whole content of a small file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = self.open(path)?;
        let mut content = vec![0; file.size()? as usize];
        file.read_exact_at(&mut content, 0)?;
        Ok(content)
    }
}

/// Permissions of new files: data is for the user of the server alone. A umask can take more away.
const FILE_MODE: u32 = 0o600;

/// Permissions of new directories, as [`FILE_MODE`].
const DIRECTORY_MODE: u32 = 0o700;

/// The operating system's files.
#[derive(Debug, Default, Clone, Copy)]
pub struct OsFileSystem;

#[derive(Debug)]
struct OsFile(fs::File);

impl File for OsFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }

    #[cfg(target_os = "linux")]
    fn read_if_ready(&self, buf: &mut [u8], offset: u64) -> bool {
        let (wanted, mut slices) = (buf.len(), [io::IoSliceMut::new(buf)]);
        let flags = rustix::io::ReadWriteFlags::NOWAIT;
        rustix::io::preadv2(&self.0, &mut slices, offset, flags) == Ok(wanted)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(buf, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.0, rustix::fs::FallocateFlags::empty(), 0, size) {
            // A file system without the call still works, only slower.
            Err(rustix::io::Errno::OPNOTSUPP) => self.0.set_len(size.max(self.size()?)),
            other => Ok(other?),
        }
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.0.set_len(size)
    }
}

#[derive(Debug)]
struct OsLock(#[allow(dead_code, reason = "the lock lives as long as the handle")] fs::File);

impl Lock for OsLock {}

impl FileSystem for OsFileSystem {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(FILE_MODE);
        Ok(Arc::new(OsFile(options.open(path)?)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let opened = match OpenOptions::new().read(true).write(true).open(path) {
            // Tools may be run by who may read the files, and nothing else.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => fs::File::open(path),
            opened => opened,
        };
        Ok(Arc::new(OsFile(opened?)))
    }

    fn try_exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let meta = match entry.metadata() {
                Ok(meta) => meta,
                // Removed between listing and looking.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(e),
            };
            let is_dir = meta.is_dir();
            entries.push(DirEntry { name, size: if is_dir { 0 } else { meta.len() }, is_dir });
        }
        Ok(entries)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        fs::File::open(path)?.sync_all()
    }

    fn available_space(&self, path: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(path)?;
        Ok(stat.f_bavail * stat.f_frsize)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE);
        let file = options.open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(OsLock(file))),
            Err(fs::TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(fs::TryLockError::Error(e)) => Err(e),
        }
    }
}
