//! Reads of rows by key.

use super::Api;
use super::answers::{Answer, Columns, Found, KeyText, ROWS_AT_A_TIME, Written, cost};
use super::family::Family;
use super::invalid_request::InvalidRequest;
use super::keys::check_key;
use super::levels::read_level;
use super::paths::{Target, check_parent, check_path};
use super::predicates::check_predicate;
use crate::base::context::RequestContext;
use crate::coordinator::{ConsistencyLevel, RowQuery};
use crate::model::comparator::Comparator;
use crate::model::key::RowKey;
use crate::model::schema::FamilyId;
use crate::model::slice::{RowSlice, Slice};
use crate::thrift::codec::WireType;
use crate::thrift::idl::ColumnOrSuperColumn;
use crate::thrift::idl::{GetArgs, GetCountArgs, GetSliceArgs, MultigetArgs, MultigetSliceArgs};
use crate::thrift::{Encode, Failure, List, Text};
use std::collections::HashSet;

pub(super) async fn get(
    api: &Api,
    args: GetArgs<'_>,
    context: &mut RequestContext,
) -> Result<Answer<Found>, Failure> {
    let (family, target) = check_path(&api.schema, &args.keyspace, &args.column_path)?;
    check_key(&args.key)?;
    let level = read_level(args.consistency_level)?;
    let slice = target.slice(family);
    let key = RowKey::from(&*args.key);
    let query = RowQuery { family: family.id, key: &key, slice: &slice };
    let row = api.coordinator.read(query, level, context).await?;
    if row.cells.is_empty() {
        return Err(Failure::NotFound);
    }
    Answer::new(api, cost([&row]), found(target, row), context).await
}

pub(super) async fn multiget(
    api: &Api,
    args: MultigetArgs<'_>,
    context: &mut RequestContext,
) -> Result<Written, Failure> {
    let (family, target) = check_path(&api.schema, &args.keyspace, &args.column_path)?;
    let keys = distinct_keys(&args.keys)?;
    let rows = RowsByKey {
        family: family.id,
        keys,
        slice: target.slice(family),
        level: read_level(args.consistency_level)?,
    };
    let is_super_column = matches!(target, Target::SuperColumn(_));
    let found = move |row| Found { row, is_super_column };
    rows.write::<ColumnOrSuperColumn<'static>, _>(api, context, found).await
}

pub(super) async fn get_slice<'a>(
    api: &'a Api,
    args: GetSliceArgs<'a>,
    context: &mut RequestContext,
) -> Result<Answer<Columns>, Failure> {
    let family = check_parent(&api.schema, &args.keyspace, &args.column_parent)?;
    let super_name = args.column_parent.super_column;
    let slice = check_predicate(api.version, family, super_name, &args.predicate)?;
    check_key(&args.key)?;
    let level = read_level(args.consistency_level)?;
    let key = RowKey::from(&*args.key);
    let query = RowQuery { family: family.id, key: &key, slice: &slice };
    let row = api.coordinator.read(query, level, context).await?;
    let cost = cost([&row]);
    let answer = Columns { grouped_by: grouped_by(family, &slice), row };
    Answer::new(api, cost, answer, context).await
}

pub(super) async fn multiget_slice(
    api: &Api,
    args: MultigetSliceArgs<'_>,
    context: &mut RequestContext,
) -> Result<Written, Failure> {
    let family = check_parent(&api.schema, &args.keyspace, &args.column_parent)?;
    let super_name = args.column_parent.super_column;
    let slice = check_predicate(api.version, family, super_name, &args.predicate)?;
    let keys = distinct_keys(&args.keys)?;
    let grouped_by = grouped_by(family, &slice);
    let level = read_level(args.consistency_level)?;
    let columns = move |row| Columns { grouped_by: grouped_by.clone(), row };
    let rows = RowsByKey { family: family.id, keys, slice, level };
    rows.write::<List<ColumnOrSuperColumn<'static>>, _>(api, context, columns).await
}

/// The same columns of several rows.
struct RowsByKey {
    family: FamilyId,
    keys: Vec<RowKey>,
    slice: Slice,
    level: ConsistencyLevel,
}

impl RowsByKey {
    /// Reads the rows, some at a time, and writes a map from their keys to what `value` makes of
    /// them.
    async fn write<V: WireType, E: Encode<V>>(
        self,
        api: &Api,
        context: &RequestContext,
        value: impl Fn(RowSlice) -> E + Clone + Send + 'static,
    ) -> Result<Written, Failure> {
        let Self { family, keys, slice, level } = self;
        let mut answer = Written::new(&[Text::TYPE, V::TYPE]);
        for keys in keys.chunks(ROWS_AT_A_TIME) {
            let mut scratch = context.scratch();
            let rows = api.coordinator.read_many(family, keys, &slice, level, &mut scratch).await?;
            let rows = keys.iter().cloned().zip(rows).collect();
            let value = value.clone();
            let pair = move |key, row, out: &mut Vec<u8>| {
                KeyText(key).encode(out);
                value(row).encode(out);
            };
            answer.append(api, context, rows, scratch, pair).await?;
        }
        Ok(answer)
    }
}

pub(super) async fn get_count(
    api: &Api,
    args: GetCountArgs<'_>,
    context: &mut RequestContext,
) -> Result<i32, Failure> {
    let family = check_parent(&api.schema, &args.keyspace, &args.column_parent)?;
    check_key(&args.key)?;
    let level = read_level(args.consistency_level)?;
    let (key, super_name) = (RowKey::from(&*args.key), args.column_parent.super_column);
    let count = api.coordinator.count(family.id, &key, super_name, level, context).await?;
    Ok(i32::try_from(count).unwrap_or(i32::MAX))
}

/// The order of the super columns that an answer consists of, if it does.
pub(super) fn grouped_by(family: Family<'_>, slice: &Slice) -> Option<Comparator> {
    let is_grouped = family.schema.is_super() && slice.super_name().is_none();
    is_grouped.then(|| family.schema.comparator().clone())
}

fn found(target: Target<'_>, row: RowSlice) -> Found {
    Found { row, is_super_column: matches!(target, Target::SuperColumn(_)) }
}

/// Valid keys in the order of the request, each once: the answer is a map.
fn distinct_keys(keys: &[Text<'_>]) -> Result<Vec<RowKey>, InvalidRequest> {
    keys.iter().try_for_each(|key| check_key(key))?;
    let mut seen = HashSet::with_capacity(keys.len());
    let distinct = keys.iter().map(AsRef::as_ref).filter(|&key| seen.insert(key));
    Ok(distinct.map(RowKey::from).collect())
}
