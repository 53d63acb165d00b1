//! The file of `PropertyFileEndPointSnitch`, read at start and again when it has changed.

use super::error::ConfigError;
use super::java_properties::{self, MAX_FILE_BYTES};
use crate::base::lock::{Mutex, rank};
use crate::ring::{RackFile, Racks};
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// A rack file on disk, and what of it is in force.
#[derive(Debug)]
pub struct RackFileSource {
    path: PathBuf,
    racks: Arc<Racks>,
    /// State of the file at the last read. Lock: also held while it is read.
    seen: Mutex<rank::Job, Option<FileState>>,
}

/// Time of the last change, and size.
type FileState = (Option<SystemTime>, u64);

impl RackFileSource {
    /// Reads the file. If there is none, addresses speak for themselves until there is one.
    pub fn open(path: &Path) -> Result<Self, ConfigError> {
        let look = look(path);
        let file = read(path)?;
        if file.is_none() {
            log::error!("Could not find {}, using default EndPointSnitch", path.display());
        }
        if let Some(file) = &file {
            warn_of_ignored(path, file);
        }
        let racks = Arc::new(Racks::new(file));
        Ok(Self { path: path.to_owned(), racks, seen: Mutex::new(look) })
    }

    /// Content in force.
    pub fn racks(&self) -> &Arc<Racks> {
        &self.racks
    }

    /// Reads the file again. Returns whether it says anything new. A file that is gone or cannot
    /// be used leaves the earlier one in force.
    pub fn reload(&self) -> Result<bool, ConfigError> {
        let mut seen = self.seen.lock();
        self.reload_as(&mut seen, look(&self.path))
    }

    /// Reads the file again if it looks changed. Returns whether it says anything new. To be
    /// called now and then; what is wrong with the file goes to the log once for each change.
    pub fn reload_if_changed(&self) -> bool {
        let mut seen = self.seen.lock();
        let now = look(&self.path);
        if *seen == now {
            return false;
        }
        self.reload_as(&mut seen, now).unwrap_or_else(|error| {
            log::warn!("{error}; what it said before stays in force");
            false
        })
    }

    fn reload_as(
        &self,
        seen: &mut Option<FileState>,
        now: Option<FileState>,
    ) -> Result<bool, ConfigError> {
        // A look from before the reading: a change in between is noticed the next time.
        *seen = now;
        let path = self.path.display();
        let Some(file) = read(&self.path)? else {
            log::warn!("Could not find {path}; what it said before stays in force");
            return Ok(false);
        };
        warn_of_ignored(&self.path, &file);
        let differs = self.racks.replace(file);
        if differs {
            log::info!("{path} has been read again");
        }
        Ok(differs)
    }
}

fn look(path: &Path) -> Option<FileState> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok(), metadata.len()))
}

/// `None` if there is no such file.
fn read(path: &Path) -> Result<Option<RackFile>, ConfigError> {
    // The original begins its message in the same way.
    let unusable = |why: &dyn Display| {
        ConfigError::startup(format!("Could not process {}: {why}", path.display()))
    };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unusable(&error)),
    };
    let mut bytes = Vec::new();
    let read = file.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| unusable(&error))?;
    let lines = java_properties::parse(&bytes).map_err(|error| unusable(&error))?;
    Ok(Some(RackFile::parse(&lines)))
}

fn warn_of_ignored(path: &Path, file: &RackFile) {
    for key in file.ignored() {
        let path = path.display();
        log::warn!("{path}: \"{key}\" is no address: the line does not count. Write addresses");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn data_center(source: &RackFileSource) -> Option<String> {
        let file = source.racks().current()?;
        Some(file.locate([10, 0, 0, 1].into()).data_center.clone())
    }

    #[test]
    fn a_change_is_noticed_and_a_bad_one_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rack.properties");
        let source = RackFileSource::open(&path).unwrap();
        assert_eq!(data_center(&source), None);
        assert!(!source.reload_if_changed());
        fs::write(&path, "10.0.0.1\\:7000=DC1:R1\n").unwrap();
        assert!(source.reload_if_changed());
        assert!(!source.reload_if_changed());
        assert_eq!(data_center(&source).as_deref(), Some("DC1"));
        fs::write(&path, "10.0.0.1=DC2:R1 # \\u12\n").unwrap();
        assert!(!source.reload_if_changed());
        assert!(source.reload().is_err());
        assert!(RackFileSource::open(&path).is_err());
        fs::remove_file(&path).unwrap();
        assert!(!source.reload().unwrap());
        assert_eq!(data_center(&source).as_deref(), Some("DC1"));
        fs::write(&path, "host1=DC9:R1\n10.0.0.1 = DC2:R1\n").unwrap();
        assert!(source.reload().unwrap());
        assert!(!source.reload().unwrap());
        assert_eq!(data_center(&source).as_deref(), Some("DC2"));
    }

    #[test]
    fn a_directory_is_no_rack_file() {
        let directory = tempfile::tempdir().unwrap();
        let opened = RackFileSource::open(directory.path());
        assert!(opened.is_err());
    }
}
