//! The one binary: everything is in the library.

use std::process::ExitCode;

/// Requests allocate on one thread and flushes free on another, which the allocator of the C
/// library is slow at: a batch of 50 columns costs half the time with this one.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    alexandra::commands::run(std::env::args_os())
}
