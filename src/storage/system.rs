//! System keyspace.
