//! Tests of gossipers that talk to each other.

mod rules;
