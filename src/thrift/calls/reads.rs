//! Reads of rows: by key, and by range.

use super::Calls;
use super::answers::{Answer, Columns, Found, KeyText, Written};
use super::paths::{Target, check_parent, check_path, check_predicate, range_level, read_level};
use crate::base::context::RequestContext;
use crate::config::settings::Release;
use crate::model::comparator::Comparator;
use crate::model::key::RowKey;
use crate::model::slice::{RowSlice, Slice};
use crate::service::{
    ConsistencyLevel, Family, RowQuery, RowRanges, RowsByKey, RowsByRange, ServiceError, check_key,
    cost, row_key,
};
use crate::thrift::codec::WireType;
use crate::thrift::encode::encode_field;
use crate::thrift::idl::{
    ColumnOrSuperColumn, ColumnParent, GetArgs, GetCountArgs, GetKeyRangeArgs, GetRangeSliceArgs,
    GetRangeSlicesArgs, GetSliceArgs, KeyRange, KeySlice, MultigetArgs, MultigetSliceArgs,
    SlicePredicate,
};
use crate::thrift::schema::wire_type;
use crate::thrift::{Each, Encode, List, Text};
use std::collections::HashSet;

pub(super) async fn get(
    calls: &Calls,
    args: &GetArgs<'_>,
    context: &mut RequestContext,
) -> Result<Answer<Found>, ServiceError> {
    let service = &*calls.service;
    let (family, target) = check_path(service, &args.keyspace, &args.column_path)?;
    let key = row_key(&args.key)?;
    let level = read_level(args.consistency_level)?;
    let query = RowQuery { family: family.id, key: &key, slice: &target.slice(family) };
    let row = service.read(query, level, context).await?;
    if row.cells.is_empty() {
        return Err(ServiceError::NotFound);
    }
    let is_super_column = matches!(target, Target::SuperColumn(_));
    Answer::new(service, cost([&row]), Found { row, is_super_column }, context).await
}

pub(super) async fn multiget(
    calls: &Calls,
    args: &MultigetArgs<'_>,
    context: &mut RequestContext,
) -> Result<Written, ServiceError> {
    let (family, target) = check_path(&calls.service, &args.keyspace, &args.column_path)?;
    let keys = distinct_keys(&args.keys)?;
    let level = read_level(args.consistency_level)?;
    let rows = RowsByKey { family: family.id, keys, slice: target.slice(family), level };
    let is_super_column = matches!(target, Target::SuperColumn(_));
    let found = move |row| Found { row, is_super_column };
    write_map::<ColumnOrSuperColumn<'static>, _>(calls, rows, context, found).await
}

pub(super) async fn get_slice(
    calls: &Calls,
    args: &GetSliceArgs<'_>,
    context: &mut RequestContext,
) -> Result<Answer<Columns>, ServiceError> {
    let service = &*calls.service;
    let parent = (&*args.keyspace, &args.column_parent);
    let (family, slice) = check_columns(calls, parent, &args.predicate)?;
    let key = row_key(&args.key)?;
    let level = read_level(args.consistency_level)?;
    let query = RowQuery { family: family.id, key: &key, slice: &slice };
    let row = service.read(query, level, context).await?;
    let cost = cost([&row]);
    let answer = Columns { grouped_by: grouped_by(family, &slice), row };
    Answer::new(service, cost, answer, context).await
}

pub(super) async fn multiget_slice(
    calls: &Calls,
    args: &MultigetSliceArgs<'_>,
    context: &mut RequestContext,
) -> Result<Written, ServiceError> {
    let parent = (&*args.keyspace, &args.column_parent);
    let (family, slice) = check_columns(calls, parent, &args.predicate)?;
    let keys = distinct_keys(&args.keys)?;
    let grouped_by = grouped_by(family, &slice);
    let level = read_level(args.consistency_level)?;
    let columns = move |row| Columns { grouped_by: grouped_by.clone(), row };
    let rows = RowsByKey { family: family.id, keys, slice, level };
    write_map::<List<ColumnOrSuperColumn<'static>>, _>(calls, rows, context, columns).await
}

/// Writes a map from the keys of rows to what `value` makes of them.
async fn write_map<V: WireType, E: Encode<V>>(
    calls: &Calls,
    rows: RowsByKey,
    context: &RequestContext,
    value: impl Fn(RowSlice) -> E + Clone + Send + 'static,
) -> Result<Written, ServiceError> {
    let pair = move |key, row, out: &mut Vec<u8>| {
        KeyText(key).encode(out);
        value(row).encode(out);
    };
    let types = [Text::TYPE, V::TYPE];
    Ok(Written(calls.service.write_rows(rows, &types, context, pair).await?))
}

pub(super) async fn get_count(
    calls: &Calls,
    args: &GetCountArgs<'_>,
    context: &mut RequestContext,
) -> Result<i32, ServiceError> {
    let family = check_parent(&calls.service, &args.keyspace, &args.column_parent)?;
    let key = row_key(&args.key)?;
    let level = read_level(args.consistency_level)?;
    let below = (&key, args.column_parent.super_column);
    let count = calls.service.count(family, below, level, context).await?;
    Ok(i32::try_from(count).unwrap_or(i32::MAX))
}

pub(super) async fn get_range_slices(
    calls: &Calls,
    args: &GetRangeSlicesArgs<'_>,
    context: &mut RequestContext,
) -> Result<Written, ServiceError> {
    let parent = (&*args.keyspace, &args.column_parent);
    let columns = check_columns(calls, parent, &args.predicate)?;
    let rows = check_range(calls, &args.range, "maxRows")?;
    let level = range_level(args.consistency_level)?;
    write_rows(calls, columns, rows, level, context).await
}

pub(super) async fn get_range_slice(
    calls: &Calls,
    args: &GetRangeSliceArgs<'_>,
    context: &mut RequestContext,
) -> Result<Written, ServiceError> {
    let parent = (&*args.keyspace, &args.column_parent);
    let columns = check_columns(calls, parent, &args.predicate)?;
    let range = KeyRange {
        start_key: Some(args.start_key.clone()),
        end_key: Some(args.finish_key.clone()),
        start_token: None,
        end_token: None,
        count: args.row_count,
    };
    let count = if calls.version < Release::V06 { "row_count" } else { "maxRows" };
    let rows = check_range(calls, &range, count)?;
    let level = range_level(args.consistency_level)?;
    write_rows(calls, columns, rows, level, context).await
}

/// Keys of rows that have a visible column. Its consistency level never counted.
pub(super) async fn get_key_range(
    calls: &Calls,
    args: &GetKeyRangeArgs<'_>,
    context: &mut RequestContext,
) -> Result<impl Encode<List<Text<'static>>> + use<>, ServiceError> {
    let (service, name) = (&calls.service, &args.column_family);
    service.check_keyspace(&args.keyspace)?;
    let family = service
        .family(&args.keyspace, name)
        .map_err(|_| ServiceError::invalid(format!("Column Family {name} is invalid.")))?;
    if !service.preserves_order() {
        let why = "range queries may only be performed against an order-preserving partitioner";
        return Err(ServiceError::invalid(why));
    }
    let wanted = positive(args.count, "maxResults")?;
    let keys = match service.keys_between(&args.start, &args.finish) {
        Ok(ranges) => service.visible_keys(family, ranges, wanted, context).await?,
        // A range that ends before it begins is empty here, and no error.
        Err(_) => Vec::new(),
    };
    Ok(Each(keys.into_iter().map(KeyText)))
}

/// Writes rows as a list of `KeySlice`.
async fn write_rows(
    calls: &Calls,
    (family, slice): (Family<'_>, Slice),
    (ranges, max): (RowRanges, usize),
    level: ConsistencyLevel,
    context: &RequestContext,
) -> Result<Written, ServiceError> {
    let grouped_by = grouped_by(family, &slice);
    let element = move |key, row, out: &mut Vec<u8>| {
        let columns = Columns { grouped_by: grouped_by.clone(), row };
        encode_field::<Text<'_>>(1, KeyText(key), out);
        encode_field::<List<ColumnOrSuperColumn<'_>>>(2, columns, out);
        out.push(wire_type::STOP);
    };
    let rows = RowsByRange { family: family.id, ranges, max, slice, level };
    let written = calls.service.write_ranges(rows, &[KeySlice::TYPE], context, element).await?;
    Ok(Written(written))
}

fn check_columns<'s>(
    calls: &'s Calls,
    (keyspace, parent): (&str, &ColumnParent<'_>),
    predicate: &SlicePredicate<'_>,
) -> Result<(Family<'s>, Slice), ServiceError> {
    let family = check_parent(&calls.service, keyspace, parent)?;
    let slice = check_predicate(calls.version, family, parent.super_column, predicate)?;
    Ok((family, slice))
}

/// The rows of a range, and how many of them. `count` is the name of that number.
fn check_range(
    calls: &Calls,
    range: &KeyRange<'_>,
    count: &str,
) -> Result<(RowRanges, usize), ServiceError> {
    let keys = both(range.start_key.as_ref(), range.end_key.as_ref(), "key")?;
    let tokens = both(range.start_token.as_ref(), range.end_token.as_ref(), "token")?;
    let ranges = match (keys, tokens) {
        (Some((start, end)), None) => Ok(calls.service.keys_between(start, end)?),
        (None, Some((start, end))) => calls.service.tokens_between(start, end),
        _ => {
            let why = "exactly one of {start key, end key} or {start token, end token} must be \
                       specified";
            return Err(ServiceError::invalid(why));
        }
    };
    // The original looks at the count before it reads the tokens.
    let max = positive(range.count, count)?;
    Ok((ranges?, max))
}

/// Both ends of a range, or none.
fn both<'a>(
    start: Option<&'a Text<'_>>,
    end: Option<&'a Text<'_>>,
    what: &str,
) -> Result<Option<(&'a str, &'a str)>, ServiceError> {
    match (start, end) {
        (Some(start), Some(end)) => Ok(Some((start, end))),
        (None, None) => Ok(None),
        _ => Err(ServiceError::invalid(format!(
            "start {what} and end {what} must either both be non-null, or both be null"
        ))),
    }
}

fn positive(count: i32, name: &str) -> Result<usize, ServiceError> {
    let count = usize::try_from(count).ok().filter(|&count| count > 0);
    count.ok_or_else(|| ServiceError::invalid(format!("{name} must be positive")))
}

/// The order of the super columns that an answer consists of, if it does.
fn grouped_by(family: Family<'_>, slice: &Slice) -> Option<Comparator> {
    let is_grouped = family.is_super() && slice.super_name().is_none();
    is_grouped.then(|| family.schema.comparator().clone())
}

/// Valid keys in the order of the request, each once: the answer is a map.
fn distinct_keys(keys: &[Text<'_>]) -> Result<Vec<RowKey>, ServiceError> {
    keys.iter().try_for_each(|key| check_key(key))?;
    let mut seen = HashSet::with_capacity(keys.len());
    let mut distinct = Vec::with_capacity(keys.len());
    let new = keys.iter().map(AsRef::as_ref).filter(|&key| seen.insert(key));
    distinct.extend(new.map(RowKey::from));
    Ok(distinct)
}
