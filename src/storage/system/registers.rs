//! Registers in whose decisions this node takes part, each a row of the column family `Paxos`.
//!
//! ```text
//! row      name of the register
//! State    as `Register::encode` has it, with a time to live; its timestamp is the time of the
//!          last change, in milliseconds since 1970
//! Value    what the node keeps of a register whose participants keep its value; its timestamp is
//!          the version
//! ```
//!
//! States expire, since nobody says which registers are used no more. Ballots are kept far longer
//! than requests last, so that no late one can contradict what was forgotten. An accepted change is
//! forgotten sooner than ballots, by its own date as well, since promises renew a state: else one
//! that was overtaken could come back where the newer ballots are gone. The client of such a change
//! was never told that it was done.

use super::KEYSPACE;
use crate::base::bytes::ByteReader;
use crate::base::context::RequestContext;
use crate::model::cell::Expiry;
use crate::model::key::RowKey;
use crate::model::mutation::{MutationBuilder, RowMutation};
use crate::model::register::{Kept, Register};
use crate::model::schema::{FamilyId, Schema};
use crate::model::slice::Slice;
use crate::storage::database::{Applied, Database, WriteError};
use crate::storage::error::{Corrupt, ReadError};
use crate::storage::sstable::Access;
use std::path::Path;

/// Its column family.
pub const PAXOS: &str = "Paxos";
const STATE: &[u8] = b"State";
const VALUE: &[u8] = b"Value";

/// Seconds for which ballots are kept.
const BALLOTS_SECS: u32 = 24 * 3600;

/// Seconds for which an accepted change is kept.
const ACCEPTED_SECS: u32 = BALLOTS_SECS / 2;

/// The stored state of a register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedRegister {
    /// The state, as far as it has not expired.
    pub state: Register,
    /// The timestamp that the next state must be above.
    last: i64,
    /// The version that it keeps.
    version: i64,
}

impl SavedRegister {
    /// Reads it; a new one if there is none.
    pub fn read(storage: &Database, name: &RowKey) -> Result<Self, ReadError> {
        let (all, context) = (Slice::all(None), RequestContext::default());
        let family = storage.family(paxos(storage));
        let row = family.read_version(name, &all, &context, Access::Cached)?;
        let find = |name: &[u8]| row.cells.iter().find(|cell| cell.name() == name);
        let kept = find(VALUE).map_or_else(Kept::default, |cell| Kept {
            version: cell.timestamp(),
            value: cell.value().to_vec(),
        });
        let version = kept.version;
        let state = Register::default().keeping(kept);
        let mut saved = Self { state, last: i64::MIN, version };
        let Some(cell) = find(STATE) else { return Ok(saved) };
        saved.last = cell.timestamp();
        let now = storage.now_millis();
        let age = now.saturating_sub(saved.last) / 1000;
        if age >= BALLOTS_SECS.into() {
            return Ok(saved);
        }
        let state = Register::decode(cell.value()).map_err(|_| {
            let damage = Corrupt::new(Path::new(PAXOS), 0, "this is no state of a register");
            Corrupt { row: Some(name.clone()), ..damage }
        })?;
        saved.state = state.keeping(std::mem::take(&mut saved.state).into_kept());
        let oldest = now.saturating_sub(i64::from(ACCEPTED_SECS) * 1000).saturating_mul(1000);
        let is_old = age >= ACCEPTED_SECS.into();
        saved.state.forget_accepted(if is_old { i64::MAX } else { oldest });
        Ok(saved)
    }

    /// Writes it. May wait for memory and for the disk.
    pub fn write(&self, storage: &Database, name: &RowKey) -> Result<Applied, WriteError> {
        let now = storage.now_millis();
        // Later states count, also if the clock was set back.
        let timestamp = now.max(self.last.saturating_add(1));
        let expiry = Expiry { ttl: BALLOTS_SECS, at: now / 1000 + i64::from(BALLOTS_SECS) };
        let mut row = MutationBuilder::new(storage.schema(), KEYSPACE, name.as_bytes());
        let (columns, state) = (row.family(paxos(storage)), self.state.encode());
        columns.insert_expiring((b"", STATE), &state, timestamp, expiry);
        let kept = self.state.kept();
        if kept.version > self.version {
            columns.insert((b"", VALUE), &kept.value, kept.version);
        }
        storage.apply(&row.finish(), true)
    }
}

/// The value that a record of the commit log gives to a register, if it gives one.
pub(in crate::storage) fn logged_value(
    record: &[u8],
    schema: &Schema,
    name: &str,
) -> Option<Vec<u8>> {
    let mut reader = ByteReader::new(record);
    let row = [reader.prefixed().ok()?, reader.prefixed().ok()?];
    if row != [KEYSPACE.as_bytes(), name.as_bytes()] {
        return None;
    }
    let mutation = RowMutation::decode_except(record, schema, |_, _| true).ok()?;
    let mut cells = mutation.families.iter().flat_map(|family| &family.cells);
    let value = cells.find(|cell| cell.name() == VALUE)?;
    Some(value.value().to_vec())
}

fn paxos(storage: &Database) -> FamilyId {
    let family = storage.schema().family_id(KEYSPACE, PAXOS);
    family.expect("every schema has the system keyspace")
}
