//! What a request holds until its answer has been written for the client.

use super::verbs::ReplicaError;
use crate::base::context::RequestContext;
use crate::model::cell::Cell;
use crate::model::key::RowKey;
use crate::storage::answer;
use crate::storage::error::ReadError;
use tokio::sync::OwnedSemaphorePermit;

/// The context of a request, and its permit for a lane of threads. However many clients ask for
/// much at a time, few large answers are in memory, and none is larger than it may be.
#[derive(Debug)]
pub struct Ticket {
    /// There from the moment when the request needs more than memory at hand.
    pub(super) permit: Option<OwnedSemaphorePermit>,
    /// The context of all reads of the request.
    pub(super) context: RequestContext,
}

impl Ticket {
    pub(super) fn new(context: RequestContext) -> Self {
        Self { permit: None, context }
    }

    /// The context of the request.
    pub fn context(&self) -> &RequestContext {
        &self.context
    }

    /// Takes memory for what the request holds besides the answer.
    pub fn charge(&self, bytes: usize) -> Result<(), ReplicaError> {
        Ok(self.context.take(bytes).map_err(ReadError::from)?)
    }

    /// Gives back memory that was taken by [`Ticket::charge`].
    pub fn give_back(&self, bytes: usize) {
        self.context.give_back(bytes);
    }

    /// Takes memory for the key of a row that was not read by this ticket.
    pub fn charge_key(&self, key: &RowKey) -> Result<(), ReplicaError> {
        self.charge(answer::row_cost(key.as_bytes()))
    }

    /// Takes memory for cells of a row that were not read by this ticket.
    pub fn charge_row(&self, key: &RowKey, cells: &[Cell]) -> Result<(), ReplicaError> {
        let encoded = cells.iter().map(Cell::encoded_length).sum();
        self.charge(answer::row_cost(key.as_bytes()) + answer::cells_cost(cells.len(), encoded))
    }

    /// Whether the request has turned out to take long.
    pub fn is_long(&self) -> bool {
        self.context.is_long()
    }

    /// Lets others read, as long as this request only waits for other nodes.
    pub fn release(&mut self) {
        self.permit = None;
    }

    /// A ticket for a part of the same answer, which holds up others only as long as it is there.
    #[must_use]
    pub fn child(&self) -> Self {
        Self::new(self.context.clone())
    }

    /// A ticket for data that are read on the way to the answer and are no part of it: its memory
    /// is given back when it and all its children are dropped.
    #[must_use]
    pub fn scratch(&self) -> Self {
        Self::new(self.context.scratch())
    }

    /// Gives back the memory of a scratch ticket, whose data were dropped and are read again.
    pub fn renew(&mut self) {
        self.context.renew();
    }
}
