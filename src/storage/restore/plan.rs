//! Plan of a restore, and all checks. Changes nothing.

use super::place::{self, RestoreMark};
use super::{Archive, Report, Request, RestoreError, RestoredKeyspace, Setup};
use crate::base::events::Events;
use crate::model::schema::{ColumnFamilySchema, FamilyId};
use crate::storage::archive::ArchiveReplay;
use crate::storage::commitlog::{Position, ReplayError, segment_ids, segment_of_another_log};
use crate::storage::database::{
    Components, Opening, Records, Replayer, StorageError, Unapplied, flush_all, new_environment,
    open_family,
};
use crate::storage::error::FileContext;
use crate::storage::family::{ColumnFamily, OpenError, Originals};
use crate::storage::files::{self, BEFORE_RESTORE, FileName, OriginalPart};
use crate::storage::legacy::takeover::SNAPSHOT_TAG;
use crate::storage::manifest::Manifest;
use crate::storage::options::Options;
use crate::storage::snapshot::{self, Captured, Snapshot, Tag};
use crate::storage::system::log_guard::LogGuard;
use crate::storage::system::node_id::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

/// Plan of a restore.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) snapshots: Vec<Snapshot>,
    /// The configured column families of the keyspaces.
    pub(super) families: Vec<FamilyPlan>,
    unconfigured: Vec<String>,
    /// The node that is restored.
    pub(super) node: NodeId,
    /// After everything that was ever written: what is written later is greater.
    pub(super) newest: Position,
    /// The name of the folders to which present files are moved.
    pub(super) aside: String,
    /// Whether some keyspace keeps its data, and what the commit log holds of them.
    pub(super) keeps_log: bool,
    /// Segments in the commit log.
    log_segments: usize,
}

/// A column family that is to be restored.
#[derive(Debug)]
pub(super) struct FamilyPlan {
    pub(super) id: FamilyId,
    pub(super) schema: Arc<ColumnFamilySchema>,
    /// The new manifest: everything up to where it is flushed is in the snapshot.
    pub(super) manifest: Manifest,
    /// The folder of the snapshot that has the manifest.
    pub(super) manifest_folder: PathBuf,
    /// The SSTables of the snapshot.
    pub(super) tables: Vec<PathBuf>,
}

impl Plan {
    pub(super) fn of(
        setup: &Setup,
        request: &Request,
        archive: &Archive,
    ) -> Result<Self, RestoreError> {
        let (fs, options) = (&*setup.components.fs, &setup.options);
        let mut snapshots = find_snapshots(setup, request)?;
        snapshots.extend(made_since(&snapshots, &request.made_since));
        let mark = RestoreMark::read(fs, &options.data_directories)?;
        check_log(setup, mark.as_ref())?;
        let restored: BTreeSet<&str> = snapshots.iter().map(|s| s.keyspace.as_str()).collect();
        let mut begun = mark.iter().flat_map(|mark| &mark.keyspaces);
        if let Some(other) = begun.find(|it| !restored.contains(it.as_str())) {
            return Err(RestoreError::OtherRestore(other.clone()));
        }
        let mut families = Vec::new();
        let mut unconfigured = Vec::new();
        for snapshot in &snapshots {
            plan_keyspace(setup, snapshot, &mut families, &mut unconfigured)?;
        }
        let log = &options.commit_log_directory;
        let mut all = setup.schema.families();
        let keeps_log = all.any(|(_, family)| !restored.contains(family.keyspace.as_str()));
        Ok(Self {
            node: NodeId::find(fs, &options.data_directories, options.seed)?,
            newest: newest(setup, archive, &families, mark.as_ref())?,
            aside: unused_name(setup)?,
            keeps_log,
            log_segments: segment_ids(fs, log).context("list", log)?.len(),
            snapshots,
            families,
            unconfigured,
        })
    }

    /// Looks into the folder that is asked for, together with what of the log is not there yet.
    pub(super) fn survey(
        &self,
        setup: &Setup,
        request: &Request,
        archive: &Archive,
    ) -> Result<Option<ArchiveReplay>, RestoreError> {
        let Some(folder) = &archive.asked else { return Ok(None) };
        let log = archive.log(setup);
        let bases = self.families.iter().map(|family| family.manifest.flushed);
        let base = bases.min().unwrap_or_default();
        let (fs, until) = (&*setup.components.fs, request.until_millis);
        let replay = ArchiveReplay::survey::<Unapplied>(fs, folder, log, base, until)?;
        if !setup.options.accept_commitlog_loss {
            if !replay.missing.is_empty() {
                return Err(RestoreError::Missing(replay.missing));
            }
            if let Some(damage) = replay.lost.first() {
                return Err(RestoreError::Damaged(damage.clone()));
            }
        }
        Ok(Some(replay))
    }

    pub(super) fn report(
        &self,
        setup: &Setup,
        archive: &Archive,
        replay: Option<ArchiveReplay>,
    ) -> Result<Report, RestoreError> {
        let keyspace = |snapshot: &Snapshot| {
            let of_keyspace = |it: &&FamilyPlan| it.schema.keyspace == snapshot.keyspace;
            let families = || self.families.iter().filter(of_keyspace);
            let tables = families().flat_map(|family| family.manifest.sstables.values());
            RestoredKeyspace {
                keyspace: snapshot.keyspace.clone(),
                snapshot: snapshot.name.clone(),
                families: families().count(),
                tables: tables.clone().count(),
                bytes: tables.map(|table| table.bytes).sum(),
            }
        };
        let moved = place::present(setup, self)?.into_iter();
        Ok(Report {
            keyspaces: self.snapshots.iter().map(keyspace).collect(),
            unconfigured: self.unconfigured.clone(),
            moved_to: moved.map(|(folder, _)| folder.join(&self.aside)).collect(),
            archived_segments: archive.own.as_ref().map_or(0, |_| self.log_segments),
            replay,
        })
    }
}

impl Plan {
    /// Opens what was restored, replays the folder of an archive if there is one, and flushes. From
    /// then on nothing in any present segment is replayed.
    pub(super) fn apply(
        &self,
        setup: &Setup,
        replay: Option<&mut ArchiveReplay>,
    ) -> Result<(), RestoreError> {
        let Setup { components, options, partitioner, schema, .. } = setup;
        let node = (self.node.clone(), Originals::Refuse);
        let environment = new_environment(components, options, *partitioner, node);
        let open = |FamilyPlan { id, schema, .. }: &FamilyPlan| {
            open_family(&environment, options, *id, schema, setup.family_options(*id))
        };
        let mut stores = self.families.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        stores.sort_by_key(|store| store.id());
        let records = Records { schema, unconfigured: Vec::new() };
        let opening = Opening { environment: &environment, options, families: &stores };
        let mut sink = Replayer::new(opening, &records, true);
        if let Some(replay) = replay {
            let mut apply = |position, record: &[u8]| sink.apply(position, record);
            replay.deliver(&*components.fs, None, &mut apply)?;
            replay.mutations = sink.mutations;
        }
        flush_all(&stores, self.newest)?;
        for store in &stores {
            store.advance_flushed(self.newest)?;
        }
        Ok(())
    }
}

/// The commit log may hold what the archive lacks. A restore that was cut off may have moved it
/// aside.
fn check_log(setup: &Setup, mark: Option<&RestoreMark>) -> Result<(), RestoreError> {
    let Options { data_directories, commit_log_directory: log, .. } = &setup.options;
    let fs = &*setup.components.fs;
    if let Some(identity) = LogGuard::find(fs, data_directories)?.and_then(|guard| guard.log)
        && let Some(file) = segment_of_another_log(fs, log, identity).context("read", log)?
    {
        let other = ReplayError::<Unapplied>::OtherLog { file }.to_string();
        return Err(StorageError::OtherLog(other).into());
    }
    if setup.options.accept_commitlog_loss || mark.is_some() {
        return Ok(());
    }
    let lost = LogGuard::find_loss(fs, data_directories, log)?;
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
    let of_original = Tag::new(SNAPSHOT_TAG).ok();
    if let Some(snapshot) = found.iter().find(|it| it.name.tag == of_original) {
        return Err(RestoreError::OfOriginal(snapshot.name.clone()));
    }
    let too_young =
        |it: &&Snapshot| request.until_millis.is_some_and(|until| it.name.millis > until);
    if let Some(snapshot) = found.iter().find(too_young) {
        return Err(RestoreError::TooYoung(snapshot.name.clone()));
    }
    Ok(found)
}

/// Empty snapshots of keyspaces that were made after all of these.
fn made_since(snapshots: &[Snapshot], keyspaces: &[String]) -> Vec<Snapshot> {
    let Some(newest) = snapshots.iter().max_by_key(|it| it.name.millis) else { return Vec::new() };
    let empty = |keyspace: &String| Snapshot {
        keyspace: keyspace.clone(),
        name: newest.name.clone(),
        total_bytes: 0,
        exclusive_bytes: 0,
        folders: Vec::new(),
    };
    keyspaces.iter().map(empty).collect()
}

/// Adds the column families of one keyspace, after a look at all files of the snapshot.
fn plan_keyspace(
    setup: &Setup,
    snapshot: &Snapshot,
    families: &mut Vec<FamilyPlan>,
    unconfigured: &mut Vec<String>,
) -> Result<(), RestoreError> {
    let generations = newest_generations(setup, &snapshot.keyspace)?;
    let is_meant = |family: &ColumnFamilySchema| family.keyspace == snapshot.keyspace;
    let first_family = families.len();
    let first_of_all = families.iter().map(|family| family.manifest.flushed).min();
    for (id, schema) in setup.schema.families().filter(|(_, schema)| is_meant(schema)) {
        let (manifest_folder, mut manifest, tables) = saved(setup, snapshot, id, schema)?;
        let present = present_manifests(setup, schema).map(|it| it.sequence);
        manifest.node = None;
        manifest.sequence = present.max().unwrap_or(0).max(manifest.sequence);
        // No later file gets a number that a file has had that was moved aside: names in other
        // snapshots stay those of other files.
        let newest = generations.get(&schema.name);
        manifest.obsolete.extend(newest.filter(|it| !manifest.sstables.contains_key(it)));
        let schema = Arc::clone(schema);
        families.push(FamilyPlan { id, schema, manifest, manifest_folder, tables });
    }
    let planned = families.get_mut(first_family..).unwrap_or_default();
    let mut saved = saved_families(setup, snapshot)?;
    let is_saved = |family: &&mut FamilyPlan| saved.contains(&family.schema.name);
    let bases = planned.iter_mut().filter(is_saved).map(|family| family.manifest.flushed);
    // What a column family that came later has got since is all in the log.
    let first = bases.min().or(first_of_all).unwrap_or_default();
    for family in planned.iter_mut() {
        if !saved.remove(&family.schema.name) {
            family.manifest.flushed = first;
        }
    }
    unconfigured.extend(saved.into_iter().map(|name| format!("{}.{name}", snapshot.keyspace)));
    Ok(())
}

/// The manifest of a column family in a snapshot, with its folder, and the files of its SSTables.
fn saved(
    setup: &Setup,
    snapshot: &Snapshot,
    id: FamilyId,
    schema: &Arc<ColumnFamilySchema>,
) -> Result<(PathBuf, Manifest, Vec<PathBuf>), OpenError> {
    if let ([], [data, ..]) = (&snapshot.folders[..], &setup.options.data_directories[..]) {
        let folder = files::snapshots_folder(&files::keyspace_folder(data, &schema.keyspace));
        let none = folder.join(snapshot.name.to_string());
        return Ok((none, Manifest::new(&schema.to_string()), Vec::new()));
    }
    let node = (NodeId::any(), Originals::Refuse);
    let quiet = Components { events: Events::ignored(), ..setup.components.clone() };
    let environment = new_environment(&quiet, &setup.options, setup.partitioner, node);
    let (options, folders) = (setup.family_options(id), snapshot.folders.clone());
    // Opening reads what every later read depends on, and compares the comparators.
    let store = ColumnFamily::open(&environment, id, schema, options, folders)?;
    let Captured { manifest_folder, manifest, tables, .. } = store.capture();
    Ok((manifest_folder, manifest, tables.iter().flat_map(|table| table.files()).collect()))
}

/// The column families that a snapshot has.
fn saved_families(setup: &Setup, snapshot: &Snapshot) -> Result<BTreeSet<String>, RestoreError> {
    let mut saved = BTreeSet::new();
    for folder in &snapshot.folders {
        let entries = setup.components.fs.list(folder).context("list", folder)?;
        saved.extend(entries.iter().filter_map(|entry| match FileName::parse(&entry.name) {
            FileName::Manifest(family) => Some(family),
            _ => None,
        }));
    }
    Ok(saved)
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
                let (family, generation) = match FileName::parse(&entry.name) {
                    FileName::SsTable(family, generation)
                    | FileName::UnfinishedSsTable(family, generation) => (family, generation),
                    _ => match OriginalPart::parse(&entry.name) {
                        Some((family, generation, _)) => (family.to_owned(), generation),
                        None => continue,
                    },
                };
                let known = newest.entry(family).or_insert(generation);
                *known = generation.max(*known);
            }
        }
    }
    Ok(newest)
}

/// After every position that the log has given, as far as anything tells. No segment has this
/// number, so that the next history does not seem to follow upon this one.
fn newest(
    setup: &Setup,
    archive: &Archive,
    families: &[FamilyPlan],
    mark: Option<&RestoreMark>,
) -> Result<Position, RestoreError> {
    let fs = &*setup.components.fs;
    let mut segments: Vec<u64> = mark.iter().map(|mark| mark.newest_segment).collect();
    segments.extend(families.iter().map(|family| family.manifest.flushed.segment));
    let log = &setup.options.commit_log_directory;
    for dir in archive.own.iter().chain(&archive.asked).chain([log]) {
        segments.extend(segment_ids(fs, dir).context("list", dir)?.last());
    }
    for (_, schema) in setup.schema.families() {
        segments.extend(present_manifests(setup, schema).map(|it| it.flushed.segment));
    }
    let segment = segments.into_iter().max().unwrap_or(0) + 1;
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
fn unused_name(setup: &Setup) -> Result<String, RestoreError> {
    let fs = &*setup.components.fs;
    let mut taken = BTreeSet::new();
    let keyspaces = setup.options.data_directories.iter().flat_map(|directory| {
        let keyspaces = setup.schema.keyspaces().into_iter();
        keyspaces.map(|keyspace| files::keyspace_folder(directory, &keyspace))
    });
    for folder in keyspaces.chain([setup.options.commit_log_directory.clone()]) {
        if fs.exists(&folder) {
            let entries = fs.list(&folder).context("list", &folder)?;
            taken.extend(entries.into_iter().map(|entry| entry.name));
        }
    }
    let millis = setup.components.clock.coarse_millis();
    let mut names = (millis..).map(|millis| format!("{BEFORE_RESTORE}{millis}"));
    Ok(names.find(|name| !taken.contains(name)).expect("there are more numbers than folders"))
}
