//! The storage core beside other engines, in one run on the same records.
//!
//! `cargo run --release -p peers`, with `--features rocksdb` also beside RocksDB. Prints tables
//! of what each operation costs, and how many times that the peer takes: above 1 we are better.
//! What is comparable and what is not is told in `docs/benchmarks.md`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a bench tells its figures")]

mod alexandra;
mod arguments;
mod bench;
mod engine;
mod fjall;
mod machine;
mod reads;
mod records;
mod recovery;
mod redb;
mod report;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod writes;

use arguments::{Arguments, USAGE};
use bench::Bench;
use std::process::ExitCode;

/// As in the server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).peekable();
    if words.next_if(|word| word == recovery::CHILD).is_some() {
        recovery::write_and_abort(words);
    }
    let Some(arguments) = Arguments::parse(words) else {
        eprintln!("{USAGE}");
        return ExitCode::FAILURE;
    };
    let mut bench = Bench::new(arguments);
    writes::run(&mut bench);
    reads::run(&mut bench);
    recovery::run(&mut bench);
    println!("{}", bench.report.render());
    ExitCode::SUCCESS
}
