//! What every layer may use, and what knows none of them: time, files, events, byte readers.

pub mod budget;
pub mod bytes;
pub mod clock;
pub mod events;
pub mod fs;
pub mod java;
pub mod machine;
pub mod shared_bytes;
pub mod sim_fs;
pub mod utc;
