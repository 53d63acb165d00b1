//! Log lines of compactions, in the words of 0.6 where it has some.

use super::progress::CompactionKind;
use crate::storage::family::ColumnFamily;
use crate::storage::sstable::SsTable;
use log::Level;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const TARGET: &str = "alexandra::compaction";

/// Tells that a compaction of these files begins.
pub(crate) fn begins(store: &ColumnFamily, kind: CompactionKind, inputs: &[Arc<SsTable>]) {
    let (family, inputs) = (store.schema(), Paths(inputs.iter().map(|table| table.path())));
    let line = format_args!("Compacting [{inputs}] ({kind} compaction of {family})");
    store.environment().events.tell(Level::Info, TARGET, line);
}

/// Result of a compaction.
pub(crate) struct Ended {
    pub(crate) outputs: Vec<PathBuf>,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) rows: u64,
    /// On the monotonic clock.
    pub(crate) began_at: Duration,
}

/// Tells that the outputs of a compaction have taken the place of its inputs.
pub(crate) fn ended(store: &ColumnFamily, ended: &Ended) {
    let Ended { outputs, bytes_in, bytes_out, rows, began_at } = ended;
    let environment = store.environment();
    let took = environment.clock.monotonic().saturating_sub(*began_at).as_millis();
    let outputs = Paths(outputs.iter().map(PathBuf::as_path));
    let line = format_args!(
        "Compacted to {outputs}.  {bytes_in}/{bytes_out} bytes for {rows} keys.  Time: {took}ms"
    );
    environment.events.tell(Level::Info, TARGET, line);
}

/// Paths as 0.6 listed them, separated by a comma and a blank.
pub(crate) struct Paths<I>(pub(crate) I);

impl<'a, I: Iterator<Item = &'a Path> + Clone> fmt::Display for Paths<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut paths = self.0.clone().peekable();
        if paths.peek().is_none() {
            return f.write_str("nothing");
        }
        for (number, path) in paths.enumerate() {
            write!(f, "{}{}", if number == 0 { "" } else { ", " }, path.display())?;
        }
        Ok(())
    }
}
