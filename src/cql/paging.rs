//! The place where a page of a result ended. Clients send it back for the next page, so it comes
//! from outside.

use super::error::CqlError;
use crate::base::bytes::{ByteReader, ByteWriter, Malformed};
use crate::model::cell::Cell;
use crate::model::table::Table;

/// Version of the form.
const VERSION: u8 = 1;

/// A row: the names of its super column and column.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) super_name: Vec<u8>,
    pub(super) name: Vec<u8>,
}

impl Place {
    /// The place of a cell.
    pub(super) fn of(cell: &Cell) -> Self {
        Self { super_name: cell.super_name().to_vec(), name: cell.name().to_vec() }
    }

    /// Its name on the first level of a partition.
    pub(super) fn outer_name(&self, table: &Table) -> &Vec<u8> {
        if table.in_super_name > 0 { &self.super_name } else { &self.name }
    }
}

/// Version, row key, last row in it, and the rows that the limits leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PagingState {
    pub(super) key: Vec<u8>,
    /// `None` if the partition has not begun.
    pub(super) after: Option<Place>,
    /// Rows in memory that were passed.
    pub(super) passed: usize,
    pub(super) left: usize,
    pub(super) left_in_partition: usize,
}

impl PagingState {
    /// The form that goes to the client.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.put_prefixed(&self.key);
        out.push(u8::from(self.after.is_some()));
        if let Some(Place { super_name, name }) = &self.after {
            out.put_prefixed(super_name);
            out.put_prefixed(name);
        }
        for count in [self.passed, self.left, self.left_in_partition] {
            out.extend_from_slice(&(count as u64).to_be_bytes());
        }
        out
    }

    /// Reads what a client has sent.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, CqlError> {
        let wrong = |_: Malformed| CqlError::protocol("Invalid value for the paging state");
        Self::read(&mut ByteReader::new(bytes)).map_err(wrong)
    }

    fn read(reader: &mut ByteReader<'_>) -> Result<Self, Malformed> {
        if reader.u8()? != VERSION {
            return Err(Malformed(0));
        }
        let key = reader.prefixed()?.to_vec();
        let after = match reader.u8()? {
            0 => None,
            _ => Some(Place {
                super_name: reader.prefixed()?.to_vec(),
                name: reader.prefixed()?.to_vec(),
            }),
        };
        let mut count = || Ok::<_, Malformed>(reader.i64()? as u64 as usize);
        Ok(Self { key, after, passed: count()?, left: count()?, left_in_partition: count()? })
    }
}
