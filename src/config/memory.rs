//! How much is kept in memory.

use super::document::{Document, MIB};
use super::error::{ConfigError, Problem};
use super::settings::{MemorySettings, Release};
use std::time::Duration;

/// When memtables are flushed; three names are older than 0.6.
pub(super) fn memtables(doc: &mut Document<'_>) -> Result<MemorySettings, ConfigError> {
    // The million of 0.6 is a binary one.
    const MILLION: f64 = 1_048_576.0;
    let before_06 = doc.release < Release::V06;
    let throughput = match doc.find_renamed("MemtableThroughputInMB", "MemtableSizeInMB") {
        Some(value) => doc.at_least(&value, 1)?,
        None if before_06 => 128,
        None => 64,
    };
    doc.check_integer("BinaryMemtableThroughputInMB")?;
    let renamed = doc.find_renamed("MemtableOperationsInMillions", "MemtableObjectCountInMillions");
    let millions = match renamed {
        Some(value) => match value.double()? {
            millions if millions > 0.0 => millions,
            _ => return Err(value.refuse(Problem::MemtableOperations)),
        },
        None if before_06 => 1.0,
        None => 0.1,
    };
    Ok(MemorySettings {
        budget_bytes: None,
        block_cache_bytes: None,
        memtable_throughput_bytes: u64::from(throughput) * MIB,
        memtable_operations: ((millions * MILLION) as u64).max(1),
        memtable_flush_after: flush_after(doc)?,
    })
}

/// 0.4 counted in days under another name, and waited for six of them.
fn flush_after(doc: &mut Document<'_>) -> Result<Duration, ConfigError> {
    const MINUTE: u64 = 60;
    const DAY: u64 = 24 * 60 * MINUTE;
    if doc.release == Release::V04 {
        let days = doc.find_renamed("MemtableFlushAfterMinutes", "MemtableLifetimeInDays");
        let named_now = |doc: &Document<'_>| {
            let source = doc.sources.get("MemtableFlushAfterMinutes");
            source.is_some_and(|source| source.element == "MemtableFlushAfterMinutes")
        };
        return match days {
            None => Ok(Duration::from_secs(6 * DAY)),
            Some(value) => {
                let unit = if named_now(doc) { MINUTE } else { DAY };
                Ok(Duration::from_secs(u64::from(doc.at_least(&value, 1)?) * unit))
            }
        };
    }
    let minutes = doc.integer("MemtableFlushAfterMinutes", 60, 1)?;
    Ok(Duration::from_secs(u64::from(minutes) * MINUTE))
}

/// `MemoryBudgetInMB` and `BlockCacheInMB`.
pub(super) fn budget(
    doc: &mut Document<'_>,
    memory: &mut MemorySettings,
) -> Result<(), ConfigError> {
    if let Some(value) = doc.find("MemoryBudgetInMB") {
        memory.budget_bytes = Some(u64::from(doc.at_least(&value, 1)?) * MIB);
    }
    if let Some(value) = doc.find("BlockCacheInMB") {
        let cache = u64::from(doc.at_least(&value, 1)?) * MIB;
        if memory.budget_bytes.is_some_and(|budget| cache >= budget) {
            return Err(value.refuse(Problem::OutOfBounds("less than MemoryBudgetInMB")));
        }
        memory.block_cache_bytes = Some(cache);
    }
    Ok(())
}
