//! What the server tells of itself: properties, keyspaces, ring.

use super::invalid_request::InvalidRequest;
use super::{Api, schema_text};
use crate::config::settings::Release;
use crate::config::settings::SYSTEM_KEYSPACE;
use crate::ring;
use crate::thrift::idl::{
    DescribeClusterNameArgs, DescribeKeyspaceArgs, DescribeKeyspacesArgs, DescribePartitionerArgs,
    DescribeRingArgs, DescribeSplitsArgs, DescribeVersionArgs, GetStringListPropertyArgs,
    GetStringPropertyArgs,
};
use crate::thrift::idl::{TokenRange, VERSION};
use crate::thrift::{Each, Encode, Failure, List, Map, Set, Text};
use std::borrow::Cow;
use std::fmt::Write;
use std::num::NonZero;

/// What is answered to a property that does not exist.
const UNKNOWN_PROPERTY: &str = "?";

pub(super) fn get_string_property(api: &Api, args: &GetStringPropertyArgs<'_>) -> String {
    match args.property.as_ref() {
        "cluster name" => api.cluster_name.clone(),
        "version" => version(api).to_owned(),
        "token map" => token_map(api),
        "config file" => api.config_text.clone(),
        _ => UNKNOWN_PROPERTY.to_owned(),
    }
}

pub(super) fn get_string_list_property<'a>(
    api: &'a Api,
    args: &GetStringListPropertyArgs<'_>,
) -> impl Encode<List<Text<'static>>> + use<'a> {
    let asked = args.property == "keyspaces";
    Each(api.schema.keyspaces().filter(move |_| asked))
}

pub(super) fn describe_keyspaces<'a>(
    api: &'a Api,
    _args: &DescribeKeyspacesArgs<'_>,
) -> impl Encode<Set<Text<'static>>> + use<'a> {
    Each(api.schema.keyspaces())
}

pub(super) fn describe_cluster_name(api: &Api, _args: &DescribeClusterNameArgs<'_>) -> String {
    api.cluster_name.clone()
}

/// Who asks is of 0.6, with which this call came.
pub(super) fn describe_version(_api: &Api, _args: &DescribeVersionArgs<'_>) -> &'static str {
    VERSION
}

pub(super) fn describe_partitioner(api: &Api, _args: &DescribePartitionerArgs<'_>) -> &'static str {
    api.coordinator.partitioner().class_name()
}

/// The ranges of the ring, each with the nodes that hold it, the owner first.
pub(super) fn describe_ring(
    api: &Api,
    args: &DescribeRingArgs<'_>,
) -> Result<impl Encode<List<TokenRange<'static>>> + use<>, Failure> {
    let keyspace = args.keyspace.as_ref();
    let placement = api.coordinator.placement(keyspace).filter(|_| keyspace != SYSTEM_KEYSPACE);
    let placement = placement.ok_or_else(|| InvalidRequest::NoRing(keyspace.to_owned()))?;
    let partitioner = api.coordinator.partitioner();
    let ranges = placement.describe_ring(&api.coordinator.ring());
    Ok(Each(ranges.into_iter().map(move |part| {
        let [start, end] = [part.range.start, part.range.end];
        let [start, end] = [start, end].map(|token| partitioner.format_token(&token));
        let endpoints = part.endpoints.into_iter().map(|endpoint| endpoint.to_string());
        TokenRange::fields(start, end, Each(endpoints))
    })))
}

pub(super) fn describe_keyspace(
    api: &Api,
    args: &DescribeKeyspaceArgs<'_>,
) -> Result<impl Encode<Map<Text<'static>, Map<Text<'static>, Text<'static>>>> + use<>, Failure> {
    if !api.schema.has_keyspace(&args.keyspace) {
        return Err(Failure::NotFound);
    }
    let families = api.schema.families_of(&args.keyspace);
    let described: Vec<_> = families
        .into_iter()
        .map(|family| (family.name.clone(), Each(schema_text::properties(api, family))))
        .collect();
    Ok(Each(described))
}

/// Tokens that cut a range into parts of about so many keys, judged by this node's data.
pub(super) async fn describe_splits(
    api: &Api,
    args: DescribeSplitsArgs<'_>,
) -> Result<impl Encode<List<Text<'static>>> + use<>, Failure> {
    let partitioner = api.coordinator.partitioner();
    let parse = |text: &Cow<'_, str>| partitioner.parse_token(text).map_err(InvalidRequest::from);
    let range = ring::TokenRange { start: parse(&args.start_token)?, end: parse(&args.end_token)? };
    let keys = NonZero::new(args.keys_per_split).ok_or(InvalidRequest::ZeroKeysPerSplit)?;
    let tokens = api.coordinator.splits(range, keys).await?;
    Ok(Each(tokens.into_iter().map(move |token| partitioner.format_token(&token))))
}

/// The version as the generation of the clients knows it.
fn version(api: &Api) -> &'static str {
    match api.version {
        Release::V04 => "0.4.2",
        Release::V05 => "0.5.1",
        Release::V06 => VERSION,
    }
}

/// The nodes of the ring as a JSON object: tokens to addresses. Clients find other nodes by it;
/// those of 0.4 hear only of those that seem alive.
fn token_map(api: &Api) -> String {
    let partitioner = api.coordinator.partitioner();
    let ring = api.coordinator.ring();
    let member = |(token, endpoint)| {
        format!("{}:\"{endpoint}\"", json_string(&partitioner.display_token(token)))
    };
    let is_told = |endpoint| api.version != Release::V04 || api.coordinator.seems_alive(endpoint);
    let told = ring.members().filter(|(_, endpoint)| is_told(*endpoint));
    let members: Vec<String> = told.map(member).collect();
    format!("{{{}}}", members.join(","))
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
