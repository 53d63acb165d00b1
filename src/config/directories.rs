//! Directories of a configuration.

use super::document::{Document, Value, joined};
use super::error::{Place, Problem};
use super::machine::Machine;
use super::settings::{Directories, Release};
use std::path::PathBuf;

/// Directories as far as the file names them. The original compares them long before it requires
/// them.
pub(super) struct Paths<'a> {
    data: Vec<Value<'a>>,
    commit_log: Option<Value<'a>>,
    commit_log_archive: Option<Value<'a>>,
    saved_caches: Option<Value<'a>>,
    hints: Option<Value<'a>>,
}

impl<'a> Paths<'a> {
    pub(super) fn read(doc: &mut Document<'a>) -> Self {
        let mut data: Vec<Value<'_>> = Vec::new();
        for value in doc.list("DataFileDirectories", "DataFileDirectory") {
            if data.iter().any(|other| other.text == value.text) {
                let text = format!("data directory {} is listed twice", value.text);
                doc.notes.warn(value.place.line, text);
            } else {
                data.push(value);
            }
        }
        let commit_log = doc.find("CommitLogDirectory");
        let holds_data = |path: &Value<'_>| data.iter().any(|data| data.text == path.text);
        if let Some(log) = commit_log.as_ref().filter(|log| holds_data(log)) {
            if doc.release == Release::V06 {
                doc.refuse(
                    log.refuse("CommitLogDirectory must not be the same as any DataFileDirectory"),
                );
            } else {
                let text = "the commit log shares a directory with data, which 0.6 refuses";
                doc.notes.warn(log.place.line, text.to_owned());
            }
        }
        let commit_log_archive = doc.find("CommitLogArchiveDirectory");
        if let Some(archive) = &commit_log_archive
            && (holds_data(archive) || commit_log.as_ref().is_some_and(|l| l.text == archive.text))
        {
            doc.refuse(archive.refuse(
                "CommitLogArchiveDirectory must not be the same as CommitLogDirectory or any \
                 DataFileDirectory",
            ));
        }
        let (saved_caches, hints) = (doc.find("SavedCachesDirectory"), doc.find("HintsDirectory"));
        Self { data, commit_log, commit_log_archive, saved_caches, hints }
    }

    /// The directories of the server; beside the commit log where a file may leave one out.
    ///
    /// The original requires the one for saved caches from 0.6.6 on. Files of 0.6.0 to 0.6.5 do
    /// not have it, and look like later ones otherwise. A server goes on without saved caches that
    /// its file does not mention, and has no use for a directory of hints if it keeps none.
    pub(super) fn complete(
        self,
        doc: &mut Document<'a>,
        machine: &dyn Machine,
        keeps_hints: bool,
    ) -> Option<Directories> {
        if !doc.sources.contains_key("DataFileDirectories") {
            let problem = "At least one DataFileDirectory must be specified";
            doc.refuse(doc.absent("DataFileDirectories", problem));
        }
        if self.commit_log.is_none() {
            let problem = "CommitLogDirectory must be specified";
            doc.refuse(doc.absent("CommitLogDirectory", problem));
        }
        let mut known =
            |value: &Value<'_>| checked(doc, machine, &value.place, PathBuf::from(value.text));
        let data = self.data.iter().map(&mut known).collect();
        let commit_log = self.commit_log.as_ref().map(&mut known);
        let commit_log_archive = self.commit_log_archive.as_ref().map(&mut known);
        let saved_caches = self.saved_caches.as_ref().map(&mut known);
        let commit_log = commit_log?;
        let beside = |name| commit_log.parent().unwrap_or(&commit_log).join(name);
        let (hints, place) = match self.hints {
            Some(value) => (PathBuf::from(value.text), value.place),
            None => (beside("hints"), doc.place("HintsDirectory", doc.root.line)),
        };
        let hints = if keeps_hints { checked(doc, machine, &place, hints) } else { hints };
        let saved_caches = saved_caches.unwrap_or_else(|| {
            let path = beside("saved_caches");
            if doc.release == Release::V06 {
                let text =
                    format!("SavedCachesDirectory is not there, {} is taken", path.display());
                doc.notes.info(doc.root.line, text);
            }
            path
        });
        let directories = Directories { data, commit_log, commit_log_archive, saved_caches, hints };
        directories.show(doc);
        Some(directories)
    }
}

impl Directories {
    fn show(&self, doc: &mut Document<'_>) {
        let data: Vec<_> = self.data.iter().map(|path| path.display()).collect();
        let archive = self.commit_log_archive.as_ref().map(|path| path.display().to_string());
        doc.show("DataFileDirectories", joined(&data, ""));
        doc.show("CommitLogDirectory", self.commit_log.display());
        doc.show("CommitLogArchiveDirectory", archive.as_deref().unwrap_or("(none)"));
        doc.show("SavedCachesDirectory", self.saved_caches.display());
        doc.show("HintsDirectory", self.hints.display());
    }
}

/// The path, after recording an error if the server could not write there.
fn checked(
    doc: &mut Document<'_>,
    machine: &dyn Machine,
    place: &Place<'_>,
    path: PathBuf,
) -> PathBuf {
    if let Err(source) = machine.check_directory(&path) {
        let problem = Problem::startup(format!("the directory cannot be used: {source}"));
        doc.refuse(place.error(Some(&path.to_string_lossy()), problem));
    }
    path
}
