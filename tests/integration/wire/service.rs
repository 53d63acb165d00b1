//! A service whose answers the tests know.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use alexandra::wire::service::*;
use alexandra::wire::types::*;
use alexandra::wire::{Cassandra, Each, Failure, List, Map, Replied, Reply, Set, Text};
use tokio::sync::Semaphore;

/// Answers by what the key of a call says.
#[derive(Debug)]
pub(crate) struct Scripted {
    /// Calls of `insert` and `get` with the key `wait` take one of these.
    pub(crate) gate: Semaphore,
    /// One more for each call that came to the gate.
    pub(crate) waiting: Semaphore,
    /// Calls of `insert` with a key that begins with `stand still` hold up their thread until they
    /// get it.
    pub(crate) stop_sign: Mutex<()>,
    /// One more for each call that passed the gate.
    pub(crate) passed: Semaphore,
    /// One more for each call that was dropped at the gate.
    pub(crate) dropped: Semaphore,
    /// Calls of `insert`.
    pub(crate) inserts: AtomicUsize,
    /// Mutations of all batches.
    pub(crate) mutations: AtomicUsize,
}

impl Default for Scripted {
    fn default() -> Self {
        let [gate, waiting, passed, dropped] = [(); 4].map(|()| Semaphore::new(0));
        let [inserts, mutations] = [(); 2].map(|()| AtomicUsize::new(0));
        let stop_sign = Mutex::default();
        Self { gate, waiting, stop_sign, passed, dropped, inserts, mutations }
    }
}

/// Remembers how many writes its connection did.
#[derive(Debug, Default)]
pub(crate) struct Session {
    writes: i32,
}

impl From<SocketAddr> for Session {
    fn from(_client: SocketAddr) -> Self {
        Self::default()
    }
}

fn failure_of(key: &str) -> Option<Failure> {
    Some(match key {
        "invalid" => Failure::InvalidRequest("because".into()),
        "not found" => Failure::NotFound,
        "unavailable" => Failure::Unavailable,
        "timed out" => Failure::TimedOut,
        "authentication" => Failure::Authentication("who?".into()),
        "authorization" => Failure::Authorization("no".into()),
        "internal" => Failure::Internal("a secret".into()),
        "disk full" => Failure::Internal("the disk is full".into()),
        _ => return None,
    })
}

impl Scripted {
    /// Waits at the gate.
    async fn wait(&self) {
        let mut waiting = Waiting { service: self, has_passed: false };
        self.waiting.add_permits(1);
        self.gate.acquire().await.expect("never closed").forget();
        waiting.has_passed = true;
    }
}

/// A call at the gate.
struct Waiting<'a> {
    service: &'a Scripted,
    has_passed: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Scripted { passed, dropped, .. } = self.service;
        if self.has_passed { passed } else { dropped }.add_permits(1);
    }
}

macro_rules! answer {
    ($($method:ident($args:ident) -> $result:ty = |$reply:ident, $a:ident| $answer:expr;)*) => { $(
        async fn $method<'a>(
            &'a self,
            _session: &'a mut Session,
            $a: $args<'a>,
            $reply: Reply<'a, $result>,
        ) -> Replied {
            $answer
        }
    )* };
}

fn standard<'a>(name: &'a [u8], value: &'a [u8]) -> ColumnOrSuperColumn<'a> {
    Column { name, value, timestamp: 1 }.into()
}

impl Cassandra for Scripted {
    type Session = Session;

    async fn insert<'a>(
        &'a self,
        session: &'a mut Session,
        args: InsertArgs<'a>,
        reply: Reply<'a, ()>,
    ) -> Replied {
        session.writes += 1;
        self.inserts.fetch_add(1, Ordering::SeqCst);
        match &*args.key {
            "panic" => panic!("as the test wants"),
            "late panic" => {
                tokio::task::yield_now().await;
                panic!("as the test wants, later")
            }
            key if key.starts_with("stand still") => {
                drop(self.stop_sign.lock().expect("no test panics with the lock"));
            }
            "wait" => self.wait().await,
            _ => {}
        }
        match failure_of(&args.key) {
            Some(failure) => reply.fail(failure),
            None => reply.ok(()),
        }
    }

    async fn get<'a>(
        &'a self,
        _session: &'a mut Session,
        args: GetArgs<'a>,
        reply: Reply<'a, ColumnOrSuperColumn<'static>>,
    ) -> Replied {
        if args.key == "wait" {
            self.wait().await;
        }
        match failure_of(&args.key) {
            Some(failure) => reply.fail(failure),
            None => reply.ok(standard(args.column_path.column.unwrap_or(b""), args.key.as_bytes())),
        }
    }

    async fn batch_mutate<'a>(
        &'a self,
        session: &'a mut Session,
        args: BatchMutateArgs<'a>,
        reply: Reply<'a, ()>,
    ) -> Replied {
        session.writes += 1;
        let mutations = args.mutation_map.iter().flat_map(|(_, row)| row).map(|(_, m)| m.len());
        self.mutations.fetch_add(mutations.sum(), Ordering::SeqCst);
        reply.ok(())
    }

    async fn get_count<'a>(
        &'a self,
        session: &'a mut Session,
        _args: GetCountArgs<'a>,
        reply: Reply<'a, i32>,
    ) -> Replied {
        reply.ok(session.writes)
    }

    answer! {
        login(LoginArgs) -> () = |reply, args| match failure_of(&args.keyspace) {
            Some(failure) => reply.fail(failure),
            None => reply.ok(()),
        };
        get_slice(GetSliceArgs) -> List<ColumnOrSuperColumn<'static>> = |reply, args| {
            if let Some(failure) = failure_of(&args.key) {
                return reply.fail(failure);
            }
            let count = args.predicate.slice_range.map_or(0, |range| range.count as usize);
            reply.ok(Each(std::iter::repeat_n(standard(b"name", &[b'v'; 1000]), count)))
        };
        multiget(MultigetArgs) -> Map<Text<'static>, ColumnOrSuperColumn<'static>> =
            |reply, args| {
                reply.ok(Each(args.keys.iter().map(|key| (key, standard(b"", key.as_bytes())))))
            };
        multiget_slice(MultigetSliceArgs)
            -> Map<Text<'static>, List<ColumnOrSuperColumn<'static>>> = |reply, args| {
                reply.ok(Each(args.keys.iter().map(|key| (key, Each([standard(b"", b"")])))))
            };
        get_key_range(GetKeyRangeArgs) -> List<Text<'static>> =
            |reply, args| reply.ok(Each([&args.start, &args.finish]));
        get_range_slice(GetRangeSliceArgs) -> List<KeySlice<'static>> = |reply, args| {
            reply.ok(Each([KeySlice { key: args.start_key, columns: vec![standard(b"", b"")] }]))
        };
        get_range_slices(GetRangeSlicesArgs) -> List<KeySlice<'static>> = |reply, args| {
            let members = [Column { name: b"member", value: b"", timestamp: 2 }];
            let group = SuperColumn::fields(b"group".as_slice(), members.as_slice());
            let columns = [ColumnOrSuperColumn::fields(None::<&Column<'_>>, Some(group))];
            let key = args.range.start_key.unwrap_or_default();
            reply.ok(Each([KeySlice::fields(&key, Each(columns))]))
        };
        batch_insert(BatchInsertArgs) -> () = |reply, _args| reply.ok(());
        remove(RemoveArgs) -> () = |reply, args| match failure_of(&args.key) {
            Some(failure) => reply.fail(failure),
            None => reply.ok(()),
        };
        get_string_property(GetStringPropertyArgs) -> Text<'static> =
            |reply, args| reply.ok(&args.property);
        get_string_list_property(GetStringListPropertyArgs) -> List<Text<'static>> =
            |reply, args| reply.ok(Each([&args.property]));
        describe_keyspaces(DescribeKeyspacesArgs) -> Set<Text<'static>> =
            |reply, _args| reply.ok(Each(["Keyspace1", "system"]));
        describe_cluster_name(DescribeClusterNameArgs) -> Text<'static> =
            |reply, _args| reply.fail(Failure::Internal("nobody knows".into()));
        describe_version(DescribeVersionArgs) -> Text<'static> =
            |reply, _args| reply.ok(VERSION);
        describe_ring(DescribeRingArgs) -> List<TokenRange<'static>> = |reply, args| {
            let (start_token, end_token) = ("1".into(), args.keyspace);
            let endpoints = vec!["127.0.0.1".into()];
            reply.ok(Each([TokenRange { start_token, end_token, endpoints }]))
        };
        describe_partitioner(DescribePartitionerArgs) -> Text<'static> =
            |reply, _args| reply.ok("partitioner");
        describe_keyspace(DescribeKeyspaceArgs)
            -> Map<Text<'static>, Map<Text<'static>, Text<'static>>> =
            |reply, args| match failure_of(&args.keyspace) {
                Some(failure) => reply.fail(failure),
                None => reply.ok(Each([(&args.keyspace, Each([("Type", "Standard")]))])),
            };
        describe_splits(DescribeSplitsArgs) -> List<Text<'static>> =
            |reply, args| reply.ok(Each([args.start_token, args.end_token].iter()));
    }
}
