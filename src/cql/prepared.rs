//! Prepared statements.

use super::ast::{self, Modification, QualifiedName, SchemaStatement, Statement};
use super::error::CqlError;
use super::execute::modification;
use super::modify::{self, ModificationPlan};
use super::parse::parse;
use super::reply::{Columns, Reply};
use super::request::{self, BatchKind};
use super::select::SelectPlan;
use super::session::Session;
use super::system::System;
use super::tables::TableRef;
use super::terms::{Expression, Markers, Receiver, Typing};
use super::wire::Value;
use crate::model::types::CqlType;
use crate::service::{Access, Service};
use md5::{Digest, Md5};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::borrow::Cow;
use std::sync::Arc;

/// Statements that a node keeps, at least where they are of a usual length.
const EXPECTED: usize = 1000;

/// Memory for all of them, in bytes of their texts.
const MEMORY: u64 = 32 << 20;

/// Memory of a statement for each byte of its text.
const WEIGHT: u64 = 16;

/// An id. Nodes of a ring and drivers take it for the digest of a text; its last bit tells whether
/// the statement [only reads](only_reads), so that nothing has to be looked up for that.
type Id = [u8; 16];

/// Bit of the last byte of an id that is set for statements that change nothing.
const ONLY_READS: u8 = 1;

/// Whether the prepared statement with this id changes nothing.
pub(super) fn only_reads(id: &[u8]) -> bool {
    id.last().is_some_and(|last| last & ONLY_READS != 0)
}

/// The id of a statement in a keyspace that is in use.
fn id(keyspace: Option<&str>, text: &str, only_reads: bool) -> Id {
    let mut id: Id = Md5::digest([keyspace.unwrap_or_default(), text].concat()).into();
    let [.., last] = &mut id;
    *last = *last & !ONLY_READS | if only_reads { ONLY_READS } else { 0 };
    id
}

/// A statement whose names are looked up.
#[derive(Debug)]
pub(super) enum Plan {
    Select(SelectPlan),
    Modify(ModificationPlan),
    Batch { statements: Vec<ModificationPlan>, timestamp: Option<Expression>, kind: BatchKind },
    Use(String),
    Truncate(QualifiedName),
    Schema(Arc<SchemaStatement>),
}

impl Plan {
    fn batch(
        batch: &ast::Batch,
        find: impl Fn(&QualifiedName) -> Result<TableRef, CqlError>,
        typing: &mut Typing<'_>,
    ) -> Result<Self, CqlError> {
        let statements = batch.statements.iter().map(|change: &Modification| {
            ModificationPlan::new(change, find(modification(change))?, typing)
        });
        let statements: Vec<ModificationPlan> = statements.collect::<Result<_, _>>()?;
        if batch.kind == BatchKind::Counter {
            return Err(CqlError::unsupported("counters"));
        }
        if batch.using.ttl.is_some() {
            let why = "Global TTL on the BATCH statement is not supported.";
            return Err(CqlError::invalid(why));
        }
        if batch.using.timestamp.is_some() && statements.iter().any(ModificationPlan::has_timestamp)
        {
            return Err(CqlError::invalid(
                "Timestamp must be set either on BATCH or individual statements",
            ));
        }
        let timestamp = modify::batch_timestamp(&batch.using, typing)?;
        Ok(Self::Batch { statements, timestamp, kind: batch.kind })
    }

    /// Fails unless the user may use the keyspaces of its tables.
    pub(super) fn check_access(
        &self,
        service: &Service,
        session: &Session,
    ) -> Result<(), CqlError> {
        let check = |table: &TableRef, access| match table.stored() {
            Some(_) => session.check_access(service, &table.keyspace, access),
            None => Ok(()),
        };
        match self {
            Self::Select(select) => check(&select.table, Access::Read),
            Self::Modify(plan) => check(&plan.table, Access::Write),
            Self::Batch { statements, .. } => {
                statements.iter().try_for_each(|plan| check(&plan.table, Access::Write))
            }
            Self::Use(_) | Self::Truncate(_) | Self::Schema(_) => Ok(()),
        }
    }

    /// Whether its tables are still those of their names.
    pub(super) fn is_current(&self, service: &Service) -> bool {
        match self {
            Self::Select(select) => select.table.is_current(service),
            Self::Modify(plan) => plan.table.is_current(service),
            Self::Batch { statements, .. } => {
                statements.iter().all(|plan| plan.table.is_current(service))
            }
            Self::Use(_) | Self::Truncate(_) | Self::Schema(_) => true,
        }
    }
}

/// A statement that was prepared, for a keyspace in use.
#[derive(Debug)]
pub(super) struct Prepared {
    id: Id,
    pub(super) text: String,
    pub(super) keyspace: Option<String>,
    pub(super) plan: Plan,
    /// Names of the markers.
    names: Vec<Option<String>>,
    /// Metadata of the markers and of the result, for versions 3 and 4 of the protocol.
    markers: [Columns; 2],
    result: [Columns; 2],
    /// Whether answers have the columns of the result although the client asks to skip them: those
    /// that it knows may be of an earlier PREPARE of this text, here or on another node. The id
    /// cannot tell, since drivers take another one after UNPREPARED for a fault.
    pub(super) tells_columns: bool,
    /// Markers of the partition key.
    key: Vec<u16>,
}

impl Prepared {
    /// Parses a statement and looks up its names.
    pub(super) fn new(
        text: &str,
        keyspace: Option<&str>,
        parts: (&Service, &System),
    ) -> Result<Self, CqlError> {
        let parsed = parse(text).map_err(|error| CqlError::syntax(error.to_string()))?;
        let mut markers = Markers::default();
        let definitions = parts.0.register().definitions();
        let typing = &mut Typing { types: &*definitions, markers: &mut markers };
        let find = |name: &QualifiedName| TableRef::find(name, keyspace, parts);
        let selects_all = matches!(&parsed.statement, Statement::Select(select)
            if select.items.is_none() && !select.is_json);
        let plan = match parsed.statement {
            Statement::Select(select) => {
                Plan::Select(SelectPlan::new(&select, find(&select.table)?, typing)?)
            }
            Statement::Modification(change) => {
                Plan::Modify(ModificationPlan::new(&change, find(modification(&change))?, typing)?)
            }
            Statement::Batch(batch) => Plan::batch(&batch, find, typing)?,
            Statement::Use(keyspace) => Plan::Use(keyspace),
            Statement::Truncate(table) => Plan::Truncate(table),
            Statement::Schema(statement) => Plan::Schema(Arc::new(statement)),
            Statement::Unsupported(what) => return Err(CqlError::unsupported(what)),
        };
        let key = match &plan {
            Plan::Select(select) => select.key_markers(),
            Plan::Modify(plan) => plan.key_markers(),
            _ => None,
        };
        let result: &[Receiver] = match &plan {
            Plan::Select(select) => select.selection.metadata(),
            _ => &[],
        };
        let typed: Vec<Receiver> = markers.0.into_iter().flatten().collect();
        if typed.len() != parsed.markers.len() {
            return Err(CqlError::invalid("Cannot infer the type of a bind marker"));
        }
        let typed: Vec<Receiver> = typed
            .into_iter()
            .zip(&parsed.markers)
            .map(|(receiver, name)| match name {
                Some(name) => Receiver { name: name.clone(), ..receiver },
                None => receiver,
            })
            .collect();
        Ok(Self {
            id: id(keyspace, text, matches!(plan, Plan::Select(_))),
            text: text.to_owned(),
            keyspace: keyspace.map(str::to_owned),
            names: parsed.markers,
            markers: [3, 4].map(|version| columns(&typed, version)),
            result: [3, 4].map(|version| columns(result, version)),
            tells_columns: selects_all,
            key: key.unwrap_or_default(),
            plan,
        })
    }

    /// Writes the answer to PREPARE.
    pub(super) fn describe(&self, reply: &mut Reply<'_>) {
        let markers = of_version(&self.markers, reply.version());
        let result = of_version(&self.result, reply.version());
        reply.prepared(&self.id, markers, &self.key, result);
    }

    /// Whether a client that has prepared the one statement can execute the other.
    pub(super) fn looks_like(&self, other: &Self) -> bool {
        (&self.markers, &self.result, &self.key) == (&other.markers, &other.result, &other.key)
    }

    /// The columns of the result.
    pub(super) fn result(&self, version: u8) -> &Columns {
        of_version(&self.result, version)
    }

    /// The values of the markers in their order.
    pub(super) fn bind<'g, 'v>(
        &self,
        given: &'g request::Values<'v>,
    ) -> Result<Cow<'g, [Value<'v>]>, CqlError> {
        let request::Values { values, names } = given;
        if names.is_empty() {
            self.check_count(values.len())?;
            return Ok(Cow::Borrowed(values));
        }
        let find = |name: &Option<String>| {
            let at = names.iter().position(|given| Some(*given) == name.as_deref());
            at.map_or(Value::Unset, |at| values[at])
        };
        Ok(self.names.iter().map(find).collect())
    }

    /// Each marker needs a value.
    pub(super) fn check_count(&self, given: usize) -> Result<(), CqlError> {
        let needed = self.names.len();
        if given == needed {
            return Ok(());
        }
        Err(CqlError::invalid(format!(
            "Invalid amount of bind variables: there are {needed} markers and {given} values"
        )))
    }
}

fn of_version(columns: &[Columns; 2], version: u8) -> &Columns {
    let [third, fourth] = columns;
    if version < 4 { third } else { fourth }
}

/// Receivers as metadata. Those of a statement may be of several tables.
pub(super) fn columns(receivers: &[Receiver], version: u8) -> Columns {
    let is_one_table = receivers
        .windows(2)
        .all(|pair| (&pair[0].keyspace, &pair[0].table) == (&pair[1].keyspace, &pair[1].table));
    let mut columns = match receivers.first() {
        Some(first) if is_one_table => Columns::of_table(&first.keyspace, &first.table),
        _ => Columns::default(),
    };
    for receiver in receivers {
        let put = |out: &mut Vec<u8>| put_type(&receiver.of_type, version, out);
        if is_one_table {
            columns.push(&receiver.name, put);
        } else {
            columns.push_of((&receiver.keyspace, &receiver.table), &receiver.name, put);
        }
    }
    columns
}

/// Appends a type as the `[option]` of the protocol.
fn put_type(of_type: &CqlType, version: u8, out: &mut Vec<u8>) {
    use super::wire::{put_short, put_string};
    let mut put = |id: u16, inner: &[&CqlType]| {
        put_short(id, out);
        for inner in inner {
            put_type(inner, version, out);
        }
    };
    match of_type {
        CqlType::Frozen(inner) => put_type(inner, version, out),
        CqlType::List(inner) => put(0x20, &[inner]),
        CqlType::Map(inner) => put(0x21, &[&inner.0, &inner.1]),
        CqlType::Set(inner) => put(0x22, &[inner]),
        CqlType::Tuple(fields) => {
            put_short(0x31, out);
            put_short(fields.len() as u16, out);
            for field in fields.iter() {
                put_type(field, version, out);
            }
        }
        CqlType::User(user) => {
            put_short(0x30, out);
            put_string(&user.keyspace, out);
            put_string(&user.name, out);
            put_short(user.fields.len() as u16, out);
            for (name, field) in &user.fields {
                put_string(name, out);
                put_type(field, version, out);
            }
        }
        CqlType::Native(native) if native.protocol_id(version) != 0 => {
            put(native.protocol_id(version), &[]);
        }
        CqlType::Native(_) | CqlType::Custom(_) => {
            put_short(0, out);
            put_string(&of_type.class_name(), out);
        }
    }
}

/// The statements that clients have prepared. Those not used for the longest time go when there is
/// no room; their clients prepare them again.
#[derive(Debug)]
pub(super) struct PreparedStatements(Cache<Id, Arc<Prepared>, ByText>);

#[derive(Debug, Clone)]
struct ByText;

impl Weighter<Id, Arc<Prepared>> for ByText {
    fn weight(&self, _: &Id, statement: &Arc<Prepared>) -> u64 {
        statement.text.len() as u64 * WEIGHT
    }
}

impl Default for PreparedStatements {
    fn default() -> Self {
        Self(Cache::with_weighter(EXPECTED, MEMORY, ByText))
    }
}

impl PreparedStatements {
    /// Keeps a statement.
    pub(super) fn keep(&self, mut prepared: Prepared) -> Arc<Prepared> {
        if let Some(earlier) = self.0.get(&prepared.id) {
            prepared.tells_columns |= earlier.tells_columns || earlier.result != prepared.result;
        }
        let prepared = Arc::new(prepared);
        self.0.insert(prepared.id, Arc::clone(&prepared));
        prepared
    }

    /// The statement of this id.
    pub(super) fn find(&self, id: &[u8]) -> Option<Arc<Prepared>> {
        self.0.get(<&Id>::try_from(id).ok()?)
    }
}
