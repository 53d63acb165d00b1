//! Places of the data that a call is about, for the log of slow requests.

use crate::thrift::Text;
use crate::thrift::idl::{
    BatchInsertArgs, BatchMutateArgs, ColumnParent, ColumnPath, GetArgs, GetCountArgs,
    GetKeyRangeArgs, GetRangeSliceArgs, GetRangeSlicesArgs, GetSliceArgs, InsertArgs, MultigetArgs,
    MultigetSliceArgs, RemoveArgs,
};

/// Arguments of a call.
pub(super) trait Subject {
    /// Keyspace, column family and keys, without values.
    fn subject(&self) -> String;
}

fn one(keyspace: &str, family: &str, key: &str) -> String {
    format!("{keyspace}.{family} '{key}'")
}

fn several(keyspace: &str, family: &str, keys: &[Text<'_>]) -> String {
    let first = keys.first().map_or_else(String::new, |key| format!(" '{key}'"));
    format!("{keyspace}.{family}{first}, {} keys", keys.len())
}

/// Gives arguments of the same form their subject.
macro_rules! subjects {
    ($($args:ident: $it:ident => $subject:expr;)*) => { $(
        impl Subject for $args<'_> {
            fn subject(&self) -> String {
                let $it = self;
                $subject
            }
        }
    )* };
}

subjects! {
    GetArgs: it => one(&it.keyspace, path(&it.column_path), &it.key);
    GetSliceArgs: it => one(&it.keyspace, parent(&it.column_parent), &it.key);
    GetCountArgs: it => one(&it.keyspace, parent(&it.column_parent), &it.key);
    InsertArgs: it => one(&it.keyspace, path(&it.column_path), &it.key);
    RemoveArgs: it => one(&it.keyspace, path(&it.column_path), &it.key);
    MultigetArgs: it => several(&it.keyspace, path(&it.column_path), &it.keys);
    MultigetSliceArgs: it => several(&it.keyspace, parent(&it.column_parent), &it.keys);
    GetKeyRangeArgs: it => {
        let family = family(&it.keyspace, &it.column_family);
        format!("{family} from '{}', {} keys", it.start, it.count)
    };
    GetRangeSliceArgs: it => {
        let family = family(&it.keyspace, parent(&it.column_parent));
        format!("{family} from '{}', {} rows", it.start_key, it.row_count)
    };
    GetRangeSlicesArgs: it => {
        let family = family(&it.keyspace, parent(&it.column_parent));
        let start = it.range.start_key.as_ref().or(it.range.start_token.as_ref());
        let start = start.map_or_else(String::new, ToString::to_string);
        format!("{family} from '{start}', {} rows", it.range.count)
    };
    BatchInsertArgs: it => {
        let families: Vec<&str> = it.cfmap.0.iter().map(|(family, _)| &**family).collect();
        format!("{}.{} '{}'", it.keyspace, families.join(","), it.key)
    };
    BatchMutateArgs: it => {
        let key = it.mutation_map.0.first();
        let first = key.map_or_else(String::new, |(key, _)| format!(" '{key}'"));
        format!("{}{first}, {} keys", it.keyspace, it.mutation_map.0.len())
    };
}

fn family(keyspace: &str, family: &str) -> String {
    format!("{keyspace}.{family}")
}

fn path<'a>(path: &'a ColumnPath<'_>) -> &'a str {
    &path.column_family
}

fn parent<'a>(parent: &'a ColumnParent<'_>) -> &'a str {
    &parent.column_family
}
