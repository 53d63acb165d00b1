//! Messages about jobs: tasks and their status.
//!
//! ```text
//! TASK      u8: 0 list of WANTED ranges
//!               1 column family, list of ADDR, list of KEY      rows, by their sources
//!               2 SCOPE, SHAPE                                  hashes of leaves
//!               3 SCOPE, option KEY after                       hashes of rows
//! WANTED    text keyspace, range, list of ADDR lost, list of ADDR kept, bool from all,
//!           bool accepts loss
//! SCOPE     column family, i32 gc before, list of ranges
//! SHAPE     u8: 0 u8 depth; 1 list of tokens
//! STATUS    u8: 0 unknown; 1 PROGRESS; 2 PROGRESS, OUTPUT; 3 text why it failed
//! PROGRESS  u64 ranges, u64 ranges done, u64 rows, u64 expected rows, u64 bytes
//! OUTPUT    u8: 0 collected; 1 list of HASH; 2 list of ROW, option KEY after
//! ROW       KEY, HASH, u64 bytes
//! HASH      u8 number of bytes, then these
//! ```

use crate::base::bytes::ByteReader;
use crate::model::key::RowKey;
use crate::model::schema::FamilyId;
use crate::net::bodies::{Body, BodyContext, BodyError, EncodeError, put_all};
use crate::repair::compare::{ListedRow, Shape, TreeHash};
use crate::repair::progress::Progress;
use crate::repair::transfer::WantedRange;
use crate::ring::TokenRange;
use std::net::IpAddr;

/// Work of a job.
#[derive(Debug, Clone)]
pub(crate) enum Task {
    /// Collects ranges of which the node is to become a replica.
    Ranges(Vec<WantedRange>),
    /// Collects rows that the node lacks.
    Rows {
        family: FamilyId,
        /// Keys in the order of their tokens, by the node that has the rows.
        sources: Vec<(IpAddr, Vec<RowKey>)>,
    },
    /// Hashes the node's rows, memtables included, leaf by leaf.
    Leaves { scope: Scope, shape: Shape },
    /// Hashes single rows, as many as fit into an answer.
    List {
        scope: Scope,
        /// The row before the first; `None` to begin with the first range.
        after: Option<RowKey>,
    },
}

/// Rows that are hashed.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    pub(crate) family: FamilyId,
    /// Deletions made at or before this second do not count.
    pub(crate) gc_before: i32,
    pub(crate) ranges: Vec<TokenRange>,
}

/// Status of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JobStatus {
    /// The node was restarted, never got the job, or has forgotten it.
    Unknown,
    Running(Progress),
    Done(Progress, Output),
    Failed(String),
}

/// Output of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Output {
    /// Ranges or rows are here.
    Collected,
    /// Hashes of leaves, in order.
    Leaves(Vec<TreeHash>),
    /// Rows in the order of their tokens.
    Rows {
        rows: Vec<ListedRow>,
        /// The key after which there may be more rows; `None` if these were the last.
        next: Option<RowKey>,
    },
}

impl Body for Task {
    fn put(&self, out: &mut Vec<u8>, context: BodyContext<'_>) -> Result<(), EncodeError> {
        match self {
            Self::Ranges(ranges) => put_all(&[&0_u8, ranges], out, context),
            Self::Rows { family, sources } => put_all(&[&1_u8, family, sources], out, context),
            Self::Leaves { scope, shape } => put_all(&[&2_u8, scope, shape], out, context),
            Self::List { scope, after } => put_all(&[&3_u8, scope, after], out, context),
        }
    }

    fn read(reader: &mut ByteReader<'_>, context: BodyContext<'_>) -> Result<Self, BodyError> {
        let at = reader.position();
        Ok(match reader.u8()? {
            0 => Self::Ranges(Body::read(reader, context)?),
            1 => {
                let (family, sources) = Body::read(reader, context)?;
                Self::Rows { family, sources }
            }
            2 => {
                let (scope, shape) = Body::read(reader, context)?;
                Self::Leaves { scope, shape }
            }
            3 => {
                let (scope, after) = Body::read(reader, context)?;
                Self::List { scope, after }
            }
            _ => return Err(BodyError::Malformed(at)),
        })
    }
}

impl Body for WantedRange {
    fn put(&self, out: &mut Vec<u8>, context: BodyContext<'_>) -> Result<(), EncodeError> {
        let Self { keyspace, range, lost, kept, from_all, accepts_loss } = self;
        put_all(&[keyspace, range, lost, kept, from_all, accepts_loss], out, context)
    }

    fn read(reader: &mut ByteReader<'_>, context: BodyContext<'_>) -> Result<Self, BodyError> {
        let ((keyspace, range), (lost, kept)) = Body::read(reader, context)?;
        let (from_all, accepts_loss) = Body::read(reader, context)?;
        Ok(Self { keyspace, range, lost, kept, from_all, accepts_loss })
    }
}

impl Body for Scope {
    fn put(&self, out: &mut Vec<u8>, context: BodyContext<'_>) -> Result<(), EncodeError> {
        put_all(&[&self.family, &self.gc_before, &self.ranges], out, context)
    }

    fn read(reader: &mut ByteReader<'_>, context: BodyContext<'_>) -> Result<Self, BodyError> {
        let ((family, gc_before), ranges) = Body::read(reader, context)?;
        Ok(Self { family, gc_before, ranges })
    }
}

impl Body for Shape {
    fn put(&self, out: &mut Vec<u8>, context: BodyContext<'_>) -> Result<(), EncodeError> {
        match self {
            Self::Even(depth) => put_all(&[&0_u8, depth], out, context),
            Self::At(tokens) => put_all(&[&1_u8, tokens], out, context),
        }
    }

    fn read(reader: &mut ByteReader<'_>, context: BodyContext<'_>) -> Result<Self, BodyError> {
        let at = reader.position();
        match reader.u8()? {
            0 => Ok(Self::Even(reader.u8()?)),
            1 => Ok(Self::At(Body::read(reader, context)?)),
            _ => Err(BodyError::Malformed(at)),
        }
    }
}

impl Body for JobStatus {
    fn put(&self, out: &mut Vec<u8>, context: BodyContext<'_>) -> Result<(), EncodeError> {
        match self {
            Self::Unknown => 0_u8.put(out, context),
            Self::Running(progress) => put_all(&[&1_u8, progress], out, context),
            Self::Done(progress, output) => put_all(&[&2_u8, progress, output], out, context),
            Self::Failed(why) => put_all(&[&3_u8, why], out, context),
        }
    }

    fn read(reader: &mut ByteReader<'_>, context: BodyContext<'_>) -> Result<Self, BodyError> {
        let at = reader.position();
        match reader.u8()? {
            0 => Ok(Self::Unknown),
            1 => Ok(Self::Running(Body::read(reader, context)?)),
            2 => Ok(Self::Done(Body::read(reader, context)?, Body::read(reader, context)?)),
            3 => Ok(Self::Failed(Body::read(reader, context)?)),
            _ => Err(BodyError::Malformed(at)),
        }
    }
}

impl Body for Progress {
    fn put(&self, out: &mut Vec<u8>, context: BodyContext<'_>) -> Result<(), EncodeError> {
        let Self { ranges, ranges_done, rows, expected_rows, bytes } = self;
        put_all(&[ranges, ranges_done, rows, expected_rows, bytes], out, context)
    }

    fn read(reader: &mut ByteReader<'_>, context: BodyContext<'_>) -> Result<Self, BodyError> {
        let ((ranges, ranges_done), (rows, expected_rows)) = Body::read(reader, context)?;
        Ok(Self { ranges, ranges_done, rows, expected_rows, bytes: reader.u64()? })
    }
}

impl Body for Output {
    fn put(&self, out: &mut Vec<u8>, context: BodyContext<'_>) -> Result<(), EncodeError> {
        match self {
            Self::Collected => 0_u8.put(out, context),
            Self::Leaves(hashes) => put_all(&[&1_u8, hashes], out, context),
            Self::Rows { rows, next } => put_all(&[&2_u8, rows, next], out, context),
        }
    }

    fn read(reader: &mut ByteReader<'_>, context: BodyContext<'_>) -> Result<Self, BodyError> {
        let at = reader.position();
        match reader.u8()? {
            0 => Ok(Self::Collected),
            1 => Ok(Self::Leaves(Body::read(reader, context)?)),
            2 => {
                let (rows, next) = Body::read(reader, context)?;
                Ok(Self::Rows { rows, next })
            }
            _ => Err(BodyError::Malformed(at)),
        }
    }
}

impl Body for ListedRow {
    fn put(&self, out: &mut Vec<u8>, context: BodyContext<'_>) -> Result<(), EncodeError> {
        put_all(&[self.key.key(), &self.hash, &self.bytes], out, context)
    }

    fn read(reader: &mut ByteReader<'_>, context: BodyContext<'_>) -> Result<Self, BodyError> {
        let ((key, hash), bytes) = Body::read(reader, context)?;
        Ok(Self { key: context.partitioner.decorate(key), hash, bytes })
    }
}

impl Body for TreeHash {
    fn put(&self, out: &mut Vec<u8>, _: BodyContext<'_>) -> Result<(), EncodeError> {
        out.push(self.as_bytes().len() as u8);
        out.extend_from_slice(self.as_bytes());
        Ok(())
    }

    fn read(reader: &mut ByteReader<'_>, _: BodyContext<'_>) -> Result<Self, BodyError> {
        let at = reader.position();
        let length = reader.u8()?;
        Self::new(reader.take(length.into())?).ok_or(BodyError::Malformed(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::comparator::Comparator;
    use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema, Schema};
    use crate::ring::{Partitioner, Token};
    use std::fmt::Debug;

    const NODE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

    fn check<T: Body + Debug>(message: &T) {
        let kind = ColumnFamilyKind::Standard { columns: Comparator::Bytes };
        let (keyspace, name) = ("Blog".into(), "Authors".into());
        let family = ColumnFamilySchema::new(keyspace, name, kind);
        let schema = Schema::new([family.into()]);
        let context = BodyContext { schema: &schema, partitioner: Partitioner::Random };
        let body = message.encode(context).unwrap();
        let read = T::decode(&body, context).unwrap();
        assert_eq!(format!("{read:?}"), format!("{message:?}"));
        for end in 0..body.len() {
            T::decode(&body[..end], context).unwrap_err();
        }
    }

    #[test]
    fn messages_are_read_as_written_and_damage_is_noticed() {
        let (family, key) = (FamilyId(0), RowKey::new(b"\xff\0"));
        let range = TokenRange { start: Token::Minimum, end: Token::Random(7) };
        let scope = Scope { family, gc_before: -1, ranges: vec![range.clone()] };
        let wanted = WantedRange {
            keyspace: "Blog".into(),
            range,
            lost: vec![NODE],
            kept: vec![NODE, NODE],
            from_all: true,
            accepts_loss: false,
        };
        let at = Shape::At([7, 9].map(Token::Random).to_vec());
        for task in [
            Task::Ranges(vec![wanted]),
            Task::Rows { family, sources: vec![(NODE, vec![key.clone()])] },
            Task::Leaves { scope: scope.clone(), shape: Shape::Even(3) },
            Task::Leaves { scope: scope.clone(), shape: at },
            Task::List { scope, after: Some(key.clone()) },
        ] {
            check(&task);
        }
        let progress = Progress { ranges: 1, ranges_done: 2, rows: 3, expected_rows: 4, bytes: 5 };
        let hash = TreeHash::from([7; 32]);
        let row = ListedRow { key: Partitioner::Random.decorate(key.clone()), hash, bytes: 6 };
        let rows = Output::Rows { rows: vec![row], next: Some(key) };
        let leaves = Output::Leaves(vec![hash, TreeHash::default()]);
        check(&JobStatus::Unknown);
        check(&JobStatus::Running(progress));
        check(&JobStatus::Failed("no".into()));
        for output in [Output::Collected, leaves, rows] {
            check(&JobStatus::Done(progress, output));
        }
    }
}
