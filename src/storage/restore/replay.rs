//! Replay during a restore, into stores that no server has open.

use super::check::{ArchivePlan, Plan};
use super::{RestoreError, Setup};
use crate::model::mutation::{DecodeError, RowMutation};
use crate::model::schema::FamilyId;
use crate::storage::commitlog::{self, Position, ReplayError};
use crate::storage::engine::new_environment;
use crate::storage::files;
use crate::storage::store::{Environment, Store};
use crate::storage::system::log_guard::LogGuard;
use crate::storage::system::node_id::NodeId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Some of the column families, open.
struct Stores<'a> {
    setup: &'a Setup,
    environment: Arc<Environment>,
    open: BTreeMap<FamilyId, Arc<Store>>,
    /// Mutations that any of them took.
    mutations: u64,
}

impl<'a> Stores<'a> {
    fn open(
        setup: &'a Setup,
        node: &NodeId,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<Self, RestoreError> {
        let Setup { components, options, partitioner, .. } = setup;
        let environment = new_environment(components, options, *partitioner, node.clone());
        let mut open = BTreeMap::new();
        for (id, schema) in setup.schema.families().filter(|(_, it)| is_wanted(&it.keyspace)) {
            let directories = setup.options.data_directories.iter();
            let folders = directories.map(|it| files::keyspace_folder(it, &schema.keyspace));
            let options = setup.family_options(id);
            let store = Store::open(&environment, id, schema, options, folders.collect())?;
            open.insert(id, Arc::new(store));
        }
        Ok(Self { setup, environment, open, mutations: 0 })
    }

    /// Applies a record to those that want it. One that the configuration cannot take counts only
    /// if it is of a keyspace that `concerns` them.
    fn apply(
        &mut self,
        position: Position,
        record: &[u8],
        concerns: &dyn Fn(&str) -> bool,
        wants: &dyn Fn(FamilyId) -> bool,
    ) -> Result<(), RestoreError> {
        let mutation = match RowMutation::decode(record, &self.setup.schema) {
            Ok(mutation) => mutation,
            Err(error) if unconfigured(&error).is_some_and(|it| !concerns(it)) => return Ok(()),
            Err(error)
                if unconfigured(&error).is_some() && self.setup.options.accept_commitlog_loss =>
            {
                log::warn!("a replayed mutation is dropped: {error}");
                return Ok(());
            }
            Err(error) => {
                return Err(RestoreError::Replay(format!("record {position}: {error}")));
            }
        };
        let key = self.setup.partitioner.decorate(mutation.key.clone());
        let mut is_applied = false;
        for family in &mutation.families {
            if let Some(store) = self.open.get(&family.family).filter(|_| wants(family.family))
                && position > store.flushed_position()
            {
                store.apply(&key, family);
                is_applied = true;
            }
        }
        self.mutations += u64::from(is_applied);
        let used = self.environment.memtable_memory.load(Ordering::Relaxed);
        if used > self.setup.options.memtable_budget_bytes {
            self.flush(position)?;
        }
        Ok(())
    }

    /// Writes everything to SSTables, which hold all up to this position.
    fn flush(&self, position: Position) -> Result<(), RestoreError> {
        for store in self.open.values() {
            if let Some(memtable) = store.switch_memtable() {
                memtable.seal(position);
                store.flush(&memtable)?;
            }
        }
        Ok(())
    }
}

/// The keyspace of a record that the configuration cannot take.
fn unconfigured(error: &DecodeError) -> Option<&str> {
    match error {
        DecodeError::UnknownFamily { keyspace, .. } | DecodeError::OtherNames { keyspace, .. } => {
            Some(keyspace)
        }
        DecodeError::Malformed(_) => None,
    }
}

/// Writes what the commit log holds for keyspaces that are not restored to their SSTables: the log
/// is moved aside with the others.
pub(super) fn flush_other_keyspaces(setup: &Setup, plan: &Plan) -> Result<(), RestoreError> {
    let is_other = |keyspace: &str| !plan.restores(keyspace);
    if !setup.schema.families().any(|(_, schema)| is_other(&schema.keyspace)) {
        return Ok(());
    }
    let fs = &*setup.components.fs;
    let mut stores = Stores::open(setup, &plan.node, is_other)?;
    let options = &setup.options;
    let (log, accept_loss) = (&options.commit_log_directory, options.accept_commitlog_loss);
    let flushed = stores.open.values().map(|store| store.flushed_position());
    let known = LogGuard::known_log(fs, &options.data_directories, flushed)
        .map_err(|error| RestoreError::Storage(error.into()))?;
    let replayed = commitlog::replay(log, fs, accept_loss, known, &mut |position, record| {
        stores.apply(position, record, &is_other, &|_| true)
    });
    replayed.map_err(|error| match error {
        ReplayError::Apply { source, .. } => source,
        other => RestoreError::Log(other.to_string()),
    })?;
    stores.flush(plan.newest)
}

/// Opens what was restored, replays the archive, if that is wanted, and flushes. From then on
/// nothing that is in any present segment will ever be replayed. Returns the mutations applied.
pub(super) fn apply(
    setup: &Setup,
    plan: &Plan,
    archived: Option<&ArchivePlan>,
) -> Result<u64, RestoreError> {
    let restores = |keyspace: &str| plan.restores(keyspace);
    let mut stores = Stores::open(setup, &plan.node, restores)?;
    if let Some(ArchivePlan { archive, timelines, replay, .. }) = archived {
        let fs = &*setup.components.fs;
        let delivered = replay.deliver(fs, archive, &mut |position, record| {
            let wants = |family: FamilyId| {
                timelines.get(&family).is_some_and(|timeline| timeline.contains(position))
            };
            stores.apply(position, record, &restores, &wants)
        });
        delivered.map_err(|error| match error {
            ReplayError::Apply { source, .. } => source,
            other => other.into(),
        })?;
    }
    stores.flush(plan.newest)?;
    for store in stores.open.values() {
        store.advance_flushed(plan.newest)?;
    }
    Ok(stores.mutations)
}
