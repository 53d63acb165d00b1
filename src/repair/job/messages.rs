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
use crate::net::bodies::{Body, BodyContext, BodyError, EncodeError, fields_body, put_all};
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

/// Implements [`Body`] for an enum: the number of the variant, then its values one after the other.
macro_rules! variants_body {
    ($name:ident {
        $($number:literal => $variant:ident $(($($item:ident),*))? $({ $($field:ident),* })?,)*
    }) => {
        impl Body for $name {
            fn put(&self, out: &mut Vec<u8>, context: BodyContext<'_>) -> Result<(), EncodeError> {
                match self {
                    $(Self::$variant $(($($item),*))? $({ $($field),* })? => {
                        put_all(&[&$number, $($($item),*)? $($($field),*)?], out, context)
                    })*
                }
            }

            fn read(
                reader: &mut ByteReader<'_>,
                context: BodyContext<'_>,
            ) -> Result<Self, BodyError> {
                let at = reader.position();
                match reader.u8()? {
                    $($number => {
                        $($(let $item = Body::read(reader, context)?;)*)?
                        $($(let $field = Body::read(reader, context)?;)*)?
                        Ok(Self::$variant $(($($item),*))? $({ $($field),* })?)
                    })*
                    _ => Err(BodyError::Malformed(at)),
                }
            }
        }
    };
}

variants_body!(Task {
    0_u8 => Ranges(ranges),
    1_u8 => Rows { family, sources },
    2_u8 => Leaves { scope, shape },
    3_u8 => List { scope, after },
});

fields_body!(WantedRange { keyspace, range, lost, kept, from_all, accepts_loss });

fields_body!(Scope { family, gc_before, ranges });

variants_body!(Shape {
    0_u8 => Even(depth),
    1_u8 => At(tokens),
});

variants_body!(JobStatus {
    0_u8 => Unknown,
    1_u8 => Running(progress),
    2_u8 => Done(progress, output),
    3_u8 => Failed(why),
});

fields_body!(Progress { ranges, ranges_done, rows, expected_rows, bytes });

variants_body!(Output {
    0_u8 => Collected,
    1_u8 => Leaves(hashes),
    2_u8 => Rows { rows, next },
});

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
