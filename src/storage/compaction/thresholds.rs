//! `MinCompactionThreshold` and `MaxCompactionThreshold`.

/// Numbers of SSTables of similar size that are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// Least; 0 for never.
    pub min: usize,
    /// Most; 0 for never.
    pub max: usize,
}

/// Reason why thresholds are refused.
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
    /// No machine has that many files.
    #[error("the compaction thresholds cannot be larger than {}", u32::MAX)]
    TooLarge,
}

impl Thresholds {
    /// Checks the request of an operator; a maximum of 0 switches minor compactions off, as in 0.6.
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
    }
}
