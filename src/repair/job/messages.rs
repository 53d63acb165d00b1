//! Tasks of jobs, and their status.
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
use crate::net::bodies::{Body, BodyContext, BodyError, EncodeError};
use crate::repair::compare::{ListedRow, Shape, TreeHash};
use crate::repair::progress::Progress;
use crate::repair::transfer::WantedRange;
use crate::ring::TokenRange;
use std::net::IpAddr;

/// Work of a job.
#[derive(Debug, Clone)]
pub(crate) enum Task {
    /// Collects ranges of which the node is about to become a replica.
    Ranges(Vec<WantedRange>),
    /// Collects rows that the node lacks.
    Rows {
        family: FamilyId,
        /// Keys in the order of their tokens, by the node that has the rows.
        sources: Vec<(IpAddr, Vec<RowKey>)>,
    },
    /// Hashes what the node has on disk, memtables included, leaf by leaf.
    Leaves { scope: Scope, shape: Shape },
    /// Hashes single rows, as they are now, until there are enough for one answer.
    List {
        scope: Scope,
        /// Behind which row; from the start of the first range on if there is none.
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
    /// The node was started since, or never got the job, or has forgotten it.
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
        /// Behind which key there may be more; none if these were the last.
        next: Option<RowKey>,
    },
}

impl Body for Task {
    fn put(&self, out: &mut Vec<u8>, context: BodyContext<'_>) -> Result<(), EncodeError> {
        match self {
            Self::Ranges(ranges) => {
                out.push(0);
                ranges.put(out, context)
            }
            Self::Rows { family, sources } => {
                out.push(1);
                family.put(out, context)?;
                sources.put(out, context)
            }
            Self::Leaves { scope, shape } => {
                out.push(2);
                scope.put(out, context)?;
                shape.put(out, context)
            }
            Self::List { scope, after } => {
                out.push(3);
                scope.put(out, context)?;
                after.put(out, context)
            }
        }
    }

    fn read(reader: &mut ByteReader<'_>, context: BodyContext<'_>) -> Result<Self, BodyError> {
        let at = reader.position();
        match reader.u8()? {
            0 => Ok(Self::Ranges(Body::read(reader, context)?)),
            1 => {
                let (family, sources) = Body::read(reader, context)?;
                Ok(Self::Rows { family, sources })
            }
            2 => {
                let (scope, shape) = Body::read(reader, context)?;
                Ok(Self::Leaves { scope, shape })
            }
            3 => {
                let (scope, after) = Body::read(reader, context)?;
                Ok(Self::List { scope, after })
            }
            _ => Err(BodyError::Malformed(at)),
        }
    }
}

impl Body for WantedRange {
    fn put(&self, out: &mut Vec<u8>, context: BodyContext<'_>) -> Result<(), EncodeError> {
        self.keyspace.put(out, context)?;
        self.range.put(out, context)?;
        self.lost.put(out, context)?;
        self.kept.put(out, context)?;
        (self.from_all, self.accepts_loss).put(out, context)
    }

    fn read(reader: &mut ByteReader<'_>, context: BodyContext<'_>) -> Result<Self, BodyError> {
        let (keyspace, range) = Body::read(reader, context)?;
        let (lost, kept) = Body::read(reader, context)?;
        let (from_all, accepts_loss) = Body::read(reader, context)?;
        Ok(Self { keyspace, range, lost, kept, from_all, accepts_loss })
    }
}

impl Body for Scope {
    fn put(&self, out: &mut Vec<u8>, context: BodyContext<'_>) -> Result<(), EncodeError> {
        (self.family, self.gc_before).put(out, context)?;
        self.ranges.put(out, context)
    }

    fn read(reader: &mut ByteReader<'_>, context: BodyContext<'_>) -> Result<Self, BodyError> {
        let ((family, gc_before), ranges) = Body::read(reader, context)?;
        Ok(Self { family, gc_before, ranges })
    }
}

impl Body for Shape {
    fn put(&self, out: &mut Vec<u8>, context: BodyContext<'_>) -> Result<(), EncodeError> {
        match self {
            Self::Even(depth) => (0_u8, *depth).put(out, context),
            Self::At(tokens) => {
                out.push(1);
                tokens.put(out, context)
            }
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
            Self::Unknown => out.push(0),
            Self::Running(progress) => {
                out.push(1);
                progress.put(out, context)?;
            }
            Self::Done(progress, output) => {
                out.push(2);
                progress.put(out, context)?;
                output.put(out, context)?;
            }
            Self::Failed(why) => {
                out.push(3);
                why.put(out, context)?;
            }
        }
        Ok(())
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
        let mut numbers = [ranges, ranges_done, rows, expected_rows, bytes].into_iter();
        numbers.try_for_each(|number| number.put(out, context))
    }

    fn read(reader: &mut ByteReader<'_>, context: BodyContext<'_>) -> Result<Self, BodyError> {
        let (ranges, ranges_done) = Body::read(reader, context)?;
        let (rows, expected_rows) = Body::read(reader, context)?;
        Ok(Self { ranges, ranges_done, rows, expected_rows, bytes: reader.u64()? })
    }
}

impl Body for Output {
    fn put(&self, out: &mut Vec<u8>, context: BodyContext<'_>) -> Result<(), EncodeError> {
        match self {
            Self::Collected => out.push(0),
            Self::Leaves(hashes) => {
                out.push(1);
                hashes.put(out, context)?;
            }
            Self::Rows { rows, next } => {
                out.push(2);
                rows.put(out, context)?;
                next.put(out, context)?;
            }
        }
        Ok(())
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
        self.key.key().put(out, context)?;
        self.hash.put(out, context)?;
        self.bytes.put(out, context)
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
