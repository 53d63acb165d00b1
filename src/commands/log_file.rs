//! The log of a server: standard error, and a file that is rotated.

use super::output::Failure;
use super::serve::START_FAILED;
use crate::base::log_levels;
use crate::config::LogFile;
use env_logger::fmt::Formatter;
use env_logger::{Builder, Target};
use log::Record;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Permissions of new files: lines may name rows. Scrapers are of the group. A umask can take more
/// away.
const FILE_MODE: u32 = 0o640;

/// Permissions of new directories, as [`FILE_MODE`].
const DIRECTORY_MODE: u32 = 0o750;

/// The log as far as it is known before the configuration is read.
pub(super) struct LogPlan {
    /// In the form of `RUST_LOG`.
    pub(super) levels: String,
    /// Layout of the lines, unless it is the usual one.
    pub(super) format: Option<fn(&mut Formatter, &Record<'_>) -> io::Result<()>>,
    /// The file if the configuration names none.
    pub(super) file: Option<NamedFile>,
    /// Whether lines go to standard error for as long as the server runs. It then goes on without
    /// the file of the plan.
    pub(super) in_foreground: bool,
    /// The first lines.
    pub(super) notes: Vec<String>,
}

/// A log file, and the setting that names it.
pub(super) struct NamedFile {
    pub(super) file: LogFile,
    pub(super) setting: String,
}

/// Standard error as a place for lines that a file has as well.
#[derive(Clone)]
pub(super) struct Terminal {
    is_used: Arc<AtomicBool>,
    stays: bool,
}

impl Terminal {
    /// Leaves lines to the file alone, unless the server runs in the foreground.
    pub(super) fn leave(&self) {
        self.is_used.fetch_and(self.stays, Ordering::Relaxed);
    }

    fn echo(&self, line: &[u8]) {
        if self.is_used.load(Ordering::Relaxed) {
            // Nobody has to read it.
            let _ = io::stderr().write_all(line);
        }
    }
}

impl LogPlan {
    /// Standard error, with the usual levels.
    pub(super) fn usual(in_foreground: bool) -> Self {
        let (levels, notes) = ("info".to_owned(), Vec::new());
        Self { levels, format: None, file: None, in_foreground, notes }
    }

    /// Starts logging to standard error and to the file that the configuration names, or else to
    /// that of the plan.
    pub(super) fn start(self, configured: Option<NamedFile>) -> Result<Terminal, Failure> {
        let may_fail = self.in_foreground && configured.is_none();
        let is_used = Arc::new(AtomicBool::new(true));
        let terminal = Terminal { is_used, stays: self.in_foreground };
        let mut builder = Builder::new();
        if let Some(format) = self.format {
            builder.format(format);
        }
        let named = configured.or(self.file);
        let opened = named.as_ref().map(|it| RollingFile::open(&it.file, terminal.clone()));
        match (opened.transpose(), named) {
            (Ok(Some(file)), Some(named)) => {
                builder.target(Target::Pipe(Box::new(file)));
                // The standard error output may be closed then.
                std::panic::set_hook(Box::new(|panic| log::error!("{panic}")));
                log_levels::start(builder, &self.levels);
                log::info!("log file: {}", named.file.path.display());
            }
            (Err(error), Some(NamedFile { file, setting })) => {
                let failed = format!("cannot open the log file {}: {error}", file.path.display());
                if !may_fail {
                    let text = format!(
                        "{failed}. Let this user write there, or name another file as {setting}"
                    );
                    return Err(Failure::with(START_FAILED, text));
                }
                log_levels::start(builder, &self.levels);
                log::warn!("the log goes to the terminal alone: {failed}");
            }
            _ => log_levels::start(builder, &self.levels),
        }
        for note in self.notes {
            log::info!("{note}");
        }
        Ok(terminal)
    }
}

/// A log file that is renamed to `.1` when it is full, and a file `.1` to `.2`, and so on. A line
/// that cannot be written is counted.
struct RollingFile {
    path: PathBuf,
    file: File,
    size: u64,
    max_size: u64,
    backups: u32,
    lost: u64,
    terminal: Terminal,
}

impl RollingFile {
    fn open(settings: &LogFile, terminal: Terminal) -> io::Result<Self> {
        let LogFile { path, max_bytes, backups } = settings.clone();
        if path.to_string_lossy().contains("${") {
            return Err(io::Error::other("variables have no meaning here"));
        }
        let file = append_to(&path)?;
        let metadata = file.metadata()?;
        // A device or a pipe stays in its place.
        let max_size = if metadata.is_file() { max_bytes } else { u64::MAX };
        Ok(Self { path, file, size: metadata.len(), max_size, backups, lost: 0, terminal })
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if self.max_size != u64::MAX && !self.is_in_place()? {
            // Lines go on into the old file until there can be a new one.
            let _ = self.reopen();
        }
        if self.size >= self.max_size {
            if let Err(error) = self.roll() {
                writeln!(self.file, " WARN cannot rotate {}: {error}", self.path.display())?;
            }
            // After a failure it is tried again after as many bytes.
            self.size = 0;
        }
        if self.lost > 0 {
            // The last line may have been cut.
            writeln!(self.file, "\n WARN {} log lines could not be written here", self.lost)?;
            self.lost = 0;
        }
        self.file.write_all(line)?;
        self.size += line.len() as u64;
        Ok(())
    }

    fn roll(&mut self) -> io::Result<()> {
        if self.backups == 0 {
            return self.file.set_len(0);
        }
        let is_free = |number: &u32| !self.backup(*number).exists();
        let oldest = (1..self.backups).find(is_free).unwrap_or(self.backups);
        for number in (1..oldest).rev() {
            fs::rename(self.backup(number), self.backup(number + 1))?;
        }
        fs::rename(&self.path, self.backup(1))?;
        self.reopen()
    }

    /// Whether the path is still that of the open file, which others may have removed or renamed.
    fn is_in_place(&self) -> io::Result<bool> {
        let open = self.file.metadata()?;
        let at_path = fs::metadata(&self.path);
        Ok(at_path.is_ok_and(|it| (it.dev(), it.ino()) == (open.dev(), open.ino())))
    }

    fn reopen(&mut self) -> io::Result<()> {
        let permissions = self.file.metadata()?.permissions();
        self.file = append_to(&self.path)?;
        self.size = self.file.metadata()?.len();
        // Those who may read the old file may read the new one.
        self.file.set_permissions(permissions)
    }

    fn backup(&self, number: u32) -> PathBuf {
        backup(&self.path, number)
    }
}

fn backup(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

/// The file, and the one before it if there is one.
pub(super) fn newest(file: LogFile) -> Vec<PathBuf> {
    let before = backup(&file.path, 1);
    let before = before.exists().then_some(before);
    std::iter::once(file.path).chain(before).collect()
}

fn append_to(path: &Path) -> io::Result<File> {
    if let Some(directory) = path.parent() {
        DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory)?;
    }
    OpenOptions::new().create(true).append(true).mode(FILE_MODE).open(path)
}

impl Write for RollingFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.terminal.echo(line);
        if self.append(line).is_err() {
            self.lost += 1;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn open(path: &Path, max_bytes: u64, backups: u32) -> RollingFile {
        let file = LogFile { path: path.to_owned(), max_bytes, backups };
        let is_used = Arc::new(AtomicBool::new(false));
        RollingFile::open(&file, Terminal { is_used, stays: false }).unwrap()
    }

    fn write(log: &mut RollingFile, lines: &[&str]) {
        for line in lines {
            log.write_all(line.as_bytes()).unwrap();
        }
    }

    #[test]
    fn a_log_goes_on_after_a_full_disk_and_says_how_many_lines_are_missing() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("logs/system.log");
        let mut log = open(&file, 1000, 1);
        log.path = PathBuf::from("/dev/full");
        write(&mut log, &["one\n", "two\n"]);
        log.path = file.clone();
        write(&mut log, &["three\n"]);
        let written = fs::read_to_string(file).unwrap();
        assert_eq!(written, "\n WARN 2 log lines could not be written here\nthree\n");
    }

    #[test]
    fn a_log_without_old_files_begins_again() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("system.log");
        write(&mut open(&file, 4, 0), &["one\n", "two\n"]);
        assert_eq!(fs::read_to_string(file).unwrap(), "two\n");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_log_that_others_remove_or_rename_begins_again() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("logs/system.log");
        let mut log = open(&file, 1000, 1);
        write(&mut log, &["one\n"]);
        fs::remove_file(&file).unwrap();
        write(&mut log, &["two\n"]);
        assert_eq!(fs::read_to_string(&file).unwrap(), "two\n");
        fs::rename(&file, directory.path().join("old")).unwrap();
        fs::write(&file, "by another\n").unwrap();
        write(&mut log, &["three\n"]);
        assert_eq!(fs::read_to_string(&file).unwrap(), "by another\nthree\n");
        // Where no file can be made it is tried again.
        fs::remove_dir_all(directory.path().join("logs")).unwrap();
        fs::write(directory.path().join("logs"), "").unwrap();
        write(&mut log, &["lost\n"]);
        fs::remove_file(directory.path().join("logs")).unwrap();
        write(&mut log, &["four\n"]);
        assert_eq!(fs::read_to_string(&file).unwrap(), "four\n");
    }

    #[test]
    fn the_oldest_file_goes_and_readers_of_the_log_may_read_on() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("system.log");
        let mut log = open(&file, 4, 2);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o604)).unwrap();
        write(&mut log, &["one\n", "two\n", "six\n", "ten\n"]);
        for (name, line) in [("system.log", "ten\n"), ("system.log.1", "six\n")] {
            let path = directory.path().join(name);
            assert_eq!(fs::read_to_string(&path).unwrap(), line);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o604);
        }
        assert_eq!(fs::read_to_string(directory.path().join("system.log.2")).unwrap(), "two\n");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3);
    }
}
