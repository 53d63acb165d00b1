//! Commands on the disk, past the server: what hardware and people do to files.

use super::world::World;
use super::{Output, show, transfer};
use crate::kit::disk::{Fault, Operation, SimFileSystem};
use crate::storage_model::rig::wait_until;
use alexandra::base::fs::FileSystem;
use alexandra::storage::offline::{self, OfflineServer, OfflineTable, TableState};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug, goldenscript::Command)]
pub(super) enum Command {
    /// The names in a folder.
    Ls(String),
    /// Waits until a folder has so many files.
    #[command(name = "await-files")]
    AwaitFiles(String, usize),
    /// Makes an empty file, or one of so many zeroes.
    Touch {
        path: String,
        #[arg(key, optional)]
        bytes: u64,
    },
    /// Removes a file, or the files of a folder: `rm /data/Blog/`.
    Rm(String),
    /// Copies a file, which may be one of a kept disk.
    Cp {
        from: String,
        to: String,
        #[arg(key)]
        disk: Option<String>,
    },
    /// Cuts so many bytes off the end of a file.
    Cut { path: String, bytes: u64 },
    /// Changes one byte of a file, counted from its beginning, or with `end` from its end.
    Damage {
        path: String,
        #[arg(key)]
        at: Option<u64>,
        #[arg(key)]
        end: Option<u64>,
        #[arg(key)]
        xor: Option<u8>,
    },
    /// Sets bytes of a file to zero.
    Blank { path: String, from: u64, to: u64 },
    /// Sets the last bytes of what was written to a file to zero, as a crash does.
    Tear { path: String, bytes: usize },
    /// Keeps the disk as it is now under a name.
    #[command(name = "keep-disk")]
    KeepDisk(String),
    /// Puts a kept disk in place of the present one; the server must not run.
    #[command(name = "use-disk")]
    UseDisk(String),
    /// Lets operations of a kind fail: `fail sync on=Authors- error=io skip=1 times=2`.
    Fail {
        operation: String,
        #[arg(key, optional)]
        on: String,
        #[arg(key)]
        error: Option<String>,
        #[arg(key, optional)]
        skip: u64,
        #[arg(key)]
        times: Option<u64>,
    },
    /// Nothing fails any more.
    Heal,
    /// Leaves the disk room for so many bytes more, or `unlimited`.
    Room(String),
    /// Whether the disk was read since this was asked last.
    #[command(name = "disk-reads")]
    DiskReads,
    /// Files of a family as tools find them when no server runs.
    Inspect(String),
    /// Whether tools may change the files of a folder.
    #[command(name = "may-change")]
    MayChange(String),
    /// One of [`transfer::Command`].
    #[command(other)]
    Other(goldenscript::Command),
}

impl World {
    pub(super) fn run_on_files(&mut self, command: &Command) -> Output {
        match command {
            Command::Ls(path) => self.ls(path),
            Command::AwaitFiles(path, count) => {
                let is_made = |name: &String| !name.contains(".tmp");
                wait_until("files", || {
                    let names = self.names(path).unwrap_or_default();
                    names.len() == *count && names.iter().all(is_made)
                });
                self.ls(path)
            }
            Command::Touch { path, bytes } => self.replace(path, &vec![0; *bytes as usize]),
            Command::Rm(path) => self.rm(path),
            Command::Cp { from, to, disk } => {
                let source = disk.as_ref().map_or(Ok(&self.rig.disk), |name| self.kept(name))?;
                let content = source.read(&absolute(from))?;
                self.replace(to, &content)
            }
            Command::Cut { path, bytes } => {
                let file = self.rig.disk.open(&absolute(path))?;
                file.set_size(file.size()? - bytes)?;
                Ok(String::new())
            }
            Command::Damage { path, at, end, xor } => {
                let path = absolute(path);
                let size = self.rig.disk.open(&path)?.size()?;
                let at = at.or_else(|| Some(size - (*end)?)).ok_or("at or end is needed")?;
                self.rig.disk.corrupt(&path, at, xor.unwrap_or(1))?;
                Ok(String::new())
            }
            Command::Blank { path, from, to } => {
                let zeroes = vec![0; (to - from) as usize];
                self.rig.disk.open(&absolute(path))?.write_all_at(&zeroes, *from)?;
                Ok(String::new())
            }
            Command::Tear { path, bytes } => {
                let content = self.rig.disk.read(&absolute(path))?;
                let end = content.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                let from = end.saturating_sub(*bytes);
                let file = self.rig.disk.open(&absolute(path))?;
                file.write_all_at(&vec![0; end - from], from as u64)?;
                Ok(String::new())
            }
            Command::KeepDisk(name) => {
                self.disks.insert(name.clone(), self.rig.disk.fork());
                Ok(String::new())
            }
            Command::UseDisk(name) => {
                if self.rig.is_open() {
                    return Err("the server runs".into());
                }
                self.rig.disk = self.kept(name)?.fork();
                Ok(String::new())
            }
            Command::Fail { operation, on, error, skip, times } => {
                let (operation, errno) = (operation_of(operation)?, errno_of(error.as_deref())?);
                let fault = Fault::nth(operation, *skip, errno);
                self.rig.disk.inject(Fault { times: times.unwrap_or(1), ..fault }.on(on));
                Ok(String::new())
            }
            Command::Heal => {
                self.rig.disk.forget_faults();
                Ok(String::new())
            }
            Command::Room(bytes) => {
                match bytes.as_str() {
                    "unlimited" => self.rig.disk.set_capacity(None),
                    bytes => {
                        self.await_removals();
                        self.rig.leave_room(bytes.parse()?);
                    }
                }
                Ok(String::new())
            }
            Command::DiskReads => {
                let now = self.rig.disk.count(Operation::Read);
                let before = std::mem::replace(&mut self.reads_seen, now);
                Ok(if now == before { "none\n" } else { "some\n" }.to_owned())
            }
            Command::Inspect(family) => self.inspect(family),
            Command::MayChange(folder) => {
                let lock = offline::lock_around(&self.rig.disk, &absolute(folder))?;
                Ok(if lock.is_some() { "yes\n" } else { "nothing ever runs on it\n" }.to_owned())
            }
            Command::Other(other) => self.run_transfer(&transfer::Command::try_from(other)?),
        }
    }

    fn inspect(&self, family: &str) -> Output {
        let fs: Arc<dyn FileSystem> = Arc::new(self.rig.disk.clone());
        let (data, log) = (&self.options.data_directories, &self.options.commit_log_directory);
        let family = OfflineServer::lock(&fs, data, log)?.family("Blog", family)?;
        let line = |table: &OfflineTable| {
            let state = match table.state {
                TableState::Present => "is there".to_owned(),
                TableState::Missing => "is missing".to_owned(),
                TableState::Other => "is another file".to_owned(),
                TableState::WrongSize { found, expected } => {
                    format!("lacks {} bytes", expected - found)
                }
            };
            format!("{}: {state}", table.path.display())
        };
        Ok(show::lines(family.tables().iter().map(line), "no SSTables"))
    }

    fn kept(&self, name: &str) -> Result<&SimFileSystem, String> {
        self.disks.get(name).ok_or_else(|| format!("no disk was kept as {name}"))
    }

    pub(super) fn names(&self, path: &str) -> std::io::Result<Vec<String>> {
        let entries = self.rig.disk.list(&absolute(path))?;
        let name = |entry: alexandra::base::fs::DirEntry| {
            if entry.is_dir { format!("{}/", entry.name) } else { entry.name }
        };
        let mut names: Vec<String> = entries.into_iter().map(name).collect();
        // Every directory of a server has one.
        names.retain(|name| name != "alexandra.lock");
        names.sort();
        Ok(names)
    }

    /// A replaced file goes with its last reader, which may be a thread in the background.
    fn await_removals(&self) {
        if let (Ok(storage), None) = (self.storage(), &self.held) {
            wait_until("replaced files go", || {
                storage.families().all(|store| store.remove_replaced() == 0)
            });
        }
    }

    fn ls(&self, path: &str) -> Output {
        self.await_removals();
        Ok(show::lines(self.names(path)?.into_iter(), "nothing"))
    }

    fn rm(&self, path: &str) -> Output {
        match path.strip_suffix('/') {
            None => self.rig.disk.remove_file(&absolute(path))?,
            Some(folder) => {
                for name in self.names(folder)?.iter().filter(|name| !name.ends_with('/')) {
                    self.rig.disk.remove_file(&absolute(folder).join(name))?;
                }
            }
        }
        Ok(String::new())
    }

    fn replace(&self, path: &str, content: &[u8]) -> Output {
        let (disk, path) = (&self.rig.disk, &absolute(path));
        if disk.exists(path) {
            disk.remove_file(path)?;
        }
        if let Some(folder) = path.parent() {
            disk.create_dir_all(folder)?;
        }
        disk.create(path)?.write_all_at(content, 0)?;
        Ok(String::new())
    }
}

/// Scripts leave the first slash out.
pub(super) fn absolute(path: &str) -> PathBuf {
    Path::new("/").join(path)
}

fn operation_of(name: &str) -> Result<Operation, String> {
    Ok(match name {
        "create" => Operation::Create,
        "exists" => Operation::Exists,
        "link" => Operation::HardLink,
        "rename" => Operation::Rename,
        "sync" => Operation::Sync,
        "sync-folder" => Operation::SyncDir,
        "write" => Operation::Write,
        "allocate" => Operation::Allocate,
        "remove" => Operation::Remove,
        _ => return Err(format!("unknown operation {name}")),
    })
}

fn errno_of(name: Option<&str>) -> Result<Errno, String> {
    Ok(match name {
        None | Some("io") => Errno::IO,
        Some("no-space") => Errno::NOSPC,
        Some("other-disk") => Errno::XDEV,
        Some("no-handles") => Errno::MFILE,
        Some(name) => return Err(format!("unknown error {name}")),
    })
}
