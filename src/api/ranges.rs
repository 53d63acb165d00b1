//! Reads of neighbouring rows.

use super::Api;
use super::answers::{Columns, KeyText, ROWS_AT_A_TIME, Written};
use super::family::{Family, check_keyspace};
use super::invalid_request::InvalidRequest;
use super::levels::range_level;
use super::paths::check_parent;
use super::predicates::check_predicate;
use super::reads::grouped_by;
use crate::base::context::RequestContext;
use crate::config::settings::Release;
use crate::coordinator::{ConsistencyLevel, CoordinatorError, ScanQuery, take_key};
use crate::model::slice::Slice;
use crate::ring::{KeyBounds, Partitioner, RowRange, TokenRange};
use crate::thrift::codec::WireType;
use crate::thrift::idl::{ColumnParent, KeyRange, KeySlice, SlicePredicate};
use crate::thrift::idl::{GetKeyRangeArgs, GetRangeSliceArgs, GetRangeSlicesArgs};
use crate::thrift::{Each, Encode, Failure};

/// Rows that `get_key_range` reads at a time while it looks for rows that are not empty.
const KEY_RANGE_PAGE: usize = 256;

pub(super) async fn get_range_slices<'a>(
    api: &'a Api,
    args: GetRangeSlicesArgs<'a>,
    context: &mut RequestContext,
) -> Result<Written, Failure> {
    let (family, slice) = check_columns(api, &args.keyspace, &args.column_parent, &args.predicate)?;
    let rows = check_key_range(api.coordinator.partitioner(), &args.range)?;
    let level = range_level(args.consistency_level)?;
    scan(api, family, slice, rows, level, context).await
}

pub(super) async fn get_range_slice<'a>(
    api: &'a Api,
    args: GetRangeSliceArgs<'a>,
    context: &mut RequestContext,
) -> Result<Written, Failure> {
    let (family, slice) = check_columns(api, &args.keyspace, &args.column_parent, &args.predicate)?;
    let range = KeyRange {
        start_key: Some(args.start_key),
        end_key: Some(args.finish_key),
        start_token: None,
        end_token: None,
        count: args.row_count,
    };
    let rows = check_key_range(api.coordinator.partitioner(), &range);
    let rows = rows.map_err(|invalid| match invalid {
        InvalidRequest::NoRows if api.version < Release::V06 => InvalidRequest::NoRowCount,
        other => other,
    })?;
    let level = range_level(args.consistency_level)?;
    scan(api, family, slice, rows, level, context).await
}

/// Keys of rows that have a visible column. Its consistency level never counted.
pub(super) async fn get_key_range(
    api: &Api,
    args: GetKeyRangeArgs<'_>,
    context: &mut RequestContext,
) -> Result<Each<Vec<KeyText>>, Failure> {
    let (keyspace, name) = (&args.keyspace, &args.column_family);
    check_keyspace(&api.schema, keyspace)?;
    let family = api.schema.family_id(keyspace, name);
    let family = family.ok_or_else(|| InvalidRequest::InvalidFamily(name.clone().into_owned()))?;
    let partitioner = api.coordinator.partitioner();
    if !partitioner.preserves_order() {
        return Err(InvalidRequest::OrderRequired.into());
    }
    let wanted = positive(args.count).ok_or(InvalidRequest::NoResults)?;
    let [start, finish] = [&args.start, &args.finish].map(|key| partitioner.token(key.as_bytes()));
    let mut keys = Vec::new();
    // A range that ends before it begins is empty here, and no error.
    let Ok(bounds) = KeyBounds::new(start, finish) else { return Ok(Each(keys)) };
    let slice = Slice::range(None, b"", b"", false, 1);
    let query = ScanQuery {
        family,
        slice: &slice,
        level: ConsistencyLevel::One,
        max_rows: usize::MAX,
        page_rows: KEY_RANGE_PAGE,
    };
    let mut scan = api.coordinator.scan(query, vec![bounds.row_range()]);
    while keys.len() < wanted
        && let Some((page, _scratch)) = scan.next_page(context).await?
    {
        let visible = page.into_iter().filter(|(_, row)| row.count > 0);
        for (key, _) in visible.take(wanted - keys.len()) {
            take_key(context, &key).map_err(CoordinatorError::from)?;
            keys.push(KeyText(key));
        }
    }
    Ok(Each(keys))
}

/// Which rows, and how many of them.
struct Rows {
    ranges: Vec<RowRange>,
    max: usize,
}

fn check_columns<'s>(
    api: &'s Api,
    keyspace: &str,
    parent: &ColumnParent<'_>,
    predicate: &SlicePredicate<'_>,
) -> Result<(Family<'s>, Slice), InvalidRequest> {
    let family = check_parent(&api.schema, keyspace, parent)?;
    let slice = check_predicate(api.version, family, parent.super_column, predicate)?;
    Ok((family, slice))
}

fn check_key_range(partitioner: Partitioner, range: &KeyRange<'_>) -> Result<Rows, InvalidRequest> {
    let keys = match (&range.start_key, &range.end_key) {
        (Some(start), Some(end)) => Some((start, end)),
        (None, None) => None,
        _ => return Err(InvalidRequest::OneKey),
    };
    let tokens = match (&range.start_token, &range.end_token) {
        (Some(start), Some(end)) => Some((start, end)),
        (None, None) => None,
        _ => return Err(InvalidRequest::OneToken),
    };
    let ranges = match (keys, tokens) {
        (Some((start, end)), None) => {
            let token = |key: &str| partitioner.token(key.as_bytes());
            let bounds =
                KeyBounds::new(token(start), token(end)).map_err(|_| match partitioner {
                    Partitioner::Random => InvalidRequest::StartAfterEndByHash,
                    _ => InvalidRequest::StartAfterEnd,
                })?;
            Ok(vec![bounds.row_range()])
        }
        (None, Some((start, end))) => partitioner
            .parse_token(start)
            .and_then(|start| Ok(TokenRange { start, end: partitioner.parse_token(end)? }))
            .map(|range| range.row_ranges()),
        _ => return Err(InvalidRequest::KeysOrTokens),
    };
    // The original looks at the count before it reads the tokens.
    let max = positive(range.count).ok_or(InvalidRequest::NoRows)?;
    Ok(Rows { ranges: ranges?, max })
}

fn positive(count: i32) -> Option<usize> {
    usize::try_from(count).ok().filter(|&count| count > 0)
}

/// Reads the rows, some at a time, and writes them.
async fn scan(
    api: &Api,
    family: Family<'_>,
    slice: Slice,
    rows: Rows,
    level: ConsistencyLevel,
    context: &RequestContext,
) -> Result<Written, Failure> {
    let grouped_by = grouped_by(family, &slice);
    let mut answer = Written::new(&[KeySlice::TYPE]);
    let query = ScanQuery {
        family: family.id,
        slice: &slice,
        level,
        max_rows: rows.max,
        page_rows: ROWS_AT_A_TIME,
    };
    let mut scan = api.coordinator.scan(query, rows.ranges);
    while let Some((page, scratch)) = scan.next_page(context).await? {
        let grouped_by = grouped_by.clone();
        let element = move |key, row, out: &mut Vec<u8>| {
            let columns = Columns { grouped_by: grouped_by.clone(), row };
            KeySlice::fields(KeyText(key), columns).encode(out);
        };
        answer.append(api, context, page, scratch, element).await?;
    }
    Ok(answer)
}
