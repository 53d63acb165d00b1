//! Writes.

use super::Api;
use super::invalid_request::InvalidRequest;
use super::keys::check_key;
use super::levels::write_level;
use super::paths::{Target, check_path, check_removal};
use super::row_batch::{RowBatch, check_modifiable};
use crate::model::deletion::Deletion;
use crate::model::mutation::{MutationBuilder, RowMutation};
use crate::thrift::Failure;
use crate::thrift::idl::ConsistencyLevel;
use crate::thrift::idl::{BatchInsertArgs, BatchMutateArgs, InsertArgs, RemoveArgs};

pub(super) async fn insert(api: &Api, args: InsertArgs<'_>) -> Result<(), Failure> {
    check_key(&args.key)?;
    let (family, target) = check_path(&api.schema, &args.keyspace, &args.column_path)?;
    let Target::Column { super_name, name } = target else {
        return Err(family.refuse(InvalidRequest::NoSubcolumn).into());
    };
    check_modifiable(&args.keyspace)?;
    let mut builder = MutationBuilder::new(&api.schema, &args.keyspace, args.key.as_bytes());
    let place = (super_name.unwrap_or_default(), name);
    builder.family(family.id).insert(place, args.value, args.timestamp);
    write(api, &[builder.finish()], args.consistency_level).await
}

pub(super) async fn remove(api: &Api, args: RemoveArgs<'_>) -> Result<(), Failure> {
    check_key(&args.key)?;
    let (family, target) = check_removal(&api.schema, &args.keyspace, &args.column_path)?;
    check_modifiable(&args.keyspace)?;
    let deletion = Deletion::at(args.timestamp, api.clock.now_secs());
    let mut builder = MutationBuilder::new(&api.schema, &args.keyspace, args.key.as_bytes());
    builder.family(family.id);
    match target {
        Target::Row => builder.delete_row(deletion),
        Target::SuperColumn(super_name) => builder.delete_super_column(super_name, deletion),
        Target::Column { super_name, name } => {
            builder.delete_column((super_name.unwrap_or_default(), name), deletion)
        }
    };
    write(api, &[builder.finish()], args.consistency_level).await
}

pub(super) async fn batch_insert(api: &Api, args: BatchInsertArgs<'_>) -> Result<(), Failure> {
    check_key(&args.key)?;
    let mut row = RowBatch::new(&api.schema, &args.keyspace, &args.key, api.clock.now_secs());
    for (family, elements) in &args.cfmap {
        let mut family = row.family(family);
        elements.iter().try_for_each(|element| family.insert_one(element))?;
    }
    match row.finish()? {
        Some(mutation) => write(api, &[mutation], args.consistency_level).await,
        None => Ok(()),
    }
}

pub(super) async fn batch_mutate(api: &Api, args: BatchMutateArgs<'_>) -> Result<(), Failure> {
    let now = api.clock.now_secs();
    let mut mutations = Vec::new();
    for (key, families) in &args.mutation_map {
        check_key(key)?;
        let mut row = RowBatch::new(&api.schema, &args.keyspace, key, now);
        for (family, elements) in families {
            let mut family = row.family(family);
            elements.iter().try_for_each(|element| family.mutate(element))?;
        }
        mutations.extend(row.finish()?);
    }
    write(api, &mutations, args.consistency_level).await
}

async fn write(
    api: &Api,
    mutations: &[RowMutation],
    level: ConsistencyLevel,
) -> Result<(), Failure> {
    Ok(api.coordinator.write(mutations, write_level(level)).await?)
}
