//! The contract with clients: a function for each method checks its arguments, translates them to
//! the model, calls the service, and writes what it returns.
//!
//! ```text
//!   reads, writes   data
//!     paths         where a request points; levels
//!     batch         the elements of a batch
//!     subject       what a slow call was about
//!     answers       what was found, written as the structs of the wire
//!   describe        properties, keyspaces, ring
//! ```

mod answers;
mod batch;
mod describe;
mod paths;
mod reads;
mod subject;
#[cfg(test)]
mod tests;
mod writes;

use super::codec::WireType;
use super::idl::{
    BatchInsertArgs, BatchMutateArgs, Call, Cassandra, ColumnOrSuperColumn, ConsistencyLevel,
    DescribeClusterNameArgs, DescribeKeyspaceArgs, DescribeKeyspacesArgs, DescribePartitionerArgs,
    DescribeRingArgs, DescribeSplitsArgs, DescribeVersionArgs, GetArgs, GetCountArgs,
    GetKeyRangeArgs, GetRangeSliceArgs, GetRangeSlicesArgs, GetSliceArgs,
    GetStringListPropertyArgs, GetStringPropertyArgs, InsertArgs, KeySlice, LoginArgs, METHODS,
    MultigetArgs, MultigetSliceArgs, RemoveArgs, TokenRange, VERSION,
};
use super::{Encode, List, Map, Set, Text};
use crate::base::context::RequestContext;
use crate::config::settings::Release;
use crate::service::{Access, ProtocolNames, ProtocolRequests, Service, ServiceError, Session};
use std::pin::pin;
use std::sync::Arc;
use subject::Subject;

/// Answers the calls of clients of a generation.
#[derive(Debug)]
pub struct Calls {
    service: Arc<Service>,
    version: Release,
    requests: Arc<ProtocolRequests>,
}

impl Calls {
    /// Calls that a service serves, answered as clients of this generation expect.
    pub fn new(service: Arc<Service>, version: Release) -> Self {
        let levels = ConsistencyLevel::SCHEMA.values.iter().map(|(name, _)| *name);
        let requests = service.requests(ProtocolNames {
            protocol: "thrift",
            calls: METHODS.iter().map(|method| method.name).collect(),
            levels: levels.chain([""]).collect(),
        });
        Self { service, version, requests }
    }
}

/// An answer with its memory, which is held until it is written.
struct Held<E> {
    answer: E,
    _context: RequestContext,
}

impl<R: WireType, E: Encode<R>> Encode<R> for Held<E> {
    fn encode(self, out: &mut Vec<u8>) {
        self.answer.encode(out);
    }
}

/// The methods with the functions that answer them. Reads, writes, and others for users need a
/// login where logins are needed, reads and writes the right to do so in their keyspace, and the
/// others the right to read all of them; a read ends when the time for a request is over. Open ones
/// cannot fail.
macro_rules! methods {
    ($($kind:ident $method:ident($args:ident) -> $result:ty = $function:expr;)*) => { $(
        async fn $method(
            &self,
            session: &Session,
            args: &$args<'_>,
        ) -> Result<impl Encode<$result>, ServiceError> {
            answer!($kind $method self session args $function)
        }
    )* };
}

macro_rules! answer {
    (read $method:ident $calls:ident $session:ident $args:ident $function:expr) => {
        answer!(counted $method $calls $session $args async {
            $calls.service.check_access($session, &$args.keyspace, Access::Read)?;
            let mut context = $calls.service.request();
            let answer = {
                // Pinned here: moving a future copies room for all its states.
                let read = pin!(($function)($calls, $args, &mut context));
                $calls.service.in_time(read).await?
            };
            Ok::<_, ServiceError>(Held { answer, _context: context })
        })
    };
    (write $method:ident $calls:ident $session:ident $args:ident $function:expr) => {
        answer!(counted $method $calls $session $args async {
            $calls.service.check_access($session, &$args.keyspace, Access::Write)?;
            ($function)($calls, $args).await
        })
    };
    (counted $method:ident $calls:ident $session:ident $args:ident $answer:expr) => {{
        let level = $args.consistency_level as usize;
        let request = $calls.requests.begin(Call::$method as usize, Some(level));
        let answer = pin!($answer);
        request.end(answer.await, $session.client(), || $args.subject())
    }};
    (user $method:ident $calls:ident $session:ident $args:ident $function:expr) => {
        answer!(told $method $calls $session async {
            $calls.service.check_reads_all($session)?;
            ($function)($calls, $args).await
        })
    };
    (open $method:ident $calls:ident $session:ident $args:ident $function:expr) => {
        answer!(checked $method $calls $session $args |calls, args| {
            Ok::<_, ServiceError>(($function)(calls, args))
        })
    };
    (checked $method:ident $calls:ident $session:ident $args:ident $function:expr) => {
        answer!(told $method $calls $session async { ($function)($calls, $args) })
    };
    (told $method:ident $calls:ident $session:ident $answer:expr) => {{
        let _ = $session;
        let request = $calls.requests.begin(Call::$method as usize, None);
        request.count($answer.await)
    }};
}

impl Cassandra for Calls {
    type Session = Session;

    async fn login(
        &self,
        session: &Session,
        args: &LoginArgs<'_>,
    ) -> Result<impl Encode<()>, ServiceError> {
        let LoginArgs { keyspace, auth_request } = args;
        let credentials = auth_request.credentials.iter();
        let credentials = credentials.map(|(key, value)| (key.to_string(), value.to_string()));
        let login = self.service.login(session, keyspace, credentials.collect());
        answer!(told login self session login)
    }

    methods! {
        read get(GetArgs) -> ColumnOrSuperColumn<'static> = reads::get;
        read get_slice(GetSliceArgs) -> List<ColumnOrSuperColumn<'static>> = reads::get_slice;
        read multiget(MultigetArgs)
            -> Map<Text<'static>, ColumnOrSuperColumn<'static>> = reads::multiget;
        read multiget_slice(MultigetSliceArgs)
            -> Map<Text<'static>, List<ColumnOrSuperColumn<'static>>> = reads::multiget_slice;
        read get_count(GetCountArgs) -> i32 = reads::get_count;
        read get_key_range(GetKeyRangeArgs) -> List<Text<'static>> = reads::get_key_range;
        read get_range_slice(GetRangeSliceArgs)
            -> List<KeySlice<'static>> = reads::get_range_slice;
        read get_range_slices(GetRangeSlicesArgs)
            -> List<KeySlice<'static>> = reads::get_range_slices;

        write insert(InsertArgs) -> () = writes::insert;
        write batch_insert(BatchInsertArgs) -> () = writes::batch_insert;
        write remove(RemoveArgs) -> () = writes::remove;
        write batch_mutate(BatchMutateArgs) -> () = writes::batch_mutate;
        // The tokens of an order-preserving partitioner are row keys.
        user describe_splits(DescribeSplitsArgs)
            -> List<Text<'static>> = describe::describe_splits;

        open get_string_property(GetStringPropertyArgs)
            -> Text<'static> = describe::get_string_property;
        open get_string_list_property(GetStringListPropertyArgs)
            -> List<Text<'static>> = describe::get_string_list_property;
        open describe_keyspaces(DescribeKeyspacesArgs)
            -> Set<Text<'static>> = describe::describe_keyspaces;
        open describe_cluster_name(DescribeClusterNameArgs)
            -> Text<'static> = |calls: &Self, _| calls.service.cluster_name().to_owned();
        // A client that asks is of 0.6, with which this call came.
        open describe_version(DescribeVersionArgs) -> Text<'static> = |_, _| VERSION;
        open describe_partitioner(DescribePartitionerArgs)
            -> Text<'static> = |calls: &Self, _| calls.service.partitioner();
        checked describe_ring(DescribeRingArgs)
            -> List<TokenRange<'static>> = describe::describe_ring;
        checked describe_keyspace(DescribeKeyspaceArgs)
            -> Map<Text<'static>, Map<Text<'static>, Text<'static>>> = describe::describe_keyspace;
    }
}
