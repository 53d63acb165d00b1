//! Requests of clients since the start, by protocol, call and consistency level.

use super::{ServiceError, SlowRequest, SlowRequests};
use crate::base::clock::Clock;
use crate::base::operations::{Begun, Operations};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Why a request failed, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// It makes no sense.
    Invalid,
    /// There is nothing of the name that was asked for.
    NotFound,
    /// Too few replicas are alive.
    Unavailable,
    /// Too few replicas answered in time.
    TimedOut,
    /// It takes more memory than it may, or than is free.
    TooLarge,
    /// The client may not do this.
    Denied,
    /// Something of ours failed.
    Internal,
    /// The client left before the answer, or the answer panicked.
    Abandoned,
}

impl Failure {
    /// All of them with their names in metrics.
    const ALL: [(Self, &'static str); 8] = [
        (Self::Invalid, "invalid"),
        (Self::NotFound, "not_found"),
        (Self::Unavailable, "unavailable"),
        (Self::TimedOut, "timed_out"),
        (Self::TooLarge, "too_large"),
        (Self::Denied, "denied"),
        (Self::Internal, "internal"),
        (Self::Abandoned, "abandoned"),
    ];
}

impl From<&ServiceError> for Failure {
    fn from(error: &ServiceError) -> Self {
        match error {
            ServiceError::Invalid(_) => Self::Invalid,
            ServiceError::TooLarge(_) => Self::TooLarge,
            ServiceError::NotFound => Self::NotFound,
            ServiceError::Unavailable(_) => Self::Unavailable,
            ServiceError::TimedOut(_) => Self::TimedOut,
            ServiceError::Refused(_)
            | ServiceError::Unauthenticated(_)
            | ServiceError::Unauthorized(_) => Self::Denied,
            ServiceError::Internal(_) => Self::Internal,
        }
    }
}

/// Requests of all protocols.
#[derive(Debug)]
pub struct Requests {
    protocols: boxcar::Vec<Arc<ProtocolRequests>>,
    slow: Arc<SlowRequests>,
    clock: Arc<dyn Clock>,
}

/// Requests of one protocol.
#[derive(Debug)]
pub struct ProtocolRequests {
    names: ProtocolNames,
    /// By call and level. Most pairs are never used.
    counters: Box<[OnceLock<Box<Counters>>]>,
    slow: Arc<SlowRequests>,
    clock: Arc<dyn Clock>,
}

/// Names for metrics. A front end knows calls and levels by their places here.
#[derive(Debug, Clone)]
pub struct ProtocolNames {
    /// The protocol.
    pub protocol: &'static str,
    /// Its calls.
    pub calls: Vec<&'static str>,
    /// Its consistency levels; the last is for calls without one.
    pub levels: Vec<&'static str>,
}

/// Requests of one call at one level.
#[derive(Debug, Default)]
struct Counters {
    operations: Operations,
    failures: [AtomicU64; Failure::ALL.len()],
}

/// Requests of one call at one level, for metrics.
#[derive(Debug)]
pub struct CallRequests<'a> {
    /// The protocol.
    pub protocol: &'static str,
    /// The call.
    pub call: &'static str,
    /// The consistency level; empty without one.
    pub level: &'static str,
    /// Number and latencies, those that failed included.
    pub operations: &'a Operations,
    /// Failures by the names of their reasons, those that never came up included: the first
    /// one is not to be missed.
    pub failures: Vec<(&'static str, u64)>,
}

impl Requests {
    /// No protocol yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let slow = Arc::new(SlowRequests::new(Arc::clone(&clock)));
        Self { protocols: boxcar::Vec::new(), slow, clock }
    }

    /// Requests that took long.
    pub fn slow(&self) -> &SlowRequests {
        &self.slow
    }

    /// The requests of a protocol. Ports of the same one share them; they are added one at a time.
    pub fn of(&self, names: ProtocolNames) -> Arc<ProtocolRequests> {
        let mut known = self.protocols.iter().map(|(_, it)| it);
        if let Some(known) = known.find(|it| it.names.protocol == names.protocol) {
            return Arc::clone(known);
        }
        let places = names.calls.len() * names.levels.len();
        let counters = (0..places).map(|_| OnceLock::new()).collect();
        let (slow, clock) = (Arc::clone(&self.slow), Arc::clone(&self.clock));
        let requests = Arc::new(ProtocolRequests { names, counters, slow, clock });
        self.protocols.push(Arc::clone(&requests));
        requests
    }

    /// Requests since the start, by call and level.
    pub fn calls(&self) -> impl Iterator<Item = CallRequests<'_>> {
        self.protocols.iter().flat_map(|(_, protocol)| protocol.calls())
    }
}

impl ProtocolRequests {
    /// Begins a request: the places of its call and its level.
    pub fn begin(&self, call: usize, level: Option<usize>) -> Request<'_> {
        let levels = self.names.levels.len();
        let level = level.unwrap_or(levels - 1);
        let counters = self.counters[call * levels + level].get_or_init(Box::default);
        let clock = &*self.clock;
        let begun = counters.operations.begin(clock);
        let failure = Some(Failure::Abandoned);
        let begun_millis = clock.coarse_millis();
        Request { protocol: self, call, level, counters, begun, begun_millis, failure }
    }

    fn calls(&self) -> impl Iterator<Item = CallRequests<'_>> {
        let ProtocolNames { protocol, calls, levels } = &self.names;
        let names = calls.iter().flat_map(|call| levels.iter().map(move |level| (call, level)));
        names.zip(&self.counters).filter_map(|((call, level), counters)| {
            let Counters { operations, failures } = &**counters.get()?;
            let names = Failure::ALL.into_iter().map(|(_, name)| name);
            let counts = failures.iter().map(|count| count.load(Ordering::Relaxed));
            let failures = names.zip(counts).collect();
            Some(CallRequests { protocol, call, level, operations, failures })
        })
    }
}

/// A request under way. It is counted when this is dropped.
#[derive(Debug)]
#[must_use = "a request is counted when it ends"]
pub struct Request<'a> {
    protocol: &'a ProtocolRequests,
    call: usize,
    level: usize,
    counters: &'a Counters,
    begun: Begun,
    /// Most requests are not timed more exactly.
    begun_millis: u64,
    failure: Option<Failure>,
}

impl Request<'_> {
    /// Ends a request of a client with its answer. `subject` is called if it took long.
    pub fn end<T, E>(
        mut self,
        answer: Result<T, E>,
        client: IpAddr,
        subject: impl FnOnce() -> String,
    ) -> Result<T, E>
    where
        for<'e> Failure: From<&'e E>,
    {
        self.note(&answer);
        let took_millis = self.protocol.clock.coarse_millis().saturating_sub(self.begun_millis);
        if self.protocol.slow.is_slow(took_millis) {
            self.keep(took_millis, client, subject());
        }
        answer
    }

    /// Ends a request that reads no data, and is not kept however long it took.
    pub fn count<T, E>(mut self, answer: Result<T, E>) -> Result<T, E>
    where
        for<'e> Failure: From<&'e E>,
    {
        self.note(&answer);
        answer
    }

    fn note<T, E>(&mut self, answer: &Result<T, E>)
    where
        for<'e> Failure: From<&'e E>,
    {
        self.failure = answer.as_ref().err().map(Failure::from);
    }

    #[cold]
    fn keep(&self, took_millis: u64, client: IpAddr, subject: String) {
        let ProtocolNames { protocol, calls, levels } = &self.protocol.names;
        let failure = self.failure.map(|failure| Failure::ALL[failure as usize].1.to_owned());
        self.protocol.slow.keep(SlowRequest {
            ended_millis: self.begun_millis + took_millis,
            took_millis,
            client,
            protocol: (*protocol).to_owned(),
            call: calls[self.call].to_owned(),
            level: levels[self.level].to_owned(),
            subject,
            failure,
        });
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        let Counters { operations, failures } = self.counters;
        operations.end(1, self.begun, &*self.protocol.clock);
        if let Some(failure) = self.failure {
            failures[failure as usize].fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::clock::ManualClock;
    use crate::service::ReplicaCounts;
    use std::time::Duration;

    fn failures(call: &CallRequests<'_>) -> Vec<(&'static str, u64)> {
        call.failures.iter().copied().filter(|(_, count)| *count > 0).collect()
    }

    fn end(request: Request<'_>, answer: Result<(), ServiceError>) -> Result<(), ServiceError> {
        request.end(answer, IpAddr::from([10, 0, 0, 1]), || "Blog.Authors\n'ann'".to_owned())
    }

    #[test]
    fn requests_that_took_long_are_kept_with_what_they_are_about() {
        let clock = Arc::new(ManualClock::default());
        let requests = Requests::new(Arc::clone(&clock) as _);
        let port = requests.of(ProtocolNames {
            protocol: "thrift",
            calls: vec!["get"],
            levels: vec!["ONE", ""],
        });
        let took = |millis, answer| {
            let request = port.begin(0, Some(0));
            clock.advance(Duration::from_millis(millis));
            let _ = end(request, answer);
        };
        took(1000, Ok(()));
        assert_eq!((requests.slow().threshold(), requests.slow().recent()), (None, vec![]));
        requests.slow().set_threshold(Some(Duration::from_millis(100)));
        took(99, Ok(()));
        took(100, Ok(()));
        took(2000, Err(ServiceError::TimedOut(ReplicaCounts::NONE)));
        let kept = requests.slow().recent();
        let told: Vec<_> = kept.iter().map(|it| (it.took_millis, it.failure.as_deref())).collect();
        assert_eq!(told, [(2000, Some("timed_out")), (100, None)]);
        assert_eq!((&*kept[0].call, &*kept[0].level), ("get", "ONE"));
        assert_eq!(kept[0].subject, "Blog.Authors 'ann'");
        for _ in 0..300 {
            took(100, Ok(()));
        }
        assert_eq!(requests.slow().recent().len(), 200);
    }

    #[test]
    fn requests_are_counted_by_call_level_and_outcome() {
        let clock = Arc::new(ManualClock::default());
        let requests = Requests::new(Arc::clone(&clock) as _);
        let names = |protocol| ProtocolNames {
            protocol,
            calls: vec!["get", "insert"],
            levels: vec!["ONE", ""],
        };
        let [port, same] = [requests.of(names("thrift")), requests.of(names("thrift"))];
        let _other = requests.of(names("cql"));
        for answer in [
            Ok(()),
            Err(ServiceError::TimedOut(ReplicaCounts::NONE)),
            Err(ServiceError::TimedOut(ReplicaCounts::NONE)),
        ] {
            let request = port.begin(0, Some(0));
            clock.advance(Duration::from_micros(3));
            let _ = end(request, answer);
        }
        let _ = end(same.begin(1, None), Err(ServiceError::NotFound));
        drop(same.begin(1, None));
        let calls: Vec<_> = requests.calls().collect();
        assert_eq!(calls.len(), 2);
        let [gets, inserts] = [&calls[0], &calls[1]];
        assert_eq!((gets.protocol, gets.call, gets.level), ("thrift", "get", "ONE"));
        assert_eq!(gets.operations.totals().count, 3);
        assert_eq!(gets.operations.totals().mean(), Some(Duration::from_micros(3)));
        assert_eq!(failures(gets), [("timed_out", 2)]);
        assert_eq!((inserts.call, inserts.level), ("insert", ""));
        assert_eq!(failures(inserts), [("not_found", 1), ("abandoned", 1)]);
    }

    #[test]
    fn the_names_of_failures_are_in_their_places() {
        for (place, (failure, _)) in Failure::ALL.into_iter().enumerate() {
            assert_eq!(failure as usize, place);
        }
    }
}
