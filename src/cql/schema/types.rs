//! User types.

use super::super::ast::{AlterType, QualifiedName, TypeName};
use super::super::definition;
use super::super::error::CqlError;
use super::super::types::TypeNames;
use super::tables::replace_all;
use super::{Changed, Ground, MAX_NAME};
use crate::model::table::ColumnKind;
use crate::model::types::{CqlType, Native, UserType};
use crate::schema::Definitions;
use std::sync::Arc;

/// Most fields of a type, as on the wire.
const MAX_FIELDS: usize = 32_768;

/// CREATE TYPE.
pub(super) fn create(
    (name, if_not_exists): (&QualifiedName, bool),
    fields: &[(String, TypeName)],
    ground: &Ground,
    now: &Definitions,
) -> Changed {
    let keyspace = ground.keyspace(name)?;
    let type_name = &name.name;
    if !ground.has_keyspace(now, keyspace) {
        let why = format!("Cannot add type in unknown keyspace {keyspace}");
        return Err(CqlError::invalid(why));
    }
    if now.user_type(keyspace, type_name).is_some() {
        let why = format!("A user type of name {keyspace}.{type_name} already exists");
        return if if_not_exists { Ok(None) } else { Err(CqlError::invalid(why)) };
    }
    if type_name.len() > MAX_NAME || Native::from_name(type_name).is_some() {
        let why = format!("\"{type_name}\" is not a valid name of a user type");
        return Err(CqlError::invalid(why));
    }
    let mut user =
        UserType { keyspace: keyspace.to_owned(), name: type_name.clone(), fields: Vec::new() };
    for (field, of_type) in fields {
        if user.position(field).is_some() {
            let why = format!("Duplicate field name {field} in type {type_name}");
            return Err(CqlError::invalid(why));
        }
        user.fields.push((field.clone(), field_type(of_type, keyspace, now)?));
    }
    let mut next = now.clone();
    next.keyspace_mut(keyspace).types.insert(type_name.clone(), Arc::new(user));
    Ok(Some(next))
}

fn field_type(of_type: &TypeName, keyspace: &str, now: &Definitions) -> Result<CqlType, CqlError> {
    let written = of_type;
    let of_type = (now as &dyn TypeNames).resolve(written, keyspace)?;
    match of_type {
        CqlType::Native(Native::Counter) => {
            Err(CqlError::invalid("A user type cannot contain counters"))
        }
        CqlType::User(_) => Err(CqlError::invalid("A user type cannot contain non-frozen UDTs")),
        _ => {
            definition::check_type(&of_type, written)?;
            Ok(of_type)
        }
    }
}

/// ALTER TYPE.
pub(super) fn alter(
    name: &QualifiedName,
    change: &AlterType,
    ground: &Ground,
    now: &Definitions,
) -> Changed {
    let keyspace = ground.keyspace(name)?;
    if !ground.has_keyspace(now, keyspace) {
        let why = format!("Cannot alter type in unknown keyspace {keyspace}");
        return Err(CqlError::invalid(why));
    }
    let shown = format!("{keyspace}.{}", name.name);
    let Some(old) = now.user_type(keyspace, &name.name) else {
        return Err(CqlError::invalid(format!("No user type named {shown} exists.")));
    };
    let mut user = UserType::clone(old);
    match change {
        AlterType::Type(..) => {
            return Err(CqlError::invalid("Altering of types is not allowed"));
        }
        AlterType::Add(field, of_type) => {
            if user.position(field).is_some() {
                return Err(CqlError::invalid(format!(
                    "Cannot add new field {field} to type {shown}: a field of the same name \
                     already exists"
                )));
            }
            let of_type = field_type(of_type, keyspace, now)?;
            if uses(&of_type, &name.name) {
                return Err(CqlError::invalid(format!(
                    "Cannot add new field {field} of type {of_type} to type {shown} as this would \
                     create a circular reference"
                )));
            }
            if user.fields.len() >= MAX_FIELDS {
                return Err(CqlError::invalid(format!("Type {shown} has too many fields")));
            }
            check_keys(&shown, &name.name, keyspace, now)?;
            user.fields.push((field.clone(), of_type));
        }
        AlterType::Rename(renamings) => {
            check_keys(&shown, &name.name, keyspace, now)?;
            for (from, to) in renamings {
                let Some(at) = user.position(from) else {
                    let why = format!("Unknown field {from} in type {shown}");
                    return Err(CqlError::invalid(why));
                };
                user.fields[at].0.clone_from(to);
            }
            let is_twice = |(field, _): &&(String, CqlType)| {
                user.fields.iter().filter(|(other, _)| other == field).count() > 1
            };
            if let Some((field, _)) = user.fields.iter().find(is_twice) {
                let why = format!("Duplicate field name {field} in type {shown}");
                return Err(CqlError::invalid(why));
            }
        }
    }
    let mut next = now.clone();
    replace_type(&mut next, keyspace, &Arc::new(user));
    Ok(Some(next))
}

/// The type of a key decides about tokens and the order of rows, and cannot change.
fn check_keys(shown: &str, name: &str, keyspace: &str, now: &Definitions) -> Result<(), CqlError> {
    let tables = now.keyspaces.get(keyspace).into_iter().flat_map(|it| &it.tables);
    for (table, definition) in tables {
        let mut keys = definition.table.columns.iter().filter(|column| {
            matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering { .. })
        });
        if keys.any(|column| uses(&column.of_type, name)) {
            return Err(CqlError::invalid(format!(
                "Cannot alter user type {shown} as it is used in the primary key of table \
                 {keyspace}.{table}"
            )));
        }
    }
    Ok(())
}

/// Replaces a type everywhere in its keyspace.
fn replace_type(definitions: &mut Definitions, keyspace: &str, user: &Arc<UserType>) {
    let name = &user.name;
    let definition = definitions.keyspace_mut(keyspace);
    for other in definition.types.values_mut().filter(|it| it.name != *name) {
        if other.fields.iter().any(|(_, of_type)| uses(of_type, name)) {
            let fields = other.fields.iter();
            let fields = fields.map(|(field, of)| (field.clone(), with(of, user))).collect();
            *other = Arc::new(UserType { fields, ..UserType::clone(other) });
        }
    }
    definition.types.insert(name.clone(), Arc::clone(user));
    replace_all(definition, |column| {
        uses(&column.of_type, name).then(|| with(&column.of_type, user))
    });
}

/// DROP TYPE.
pub(super) fn drop(
    name: &QualifiedName,
    if_exists: bool,
    ground: &Ground,
    now: &Definitions,
) -> Changed {
    let keyspace = ground.keyspace(name)?;
    let shown = format!("{keyspace}.{}", name.name);
    if now.user_type(keyspace, &name.name).is_none() {
        if if_exists {
            return Ok(None);
        }
        return Err(CqlError::invalid(if ground.has_keyspace(now, keyspace) {
            format!("No user type named {shown} exists.")
        } else {
            format!("Cannot drop type in unknown keyspace {keyspace}")
        }));
    }
    let mut next = now.clone();
    let definition = next.keyspace_mut(keyspace);
    let is_user = |it: &&Arc<UserType>| {
        it.name != name.name && it.fields.iter().any(|(_, of_type)| uses(of_type, &name.name))
    };
    if let Some(user) = definition.types.values().find(is_user) {
        return Err(CqlError::invalid(format!(
            "Cannot drop user type {shown} as it is still used by user type {}",
            user.name
        )));
    }
    for (table, it) in &definition.tables {
        if it.table.columns.iter().any(|column| uses(&column.of_type, &name.name)) {
            return Err(CqlError::invalid(format!(
                "Cannot drop user type {shown} as it is still used by table {keyspace}.{table}"
            )));
        }
    }
    definition.types.remove(&name.name);
    super::tables::forget_if_empty(&mut next, keyspace);
    Ok(Some(next))
}

/// Whether a type is made of the user type of this name. All are of one keyspace.
fn uses(of_type: &CqlType, name: &str) -> bool {
    match of_type {
        CqlType::Native(_) | CqlType::Custom(_) => false,
        CqlType::List(inner) | CqlType::Set(inner) | CqlType::Frozen(inner) => uses(inner, name),
        CqlType::Map(inner) => uses(&inner.0, name) || uses(&inner.1, name),
        CqlType::Tuple(fields) => fields.iter().any(|field| uses(field, name)),
        CqlType::User(user) => {
            user.name == name || user.fields.iter().any(|(_, field)| uses(field, name))
        }
    }
}

/// The type with the user type in place of the one of its name.
fn with(of_type: &CqlType, new: &Arc<UserType>) -> CqlType {
    let inner = |it: &Arc<CqlType>| Arc::new(with(it, new));
    match of_type {
        CqlType::Native(_) | CqlType::Custom(_) => of_type.clone(),
        CqlType::List(of) => CqlType::List(inner(of)),
        CqlType::Set(of) => CqlType::Set(inner(of)),
        CqlType::Frozen(of) => CqlType::Frozen(inner(of)),
        CqlType::Map(of) => CqlType::Map(Arc::new((with(&of.0, new), with(&of.1, new)))),
        CqlType::Tuple(fields) => CqlType::Tuple(fields.iter().map(|it| with(it, new)).collect()),
        CqlType::User(user) if user.name == new.name => CqlType::User(Arc::clone(new)),
        CqlType::User(user) => {
            let fields = user.fields.iter().map(|(name, it)| (name.clone(), with(it, new)));
            let fields = fields.collect();
            CqlType::User(Arc::new(UserType { fields, ..UserType::clone(user) }))
        }
    }
}
