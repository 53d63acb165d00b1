//! Writes.

use super::Calls;
use super::batch::RowBatch;
use super::paths::{Target, check_path, check_removal, refused, write_level};
use crate::model::deletion::Deletion;
use crate::model::mutation::{MutationBuilder, RowMutation};
use crate::service::{Service, ServiceError, check_key, check_modifiable};
use crate::thrift::idl::{BatchInsertArgs, BatchMutateArgs, InsertArgs, RemoveArgs};

pub(super) async fn insert(calls: &Calls, args: &InsertArgs<'_>) -> Result<(), ServiceError> {
    let row = inserted(&calls.service, args)?;
    calls.service.write(&[row], write_level(args.consistency_level)).await
}

fn inserted(service: &Service, args: &InsertArgs<'_>) -> Result<RowMutation, ServiceError> {
    check_key(&args.key)?;
    let (family, target) = check_path(service, &args.keyspace, &args.column_path)?;
    let Target::Column { super_name, name } = target else {
        return Err(refused("column parameter is not optional for super CF", family));
    };
    check_modifiable(&args.keyspace)?;
    let mut builder = MutationBuilder::new(service.schema(), &args.keyspace, args.key.as_bytes());
    let place = (super_name.unwrap_or_default(), name);
    builder.family(family.id).insert(place, args.value, args.timestamp);
    Ok(builder.finish())
}

pub(super) async fn remove(calls: &Calls, args: &RemoveArgs<'_>) -> Result<(), ServiceError> {
    let row = removed(&calls.service, args)?;
    calls.service.write(&[row], write_level(args.consistency_level)).await
}

fn removed(service: &Service, args: &RemoveArgs<'_>) -> Result<RowMutation, ServiceError> {
    check_key(&args.key)?;
    let (family, target) = check_removal(service, &args.keyspace, &args.column_path)?;
    check_modifiable(&args.keyspace)?;
    let deletion = Deletion::at(args.timestamp, service.now_secs());
    let mut builder = MutationBuilder::new(service.schema(), &args.keyspace, args.key.as_bytes());
    builder.family(family.id);
    match target {
        Target::Row => builder.delete_row(deletion),
        Target::SuperColumn(super_name) => builder.delete_super_column(super_name, deletion),
        Target::Column { super_name, name } => {
            builder.delete_column((super_name.unwrap_or_default(), name), deletion)
        }
    };
    Ok(builder.finish())
}

pub(super) async fn batch_insert(
    calls: &Calls,
    args: &BatchInsertArgs<'_>,
) -> Result<(), ServiceError> {
    check_key(&args.key)?;
    let mut row = RowBatch::new(&calls.service, &args.keyspace, &args.key, RowBatch::buffer());
    for (family, elements) in &args.cfmap.0 {
        let mut family = row.family(family);
        elements.iter().try_for_each(|element| family.insert_one(element))?;
    }
    match row.finish()? {
        Some((row, _)) => calls.service.write(&[row], write_level(args.consistency_level)).await,
        None => Ok(()),
    }
}

pub(super) async fn batch_mutate(
    calls: &Calls,
    args: &BatchMutateArgs<'_>,
) -> Result<(), ServiceError> {
    let mut mutations = Vec::with_capacity(args.mutation_map.len());
    let mut buffer = RowBatch::buffer();
    for (key, families) in &args.mutation_map.0 {
        check_key(key)?;
        let mut row = RowBatch::new(&calls.service, &args.keyspace, key, buffer);
        for (family, elements) in &families.0 {
            let mut family = row.family(family);
            elements.iter().try_for_each(|element| family.mutate(element))?;
        }
        buffer = match row.finish()? {
            Some((mutation, buffer)) => {
                mutations.push(mutation);
                buffer
            }
            None => RowBatch::buffer(),
        };
    }
    calls.service.write(&mutations, write_level(args.consistency_level)).await
}
