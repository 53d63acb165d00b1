//! The methods of the service: each is a function of this layer, called with the arguments as they
//! came, whose result or failure is the reply.

use super::{Api, Session, describe, login, ranges, reads, writes};
use crate::coordinator::CoordinatorError;
use crate::wire::service::{
    BatchInsertArgs, BatchMutateArgs, DescribeClusterNameArgs, DescribeKeyspaceArgs,
    DescribeKeyspacesArgs, DescribePartitionerArgs, DescribeRingArgs, DescribeSplitsArgs,
    DescribeVersionArgs, GetArgs, GetCountArgs, GetKeyRangeArgs, GetRangeSliceArgs,
    GetRangeSlicesArgs, GetSliceArgs, GetStringListPropertyArgs, GetStringPropertyArgs, InsertArgs,
    LoginArgs, MultigetArgs, MultigetSliceArgs, RemoveArgs,
};
use crate::wire::types::{ColumnOrSuperColumn, KeySlice, TokenRange};
use crate::wire::{Cassandra, Failure, List, Map, Replied, Reply, Set, Text};

/// Methods that read data: the connection has to be logged in, where logins are needed. All that
/// they do ends when the time for a request is over. The answer has its memory until it is
/// written.
macro_rules! read_methods {
    ($($method:ident($args:ident) -> $result:ty = $function:path;)*) => { $(
        async fn $method<'a>(
            &'a self,
            session: &'a mut Session,
            args: $args<'a>,
            reply: Reply<'a, $result>,
        ) -> Replied {
            if let Err(failure) = session.check(self) {
                return reply.fail(failure);
            }
            let mut context = self.coordinator.request();
            match self.coordinator.in_time($function(self, args, &mut context)).await {
                Ok(result) => reply.ok(result),
                Err(failure) => reply.fail(failure),
            }
        }
    )* };
}

/// Methods that write data, which need a login as well.
macro_rules! write_methods {
    ($($method:ident($args:ident) -> $result:ty = $function:path;)*) => { $(
        async fn $method<'a>(
            &'a self,
            session: &'a mut Session,
            args: $args<'a>,
            reply: Reply<'a, $result>,
        ) -> Replied {
            if let Err(failure) = session.check(self) {
                return reply.fail(failure);
            }
            match $function(self, args).await {
                Ok(result) => reply.ok(result),
                Err(failure) => reply.fail(failure),
            }
        }
    )* };
}

/// Methods that tell of the cluster and cannot fail: open to all, and answered on the spot.
macro_rules! open_methods {
    ($($method:ident($args:ident) -> $result:ty = $function:path;)*) => { $(
        async fn $method<'a>(
            &'a self,
            _session: &'a mut Session,
            args: $args<'a>,
            reply: Reply<'a, $result>,
        ) -> Replied {
            reply.ok($function(self, &args))
        }
    )* };
}

/// The same for methods that can fail.
macro_rules! checked_open_methods {
    ($($method:ident($args:ident) -> $result:ty = $function:path;)*) => { $(
        async fn $method<'a>(
            &'a self,
            _session: &'a mut Session,
            args: $args<'a>,
            reply: Reply<'a, $result>,
        ) -> Replied {
            match $function(self, &args) {
                Ok(result) => reply.ok(result),
                Err(failure) => reply.fail(failure),
            }
        }
    )* };
}

impl Cassandra for Api {
    type Session = Session;

    async fn login<'a>(
        &'a self,
        session: &'a mut Session,
        args: LoginArgs<'a>,
        reply: Reply<'a, ()>,
    ) -> Replied {
        match login::login(self, session, args).await {
            Ok(()) => reply.ok(()),
            Err(failure) => reply.fail(failure),
        }
    }

    read_methods! {
        get(GetArgs) -> ColumnOrSuperColumn<'static> = reads::get;
        get_slice(GetSliceArgs) -> List<ColumnOrSuperColumn<'static>> = reads::get_slice;
        multiget(MultigetArgs)
            -> Map<Text<'static>, ColumnOrSuperColumn<'static>> = reads::multiget;
        multiget_slice(MultigetSliceArgs)
            -> Map<Text<'static>, List<ColumnOrSuperColumn<'static>>> = reads::multiget_slice;
        get_count(GetCountArgs) -> i32 = reads::get_count;
        get_key_range(GetKeyRangeArgs) -> List<Text<'static>> = ranges::get_key_range;
        get_range_slice(GetRangeSliceArgs) -> List<KeySlice<'static>> = ranges::get_range_slice;
        get_range_slices(GetRangeSlicesArgs)
            -> List<KeySlice<'static>> = ranges::get_range_slices;
    }

    write_methods! {
        insert(InsertArgs) -> () = writes::insert;
        batch_insert(BatchInsertArgs) -> () = writes::batch_insert;
        remove(RemoveArgs) -> () = writes::remove;
        batch_mutate(BatchMutateArgs) -> () = writes::batch_mutate;
    }

    open_methods! {
        get_string_property(GetStringPropertyArgs)
            -> Text<'static> = describe::get_string_property;
        get_string_list_property(GetStringListPropertyArgs)
            -> List<Text<'static>> = describe::get_string_list_property;
        describe_keyspaces(DescribeKeyspacesArgs)
            -> Set<Text<'static>> = describe::describe_keyspaces;
        describe_cluster_name(DescribeClusterNameArgs)
            -> Text<'static> = describe::describe_cluster_name;
        describe_version(DescribeVersionArgs) -> Text<'static> = describe::describe_version;
        describe_partitioner(DescribePartitionerArgs)
            -> Text<'static> = describe::describe_partitioner;
    }

    checked_open_methods! {
        describe_ring(DescribeRingArgs)
            -> List<TokenRange<'static>> = describe::describe_ring;
        describe_keyspace(DescribeKeyspaceArgs)
            -> Map<Text<'static>, Map<Text<'static>, Text<'static>>> = describe::describe_keyspace;
    }

    async fn describe_splits<'a>(
        &'a self,
        session: &'a mut Session,
        args: DescribeSplitsArgs<'a>,
        reply: Reply<'a, List<Text<'static>>>,
    ) -> Replied {
        // The tokens of an order-preserving partitioner are row keys.
        if let Err(failure) = session.check(self) {
            return reply.fail(failure);
        }
        match describe::describe_splits(self, args).await {
            Ok(tokens) => reply.ok(tokens),
            Err(failure) => reply.fail(failure),
        }
    }
}

impl From<CoordinatorError> for Failure {
    fn from(error: CoordinatorError) -> Self {
        match error {
            CoordinatorError::Unavailable => Self::Unavailable,
            CoordinatorError::TimedOut => Self::TimedOut,
            CoordinatorError::TooLarge(why) | CoordinatorError::Unsendable(why) => {
                Self::InvalidRequest(why)
            }
            CoordinatorError::Failed(error) => Self::Internal(error.to_string()),
        }
    }
}
