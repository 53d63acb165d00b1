//! Where files are.

use super::document::Document;
use super::error::{ConfigError, Problem};
use super::settings::{Directories, Release};
use std::path::PathBuf;

/// Directories as far as the file names them. The original looks whether they are equal long
/// before it looks whether they are there.
pub(super) struct Paths {
    data: Vec<PathBuf>,
    commit_log: Option<PathBuf>,
    commit_log_archive: Option<PathBuf>,
    saved_caches: Option<PathBuf>,
    hints: Option<PathBuf>,
}

impl Paths {
    pub(super) fn read(doc: &mut Document<'_>) -> Result<Self, ConfigError> {
        let mut data: Vec<PathBuf> = Vec::new();
        for value in doc.list("DataFileDirectories", "DataFileDirectory")? {
            let path = PathBuf::from(value.text);
            if data.contains(&path) {
                let text = format!("data directory {} is listed twice", path.display());
                doc.notes.warn(value.place.line, text);
            } else {
                data.push(path);
            }
        }
        let commit_log = doc.find("CommitLogDirectory");
        if let Some(value) = &commit_log
            && data.iter().any(|path| path.as_os_str() == value.text)
        {
            if doc.release == Release::V06 {
                return Err(value.refuse(Problem::CommitLogAmongData));
            }
            let text = "the commit log shares a directory with data, which 0.6 refuses";
            doc.notes.warn(value.place.line, text.to_owned());
        }
        let archive = doc.find("CommitLogArchiveDirectory");
        if let Some(value) = &archive {
            let log = commit_log.iter().map(|value| value.text);
            let others = data.iter().filter_map(|path| path.to_str()).chain(log);
            if others.into_iter().any(|other| other == value.text) {
                return Err(value.refuse(Problem::ArchiveAmongOthers));
            }
        }
        Ok(Self {
            data,
            commit_log_archive: archive.map(|value| PathBuf::from(value.text)),
            commit_log: commit_log.map(|value| PathBuf::from(value.text)),
            saved_caches: doc.find("SavedCachesDirectory").map(|v| PathBuf::from(v.text)),
            hints: doc.find("HintsDirectory").map(|v| PathBuf::from(v.text)),
        })
    }

    /// The directories of the server; beside the commit log where a file may leave one out.
    ///
    /// The original requires the one for saved caches from 0.6.6 on. Files of 0.6.0 to 0.6.5 do
    /// not have it, and look like later ones otherwise.
    pub(super) fn complete(self, doc: &mut Document<'_>) -> Result<Directories, ConfigError> {
        let missing = |name| doc.absent(name, Problem::MissingDirectory(name));
        if self.data.is_empty() {
            return Err(doc.absent("DataFileDirectories", Problem::NoDataFileDirectory));
        }
        let commit_log = self.commit_log.ok_or_else(|| missing("CommitLogDirectory"))?;
        let beside = |name| match commit_log.parent() {
            Some(parent) => parent.join(name),
            None => commit_log.join(name),
        };
        let saved_caches = self.saved_caches.unwrap_or_else(|| {
            let path = beside("saved_caches");
            if doc.release == Release::V06 {
                let path = path.display();
                let text = format!("SavedCachesDirectory is not there, {path} is taken");
                doc.notes.info(doc.root_line(), text);
            }
            path
        });
        let hints = self.hints.unwrap_or_else(|| beside("hints"));
        let commit_log_archive = self.commit_log_archive;
        Ok(Directories { data: self.data, commit_log, commit_log_archive, saved_caches, hints })
    }
}
