//! The vocabulary of all layers: row keys, comparators, schema, cells, mutations, slices. Pure
//! types and functions, no input or output.

pub mod cell;
pub mod comparator;
pub mod deletion;
pub mod key;
pub mod mutation;
pub mod original;
pub mod original_mutation;
pub mod position;
pub mod range_deletion;
pub mod register;
pub mod schema;
pub mod slice;
pub mod table;
pub mod types;
pub mod version;
pub mod visibility;
