//! Descriptions of the server: properties, keyspaces, ring.

use super::Calls;
use crate::config::settings::{ColumnFamilySettings, Release};
use crate::model::schema::ColumnFamilySchema;
use crate::service::{ServiceError, has_text_keys};
use crate::thrift::idl::{
    DescribeKeyspaceArgs, DescribeKeyspacesArgs, DescribeRingArgs, DescribeSplitsArgs,
    GetStringListPropertyArgs, GetStringPropertyArgs, TokenRange, VERSION,
};
use crate::thrift::{Each, Encode, List, Map, Set, Text};
use std::fmt::Write;

/// Answer to a property that does not exist.
const UNKNOWN_PROPERTY: &str = "?";

/// Result of a description.
type Described<T> = Result<T, ServiceError>;

pub(super) fn get_string_property(calls: &Calls, args: &GetStringPropertyArgs<'_>) -> String {
    match args.property.as_ref() {
        "cluster name" => calls.service.cluster_name().to_owned(),
        "version" => version(calls).to_owned(),
        "token map" => token_map(calls),
        "config file" => calls.service.config_text().to_owned(),
        _ => UNKNOWN_PROPERTY.to_owned(),
    }
}

pub(super) fn get_string_list_property(
    calls: &Calls,
    args: &GetStringListPropertyArgs<'_>,
) -> impl Encode<List<Text<'static>>> + use<> {
    let asked = args.property == "keyspaces";
    Each(calls.service.schema().keyspaces().into_iter().filter(move |_| asked))
}

pub(super) fn describe_keyspaces(
    calls: &Calls,
    _args: &DescribeKeyspacesArgs<'_>,
) -> impl Encode<Set<Text<'static>>> + use<> {
    Each(calls.service.schema().keyspaces())
}

/// The ranges of the ring, each with the nodes that hold it, the owner first.
pub(super) fn describe_ring(
    calls: &Calls,
    args: &DescribeRingArgs<'_>,
) -> Described<impl Encode<List<TokenRange<'static>>> + use<>> {
    let ranges = calls.service.ring_of(&args.keyspace)?;
    Ok(Each(ranges.into_iter().map(|([start, end], endpoints)| TokenRange {
        start_token: start.into(),
        end_token: end.into(),
        endpoints: endpoints.into_iter().map(|endpoint| endpoint.to_string().into()).collect(),
    })))
}

pub(super) fn describe_keyspace(
    calls: &Calls,
    args: &DescribeKeyspaceArgs<'_>,
) -> Described<impl Encode<Map<Text<'static>, Map<Text<'static>, Text<'static>>>> + use<>> {
    let schema = calls.service.schema();
    if !schema.has_keyspace(&args.keyspace) {
        return Err(ServiceError::NotFound);
    }
    let families = schema.families_of(&args.keyspace).into_iter().filter(|it| has_text_keys(it));
    let described = families.map(|it| (it.table_name().to_owned(), Each(properties(calls, it))));
    Ok(Each(described.collect::<Vec<_>>()))
}

/// Tokens that cut a range into parts of about as many keys, judged by this node's data.
pub(super) async fn describe_splits(
    calls: &Calls,
    args: &DescribeSplitsArgs<'_>,
) -> Described<impl Encode<List<Text<'static>>> + use<>> {
    let DescribeSplitsArgs { start_token, end_token, keys_per_split } = args;
    Ok(Each(calls.service.splits(start_token, end_token, *keys_per_split).await?))
}

/// The version as the generation of the clients knows it.
fn version(calls: &Calls) -> &'static str {
    match calls.version {
        Release::V04 => "0.4.2",
        Release::V05 => "0.5.1",
        Release::V06 => VERSION,
    }
}

/// The nodes of the ring as a JSON object: tokens to addresses. Clients find other nodes by it;
/// those of 0.4 get only nodes that seem alive.
fn token_map(calls: &Calls) -> String {
    let members = calls.service.members().into_iter();
    let told = members.filter(|(_, _, is_alive)| *is_alive || calls.version != Release::V04);
    let members = told.map(|(token, node, _)| format!("{}:\"{node}\"", json_string(&token)));
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

/// Names and values. Clients instantiate the classes that they find here by their last name.
pub(super) fn properties(
    calls: &Calls,
    family: &ColumnFamilySchema,
) -> Vec<(&'static str, String)> {
    let mut properties =
        vec![("Type", kind(family).to_owned()), ("CompareWith", family.comparator().class_name())];
    if let Some(subcolumns) = family.subcolumn_comparator() {
        properties.push(("CompareSubcolumnsWith", subcolumns.class_name()));
    }
    if calls.version == Release::V04 {
        let settings = calls.service.settings(family);
        let minutes = settings.and_then(|s| s.flush_period).map_or(0, |p| p.as_secs() / 60);
        properties.push(("Desc", description_of_04(family, settings)));
        properties.push(("FlushPeriodInMinutes", minutes.to_string()));
    } else {
        properties.push(("Desc", description(family)));
    }
    properties
}

fn kind(family: &ColumnFamilySchema) -> &'static str {
    if family.is_super() { "Super" } else { "Standard" }
}

/// The comment, or the text that 0.5 and 0.6 make up if there is none. It ends in the identity hash
/// of a Java object, for which any number will do; ours stays the same.
fn description(family: &ColumnFamilySchema) -> String {
    if let Some(comment) = &family.comment {
        return comment.clone();
    }
    let hash = crc32fast::hash(family.to_string().as_bytes());
    format!(
        "{family}\nColumn Family Type: {}\nColumns Sorted By: {}@{hash:x}\n",
        kind(family),
        family.comparator().class_name(),
    )
}

/// The shape of the data, in the words of the configuration.
fn description_of_04(
    family: &ColumnFamilySchema,
    settings: Option<&ColumnFamilySettings>,
) -> String {
    let labels = settings.map(|settings| settings.labels.clone()).unwrap_or_default();
    let columns = ["ColumnMap", "ColumnKey", "ColumnValue", "ColumnTimestamp"];
    let [map, key, value, timestamp] = columns.map(|element| labels.word(element));
    let columns = format!("{map}({key}, {value}, {timestamp})");
    let columns = if family.is_super() {
        let (map, key) = (labels.word("SuperColumnMap"), labels.word("SuperColumnKey"));
        format!("{map}({key}, {columns})")
    } else {
        columns
    };
    format!("{family}({}, {columns})", labels.word("RowKey"))
}

fn json_string(text: &str) -> String {
    let mut json = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => json.extend(['\\', c]),
            c if c.is_control() => {
                write!(json, "\\u{:04x}", u32::from(c)).expect("a String takes any text");
            }
            c => json.push(c),
        }
    }
    json.push('"');
    json
}

#[cfg(test)]
mod tests {
    use super::json_string;

    #[test]
    fn any_token_is_a_json_string() {
        assert_eq!(json_string("4fiK6mfhP1Ma2YZH"), r#""4fiK6mfhP1Ma2YZH""#);
        assert_eq!(json_string("a\"b\\c\nd\u{1}é"), r#""a\"b\\c\u000ad\u0001é""#);
    }
}
