//! A service whose answers the tests know.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use alexandra::service::{ReplicaCounts, ServiceError};
use alexandra::thrift::idl::*;
use alexandra::thrift::{Cassandra, Each, Encode, List, Map, Set, Text};
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
    writes: AtomicI32,
}

impl From<SocketAddr> for Session {
    fn from(_client: SocketAddr) -> Self {
        Self::default()
    }
}

fn failure_of(key: &str) -> Option<ServiceError> {
    Some(match key {
        "invalid" => ServiceError::Invalid("because".into()),
        "not found" => ServiceError::NotFound,
        "unavailable" => ServiceError::Unavailable(ReplicaCounts::NONE),
        "timed out" => ServiceError::TimedOut(ReplicaCounts::NONE),
        "authentication" => ServiceError::Unauthenticated("who?".into()),
        "authorization" => ServiceError::Unauthorized("no".into()),
        "internal" => ServiceError::Internal("a secret".into()),
        "disk full" => ServiceError::Internal("the disk is full".into()),
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
    ($($method:ident($args:ident) -> $result:ty = |$a:ident| $answer:expr;)*) => { $(
        async fn $method(
            &self,
            _session: &Session,
            $a: &$args<'_>,
        ) -> Result<impl Encode<$result>, ServiceError> {
            $answer
        }
    )* };
}

/// A column whose value is copied from the call.
struct Copied {
    name: Vec<u8>,
    value: String,
}

impl Encode<ColumnOrSuperColumn<'static>> for Copied {
    fn encode(self, out: &mut Vec<u8>) {
        standard(&self.name, self.value.as_bytes()).encode(out);
    }
}

fn copied(name: &[u8], value: &str) -> Copied {
    Copied { name: name.to_vec(), value: value.to_owned() }
}

fn standard<'a>(name: &'a [u8], value: &'a [u8]) -> ColumnOrSuperColumn<'a> {
    Column { name, value, timestamp: 1 }.into()
}

impl Cassandra for Scripted {
    type Session = Session;

    async fn insert(
        &self,
        session: &Session,
        args: &InsertArgs<'_>,
    ) -> Result<impl Encode<()>, ServiceError> {
        session.writes.fetch_add(1, Ordering::SeqCst);
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
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    async fn get(
        &self,
        _session: &Session,
        args: &GetArgs<'_>,
    ) -> Result<impl Encode<ColumnOrSuperColumn<'static>>, ServiceError> {
        if args.key == "wait" {
            self.wait().await;
        }
        match failure_of(&args.key) {
            Some(failure) => Err(failure),
            None => Ok(copied(args.column_path.column.unwrap_or(b""), &args.key)),
        }
    }

    async fn batch_mutate(
        &self,
        session: &Session,
        args: &BatchMutateArgs<'_>,
    ) -> Result<impl Encode<()>, ServiceError> {
        session.writes.fetch_add(1, Ordering::SeqCst);
        let mutations =
            args.mutation_map.iter().flat_map(|(_, row)| row.iter()).map(|(_, m)| m.len());
        self.mutations.fetch_add(mutations.sum(), Ordering::SeqCst);
        Ok(())
    }

    async fn get_count(
        &self,
        session: &Session,
        _args: &GetCountArgs<'_>,
    ) -> Result<impl Encode<i32>, ServiceError> {
        Ok(session.writes.load(Ordering::SeqCst))
    }

    answer! {
        login(LoginArgs) -> () = |args| match failure_of(&args.keyspace) {
            Some(failure) => Err(failure),
            None => Ok(()),
        };
        get_slice(GetSliceArgs) -> List<ColumnOrSuperColumn<'static>> = |args| {
            if let Some(failure) = failure_of(&args.key) {
                return Err(failure);
            }
            let count = args.predicate.slice_range.as_ref().map_or(0, |range| range.count as usize);
            Ok(Each(std::iter::repeat_n(standard(b"name", &[b'v'; 1000]), count)))
        };
        multiget(MultigetArgs) -> Map<Text<'static>, ColumnOrSuperColumn<'static>> =
            |args| {
                Ok(Each(args.keys.iter().map(|key| (key.to_string(), copied(b"", key)))))
            };
        multiget_slice(MultigetSliceArgs)
            -> Map<Text<'static>, List<ColumnOrSuperColumn<'static>>> = |args| {
                let row = |key: &Text<'_>| (key.to_string(), Each([standard(b"", b"")]));
                Ok(Each(args.keys.iter().map(row)))
            };
        get_key_range(GetKeyRangeArgs) -> List<Text<'static>> =
            |args| Ok(Each([args.start.to_string(), args.finish.to_string()]));
        get_range_slice(GetRangeSliceArgs) -> List<KeySlice<'static>> = |args| {
            Ok(Each([KeySlice { key: args.start_key.clone(), columns: vec![standard(b"", b"")] }]))
        };
        get_range_slices(GetRangeSlicesArgs) -> List<KeySlice<'static>> = |args| {
            let members = [Column { name: b"member", value: b"", timestamp: 2 }];
            let group = SuperColumn { name: b"group", columns: members.to_vec() };
            let key = args.range.start_key.clone().unwrap_or_default();
            Ok(Each([KeySlice { key, columns: vec![group.into()] }]))
        };
        batch_insert(BatchInsertArgs) -> () = |_args| Ok(());
        remove(RemoveArgs) -> () = |args| match failure_of(&args.key) {
            Some(failure) => Err(failure),
            None => Ok(()),
        };
        get_string_property(GetStringPropertyArgs) -> Text<'static> =
            |args| Ok(args.property.to_string());
        get_string_list_property(GetStringListPropertyArgs) -> List<Text<'static>> =
            |args| Ok(Each([args.property.to_string()]));
        describe_keyspaces(DescribeKeyspacesArgs) -> Set<Text<'static>> =
            |_args| Ok(Each(["Keyspace1", "system"]));
        describe_cluster_name(DescribeClusterNameArgs) -> Text<'static> =
            |_args| Err::<&str, _>(ServiceError::Internal("nobody knows".into()));
        describe_version(DescribeVersionArgs) -> Text<'static> =
            |_args| Ok(VERSION);
        describe_ring(DescribeRingArgs) -> List<TokenRange<'static>> = |args| {
            let (start_token, end_token) = ("1".into(), args.keyspace.clone());
            let endpoints = vec!["127.0.0.1".into()];
            Ok(Each([TokenRange { start_token, end_token, endpoints }]))
        };
        describe_partitioner(DescribePartitionerArgs) -> Text<'static> =
            |_args| Ok("partitioner");
        describe_keyspace(DescribeKeyspaceArgs)
            -> Map<Text<'static>, Map<Text<'static>, Text<'static>>> =
            |args| match failure_of(&args.keyspace) {
                Some(failure) => Err(failure),
                None => Ok(Each([(args.keyspace.to_string(), Each([("Type", "Standard")]))])),
            };
        describe_splits(DescribeSplitsArgs) -> List<Text<'static>> =
            |args| Ok(Each([&args.start_token, &args.end_token].map(ToString::to_string)));
    }
}
