//! Settings that change while the node runs: the file is read again, and what can change does.
//!
//! All is checked before anything changes. Keyspaces and column families are added, and removed
//! with their rows, after a snapshot. What a running node cannot change is named as waiting for a
//! restart.

use super::fingerprint::fingerprint;
use super::setup::family_options;
use super::{Member, NodeOptions, authenticator, file_warnings, login_faults, read_options};
use crate::base::latest::Latest;
use crate::base::log_levels;
use crate::base::tls::Tls;
use crate::config::settings::{ColumnFamilySettings, KeyspaceSettings, SYSTEM_KEYSPACE};
use crate::config::{
    self, ConfigError, ConfigErrors, Loader, NoteLevel, Overlay, Placements, Settings,
};
use crate::model::comparator::ComparatorRegistry;
use crate::model::schema::{ColumnFamilySchema, FamilyId};
use crate::net::tcp::TcpTransport;
use crate::ring::{ReplicaPlacement, Snitch};
use crate::schema::{ChangeError, ConfiguredChange, SchemaConflict};
use crate::server::Limits;
use crate::service::{Authenticator, Service};
use crate::storage::Database;
use crate::storage::error::FileError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

/// Changes by a reload, as text for people.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// Settings that have changed, each with both values.
    pub changed: Vec<String>,
    /// Keyspaces and column families that were added.
    pub added: Vec<String>,
    /// Column families whose settings have changed.
    pub altered: Vec<String>,
    /// Keyspaces and column families that were removed, and whether a snapshot keeps the rows.
    pub removed: Vec<String>,
    /// Settings that change with the next start.
    pub needs_restart: Vec<String>,
    /// Warnings about the file.
    pub notes: Vec<String>,
}

/// Reason why nothing was reloaded, or not all of it.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// Another one is under way.
    #[error("the configuration is being read again already")]
    UnderWay,
    /// The configuration is built in.
    #[error("this server has no file to read again: start it with --config FILE_OR_DIR")]
    NoFile,
    /// The file has errors.
    #[error("nothing has changed: {}", joined(.0))]
    Configuration(ConfigErrors),
    /// A file that the configuration names has errors.
    #[error("nothing has changed: {0}")]
    Placements(#[from] ConfigError),
    /// A keyspace or column family cannot change like this while the node runs.
    #[error("nothing has changed: {0}")]
    Refused(String),
    /// The file and what was made over CQL do not go together.
    #[error("nothing has changed: {0}")]
    Conflict(#[from] SchemaConflict),
    /// A file of TLS is missing, or is wrong.
    #[error("nothing has changed: {0}")]
    Tls(String),
    /// The directory of hints cannot be written.
    #[error("nothing has changed: {0}")]
    Hints(#[from] FileError),
    /// The disk fails.
    #[error("not all keyspaces and column families have changed, and no setting: {0}")]
    Schema(#[from] ChangeError<Infallible>),
}

fn joined(errors: &ConfigErrors) -> String {
    let errors = errors.by_line().into_iter().map(ToString::to_string);
    errors.collect::<Vec<_>>().join("\n")
}

/// Parts of a node whose settings change.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) settings: Arc<Latest<Settings>>,
    pub(super) storage: Arc<Database>,
    pub(super) member: Arc<Member>,
    pub(super) transport: Arc<TcpTransport>,
    pub(super) service: Arc<Service>,
    pub(super) limits: Arc<Latest<Limits>>,
    pub(super) tls: Arc<Latest<Tls>>,
}

/// Reads the configuration of a running node again.
#[derive(Debug)]
pub struct Reload {
    options: NodeOptions,
    parts: Parts,
    /// Hashes of the files of logins as they were read last. Held during a reload.
    logins: tokio::sync::Mutex<FileHashes>,
}

/// By the property that names the file.
type FileHashes = Vec<(&'static str, Option<u64>)>;

impl Reload {
    pub(super) fn new(options: NodeOptions, parts: Parts) -> Self {
        let logins = hashes(&authenticator(&parts.settings, &options.properties));
        Self { options, parts, logins: tokio::sync::Mutex::new(logins) }
    }

    /// Reads the file again, and changes what has changed in it. Waits for the disk.
    pub fn run(&self) -> Result<Reloaded, ReloadError> {
        let begun = self.logins.try_lock().map_err(|_| ReloadError::UnderWay);
        let path = self.options.configuration.as_deref().ok_or(ReloadError::NoFile);
        let (mut logins, path) = match begun.and_then(|begun| Ok((begun, path?))) {
            Ok(begun) => begun,
            Err(error) => {
                log::error!("nothing was read again: {error}");
                return Err(error);
            }
        };
        let done = self.reload(path, &mut logins);
        match &done {
            Ok(done) => done.log(path),
            Err(error) => log::error!("{} was read again: {error}", path.display()),
        }
        done
    }

    fn reload(&self, path: &Path, logins: &mut FileHashes) -> Result<Reloaded, ReloadError> {
        let comparators = ComparatorRegistry::default();
        // A start has refused any other value.
        let jmx_port = self.options.properties.jmx_port().unwrap_or_default();
        let loader = Loader { jmx_port, ..Loader::for_server(&comparators) };
        let file = loader.load(Some(path)).map_err(ReloadError::Configuration)?;
        let present = &**self.parts.settings;
        let is_same_text = file.settings.text == present.text;
        let Overlay { settings, changed, waiting } = present.overlaid_by(file.settings);
        let placements = Placements::read(&settings, &self.options.properties)?.by_keyspace;
        self.parts.service.register().check(&settings)?;
        let tls = Tls::read(&settings.tls).map_err(ReloadError::Tls)?;
        let properties = &self.options.properties;
        if let Some(fault) = login_faults(&settings, properties).first() {
            let why = format!("Authenticator: every login would be refused: {fault}");
            return Err(ReloadError::Refused(why));
        }
        let files = hashes(&authenticator(&settings, properties));
        let change = self.change(&settings, &placements)?;
        for (family, _) in &change.added {
            self.parts.member.hints().map_or(Ok(()), |hints| hints.note_added(family))?;
        }
        let saved = self.parts.service.register().configure(&change)?;
        let warnings = file.notes.iter().filter(|note| note.level == NoteLevel::Warning);
        let of_files = file_warnings(&settings, properties);
        let present_tls = &**self.parts.tls;
        let is_renewed = tls != *present_tls && tls.has_options_of(present_tls);
        let renewed = is_renewed.then(|| "the files of TLS, as they are now".to_owned());
        let has_changed = |it: &&(_, _)| !logins.is_empty() && !logins.contains(it);
        let logins_now = files.iter().filter(has_changed);
        let logins_now = logins_now.map(|(it, _)| format!("the file of {it}, as it is now"));
        let renewed = renewed.into_iter().chain(logins_now);
        let done = Reloaded {
            changed: changed.iter().map(ToString::to_string).chain(renewed).collect(),
            needs_restart: waiting.iter().map(ToString::to_string).collect(),
            notes: warnings.map(ToString::to_string).chain(of_files).chain(tls.warning()).collect(),
            ..self.tell(&change, &saved)
        };
        // Replaced settings are kept in memory, so that equal ones are not taken over.
        if is_same_text && changed.is_empty() && change.is_nothing() {
            self.take_rights();
        } else {
            self.take_over(settings, &placements, present);
        }
        *logins = files;
        // Its files may have changed alone.
        if tls != *present_tls {
            let renews = !tls.admits_nodes_of(present_tls);
            self.parts.tls.set(tls);
            if renews {
                self.parts.transport.renew();
            }
        }
        Ok(done)
    }

    /// Compares the keyspaces and column families of the node with those of its file.
    fn change(
        &self,
        settings: &Settings,
        placements: &BTreeMap<String, ReplicaPlacement>,
    ) -> Result<ConfiguredChange, ReloadError> {
        let schema = self.parts.storage.schema();
        let mut change = ConfiguredChange::default();
        for keyspace in &settings.keyspaces {
            if !schema.has_keyspace(&keyspace.name) {
                let placement = self.placement(keyspace, placements)?;
                change.keyspaces.push((keyspace.name.clone(), placement));
            }
            for family in &keyspace.column_families {
                self.compare(family, settings, &mut change)?;
            }
        }
        // Those of the node: a reload that failed may have added some that no file has.
        let made = self.parts.service.register().definitions();
        let is_made = |keyspace: &str| {
            let mut families = schema.families_of(keyspace).into_iter();
            made.keyspaces.get(keyspace).is_some_and(|it| it.replication.is_some())
                || families.any(|it| ColumnFamilySchema::is_of_cql(&it.name))
        };
        for keyspace in schema.keyspaces().into_iter().filter(|it| it != SYSTEM_KEYSPACE) {
            for family in schema.families_of(&keyspace) {
                if !ColumnFamilySchema::is_of_cql(&family.name)
                    && settings.family(&keyspace, &family.name).is_none()
                {
                    change.removed.extend(schema.family_id(&keyspace, &family.name));
                }
            }
            if settings.keyspace(&keyspace).is_none() && !is_made(&keyspace) {
                change.removed_keyspaces.push(keyspace);
            }
        }
        Ok(change)
    }

    /// Compares a column family of the file with that of the node.
    fn compare(
        &self,
        family: &ColumnFamilySettings,
        settings: &Settings,
        change: &mut ConfiguredChange,
    ) -> Result<(), ReloadError> {
        let (present, schema) = (&self.parts.settings, self.parts.storage.schema());
        let definition = ColumnFamilySchema::clone(&family.schema);
        let options = family_options(settings, family);
        let Some(id) = schema.family_id(&definition.keyspace, &definition.name) else {
            self.check_unserved(&definition)?;
            change.added.push((definition, options));
            return Ok(());
        };
        check_types(schema.family(id), &definition)?;
        let is_same = |it: &ColumnFamilySettings| {
            config::family_text(it) == config::family_text(family)
                && family_options(present, it) == options
        };
        if !present.family(&definition.keyspace, &definition.name).is_some_and(is_same) {
            change.altered.push((id, definition, options));
        }
        Ok(())
    }

    /// The placement of a new keyspace, with the snitch of those that are there.
    fn placement(
        &self,
        keyspace: &KeyspaceSettings,
        placements: &BTreeMap<String, ReplicaPlacement>,
    ) -> Result<ReplicaPlacement, ReloadError> {
        let name = &keyspace.name;
        let missing = || ReloadError::Refused(format!("keyspace {name} has no placement"));
        let mut placement = placements.get(name).cloned().ok_or_else(missing)?;
        let mut present = self.parts.settings.keyspaces.iter();
        let with_snitch = present.find(|it| it.snitch == keyspace.snitch);
        let shared = with_snitch.and_then(|it| self.parts.member.placements().get(&it.name));
        match (shared, &placement.snitch) {
            (Some(shared), _) => placement.snitch = shared.snitch.clone(),
            (None, Snitch::EndPoint) => {}
            (None, _) => {
                return Err(ReloadError::Refused(format!(
                    "keyspace {name} is the first one with {}, which is read at a start: restart \
                     the server to add it",
                    keyspace.snitch.class_name()
                )));
            }
        }
        Ok(placement)
    }

    /// Refuses a new column family that has data from before it was removed.
    fn check_unserved(&self, family: &ColumnFamilySchema) -> Result<(), ReloadError> {
        let data = self.parts.storage.unserved_data(&family.keyspace, &family.name);
        data.map_or(Ok(()), |path| {
            Err(ReloadError::Refused(format!(
                "column family {family} has data that the server has not served since its start: \
                 {}. Restart the server to serve them, or move its files away to begin empty",
                path.display()
            )))
        })
    }

    fn tell(&self, change: &ConfiguredChange, saved: &[FamilyId]) -> Reloaded {
        let schema = self.parts.storage.schema();
        let keyspace = |name: &String| format!("keyspace {name}");
        let new_keyspaces = change.keyspaces.iter().map(|(name, _)| keyspace(name));
        let new = change.added.iter().map(|(family, _)| family.to_string());
        let gone = change.removed.iter().map(|id| {
            let end = if saved.contains(id) { "with a snapshot" } else { "which was empty" };
            format!("{}, {end}", schema.family(*id))
        });
        let gone_keyspaces = change.removed_keyspaces.iter().map(keyspace);
        Reloaded {
            added: new_keyspaces.chain(new).collect(),
            altered: change.altered.iter().map(|(_, family, _)| family.to_string()).collect(),
            removed: gone.chain(gone_keyspaces).collect(),
            ..Reloaded::default()
        }
    }

    /// Makes the new settings those of all parts.
    fn take_over(
        &self,
        settings: Settings,
        placements: &BTreeMap<String, ReplicaPlacement>,
        before: &Settings,
    ) {
        let Parts { storage, member, transport, service, limits, .. } = &self.parts;
        let properties = &self.options.properties;
        self.parts.settings.set(settings);
        let now = &**self.parts.settings;
        if (&now.memory, &now.storage) != (&before.memory, &before.storage) {
            service.register().alter_tables();
        }
        // Where an element is as before, a change by nodetool stands.
        let (network, present) = (&now.network, &before.network);
        if now.storage.compaction_throughput_bytes != before.storage.compaction_throughput_bytes {
            storage.set_compaction_rate(now.storage.compaction_throughput_bytes);
        }
        if network.stream_throughput_bytes != present.stream_throughput_bytes {
            member.operations().set_rate(network.stream_throughput_bytes);
        }
        if network.phi_convict_threshold != present.phi_convict_threshold {
            member.set_phi_convict_threshold(network.phi_convict_threshold.into());
        }
        if now.admin.slow_requests != before.admin.slow_requests {
            service.slow_requests().set_threshold(now.admin.slow_requests);
        }
        if now.admin.log_levels != before.admin.log_levels {
            let set = log_levels::set(now.admin.log_levels.as_deref());
            set.unwrap_or_else(|why| log::error!("LogLevels: {why}"));
        }
        member.set_rpc_timeout(network.rpc_timeout);
        member.coordinator().set_reads(&read_options(now, properties));
        if let Some(hints) = member.hints() {
            hints.set_limits(now.replication.hint_max_age, now.replication.hint_max_bytes);
        }
        transport.set_peer_networks(network.peer_networks.clone());
        limits.set(Limits {
            max_connections: now.thrift.max_connections as usize,
            idle_timeout: now.thrift.idle_timeout,
            ..Limits::clone(limits)
        });
        self.take_rights();
        member.announce_schema(&fingerprint(now, placements));
    }

    /// Reads the files of the authenticator again, whose content may have changed.
    fn take_rights(&self) {
        let (now, properties) = (&**self.parts.settings, &self.options.properties);
        self.parts.service.set_authenticator(authenticator(now, properties));
    }
}

fn hashes(authenticator: &Authenticator) -> FileHashes {
    match authenticator {
        Authenticator::AllowAll => FileHashes::default(),
        Authenticator::Simple(simple) => simple.hashes(),
    }
}

/// Refuses other types and comparators: the rows that are there are sorted by the present ones.
fn check_types(present: &ColumnFamilySchema, file: &ColumnFamilySchema) -> Result<(), ReloadError> {
    if present.is_super() == file.is_super() && present.sorts_as(file) {
        return Ok(());
    }
    Err(ReloadError::Refused(format!(
        "column family {present} has rows that are sorted by its present ColumnType and \
         comparators: give a column family of another name the new ones"
    )))
}

impl Reloaded {
    fn log(&self, path: &Path) {
        log::info!("{} was read again", path.display());
        let parts = [
            ("changed", &self.changed),
            ("added", &self.added),
            ("altered", &self.altered),
            ("removed", &self.removed),
        ];
        for (what, it) in parts.iter().flat_map(|(what, all)| all.iter().map(move |it| (what, it)))
        {
            log::info!("{what}: {it}");
        }
        for it in &self.needs_restart {
            log::warn!("changes with the next start: {it}");
        }
        for it in &self.notes {
            log::warn!("{it}");
        }
    }
}
