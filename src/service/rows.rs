//! Reads of many rows, some at a time, and answers that are written as they are read: of all that
//! was read, only some rows are in memory at a time.

use super::{Family, Service, ServiceError};
use crate::base::context::RequestContext;
use crate::coordinator::{ConsistencyLevel, CoordinatorError, Row, Scan, ScanQuery, take_key};
use crate::model::key::RowKey;
use crate::model::schema::FamilyId;
use crate::model::slice::{RowSlice, Slice};
use crate::ring::{KeyBounds, Partitioner, RowRange, TokenRange};

/// Bytes of names and values that are written as a reply without leaving the connection's thread.
pub const SMALL_ANSWER_BYTES: usize = 256 << 10;

/// Rows that are read before they are written. Few enough that the blocks of data files that they
/// are in take little memory.
const ROWS_AT_A_TIME: usize = 512;

/// Rows that are read at a time in search of rows that are not empty.
const SEARCHED_AT_A_TIME: usize = 256;

/// Memory to write a cell besides its bytes, and a row besides its key and cells, in bytes.
const CELL_COST: usize = 64;
const ROW_COST: usize = 32;

/// Memory to write these rows, in bytes.
pub fn cost<'r>(rows: impl IntoIterator<Item = &'r RowSlice>) -> usize {
    let cells = rows.into_iter().flat_map(|row| &row.cells);
    cells.map(|cell| cell.encoded_length() + CELL_COST).sum()
}

/// A read of the same columns of several rows.
#[derive(Debug)]
pub struct RowsByKey {
    /// The column family.
    pub family: FamilyId,
    /// Each once.
    pub keys: Vec<RowKey>,
    /// The columns of each row.
    pub slice: Slice,
    /// Number of replicas that have to answer.
    pub level: ConsistencyLevel,
}

/// A read of the same columns of the first rows of ranges.
#[derive(Debug)]
pub struct RowsByRange {
    /// The column family.
    pub family: FamilyId,
    /// The ranges, one after the other.
    pub ranges: RowRanges,
    /// Most rows.
    pub max: usize,
    /// The columns of each row.
    pub slice: Slice,
    /// Number of replicas that have to answer.
    pub level: ConsistencyLevel,
}

/// Rows that are neighbours on the ring.
#[derive(Debug)]
pub struct RowRanges(Vec<RowRange>);

impl Service {
    /// Rows between two keys, both included; an empty key is an open end.
    pub fn keys_between(&self, start: &str, end: &str) -> Result<RowRanges, ServiceError> {
        let partitioner = self.options.coordinator.partitioner();
        let token = |key: &str| partitioner.token(key.as_bytes());
        match KeyBounds::new(token(start), token(end)) {
            Ok(bounds) => Ok(RowRanges(vec![bounds.row_range()])),
            Err(_) => Err(ServiceError::invalid(match partitioner {
                Partitioner::Random => {
                    "start key's md5 sorts after end key's md5.  this is not allowed; you probably \
                     should not specify end key at all, under RandomPartitioner"
                }
                _ => "start key must sort before (or equal to) finish key in your partitioner!",
            })),
        }
    }

    /// Rows after one token, up to another.
    pub fn tokens_between(&self, start: &str, end: &str) -> Result<RowRanges, ServiceError> {
        let partitioner = self.options.coordinator.partitioner();
        let [start, end] = [partitioner.parse_token(start)?, partitioner.parse_token(end)?];
        Ok(RowRanges(TokenRange { start, end }.row_ranges()))
    }

    /// Reads a slice of each row of a range, some rows at a time.
    pub fn scan<'a>(
        &'a self,
        (family, slice): (FamilyId, &'a Slice),
        level: ConsistencyLevel,
        (range, page_rows): (RowRange, usize),
    ) -> Scan<'a> {
        let query = ScanQuery { family, slice, level, max_rows: usize::MAX, page_rows };
        self.options.coordinator.scan(query, vec![range])
    }

    /// Whether neighbours on the ring are neighbours in the order of their keys.
    pub fn preserves_order(&self) -> bool {
        self.options.coordinator.partitioner().preserves_order()
    }

    /// Writes the bytes that `element` makes of each of these rows. `head` goes before their count.
    pub async fn write_rows(
        &self,
        rows: RowsByKey,
        head: &[u8],
        context: &RequestContext,
        element: impl Fn(RowKey, RowSlice, &mut Vec<u8>) + Clone + Send + 'static,
    ) -> Result<Vec<u8>, ServiceError> {
        let RowsByKey { family, keys, slice, level } = rows;
        let mut answer = RowsWriter::new(head);
        for keys in keys.chunks(ROWS_AT_A_TIME) {
            let mut scratch = context.scratch();
            let coordinator = &self.options.coordinator;
            let rows = coordinator.read_many(family, keys, &slice, level, &mut scratch).await?;
            let rows = keys.iter().cloned().zip(rows).collect();
            answer.append(self, context, (rows, scratch), element.clone()).await?;
        }
        Ok(answer.finish())
    }

    /// Writes the bytes that `element` makes of each of the first rows of ranges.
    pub async fn write_ranges(
        &self,
        rows: RowsByRange,
        head: &[u8],
        context: &RequestContext,
        element: impl Fn(RowKey, RowSlice, &mut Vec<u8>) + Clone + Send + 'static,
    ) -> Result<Vec<u8>, ServiceError> {
        let RowsByRange { family, ranges, max, slice, level } = rows;
        let (slice, page_rows) = (&slice, ROWS_AT_A_TIME);
        let query = ScanQuery { family, slice, level, max_rows: max, page_rows };
        let mut answer = RowsWriter::new(head);
        let mut scan = self.options.coordinator.scan(query, ranges.0);
        while let Some(page) = scan.next_page(context).await? {
            answer.append(self, context, page, element.clone()).await?;
        }
        Ok(answer.finish())
    }

    /// Keys of the first rows of ranges that have a visible column.
    pub async fn visible_keys(
        &self,
        family: Family<'_>,
        ranges: RowRanges,
        wanted: usize,
        context: &RequestContext,
    ) -> Result<Vec<RowKey>, ServiceError> {
        let query = ScanQuery {
            family: family.id,
            slice: &Slice::range(None, b"", b"", false, 1),
            level: ConsistencyLevel::One,
            max_rows: usize::MAX,
            page_rows: SEARCHED_AT_A_TIME,
        };
        let mut keys = Vec::new();
        let mut scan = self.options.coordinator.scan(query, ranges.0);
        while keys.len() < wanted
            && let Some((page, _scratch)) = scan.next_page(context).await?
        {
            let visible = page.into_iter().filter(|(_, row)| row.count > 0);
            for (key, _) in visible.take(wanted - keys.len()) {
                take_key(context, &key).map_err(CoordinatorError::from)?;
                keys.push(key);
            }
        }
        Ok(keys)
    }
}

/// A list or map of rows that are written as they are read.
#[derive(Debug)]
struct RowsWriter {
    bytes: Vec<u8>,
    /// Position of the number of rows.
    count_at: usize,
    count: usize,
}

impl RowsWriter {
    fn new(head: &[u8]) -> Self {
        Self { bytes: [head, &[0; 4]].concat(), count_at: head.len(), count: 0 }
    }

    /// Appends what `element` makes of each row. Many bytes are written on another thread, since
    /// other connections need this one. The rows come with the context by which they were read: its
    /// permit serves for writing as well, since a request that asked for a second one might wait
    /// for itself.
    async fn append(
        &mut self,
        service: &Service,
        context: &RequestContext,
        (rows, mut scratch): (Vec<Row>, RequestContext),
        element: impl Fn(RowKey, RowSlice, &mut Vec<u8>) + Send + 'static,
    ) -> Result<(), ServiceError> {
        let keys: usize = rows.iter().map(|(key, _)| key.as_bytes().len() + ROW_COST).sum();
        let cost = keys + cost(rows.iter().map(|(_, row)| row));
        self.reserve(cost, context)?;
        self.count += rows.len();
        let mut bytes = std::mem::take(&mut self.bytes);
        let write = move || {
            for (key, row) in rows {
                element(key, row, &mut bytes);
            }
            bytes
        };
        self.bytes = if cost <= SMALL_ANSWER_BYTES {
            write()
        } else {
            // Seldom, and large.
            Box::pin(service.offload(&mut scratch, write)).await?
        };
        Ok(())
    }

    /// Makes room for more bytes, and takes memory for them. While they are moved to larger room
    /// both are in memory.
    fn reserve(&mut self, more: usize, context: &RequestContext) -> Result<(), CoordinatorError> {
        let (length, capacity) = (self.bytes.len(), self.bytes.capacity());
        if length + more > capacity {
            let grown = (length + more).max(capacity + capacity / 2);
            context.take(grown)?;
            self.bytes.reserve_exact(grown - length);
            context.give_back(capacity);
        }
        Ok(())
    }

    /// The bytes, with the number of rows.
    fn finish(mut self) -> Vec<u8> {
        let count = i32::try_from(self.count).unwrap_or(i32::MAX);
        if let Some(place) = self.bytes.get_mut(self.count_at..self.count_at + 4) {
            place.copy_from_slice(&count.to_be_bytes());
        }
        self.bytes
    }
}
