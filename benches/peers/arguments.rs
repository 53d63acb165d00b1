//! The command line of the bench.

use super::engine::Kind;
use std::path::PathBuf;

/// Things to measure, and how thoroughly.
#[derive(Debug, Clone)]
pub(crate) struct Arguments {
    /// Records of a store.
    pub(crate) records: u32,
    /// How often each line is measured with each engine.
    pub(crate) rounds: usize,
    /// Only lines whose names contain this.
    pub(crate) filter: String,
    pub(crate) engines: Vec<Kind>,
    pub(crate) block_bytes: usize,
    pub(crate) memtable_bytes: usize,
    /// Below which the stores are made; the place for temporary files by default.
    pub(crate) directory: PathBuf,
}

pub(crate) const USAGE: &str = "\
cargo run --release -p peers [--features rocksdb] -- [OPTIONS]
  --records N       records of a store, 500000 by default
  --rounds N        measurements of each line, 3 by default
  --filter TEXT     only lines whose names contain this
  --engines A,B     of alexandra, alexandra-wide, fjall, redb, rocksdb; all by default
  --block-kb N      uncompressed size of blocks, 4 by default
  --memtable-mb N   size of memtables, 8 by default
  --directory PATH  where the stores are made";

impl Arguments {
    /// Reads the arguments; `None` if they are not understood.
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Option<Self> {
        let mut arguments = Self {
            records: 500_000,
            rounds: 3,
            filter: String::new(),
            engines: Kind::ALL.to_vec(),
            block_bytes: 4 << 10,
            memtable_bytes: 8 << 20,
            directory: std::env::temp_dir(),
        };
        while let Some(word) = words.next() {
            match word.as_str() {
                // Cargo adds this one.
                "--bench" => {}
                "--records" => arguments.records = words.next()?.parse().ok()?,
                "--rounds" => arguments.rounds = words.next()?.parse().ok()?,
                "--filter" => arguments.filter = words.next()?,
                "--engines" => {
                    let names = words.next()?;
                    arguments.engines = names.split(',').map(Kind::named).collect::<Option<_>>()?;
                }
                "--block-kb" => {
                    arguments.block_bytes = words.next()?.parse::<usize>().ok()? << 10;
                }
                "--memtable-mb" => {
                    arguments.memtable_bytes = words.next()?.parse::<usize>().ok()? << 20;
                }
                "--directory" => arguments.directory = words.next()?.into(),
                _ => return None,
            }
        }
        // Some lines take every hundredth record.
        let sound = arguments.records >= 10_000 && arguments.rounds > 0;
        sound.then_some(arguments)
    }
}
