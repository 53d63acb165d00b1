//! Basics for all layers: time, files, memory budgets, locks, log lines, byte readers,
//! counters.

pub mod audit;
pub mod budget;
pub mod bytes;
pub mod clock;
pub mod context;
pub mod events;
pub mod frequent;
pub mod fs;
pub mod hex;
pub mod histogram;
pub mod intake;
pub mod java;
pub mod latest;
pub mod limited_log;
pub mod lock;
pub mod log_levels;
pub mod machine;
pub mod operations;
pub mod runtimes;
pub mod seats;
pub mod shared_bytes;
pub mod striped;
pub mod tls;
pub mod utc;
pub mod worker;
