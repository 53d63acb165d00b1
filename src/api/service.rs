//! The methods of the service: checks of the login, and the time that a call may take.

use super::{Api, Session, describe, login, ranges, reads, writes};
use crate::base::context::RequestContext;
use crate::coordinator::CoordinatorError;
use crate::thrift::codec::WireType;
use crate::thrift::idl::{
    BatchInsertArgs, BatchMutateArgs, Cassandra, ColumnOrSuperColumn, DescribeClusterNameArgs,
    DescribeKeyspaceArgs, DescribeKeyspacesArgs, DescribePartitionerArgs, DescribeRingArgs,
    DescribeSplitsArgs, DescribeVersionArgs, GetArgs, GetCountArgs, GetKeyRangeArgs,
    GetRangeSliceArgs, GetRangeSlicesArgs, GetSliceArgs, GetStringListPropertyArgs,
    GetStringPropertyArgs, InsertArgs, KeySlice, LoginArgs, MultigetArgs, MultigetSliceArgs,
    RemoveArgs, TokenRange,
};
use crate::thrift::{Encode, Failure, List, Map, Set, Text};

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

impl Api {
    /// The context of a call that reads data, for which the connection has to be logged in where
    /// logins are needed.
    fn begin_read(&self, session: &Session) -> Result<RequestContext, Failure> {
        session.check(self)?;
        Ok(self.coordinator.request())
    }
}

#[expect(refining_impl_trait, reason = "what is not encoded as it is needs no name")]
impl Cassandra for Api {
    type Session = Session;

    async fn login(&self, session: &Session, args: LoginArgs<'_>) -> Result<(), Failure> {
        login::login(self, session, args).await
    }

    async fn get(
        &self,
        session: &Session,
        args: GetArgs<'_>,
    ) -> Result<impl Encode<ColumnOrSuperColumn<'static>>, Failure> {
        let mut context = self.begin_read(session)?;
        let read = reads::get(self, args, &mut context);
        let answer = self.coordinator.in_time(read).await?;
        Ok(Held { answer, _context: context })
    }

    async fn get_slice(
        &self,
        session: &Session,
        args: GetSliceArgs<'_>,
    ) -> Result<impl Encode<List<ColumnOrSuperColumn<'static>>>, Failure> {
        let mut context = self.begin_read(session)?;
        let read = reads::get_slice(self, args, &mut context);
        let answer = self.coordinator.in_time(read).await?;
        Ok(Held { answer, _context: context })
    }

    async fn multiget(
        &self,
        session: &Session,
        args: MultigetArgs<'_>,
    ) -> Result<impl Encode<Map<Text<'static>, ColumnOrSuperColumn<'static>>>, Failure> {
        let mut context = self.begin_read(session)?;
        let read = reads::multiget(self, args, &mut context);
        let answer = self.coordinator.in_time(read).await?;
        Ok(Held { answer, _context: context })
    }

    async fn multiget_slice(
        &self,
        session: &Session,
        args: MultigetSliceArgs<'_>,
    ) -> Result<impl Encode<Map<Text<'static>, List<ColumnOrSuperColumn<'static>>>>, Failure> {
        let mut context = self.begin_read(session)?;
        let read = reads::multiget_slice(self, args, &mut context);
        let answer = self.coordinator.in_time(read).await?;
        Ok(Held { answer, _context: context })
    }

    async fn get_count(
        &self,
        session: &Session,
        args: GetCountArgs<'_>,
    ) -> Result<impl Encode<i32>, Failure> {
        let mut context = self.begin_read(session)?;
        let read = reads::get_count(self, args, &mut context);
        let answer = self.coordinator.in_time(read).await?;
        Ok(Held { answer, _context: context })
    }

    async fn get_key_range(
        &self,
        session: &Session,
        args: GetKeyRangeArgs<'_>,
    ) -> Result<impl Encode<List<Text<'static>>>, Failure> {
        let mut context = self.begin_read(session)?;
        let read = ranges::get_key_range(self, args, &mut context);
        let answer = self.coordinator.in_time(read).await?;
        Ok(Held { answer, _context: context })
    }

    async fn get_range_slice(
        &self,
        session: &Session,
        args: GetRangeSliceArgs<'_>,
    ) -> Result<impl Encode<List<KeySlice<'static>>>, Failure> {
        let mut context = self.begin_read(session)?;
        let read = ranges::get_range_slice(self, args, &mut context);
        let answer = self.coordinator.in_time(read).await?;
        Ok(Held { answer, _context: context })
    }

    async fn get_range_slices(
        &self,
        session: &Session,
        args: GetRangeSlicesArgs<'_>,
    ) -> Result<impl Encode<List<KeySlice<'static>>>, Failure> {
        let mut context = self.begin_read(session)?;
        let read = ranges::get_range_slices(self, args, &mut context);
        let answer = self.coordinator.in_time(read).await?;
        Ok(Held { answer, _context: context })
    }

    async fn insert(&self, session: &Session, args: InsertArgs<'_>) -> Result<(), Failure> {
        session.check(self)?;
        writes::insert(self, args).await
    }

    async fn batch_insert(
        &self,
        session: &Session,
        args: BatchInsertArgs<'_>,
    ) -> Result<(), Failure> {
        session.check(self)?;
        writes::batch_insert(self, args).await
    }

    async fn remove(&self, session: &Session, args: RemoveArgs<'_>) -> Result<(), Failure> {
        session.check(self)?;
        writes::remove(self, args).await
    }

    async fn batch_mutate(
        &self,
        session: &Session,
        args: BatchMutateArgs<'_>,
    ) -> Result<(), Failure> {
        session.check(self)?;
        writes::batch_mutate(self, args).await
    }

    async fn get_string_property(
        &self,
        _: &Session,
        args: GetStringPropertyArgs<'_>,
    ) -> Result<String, Failure> {
        Ok(describe::get_string_property(self, &args))
    }

    async fn get_string_list_property(
        &self,
        _: &Session,
        args: GetStringListPropertyArgs<'_>,
    ) -> Result<impl Encode<List<Text<'static>>>, Failure> {
        Ok(describe::get_string_list_property(self, &args))
    }

    async fn describe_keyspaces(
        &self,
        _: &Session,
        args: DescribeKeyspacesArgs<'_>,
    ) -> Result<impl Encode<Set<Text<'static>>>, Failure> {
        Ok(describe::describe_keyspaces(self, &args))
    }

    async fn describe_cluster_name(
        &self,
        _: &Session,
        args: DescribeClusterNameArgs<'_>,
    ) -> Result<String, Failure> {
        Ok(describe::describe_cluster_name(self, &args))
    }

    async fn describe_version(
        &self,
        _: &Session,
        args: DescribeVersionArgs<'_>,
    ) -> Result<&'static str, Failure> {
        Ok(describe::describe_version(self, &args))
    }

    async fn describe_partitioner(
        &self,
        _: &Session,
        args: DescribePartitionerArgs<'_>,
    ) -> Result<&'static str, Failure> {
        Ok(describe::describe_partitioner(self, &args))
    }

    async fn describe_ring(
        &self,
        _: &Session,
        args: DescribeRingArgs<'_>,
    ) -> Result<impl Encode<List<TokenRange<'static>>>, Failure> {
        describe::describe_ring(self, &args)
    }

    async fn describe_keyspace(
        &self,
        _: &Session,
        args: DescribeKeyspaceArgs<'_>,
    ) -> Result<impl Encode<Map<Text<'static>, Map<Text<'static>, Text<'static>>>>, Failure> {
        describe::describe_keyspace(self, &args)
    }

    async fn describe_splits(
        &self,
        session: &Session,
        args: DescribeSplitsArgs<'_>,
    ) -> Result<impl Encode<List<Text<'static>>>, Failure> {
        // The tokens of an order-preserving partitioner are row keys.
        session.check(self)?;
        describe::describe_splits(self, args).await
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
