//! Tests of gossipers that talk to each other.

mod cluster;
mod convergence;
mod rules;
