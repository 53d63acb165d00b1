//! The API over a store in memory.

mod fixture;
