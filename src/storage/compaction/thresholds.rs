//! `MinCompactionThreshold` and `MaxCompactionThreshold`, which may change while the node runs.

use std::sync::atomic::{AtomicU64, Ordering};

/// When SSTables of similar size are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// From so many on; 0 for never.
    pub min: usize,
    /// At most so many at once; 0 for never.
    pub max: usize,
}

/// Why thresholds are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ThresholdError {
    /// One SSTable cannot be merged.
    #[error(
        "the compaction thresholds have to be at least 2, or the maximum 0 for no minor compactions"
    )]
    TooSmall,
    /// Minor compactions would never be large enough.
    #[error("the minimum compaction threshold cannot be larger than the maximum")]
    Reversed,
    /// No machine has so many files.
    #[error("the compaction thresholds cannot be larger than {}", u32::MAX)]
    TooLarge,
}

impl Thresholds {
    /// Checks what an operator asks for; a maximum of 0 switches minor compactions off, as in 0.6.
    pub fn new(min: usize, max: usize) -> Result<Self, ThresholdError> {
        if max == 1 || (min < 2 && max != 0) {
            return Err(ThresholdError::TooSmall);
        }
        if min.max(max) > u32::MAX as usize {
            return Err(ThresholdError::TooLarge);
        }
        if max != 0 && min > max {
            return Err(ThresholdError::Reversed);
        }
        Ok(Self { min, max })
    }

    /// Whether there are minor compactions at all.
    pub fn are_on(self) -> bool {
        self.min > 0 && self.max > 0
    }
}

/// Thresholds that change as one.
#[derive(Debug)]
pub struct AtomicThresholds(AtomicU64);

impl AtomicThresholds {
    /// Begins with these.
    pub fn new(thresholds: Thresholds) -> Self {
        Self(AtomicU64::new(pack(thresholds)))
    }

    /// The present ones.
    pub fn get(&self) -> Thresholds {
        let packed = self.0.load(Ordering::Relaxed);
        Thresholds { min: (packed >> 32) as usize, max: packed as u32 as usize }
    }

    /// Replaces them.
    pub fn set(&self, thresholds: Thresholds) {
        self.0.store(pack(thresholds), Ordering::Relaxed);
    }
}

fn pack(Thresholds { min, max }: Thresholds) -> u64 {
    let half = |number: usize| u64::from(u32::try_from(number).unwrap_or(u32::MAX));
    half(min) << 32 | half(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_that_make_no_sense_are_refused() {
        assert_eq!(Thresholds::new(0, 32), Err(ThresholdError::TooSmall));
        assert_eq!(Thresholds::new(1, 32), Err(ThresholdError::TooSmall));
        assert_eq!(Thresholds::new(0, 1), Err(ThresholdError::TooSmall));
        assert_eq!(Thresholds::new(5, 4), Err(ThresholdError::Reversed));
        assert_eq!(Thresholds::new(1 << 40, 0), Err(ThresholdError::TooLarge));
        assert!(!Thresholds::new(0, 0).unwrap().are_on());
        assert!(!Thresholds::new(4, 0).unwrap().are_on());
        let atomic = AtomicThresholds::new(Thresholds::new(4, 32).unwrap());
        assert_eq!(atomic.get(), Thresholds { min: 4, max: 32 });
        atomic.set(Thresholds { min: 2, max: usize::MAX });
        assert_eq!(atomic.get(), Thresholds { min: 2, max: u32::MAX as usize });
    }
}
