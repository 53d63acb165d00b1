//! A server whose service does nothing, for measuring what the border itself costs.
//!
//! `cargo bench --bench wire -- PORT [WORKERS]` serves until its standard input ends. Beside it a
//! null server (a thread per connection that reads and answers without parsing) is the floor.
#![allow(clippy::print_stdout, reason = "a program of its own")]

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use alexandra::base::clock::SystemClock;
use alexandra::config::settings::Release;
use alexandra::server::{Server, ServerOptions, listen};
use alexandra::service::ServiceError;
use alexandra::thrift::codec::WireType;
use alexandra::thrift::idl::{
    BatchInsertArgs, BatchMutateArgs, Column, ColumnOrSuperColumn, DescribeClusterNameArgs,
    DescribeKeyspaceArgs, DescribeKeyspacesArgs, DescribePartitionerArgs, DescribeRingArgs,
    DescribeSplitsArgs, DescribeVersionArgs, GetArgs, GetCountArgs, GetKeyRangeArgs,
    GetRangeSliceArgs, GetRangeSlicesArgs, GetSliceArgs, GetStringListPropertyArgs,
    GetStringPropertyArgs, InsertArgs, KeySlice, LoginArgs, MultigetArgs, MultigetSliceArgs,
    RemoveArgs, TokenRange, VERSION,
};
use alexandra::thrift::{Cassandra, Clients, Each, Encode, List, Map, Set, Text, Thrift};
use tokio_util::sync::CancellationToken;

/// Answers writes and describe calls at once, slices with five columns, and nothing else.
struct Constant;

macro_rules! refuse {
    ($($method:ident($args:ident) -> $result:ty;)*) => { $(
        async fn $method(
            &self,
            _session: &SocketAddr,
            _args: &$args<'_>,
        ) -> Result<impl Encode<$result>, ServiceError> {
            Err::<NoAnswer, _>(ServiceError::NotFound)
        }
    )* };
}

macro_rules! succeed {
    ($($method:ident($args:ident);)*) => { $(
        async fn $method(
            &self,
            _session: &SocketAddr,
            _args: &$args<'_>,
        ) -> Result<impl Encode<()>, ServiceError> {
            Ok(())
        }
    )* };
}

/// Stands for an answer that there is none of.
enum NoAnswer {}

impl<R: WireType> Encode<R> for NoAnswer {
    fn encode(self, _out: &mut Vec<u8>) {
        match self {}
    }
}

impl Cassandra for Constant {
    type Session = SocketAddr;

    async fn describe_version(
        &self,
        _session: &SocketAddr,
        _args: &DescribeVersionArgs<'_>,
    ) -> Result<impl Encode<Text<'static>>, ServiceError> {
        Ok(VERSION)
    }

    async fn get_slice(
        &self,
        _session: &SocketAddr,
        _args: &GetSliceArgs<'_>,
    ) -> Result<impl Encode<List<ColumnOrSuperColumn<'static>>>, ServiceError> {
        let column = Column { name: b"C0", value: &[b'v'; 34], timestamp: 1 };
        let columns = std::iter::repeat_n(column, 5);
        Ok(Each(columns.map(ColumnOrSuperColumn::from)))
    }

    succeed! {
        login(LoginArgs);
        insert(InsertArgs);
        batch_insert(BatchInsertArgs);
        remove(RemoveArgs);
        batch_mutate(BatchMutateArgs);
    }

    refuse! {
        get(GetArgs) -> ColumnOrSuperColumn<'static>;
        multiget(MultigetArgs) -> Map<Text<'static>, ColumnOrSuperColumn<'static>>;
        multiget_slice(MultigetSliceArgs)
            -> Map<Text<'static>, List<ColumnOrSuperColumn<'static>>>;
        get_count(GetCountArgs) -> i32;
        get_key_range(GetKeyRangeArgs) -> List<Text<'static>>;
        get_range_slice(GetRangeSliceArgs) -> List<KeySlice<'static>>;
        get_range_slices(GetRangeSlicesArgs) -> List<KeySlice<'static>>;
        get_string_property(GetStringPropertyArgs) -> Text<'static>;
        get_string_list_property(GetStringListPropertyArgs) -> List<Text<'static>>;
        describe_keyspaces(DescribeKeyspacesArgs) -> Set<Text<'static>>;
        describe_cluster_name(DescribeClusterNameArgs) -> Text<'static>;
        describe_ring(DescribeRingArgs) -> List<TokenRange<'static>>;
        describe_partitioner(DescribePartitionerArgs) -> Text<'static>;
        describe_keyspace(DescribeKeyspaceArgs)
            -> Map<Text<'static>, Map<Text<'static>, Text<'static>>>;
        describe_splits(DescribeSplitsArgs) -> List<Text<'static>>;
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // Cargo appends `--bench`.
    let mut numbers = std::env::args().skip(1).filter_map(|arg| arg.parse::<u16>().ok());
    let Some(port) = numbers.next() else {
        println!("usage: cargo bench --bench wire -- PORT [WORKERS]");
        return Ok(());
    };
    let mut options = ServerOptions::new(Arc::new(SystemClock::new()));
    options.workers = numbers.next().map_or(options.workers, usize::from);
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], port)))?;
        println!("serving on {}", listener.local_addr()?);
        let clients = Clients { version: Release::V06, prefer_framed: false };
        let thrift = Thrift::new(Arc::new(Constant), clients, Arc::clone(&options.clock));
        let mut server = Server::new(options);
        server.add(listener.into(), Arc::new(thrift));
        let stop = CancellationToken::new();
        let input_ended = stop.clone();
        std::thread::spawn(move || {
            // An error of the input ends the server as well as its end does.
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            input_ended.cancel();
        });
        server.run(stop).await?;
        Ok(())
    })
}
