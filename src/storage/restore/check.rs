//! What is to be restored, and whether it can be. Changes nothing.

use super::place::{self, Mark, read_marks};
use super::{Report, Request, RestoreError, RestoredKeyspace, Setup};
use crate::base::events::Events;
use crate::base::fs::FileSystem;
use crate::model::schema::{ColumnFamilySchema, FamilyId};
use crate::storage::commitlog::Position;
use crate::storage::commitlog::archive::{ArchiveReplay, History, Timeline, Wanted, segment_ids};
use crate::storage::engine::{Components, new_environment};
use crate::storage::error::FileContext;
use crate::storage::files::{self, BEFORE_RESTORE, FileName};
use crate::storage::manifest::Manifest;
use crate::storage::options::Options;
use crate::storage::snapshot::{self, Snapshot, SnapshotName};
use crate::storage::store::Store;
use crate::storage::system::log_guard::LogGuard;
use crate::storage::system::node_id::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::{Path, PathBuf};

/// What is to be done.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) snapshots: Vec<Snapshot>,
    /// The configured column families of the keyspaces.
    pub(super) families: Vec<FamilyPlan>,
    unconfigured: Vec<String>,
    /// The node that is restored.
    pub(super) node: NodeId,
    /// Behind everything that was ever written: what is written later is greater.
    pub(super) newest: Position,
    /// The name of the folders to which present files are moved.
    pub(super) aside: String,
    /// A restore was cut off, and this one repeats it.
    pub(super) is_repeated: bool,
    /// What earlier restores have left behind counts.
    forgets_restores: bool,
    /// Segments in the commit log.
    log_segments: usize,
}

/// The part of an archive that is to be replayed.
#[derive(Debug)]
pub(super) struct ArchivePlan {
    pub(super) archive: PathBuf,
    /// The restores that count, of those that the archive knows of.
    pub(super) history: History,
    /// What follows upon the snapshot of each column family.
    pub(super) timelines: BTreeMap<FamilyId, Timeline>,
    pub(super) replay: ArchiveReplay,
}

/// A column family that is to be restored.
#[derive(Debug)]
pub(super) struct FamilyPlan {
    pub(super) id: FamilyId,
    pub(super) keyspace: String,
    pub(super) name: String,
    snapshot: SnapshotName,
    /// The snapshot holds everything up to here.
    pub(super) base: Position,
    /// What the manifest will be, and the folder of the keyspace for it.
    pub(super) manifest: Manifest,
    pub(super) manifest_folder: PathBuf,
    /// The files of the snapshot, each with the folder of the keyspace beside it.
    pub(super) tables: Vec<(PathBuf, PathBuf)>,
}

impl Plan {
    pub(super) fn of(setup: &Setup, request: &Request) -> Result<Self, RestoreError> {
        let fs = &*setup.components.fs;
        let snapshots = find_snapshots(setup, request)?;
        let marks = read_marks(fs, &setup.options.data_directories)?;
        check_log(setup, &marks)?;
        let restored: BTreeSet<&str> = snapshots.iter().map(|s| s.keyspace.as_str()).collect();
        check_marks(&marks, &restored)?;
        let mut families = Vec::new();
        let mut unconfigured = Vec::new();
        for snapshot in &snapshots {
            plan_keyspace(setup, snapshot, &mut families, &mut unconfigured)?;
        }
        let log = &setup.options.commit_log_directory;
        let millis = setup.components.clock.coarse_millis();
        Ok(Self {
            node: NodeId::find(fs, &setup.options.data_directories, setup.options.seed)?,
            newest: newest(setup, request, &families, &marks)?,
            aside: unused_name(fs, setup, millis)?,
            is_repeated: !marks.is_empty(),
            forgets_restores: request.forget_restores,
            log_segments: segment_ids(fs, log).context("list", log)?.len(),
            snapshots,
            families,
            unconfigured,
        })
    }

    /// Whether a keyspace is restored.
    pub(super) fn restores(&self, keyspace: &str) -> bool {
        self.snapshots.iter().any(|snapshot| snapshot.keyspace == keyspace)
    }

    /// Looks into the archive, together with what of the log is not there yet.
    pub(super) fn survey(
        &self,
        setup: &Setup,
        request: &Request,
        archive: &Path,
    ) -> Result<ArchivePlan, RestoreError> {
        let fs = &*setup.components.fs;
        if !fs.exists(archive) {
            return Err(RestoreError::NoArchive(archive.to_owned()));
        }
        let history = self.history(fs, archive)?;
        let timelines = self.timelines(&history)?;
        let mut wanted = Wanted::default();
        for timeline in timelines.values() {
            wanted.add(timeline.clone());
        }
        let dirs = [archive.to_owned(), setup.options.commit_log_directory.clone()];
        let replay = ArchiveReplay::survey::<Infallible>(fs, &dirs, wanted, request.until_millis)?;
        if !setup.options.accept_commitlog_loss {
            if !replay.missing.is_empty() {
                return Err(RestoreError::Missing(replay.missing));
            }
            if let Some(damage) = replay.damaged.first() {
                return Err(RestoreError::Damaged(damage.clone()));
            }
        }
        Ok(ArchivePlan { archive: archive.to_owned(), history, timelines, replay })
    }

    /// The restores that count, of those that an archive knows of.
    pub(super) fn history(
        &self,
        fs: &dyn FileSystem,
        archive: &Path,
    ) -> Result<History, RestoreError> {
        let mut history = History::load(fs, archive)?;
        for family in self.families.iter().filter(|_| self.forgets_restores) {
            history.forget(&family.keyspace, &family.name, family.base);
        }
        Ok(history)
    }

    /// What follows upon the snapshot of each column family.
    fn timelines(&self, history: &History) -> Result<BTreeMap<FamilyId, Timeline>, RestoreError> {
        let timeline = |family: &FamilyPlan| {
            let timeline = history.timeline(&family.keyspace, &family.name).behind(family.base);
            let timeline = timeline.ok_or_else(|| RestoreError::LeftBehind {
                snapshot: family.snapshot.clone(),
                keyspace: family.keyspace.clone(),
            });
            Ok((family.id, timeline?))
        };
        self.families.iter().map(timeline).collect()
    }

    pub(super) fn report(&self, setup: &Setup) -> Result<Report, RestoreError> {
        let keyspace = |snapshot: &Snapshot| {
            let families = || self.families.iter().filter(|f| f.keyspace == snapshot.keyspace);
            RestoredKeyspace {
                keyspace: snapshot.keyspace.clone(),
                snapshot: snapshot.name.clone(),
                families: families().count(),
                tables: families().map(|family| family.tables.len()).sum(),
                bytes: families()
                    .flat_map(|family| family.manifest.sstables.values())
                    .map(|it| it.bytes)
                    .sum(),
            }
        };
        let moved = place::present(setup, self)?.into_iter();
        Ok(Report {
            keyspaces: self.snapshots.iter().map(keyspace).collect(),
            unconfigured: self.unconfigured.clone(),
            moved_to: moved.map(|(folder, _)| folder.join(&self.aside)).collect(),
            archived_segments: self.log_segments,
            replay: None,
        })
    }
}

/// The commit log may hold what keyspaces need that are not restored, and what the archive lacks.
/// A restore that was cut off may have moved it aside.
fn check_log(setup: &Setup, marks: &[Mark]) -> Result<(), RestoreError> {
    let Options { data_directories, commit_log_directory, .. } = &setup.options;
    if setup.options.accept_commitlog_loss || !marks.is_empty() {
        return Ok(());
    }
    let lost = LogGuard::find_loss(&*setup.components.fs, data_directories, commit_log_directory)?;
    lost.map_or(Ok(()), |lost| Err(RestoreError::NoLog(lost)))
}

fn find_snapshots(setup: &Setup, request: &Request) -> Result<Vec<Snapshot>, RestoreError> {
    let (fs, directories) = (&*setup.components.fs, &setup.options.data_directories);
    let keyspace = request.keyspace.as_deref();
    let found = snapshot::find(fs, directories, keyspace, Some(&request.snapshot))?;
    let shown = |snapshots: &[Snapshot]| -> Vec<String> {
        snapshots.iter().map(|it| format!("{} of {}", it.name, it.keyspace)).collect()
    };
    if found.is_empty() {
        let known = shown(&snapshot::list(fs, directories, keyspace)?);
        return Err(RestoreError::NoSnapshot { name: request.snapshot.clone(), known });
    }
    let keyspaces: BTreeSet<&str> = found.iter().map(|it| it.keyspace.as_str()).collect();
    if keyspaces.len() < found.len() {
        return Err(RestoreError::Ambiguous(shown(&found)));
    }
    if let Some(unknown) = keyspaces.iter().find(|name| !setup.schema.has_keyspace(name)) {
        return Err(RestoreError::UnknownKeyspace((*unknown).to_owned()));
    }
    let too_young =
        |it: &&Snapshot| request.until_millis.is_some_and(|until| it.name.millis > until);
    if let Some(snapshot) = found.iter().find(too_young) {
        return Err(RestoreError::TooYoung(snapshot.name.clone()));
    }
    Ok(found)
}

fn check_marks(marks: &[Mark], restored: &BTreeSet<&str>) -> Result<(), RestoreError> {
    for mark in marks {
        let left_out = mark.keyspaces.iter().find(|it| !restored.contains(it.as_str()));
        if let Some(keyspace) = left_out {
            let (keyspace, mark) = (keyspace.clone(), mark.file.clone());
            return Err(RestoreError::OtherRestore { keyspace, mark });
        }
    }
    Ok(())
}

/// Adds the column families of one keyspace, after a look at all files of the snapshot.
fn plan_keyspace(
    setup: &Setup,
    snapshot: &Snapshot,
    families: &mut Vec<FamilyPlan>,
    unconfigured: &mut Vec<String>,
) -> Result<(), RestoreError> {
    let fs = &*setup.components.fs;
    let mut manifests = BTreeMap::new();
    for folder in &snapshot.folders {
        for entry in fs.list(&folder.path).context("list", &folder.path)? {
            if let FileName::Manifest(family) = FileName::parse(&entry.name)
                && let Some(manifest) = Manifest::load(fs, &folder.path.join(&entry.name))?
            {
                manifests.insert(family, (manifest, folder.keyspace_folder.clone()));
            }
        }
    }
    // What a column family that came later has got since is all in the log.
    let first = manifests.values().map(|(manifest, _)| manifest.flushed).min();
    let generations = newest_generations(setup, &snapshot.keyspace)?;
    let quiet = Components { events: Events::ignored(), ..setup.components.clone() };
    for (id, schema) in setup.schema.families() {
        if schema.keyspace != snapshot.keyspace {
            continue;
        }
        let (mut manifest, manifest_folder) = manifests.remove(&schema.name).unwrap_or_else(|| {
            let flushed = first.unwrap_or_default();
            let folder = snapshot.folders[0].keyspace_folder.clone();
            (Manifest { flushed, ..Manifest::new(&schema.to_string()) }, folder)
        });
        let mut tables = Vec::new();
        for (generation, table) in &manifest.sstables {
            tables.push(find_table(fs, snapshot, &schema.name, *generation, table.bytes)?);
        }
        let folders = snapshot.folders.iter().map(|folder| folder.path.clone());
        // Opening reads what every later read depends on, and compares the comparators.
        let any = NodeId::any();
        let looking = new_environment(&quiet, &setup.options, setup.partitioner, any);
        drop(Store::open(&looking, id, schema, setup.family_options(id), folders.collect())?);
        // No later file gets a number that a file has had that was moved aside: names in other
        // snapshots stay those of other files.
        let newest = generations.get(&schema.name).copied();
        manifest.node = None;
        let present = present_manifests(setup, schema).map(|it| it.sequence);
        manifest.sequence = present.max().unwrap_or(0).max(manifest.sequence);
        manifest.obsolete.extend(newest.filter(|it| !manifest.sstables.contains_key(it)));
        families.push(FamilyPlan {
            id,
            keyspace: schema.keyspace.clone(),
            name: schema.name.clone(),
            snapshot: snapshot.name.clone(),
            base: manifest.flushed,
            manifest,
            manifest_folder,
            tables,
        });
    }
    let names = manifests.into_keys().map(|family| format!("{}.{family}", snapshot.keyspace));
    unconfigured.extend(names);
    Ok(())
}

fn find_table(
    fs: &dyn FileSystem,
    snapshot: &Snapshot,
    family: &str,
    generation: u64,
    bytes: u64,
) -> Result<(PathBuf, PathBuf), RestoreError> {
    for folder in &snapshot.folders {
        let path = files::sstable(&folder.path, family, generation);
        if fs.exists(&path) {
            let size = fs.open(&path).and_then(|file| file.size()).context("open", &path)?;
            if size != bytes {
                return Err(RestoreError::Incomplete(path));
            }
            return Ok((path, folder.keyspace_folder.clone()));
        }
    }
    let path = files::sstable(&snapshot.folders[0].path, family, generation);
    Err(RestoreError::Incomplete(path))
}

/// The greatest generation that a file of each column family has, in any folder.
fn newest_generations(
    setup: &Setup,
    keyspace: &str,
) -> Result<BTreeMap<String, u64>, RestoreError> {
    let fs = &*setup.components.fs;
    let mut newest = BTreeMap::new();
    for directory in &setup.options.data_directories {
        let folder = files::keyspace_folder(directory, keyspace);
        if !fs.exists(&folder) {
            continue;
        }
        let mut folders = vec![folder.clone()];
        let snapshots = files::snapshots_folder(&folder);
        for parent in [&folder, &snapshots].into_iter().filter(|parent| fs.exists(parent)) {
            let entries = fs.list(parent).context("list", parent)?;
            let inner = entries.into_iter().filter(|entry| entry.is_dir);
            folders.extend(inner.map(|entry| parent.join(entry.name)));
        }
        for folder in folders {
            for entry in fs.list(&folder).context("list", &folder)? {
                if let FileName::SsTable(family, generation)
                | FileName::UnfinishedSsTable(family, generation) = FileName::parse(&entry.name)
                {
                    let known = newest.entry(family).or_insert(generation);
                    *known = generation.max(*known);
                }
            }
        }
    }
    Ok(newest)
}

/// Behind every position that the log has given, as far as anything tells.
fn newest(
    setup: &Setup,
    request: &Request,
    families: &[FamilyPlan],
    marks: &[Mark],
) -> Result<Position, RestoreError> {
    let fs = &*setup.components.fs;
    let mut segments: Vec<u64> = marks.iter().map(|mark| mark.newest_segment).collect();
    segments.extend(families.iter().map(|family| family.base.segment));
    let log = setup.options.commit_log_directory.as_path();
    for dir in super::archives(setup, request).chain([log]) {
        segments.extend(segment_ids(fs, dir).context("list", dir)?.last());
    }
    for (_, schema) in setup.schema.families() {
        segments.extend(present_manifests(setup, schema).map(|it| it.flushed.segment));
    }
    let segment = segments.into_iter().max().unwrap_or(0);
    Ok(Position { segment, offset: u64::MAX })
}

/// The manifests of a column family that no restore has moved aside yet. A damaged one, which may
/// be why there is a restore, is left out.
fn present_manifests(setup: &Setup, family: &ColumnFamilySchema) -> impl Iterator<Item = Manifest> {
    setup.options.data_directories.iter().filter_map(|directory| {
        let folder = files::keyspace_folder(directory, &family.keyspace);
        let path = files::manifest(&folder, &family.name);
        Manifest::load(&*setup.components.fs, &path).ok().flatten()
    })
}

/// A name for the folders of what is moved aside that none of the directories has.
fn unused_name(fs: &dyn FileSystem, setup: &Setup, millis: u64) -> Result<String, RestoreError> {
    let mut taken = BTreeSet::new();
    let keyspaces = setup.options.data_directories.iter().flat_map(|directory| {
        setup.schema.keyspaces().map(|keyspace| files::keyspace_folder(directory, keyspace))
    });
    for folder in keyspaces.chain([setup.options.commit_log_directory.clone()]) {
        if fs.exists(&folder) {
            let entries = fs.list(&folder).context("list", &folder)?;
            taken.extend(entries.into_iter().map(|entry| entry.name));
        }
    }
    let mut names = (millis..).map(|millis| format!("{BEFORE_RESTORE}{millis}"));
    Ok(names.find(|name| !taken.contains(name)).expect("there are more numbers than folders"))
}
