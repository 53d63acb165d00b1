//! Connections of clients and their bytes since the start.

use crate::base::striped::Striped;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a server.
#[derive(Debug, Default)]
pub struct Traffic(Striped<Counters>);

#[derive(Debug, Default)]
struct Counters {
    begun: AtomicU64,
    ended: AtomicU64,
    refused: AtomicU64,
    displaced: AtomicU64,
    refused_requests: AtomicU64,
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
}

/// Totals since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TrafficTotals {
    /// Connections that were served.
    pub connections: u64,
    /// Those of them that are open.
    pub open: u64,
    /// Connections for which there was no room.
    pub refused: u64,
    /// Idle connections that made room for others.
    pub displaced: u64,
    /// Requests for which there was no memory.
    pub refused_requests: u64,
    /// Bytes from clients.
    pub received_bytes: u64,
    /// Bytes to clients.
    pub sent_bytes: u64,
}

impl Traffic {
    /// The present totals.
    pub fn totals(&self) -> TrafficTotals {
        let Self(counters) = self;
        // The end of a connection is counted on any thread, so that only the sums can be compared.
        let ended = counters.sum(|it| &it.ended);
        let connections = counters.sum(|it| &it.begun);
        TrafficTotals {
            connections,
            open: connections.saturating_sub(ended),
            refused: counters.sum(|it| &it.refused),
            displaced: counters.sum(|it| &it.displaced),
            refused_requests: counters.sum(|it| &it.refused_requests),
            received_bytes: counters.sum(|it| &it.received_bytes),
            sent_bytes: counters.sum(|it| &it.sent_bytes),
        }
    }

    /// Counts a connection, which is open until this is dropped.
    pub(super) fn begin(&self) -> Open<'_> {
        self.0.own().begun.fetch_add(1, Ordering::Relaxed);
        Open(self)
    }

    pub(super) fn refused(&self) {
        self.0.own().refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn displaced(&self) {
        self.0.own().displaced.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn refused_request(&self) {
        self.0.own().refused_requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn received(&self, bytes: usize) {
        self.0.own().received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn sent(&self, bytes: usize) {
        self.0.own().sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// An open connection.
#[derive(Debug)]
pub(super) struct Open<'a>(&'a Traffic);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.0.own().ended.fetch_add(1, Ordering::Relaxed);
    }
}
