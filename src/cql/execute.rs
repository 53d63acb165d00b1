//! Execution of statements.
//!
//! ```text
//!   Executor        parses, or finds what was prepared; binds values; runs
//!     prepared      statements whose names are looked up
//!     select, modify, batch
//!     tables        where names lead: column families, and tables of the system
//! ```

use super::ast::{Modification, QualifiedName, SchemaStatement};
use super::batch::{self, Item};
use super::conditional;
use super::error::{CqlError, WriteType};
use super::events::SchemaChange;
use super::functions::{Chance, Moment};
use super::modify::Stamp;
use super::parse;
use super::prepared::{Plan, Prepared, PreparedStatements};
use super::protocol::Execute;
use super::reply::Reply;
use super::request::{Batch, BatchKind, BatchStatement, Parameters, Work};
use super::schema::{self, Ground};
use super::select::{Execution, SelectPlan};
use super::session::Session;
use super::system::System;
use super::tables::TableRef;
use super::terms::Values;
use super::wire::{Few, Level, Value};
use crate::base::audit;
use crate::base::context::TooLarge;
use crate::model::schema::ColumnFamilySchema;
use crate::schema::Definitions;
use crate::service::{
    Access, BatchError, ConsistencyLevel, ProtocolNames, ProtocolRequests, Service,
};
use std::net::IpAddr;
use std::sync::Arc;

/// Bytes of the changes of a batch of several row keys.
const MAX_BATCH: usize = 50 << 10;

/// Runs statements.
#[derive(Debug)]
pub struct Executor {
    service: Arc<Service>,
    system: System,
    prepared: PreparedStatements,
    chance: Arc<Chance>,
    requests: Arc<ProtocolRequests>,
}

/// Statements as metrics name them.
#[derive(Debug, Clone, Copy)]
enum Call {
    Prepare,
    Select,
    Modify,
    Batch,
    Use,
    Truncate,
    Schema,
    Login,
}

impl Call {
    /// Their names, in their order.
    const NAMES: [&'static str; 8] =
        ["prepare", "select", "modify", "batch", "use", "truncate", "schema", "login"];

    /// The call of a plan, and whether its consistency level counts.
    fn of(plan: &Plan) -> (Self, bool) {
        match plan {
            Plan::Select(_) => (Self::Select, true),
            Plan::Modify(_) => (Self::Modify, true),
            Plan::Batch { .. } => (Self::Batch, true),
            Plan::Use(_) => (Self::Use, false),
            Plan::Truncate(_) => (Self::Truncate, false),
            Plan::Schema(_) => (Self::Schema, false),
        }
    }
}

impl Execute for Executor {
    async fn execute(
        &self,
        session: &Session,
        work: &Work<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), CqlError> {
        let keyspace = session.keyspace();
        let keyspace = keyspace.as_deref();
        match work {
            Work::Prepare(text) => {
                let prepared = self.prepare(text, keyspace)?;
                prepared.describe(reply);
                self.prepared.keep(prepared);
                Ok(())
            }
            Work::Query(text, parameters) => {
                let prepared = self.prepare(text, keyspace)?;
                self.run(session, &prepared, parameters, reply).await
            }
            Work::Execute(id, parameters) => {
                let prepared = self.find(id)?;
                self.run(session, &prepared, parameters, reply).await
            }
            Work::Batch(batch) => {
                let request = self.requests.begin(Call::Batch as usize, Some(batch.level as usize));
                let answer = Box::pin(self.batch(session, batch, reply)).await;
                let subject = || format!("a batch of {}", batch.statements.len());
                request.end(answer, session.peer().ip(), subject)
            }
        }
    }

    fn requires_login(&self) -> bool {
        self.service.requires_login()
    }

    async fn log_in(
        &self,
        session: &Session,
        user: String,
        password: String,
    ) -> Result<(), CqlError> {
        let request = self.requests.begin(Call::Login as usize, None);
        Ok(request.count(self.service.authenticate(session.login(), user, password).await)?)
    }
}

impl Executor {
    /// For clients that reach the node at this address.
    pub fn new(service: Arc<Service>, address: IpAddr, seed: u64) -> Self {
        let system = System::new(address);
        let chance = Arc::new(Chance::new(seed));
        let requests = service.requests(ProtocolNames {
            protocol: "cql",
            calls: Call::NAMES.to_vec(),
            levels: Level::names().chain([""]).collect(),
        });
        Self { service, system, prepared: PreparedStatements::default(), chance, requests }
    }

    /// Parses a text, whose memory is counted: what it says may take much more than its bytes.
    fn prepare(&self, text: &str, keyspace: Option<&str>) -> Result<Prepared, CqlError> {
        let request = self.requests.begin(Call::Prepare as usize, None);
        request.count(self.parse(text, keyspace))
    }

    fn parse(&self, text: &str, keyspace: Option<&str>) -> Result<Prepared, CqlError> {
        let memory = self.service.request();
        memory.take(parse::memory(text)).map_err(|error| match error {
            TooLarge::Alone { .. } => CqlError::invalid(
                "The statement is too large. Bind its values, or make several of it",
            ),
            together @ TooLarge::Together { .. } => CqlError::too_large(together),
        })?;
        Prepared::new(text, keyspace, (&self.service, &self.system))
    }

    /// The statement of this id. If its table has changed it is prepared again: by the client if it
    /// has to know other columns or markers from now on.
    fn find(&self, id: &[u8]) -> Result<Arc<Prepared>, CqlError> {
        let unprepared = || CqlError::unprepared(id);
        let found = self.prepared.find(id).ok_or_else(unprepared)?;
        if found.plan.is_current(&self.service) {
            return Ok(found);
        }
        let again = self.prepare(&found.text, found.keyspace.as_deref())?;
        if !again.looks_like(&found) {
            return Err(unprepared());
        }
        Ok(self.prepared.keep(again))
    }

    fn moment(&self) -> Moment {
        Moment {
            micros: self.service.now_micros(),
            chance: Arc::clone(&self.chance),
            partitioner: self.service.ring_partitioner(),
        }
    }

    /// Runs a statement. The parts that are large and seldom are in boxes, since each request
    /// takes the memory of the largest.
    async fn run(
        &self,
        session: &Session,
        prepared: &Prepared,
        parameters: &Parameters<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), CqlError> {
        let (call, has_level) = Call::of(&prepared.plan);
        let level = has_level.then_some(parameters.level as usize);
        let request = self.requests.begin(call as usize, level);
        let answer = self.run_plan(session, prepared, parameters, reply).await;
        request.end(answer, session.peer().ip(), || parse::without_constants(&prepared.text))
    }

    async fn run_plan(
        &self,
        session: &Session,
        prepared: &Prepared,
        parameters: &Parameters<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), CqlError> {
        prepared.plan.check_access(&self.service, session)?;
        let bound = prepared.bind(&parameters.values)?;
        let moment = self.moment();
        let values = Values::new(&bound, &moment);
        match &prepared.plan {
            Plan::Select(select) => {
                let execution = Execution {
                    values,
                    level: read_level(parameters.level, &select.table.keyspace, &self.service)?,
                    serial: conditional::of_read(parameters.level),
                    page_size: parameters.page_size,
                    paging_state: parameters.paging_state,
                };
                let selected = self.select(select, &execution, (prepared, parameters), reply).await;
                return selected.map_err(|error| error.at(parameters.level));
            }
            Plan::Modify(plan) if plan.guard.is_some() => {
                let items = [Item { plan, values }];
                let levels = (parameters.serial_level, parameters.level);
                return Box::pin(self.change_under_condition(&items, levels, reply)).await;
            }
            Plan::Modify(plan) => {
                let item = Item { plan, values };
                let way = (parameters.level, WriteType::Simple);
                self.write(&[item], parameters.timestamp, way, reply).await?;
            }
            Plan::Batch { statements, timestamp, kind } => {
                let timestamp = timestamp.as_ref().map(|it| super::modify::timestamp(it, &values));
                let timestamp = timestamp.transpose()?.flatten();
                let items: Vec<Item<'_>> =
                    statements.iter().map(|plan| Item { plan, values }).collect();
                if conditional::is_conditional(statements) {
                    if timestamp.is_some() {
                        let why = "Cannot provide custom timestamp for conditional BATCH";
                        return Err(CqlError::invalid(why));
                    }
                    let levels = (parameters.serial_level, parameters.level);
                    return Box::pin(self.change_under_condition(&items, levels, reply)).await;
                }
                let timestamp = timestamp.or(parameters.timestamp);
                let way = (parameters.level, write_type(*kind));
                Box::pin(self.write(&items, timestamp, way, reply)).await?;
            }
            Plan::Use(keyspace) => {
                self.check_keyspace(keyspace)?;
                session.use_keyspace(keyspace);
                reply.keyspace(keyspace);
                return Ok(());
            }
            Plan::Truncate(table) => Box::pin(self.truncate(table, session)).await?,
            Plan::Schema(statement) => {
                if let Some(change) = Box::pin(self.change_schema(statement, session)).await? {
                    reply.schema_change(&change);
                    return Ok(());
                }
            }
        }
        reply.void();
        Ok(())
    }

    fn check_keyspace(&self, name: &str) -> Result<(), CqlError> {
        if self.service.schema().has_keyspace(name) || self.system.has_keyspace(name) {
            return Ok(());
        }
        Err(CqlError::invalid(format!("Keyspace '{name}' does not exist")))
    }

    async fn select(
        &self,
        select: &SelectPlan,
        execution: &Execution<'_>,
        (prepared, parameters): (&Prepared, &Parameters<'_>),
        reply: &mut Reply<'_>,
    ) -> Result<(), CqlError> {
        let context = self.service.request();
        let columns = prepared.result(reply.version());
        let skips_metadata = parameters.skips_metadata && !prepared.tells_columns;
        let rows = reply.rows(columns, skips_metadata);
        if select.table.stored().is_none() {
            let table = (&*select.table.keyspace, &*select.table.name);
            let all = self.system.rows(table, &self.service, execution.values.moment);
            return select.execute_on(&all, execution, &context, rows);
        }
        select.execute(&self.service, execution, &context, rows).await
    }

    async fn batch(
        &self,
        session: &Session,
        batch: &Batch<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), CqlError> {
        if batch.kind == BatchKind::Counter {
            return Err(CqlError::unsupported("counters"));
        }
        let keyspace = session.keyspace();
        let moment = self.moment();
        let mut statements = Vec::with_capacity(batch.statements.len());
        for (statement, values) in &batch.statements {
            let prepared = match statement {
                BatchStatement::Text(text) => Arc::new(self.prepare(text, keyspace.as_deref())?),
                BatchStatement::Prepared(id) => self.find(id)?,
            };
            prepared.plan.check_access(&self.service, session)?;
            prepared.check_count(values.len())?;
            statements.push((prepared, values));
        }
        let items =
            statements.iter().map(|(prepared, values): &(Arc<Prepared>, &Few<Value<'_>>)| {
                match &prepared.plan {
                    Plan::Modify(plan) => Ok(Item { plan, values: Values::new(values, &moment) }),
                    _ => Err(CqlError::invalid(
                        "Invalid statement in batch: only UPDATE, INSERT and DELETE statements are \
                     allowed.",
                    )),
                }
            });
        let items: Vec<Item<'_>> = items.collect::<Result<_, CqlError>>()?;
        if conditional::is_conditional(items.iter().map(|item| item.plan)) {
            let levels = (batch.serial_level, batch.level);
            return self.change_under_condition(&items, levels, reply).await;
        }
        let way = (batch.level, write_type(batch.kind));
        self.write(&items, batch.timestamp, way, reply).await?;
        reply.void();
        Ok(())
    }

    /// Makes changes of one row key if their conditions hold.
    async fn change_under_condition(
        &self,
        items: &[Item<'_>],
        (serial, level): (Option<Level>, Level),
        reply: &mut Reply<'_>,
    ) -> Result<(), CqlError> {
        let Some(first) = items.first() else { return Ok(()) };
        let commit = write_level(level, &first.plan.table.keyspace, &self.service)?;
        let levels = (conditional::serial_consistency(serial), commit);
        let micros = first.values.moment.micros;
        let now = self.service.now_secs();
        let stamp = Stamp { timestamp: micros, now, micros, chance: &self.chance };
        conditional::change(&self.service, items, levels, stamp, reply).await
    }

    /// Applies changes; those of one row key are atomic.
    async fn write(
        &self,
        items: &[Item<'_>],
        timestamp: Option<i64>,
        (level, kind): (Level, WriteType),
        reply: &mut Reply<'_>,
    ) -> Result<(), CqlError> {
        let Some(first) = items.first() else { return Ok(()) };
        let consistency = write_level(level, &first.plan.table.keyspace, &self.service)?;
        let stamp = Stamp {
            timestamp: timestamp.unwrap_or(first.values.moment.micros),
            now: self.service.now_secs(),
            micros: first.values.moment.micros,
            chance: &self.chance,
        };
        let mutations = batch::mutations(&self.service, items, stamp, consistency).await;
        let mutations = mutations.map_err(|error| error.at(level))?;
        let bytes: usize = mutations.iter().map(|it| it.record().len()).sum();
        if kind != WriteType::Simple && mutations.len() > 1 && bytes > MAX_BATCH {
            return Err(CqlError::invalid("Batch too large"));
        }
        if mutations.is_empty() {
            return Ok(());
        }
        let (error, kind) = if kind == WriteType::Batch {
            if mutations.len() > 1
                && let Some(warning) = batch::warning(items)
            {
                reply.warn(warning);
            }
            match self.service.write_batch(&mutations, consistency).await {
                Ok(()) => return Ok(()),
                Err(BatchError::NotKept(error)) => (error.into(), WriteType::BatchLog),
                Err(BatchError::NotWritten(error)) => (error.into(), kind),
            }
        } else {
            match self.service.write(&mutations, consistency).await {
                Ok(()) => return Ok(()),
                Err(error) => (error, kind),
            }
        };
        Err(CqlError::of_write(error, level, kind))
    }

    /// Changes the schema; `None` if there is nothing to do.
    async fn change_schema(
        &self,
        statement: &Arc<SchemaStatement>,
        session: &Session,
    ) -> Result<Option<SchemaChange>, CqlError> {
        let in_use = session.keyspace();
        let told = schema::told(statement, in_use.as_deref());
        session.check_access(&self.service, &told.keyspace, Access::Write)?;
        let (statement, ground) = (Arc::clone(statement), self.ground(in_use.as_deref()));
        let apply = |now: &Definitions| schema::apply(&statement, &ground, now);
        let is_changed = self.service.change_schema(apply).await?;
        if is_changed {
            log::info!(target: audit::TARGET, "{told} of {}", Self::who(session));
        }
        Ok(is_changed.then_some(told))
    }

    /// The user and the address of a client.
    fn who(session: &Session) -> String {
        let client = session.peer().ip();
        match session.login().user() {
            Some(user) => format!("{user} at {client}"),
            None => client.to_string(),
        }
    }

    /// Drops all rows of a table.
    async fn truncate(&self, name: &QualifiedName, session: &Session) -> Result<(), CqlError> {
        let in_use = session.keyspace();
        let parts = (&*self.service, &self.system);
        let table = TableRef::find(name, in_use.as_deref(), parts)?;
        table.check_writable()?;
        session.check_access(&self.service, &table.keyspace, Access::Write)?;
        let Some((id, family)) = table.stored() else { return Ok(()) };
        log::info!(target: audit::TARGET, "TRUNCATE {family} of {}", Self::who(session));
        if ColumnFamilySchema::is_of_cql(&family.name) {
            let (name, ground) = (name.clone(), self.ground(in_use.as_deref()));
            let truncate = |now: &Definitions| schema::truncate(&name, &ground, now);
            Ok(self.service.change_schema(truncate).await.map(drop)?)
        } else {
            let register = Arc::clone(self.service.register());
            let empty = move || register.empty::<CqlError>(id);
            match tokio::task::spawn_blocking(empty).await {
                Ok(done) => Ok(done?),
                Err(error) => Err(CqlError::server(error.to_string())),
            }
        }
    }

    fn ground(&self, in_use: Option<&str>) -> Ground {
        let micros = self.service.now_micros();
        let ids = [(); 2].map(|()| self.chance.time_uuid(micros));
        Ground::new(&self.service, in_use, (micros, ids))
    }
}

fn write_type(kind: BatchKind) -> WriteType {
    match kind {
        BatchKind::Logged => WriteType::Batch,
        BatchKind::Unlogged => WriteType::UnloggedBatch,
        BatchKind::Counter => WriteType::Counter,
    }
}

/// The level of a read of the model.
fn read_level(
    level: Level,
    keyspace: &str,
    service: &Service,
) -> Result<ConsistencyLevel, CqlError> {
    match level {
        Level::Any | Level::EachQuorum => Err(CqlError::invalid(format!(
            "{} ConsistencyLevel is only supported for writes",
            level.name()
        ))),
        level => Ok(model_level(level, keyspace, service)),
    }
}

fn write_level(
    level: Level,
    keyspace: &str,
    service: &Service,
) -> Result<ConsistencyLevel, CqlError> {
    match level {
        Level::Serial | Level::LocalSerial => Err(CqlError::invalid(format!(
            "{} is not supported as consistency level of a write",
            level.name()
        ))),
        level => Ok(model_level(level, keyspace, service)),
    }
}

/// Where replicas are not placed by data centre, all of them are local.
fn model_level(level: Level, keyspace: &str, service: &Service) -> ConsistencyLevel {
    match level {
        Level::Any => ConsistencyLevel::Any,
        Level::One | Level::LocalOne | Level::Serial | Level::LocalSerial => ConsistencyLevel::One,
        Level::Two => ConsistencyLevel::Two,
        Level::Three => ConsistencyLevel::Three,
        Level::All => ConsistencyLevel::All,
        Level::LocalQuorum if service.knows_data_centers(keyspace) => ConsistencyLevel::DcQuorum,
        Level::EachQuorum if service.knows_data_centers(keyspace) => ConsistencyLevel::DcQuorumSync,
        Level::Quorum | Level::LocalQuorum | Level::EachQuorum => ConsistencyLevel::Quorum,
    }
}

/// The change of a statement of a batch.
pub(super) fn modification(modification: &Modification) -> &QualifiedName {
    match modification {
        Modification::Insert(insert) => &insert.table,
        Modification::Update(update) => &update.table,
        Modification::Delete(delete) => &delete.table,
    }
}
