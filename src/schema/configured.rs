//! Changes of the keyspaces and column families of `storage-conf.xml` while the node runs.

use super::families::{self, SchemaConflict};
use super::register::{ChangeError, SchemaRegister};
use crate::config::Settings;
use crate::model::schema::{ColumnFamilySchema, FamilyId};
use crate::ring::ReplicaPlacement;
use crate::storage::FamilyOptions;
use crate::storage::database::SchemaChangeError;
use std::convert::Infallible;

/// Changes of the part of the schema that the configuration defines.
#[derive(Debug, Default)]
pub struct ConfiguredChange {
    /// New keyspaces.
    pub keyspaces: Vec<(String, ReplicaPlacement)>,
    /// New column families.
    pub added: Vec<(ColumnFamilySchema, FamilyOptions)>,
    /// Column families whose settings have changed, but not their types.
    pub altered: Vec<(FamilyId, ColumnFamilySchema, FamilyOptions)>,
    /// Column families that go with their rows, of which there is a snapshot then.
    pub removed: Vec<FamilyId>,
    /// Keyspaces that go when their column families have gone.
    pub removed_keyspaces: Vec<String>,
}

impl ConfiguredChange {
    /// Whether it changes nothing.
    pub fn is_nothing(&self) -> bool {
        let Self { keyspaces, added, altered, removed, removed_keyspaces } = self;
        keyspaces.is_empty()
            && added.is_empty()
            && altered.is_empty()
            && removed.is_empty()
            && removed_keyspaces.is_empty()
    }
}

impl SchemaRegister {
    /// Fails if these settings and what was made over CQL do not go together.
    pub fn check(&self, settings: &Settings) -> Result<(), SchemaConflict> {
        families::complete(&mut settings.clone(), &self.definitions())
    }

    /// Changes what the configuration defines, and returns the removed column families that a
    /// snapshot has. Waits for the disk. After a failure some of it may have been done; what is
    /// done already is no part of the next attempt.
    pub fn configure(
        &self,
        change: &ConfiguredChange,
    ) -> Result<Vec<FamilyId>, ChangeError<Infallible>> {
        let _one_at_a_time = self.lock();
        let (storage, ..) = self.parts();
        let is_gone = |keyspace: &str| change.removed_keyspaces.iter().any(|it| it == keyspace);
        storage.without_writes(&change.removed, || {
            let saved = self.save(&change.removed, |_| true, is_gone)?;
            self.change_configured(change).map_err(ChangeError::Database)?;
            Ok(saved)
        })
    }

    fn change_configured(&self, change: &ConfiguredChange) -> Result<(), SchemaChangeError> {
        let (storage, placements, host) = self.parts();
        let schema = storage.schema();
        for (name, placement) in &change.keyspaces {
            placements.set(name, Some(placement.clone()));
            host.refresh();
            schema.add_keyspace(name);
        }
        for (family, options) in &change.added {
            storage.add_family(family.clone(), options.clone())?;
        }
        for (id, family, options) in &change.altered {
            storage.alter_family(*id, family.clone(), options.clone());
        }
        for id in &change.removed {
            storage.drop_family(*id)?;
        }
        for name in &change.removed_keyspaces {
            schema.remove_keyspace(name);
            placements.set(name, None);
            host.refresh();
        }
        Ok(())
    }

    /// Gives the tables that were made over CQL the settings of the host, which have changed.
    pub fn alter_tables(&self) {
        let _one_at_a_time = self.lock();
        let (storage, _, host) = self.parts();
        let Ok(families) = super::register::families(&self.definitions()) else { return };
        for ((keyspace, name), family) in families {
            if let Some(id) = storage.schema().family_id(&keyspace, &name) {
                let definition = ColumnFamilySchema::clone(storage.schema().family(id));
                storage.alter_family(id, definition, host.family_options(&family));
            }
        }
    }
}
