//! Sizes of what is kept in memory.

use super::document::{Document, MIB, Value};
use super::settings::{MemorySettings, Release};
use std::time::Duration;

/// Limits of memtables; three names are older than 0.6.
pub(super) fn memtables(doc: &mut Document<'_>) -> MemorySettings {
    // The million of 0.6 is a binary one.
    const MILLION: f64 = 1_048_576.0;
    let before_06 = doc.release < Release::V06;
    let throughput = doc.find_renamed("MemtableThroughputInMB", "MemtableSizeInMB");
    let throughput = throughput.and_then(|value| doc.at_least(&value, 1));
    doc.optional("BinaryMemtableThroughputInMB", Value::integer);
    let renamed = doc.find_renamed("MemtableOperationsInMillions", "MemtableObjectCountInMillions");
    let millions = renamed.and_then(|value| {
        doc.accept(value.double().and_then(|millions| {
            let is_positive = millions > 0.0;
            let problem = "Memtable object count must be a positive double";
            is_positive.then_some(millions).ok_or_else(|| value.refuse(problem))
        }))
    });
    let millions = millions.unwrap_or(if before_06 { 1.0 } else { 0.1 });
    let operations = ((millions * MILLION) as u64).max(1);
    let throughput = throughput.unwrap_or(if before_06 { 128 } else { 64 });
    let flush_after = flush_after(doc);
    doc.show("MemtableThroughputInMB", throughput);
    let millions = operations as f64 / MILLION;
    doc.show("MemtableOperationsInMillions", format!("{millions:.4} ({operations} columns)"));
    doc.show("MemtableFlushAfterMinutes", flush_after.as_secs() / 60);
    MemorySettings {
        budget_bytes: None,
        block_cache_bytes: None,
        memtable_throughput_bytes: u64::from(throughput) * MIB,
        memtable_operations: operations,
        memtable_flush_after: flush_after,
    }
}

/// 0.4 counted in days under another name, and waited for six of them.
fn flush_after(doc: &mut Document<'_>) -> Duration {
    const MINUTE: u64 = 60;
    const DAY: u64 = 24 * 60 * MINUTE;
    const NAME: &str = "MemtableFlushAfterMinutes";
    if doc.release > Release::V04 {
        return Duration::from_secs(u64::from(doc.integer(NAME)) * MINUTE);
    }
    let value = doc.find_renamed(NAME, "MemtableLifetimeInDays");
    let is_named_now = doc.sources.get(NAME).is_some_and(|source| source.element == NAME);
    let unit = if is_named_now { MINUTE } else { DAY };
    let count = value.and_then(|value| doc.at_least(&value, 1));
    Duration::from_secs(count.map_or(6 * DAY, |count| u64::from(count) * unit))
}

/// `MemoryBudgetInMB` and `BlockCacheInMB`, on a machine with as many bytes of memory.
pub(super) fn budget(doc: &mut Document<'_>, memory: &mut MemorySettings, machine: u64) {
    let or_quarter = |bytes: Option<u64>, of: &str| match bytes {
        Some(bytes) => (bytes / MIB).to_string(),
        None => format!("(a quarter of {of})"),
    };
    if let Some(value) = doc.find("MemoryBudgetInMB") {
        let bytes = doc.at_least(&value, 1).map(|budget| u64::from(budget) * MIB);
        check_fits(doc, &value, bytes.unwrap_or_default(), machine);
        memory.budget_bytes = bytes;
    }
    if let Some(value) = doc.find("BlockCacheInMB") {
        let bytes = doc.at_least(&value, 1).map(|cache| u64::from(cache) * MIB);
        let budget = memory.budget_bytes.unwrap_or(machine / 4);
        if bytes.is_some_and(|bytes| bytes >= budget) {
            let budget = budget / MIB;
            let text = format!("must be less than MemoryBudgetInMB, which is {budget}");
            doc.refuse(value.refuse(text));
        }
        memory.block_cache_bytes = bytes;
    }
    doc.show("MemoryBudgetInMB", or_quarter(memory.budget_bytes, "the machine's memory"));
    doc.show("BlockCacheInMB", or_quarter(memory.block_cache_bytes, "the budget"));
}

/// Refuses a value that stands for more bytes than the machine has.
pub(super) fn check_fits(doc: &mut Document<'_>, value: &Value<'_>, bytes: u64, machine: u64) {
    if bytes > machine {
        let machine = machine / MIB;
        doc.refuse(value.refuse(format!(
            "must not be more than the memory of this machine, which is {machine} MB"
        )));
    }
}
