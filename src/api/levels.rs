//! Consistency levels as clients may use them.

use super::invalid_request::InvalidRequest;
use crate::coordinator::ConsistencyLevel;
use crate::thrift::idl::ConsistencyLevel as WireLevel;

/// The level of a write; all are allowed.
pub(super) fn write_level(level: WireLevel) -> ConsistencyLevel {
    match level {
        WireLevel::Zero => ConsistencyLevel::Zero,
        WireLevel::One => ConsistencyLevel::One,
        WireLevel::Quorum => ConsistencyLevel::Quorum,
        WireLevel::DcQuorum => ConsistencyLevel::DcQuorum,
        WireLevel::DcQuorumSync => ConsistencyLevel::DcQuorumSync,
        WireLevel::All => ConsistencyLevel::All,
        WireLevel::Any => ConsistencyLevel::Any,
    }
}

/// The level of a read by key.
pub(super) fn read_level(level: WireLevel) -> Result<ConsistencyLevel, InvalidRequest> {
    match write_level(level) {
        ConsistencyLevel::Zero => Err(InvalidRequest::ReadAtZero),
        ConsistencyLevel::Any => Err(InvalidRequest::ReadAtAny),
        level => Ok(level),
    }
}

/// The level of a read by range. The original does not check it: `ANY` is as `ONE` there, and
/// `ZERO` an internal error.
pub(super) fn range_level(level: WireLevel) -> Result<ConsistencyLevel, InvalidRequest> {
    match write_level(level) {
        ConsistencyLevel::Zero => Err(InvalidRequest::ReadAtZero),
        ConsistencyLevel::Any => Ok(ConsistencyLevel::One),
        level => Ok(level),
    }
}
