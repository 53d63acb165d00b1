//! Lines of the log about who did what: logins, refusals, and acts of operators.

/// Target of these lines, by which `LogLevels` and filters of the log know them.
pub const TARGET: &str = "alexandra::audit";
