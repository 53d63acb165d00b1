//! The vocabulary that every layer shares: row keys, comparators, schema, cells, mutations, reads.
//! Pure types and functions, no input or output.

pub mod comparator;
pub mod key;
pub mod schema;
