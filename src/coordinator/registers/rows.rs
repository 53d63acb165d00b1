//! Conditional writes to rows, and reads that see all of them. Each row of a column family is a
//! register of its own.
//!
//! The value of a proposal is the write as other nodes get it, dated by the ballot. So it may be
//! applied more than once, and the writes of a row have ascending dates in the order in which they
//! were decided.

use super::{Electorate, Intent, RegisterUse};
use crate::base::context::RequestContext;
use crate::coordinator::coordinator::Coordinator;
use crate::coordinator::view::{Endpoints, View, WriteReplicas};
use crate::coordinator::{ConsistencyLevel, CoordinatorError, ReplicaCounts};
use crate::model::cell::Cell;
use crate::model::key::RowKey;
use crate::model::mutation::RowMutation;
use crate::model::register::Proposal;
use crate::model::slice::RowSlice;
use crate::model::version::RowVersion;
use crate::net::bodies;
use crate::replica::{self, RowQuery};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A row with dates up to a day ahead still gets a later one. Clients that count in other units
/// have hidden it from conditional writes.
const LONGEST_LEAP: i64 = 24 * 3600 * 1_000_000;

/// The replicas that decide on conditional writes to a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SerialConsistency {
    /// A majority of all.
    Serial,
    /// A majority of those in the data centre of the coordinator: only nodes of one data centre
    /// may use it for a row. As `Serial` with the strategies that are not aware of data centres.
    LocalSerial,
}

/// Result of a conditional write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CasOutcome {
    /// It was done.
    Applied,
    /// The condition did not hold for this row, and no earlier write can come any more that is not
    /// in it.
    Refused(RowSlice),
}

impl Coordinator {
    /// Writes to a row if a condition holds, so that all conditional writes to the row form one
    /// line.
    ///
    /// `decide` gets the slice of the row and the date for the write, in microseconds. It returns
    /// the write to this row, or none if the condition does not hold. It may be called again with a
    /// newer row. Other writes to the row may come in between unnoticed.
    ///
    /// The write waits for a quorum at least, whatever the level; for no more if another call had
    /// to finish it. After [`CoordinatorError::TimedOut`] it may be done or not;
    /// [`Coordinator::read_serial`] tells.
    pub async fn compare_and_set<E: From<CoordinatorError> + Send>(
        self: &Arc<Self>,
        row: RowQuery<'_>,
        levels: (SerialConsistency, ConsistencyLevel),
        decide: impl FnMut(&RowSlice, i64) -> Result<Option<RowMutation>, E> + Send,
        context: &mut RequestContext,
    ) -> Result<CasOutcome, E> {
        let found = self.change_row(row, levels, decide, context).await?;
        Ok(found.map_or(CasOutcome::Applied, CasOutcome::Refused))
    }

    /// Reads a slice of a row with all conditional writes that were done before. One whose outcome
    /// is not known is done by now, or never will be.
    pub async fn read_serial(
        self: &Arc<Self>,
        row: RowQuery<'_>,
        level: SerialConsistency,
        context: &mut RequestContext,
    ) -> Result<RowSlice, CoordinatorError> {
        let levels = (level, ConsistencyLevel::Quorum);
        let decide = |_: &RowSlice, _| Ok::<_, CoordinatorError>(None);
        let found = self.change_row(row, levels, decide, context).await?;
        found.ok_or(CoordinatorError::TimedOut(ReplicaCounts::NONE))
    }

    /// Returns the row if nothing is to be changed.
    async fn change_row<E: From<CoordinatorError> + Send>(
        self: &Arc<Self>,
        row: RowQuery<'_>,
        (serial, commit): (SerialConsistency, ConsistencyLevel),
        decide: impl FnMut(&RowSlice, i64) -> Result<Option<RowMutation>, E> + Send,
        context: &mut RequestContext,
    ) -> Result<Option<RowSlice>, E> {
        let family = self.schema.family(row.family);
        let name = [family.keyspace.as_bytes(), family.name.as_bytes(), row.key.as_bytes()];
        let knows_data_centers = |it| self.view().knows_data_centers(it);
        let quorum = match serial {
            SerialConsistency::LocalSerial
                if self.keyspace_of(row.family).is_some_and(knows_data_centers) =>
            {
                ConsistencyLevel::DcQuorum
            }
            _ => ConsistencyLevel::Quorum,
        };
        let commit = match commit {
            ConsistencyLevel::Zero | ConsistencyLevel::Any | ConsistencyLevel::One => quorum,
            level => level,
        };
        let name = RowKey::new(&name.join(&b"\0"[..]));
        let (coordinator, found, memory) = (self, None, context.child());
        let counts = ReplicaCounts::NONE;
        let mut register =
            RowRegister { coordinator, name, row, quorum, commit, decide, memory, found, counts };
        // Large beside other requests.
        if Box::pin(self.agree(&mut register, context)).await? {
            return Ok(None);
        }
        let Some((found, _memory)) = register.found else { return Ok(None) };
        replica::take_row(context, row.key, &found.cells).map_err(CoordinatorError::from)?;
        Ok(Some(found))
    }
}

/// A row, and what a call wants to do to it.
struct RowRegister<'a, F> {
    coordinator: &'a Arc<Coordinator>,
    name: RowKey,
    row: RowQuery<'a>,
    /// The level of reads, and the least one of writes.
    quorum: ConsistencyLevel,
    commit: ConsistencyLevel,
    decide: F,
    memory: RequestContext,
    /// The row that was not to be changed, and its memory.
    found: Option<(RowSlice, RequestContext)>,
    /// Participants that are needed, and those that have granted the last question.
    counts: ReplicaCounts,
}

impl<F> RowRegister<'_, F> {
    fn replicas(&self, view: &View, level: ConsistencyLevel) -> WriteReplicas {
        let Self { coordinator, row, .. } = self;
        coordinator.replicas_to_write(view, Some(row.family), row.key, level)
    }
}

impl<E, F> RegisterUse for RowRegister<'_, F>
where
    E: From<CoordinatorError> + Send,
    F: FnMut(&RowSlice, i64) -> Result<Option<RowMutation>, E> + Send,
{
    type Error = E;

    fn name(&self) -> &RowKey {
        &self.name
    }

    fn electorate(&mut self, view: &Arc<View>) -> Result<Electorate, CoordinatorError> {
        let coordinator = self.coordinator;
        let local = coordinator.local;
        let replicas = self.replicas(view, self.quorum);
        // Two pending replicas may become two that know nothing of a decision.
        if coordinator.refuses_writes.load(Ordering::Relaxed)
            || view.peers.is_self_removed
            || replicas.pending > 1
        {
            return Err(CoordinatorError::Unavailable(ReplicaCounts::NONE));
        }
        replicas.check(local)?;
        self.replicas(view, self.commit).check(local)?;
        let requirement = replicas.requirement;
        self.counts = requirement.check(std::iter::empty()).err().unwrap_or(self.counts);
        let own = replicas.is_local.then_some(local);
        let live = replicas.live.into_iter().chain(own).filter(|it| requirement.counts(*it));
        Electorate::new(view, live.collect(), requirement, local)
    }

    async fn next(&mut self, electorate: &Electorate, micros: i64) -> Result<Intent, E> {
        let (coordinator, mut memory) = (self.coordinator, self.memory.scratch());
        let view = &electorate.view;
        let replicas = coordinator.read_replicas(view, self.row, self.quorum)?;
        let look = |version: &RowVersion| newest_ahead(version, micros);
        let read = coordinator.read_and_look(view, self.row, replicas, look, &mut memory);
        let (row, newest) = Box::pin(read).await?;
        let Some(mutation) = (self.decide)(&row, micros)? else {
            self.found = Some((row, memory));
            return Ok(Intent::Propose(Vec::new()));
        };
        // A write that is older than what is there would seem to be done, and show nowhere.
        if let Some(newest) = newest {
            return Ok(Intent::After(newest));
        }
        Ok(Intent::Propose(coordinator.encode_write(&mutation, std::iter::empty())?))
    }

    async fn apply(
        &mut self,
        electorate: &Electorate,
        proposal: &Proposal,
        is_own: bool,
    ) -> Result<(), CoordinatorError> {
        let coordinator = self.coordinator;
        let memory = self.memory.scratch();
        let mutation = bodies::decode_mutation(&proposal.value, &coordinator.schema, &memory);
        let mutation = mutation.map_err(|error| {
            let what = format!("a conditional write to the row cannot be done here: {error}");
            CoordinatorError::Unsendable(what)
        })?;
        let Electorate { view, requirement, .. } = electorate;
        let level = if is_own { self.commit } else { self.quorum };
        let mut replicas = self.replicas(view, level);
        replicas.requirement.add(requirement);
        coordinator.write_to(view, &[mutation], vec![replicas], level).await
    }

    fn note_silent(&mut self, _members: Endpoints, counts: ReplicaCounts) {
        self.counts = counts;
    }

    fn counts(&self) -> ReplicaCounts {
        self.counts
    }
}

/// The newest date of a value or deletion that is not before this one, and is no leap too far.
fn newest_ahead(version: &RowVersion, micros: i64) -> Option<i64> {
    let deletion = version.deletion.marked_for_delete_at;
    let dates = version.cells.iter().map(Cell::timestamp).chain([deletion]);
    dates.filter(|date| (0..LONGEST_LEAP).contains(&date.saturating_sub(micros))).max()
}
