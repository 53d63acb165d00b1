//! What the tests of the parts share.

pub(super) mod network;
