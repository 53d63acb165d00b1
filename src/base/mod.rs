//! What every layer may use, and what knows none of them: time, files, events, byte readers.

pub mod budget;
pub mod bytes;
pub mod clock;
pub mod context;
pub mod events;
pub mod fs;
pub mod intake;
pub mod java;
pub mod limited_log;
pub mod lock;
pub mod machine;
pub mod seats;
pub mod shared_bytes;
pub mod utc;
