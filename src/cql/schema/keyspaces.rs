//! Keyspaces.

use super::super::ast::{Properties, Property};
use super::super::error::CqlError;
use super::{Changed, Ground, MAX_NAME, configured, is_word};
use crate::config::classes::StrategyName;
use crate::schema::{Definitions, KeyspaceDefinition, Replication};
use std::collections::BTreeMap;

const PACKAGE: &str = "org.apache.cassandra.locator.";
const REPLICATION: &str = "replication";
const DURABLE: &str = "durable_writes";
const FACTOR: &str = "replication_factor";

/// CREATE KEYSPACE.
pub(super) fn create(
    (name, if_not_exists): (&str, bool),
    properties: &Properties,
    ground: &Ground,
    now: &Definitions,
) -> Changed {
    if name.len() > MAX_NAME {
        return Err(CqlError::invalid(format!(
            "Keyspace names shouldn't be more than {MAX_NAME} characters long (got \"{name}\")"
        )));
    }
    if !is_word(name) {
        return Err(CqlError::invalid(format!("\"{name}\" is not a valid keyspace name")));
    }
    check_properties(properties)?;
    let Some(mut options) = replication_options(properties)? else {
        return Err(CqlError::config("Missing mandatory replication strategy class"));
    };
    let class = options.get("class").filter(|_| options.len() == 1);
    if class.is_some_and(|class| class.ends_with("NetworkTopologyStrategy")) {
        // As in later versions. 3.11 makes a keyspace without replicas.
        options.insert(FACTOR.to_owned(), "1".to_owned());
    }
    let replication = replication(name, options, ground)?;
    if ground.has_keyspace(now, name) {
        return if if_not_exists { Ok(None) } else { Err(CqlError::keyspace_exists(name)) };
    }
    let mut next = now.clone();
    let definition = KeyspaceDefinition {
        replication: Some(replication),
        durable_writes: durable_writes(properties)?.unwrap_or(true),
        ..KeyspaceDefinition::default()
    };
    next.keyspaces.insert(name.to_owned(), definition);
    Ok(Some(next))
}

/// ALTER KEYSPACE.
pub(super) fn alter(
    name: &str,
    properties: &Properties,
    ground: &Ground,
    now: &Definitions,
) -> Changed {
    if ground.configured.contains_key(name) {
        return Err(configured(&format!("keyspace {name}")));
    }
    if !ground.has_keyspace(now, name) {
        return Err(CqlError::invalid(format!("Unknown keyspace {name}")));
    }
    check_properties(properties)?;
    let mut next = now.clone();
    let keyspace = next.keyspace_mut(name);
    if let Some(options) = replication_options(properties)? {
        keyspace.replication = Some(replication(name, options, ground)?);
    }
    if let Some(durable) = durable_writes(properties)? {
        keyspace.durable_writes = durable;
    }
    Ok(Some(next))
}

/// DROP KEYSPACE.
pub(super) fn drop(name: &str, if_exists: bool, ground: &Ground, now: &Definitions) -> Changed {
    if ground.configured.contains_key(name) {
        return Err(configured(&format!("keyspace {name}")));
    }
    if !ground.has_keyspace(now, name) {
        let why = format!("Cannot drop non existing keyspace '{name}'.");
        return if if_exists { Ok(None) } else { Err(CqlError::config(why)) };
    }
    let mut next = now.clone();
    next.keyspaces.remove(name);
    Ok(Some(next))
}

fn check_properties(properties: &Properties) -> Result<(), CqlError> {
    match properties.iter().find(|(name, _)| ![REPLICATION, DURABLE].contains(&name.as_str())) {
        Some((unknown, _)) => Err(CqlError::syntax(format!("Unknown property '{unknown}'"))),
        None => Ok(()),
    }
}

fn replication_options(
    properties: &Properties,
) -> Result<Option<BTreeMap<String, String>>, CqlError> {
    match properties.iter().find(|(name, _)| name == REPLICATION) {
        None => Ok(None),
        Some((_, Property::Map(entries))) => Ok(Some(entries.iter().cloned().collect())),
        Some((_, Property::Text(_))) => {
            Err(CqlError::syntax("Invalid value for property 'replication'. It should be a map."))
        }
    }
}

fn durable_writes(properties: &Properties) -> Result<Option<bool>, CqlError> {
    match properties.iter().find(|(name, _)| name == DURABLE) {
        None => Ok(None),
        Some((_, Property::Text(text))) => Ok(Some(super::properties::is_true(text))),
        Some((_, Property::Map(_))) => Err(CqlError::syntax(
            "Invalid value for property 'durable_writes'. It should be a string",
        )),
    }
}

/// The replication of these options.
fn replication(
    keyspace: &str,
    mut options: BTreeMap<String, String>,
    ground: &Ground,
) -> Result<Replication, CqlError> {
    let class = options.remove("class");
    let class =
        class.ok_or_else(|| CqlError::config("Missing mandatory replication strategy class"))?;
    let strategy = match class.strip_prefix(PACKAGE).unwrap_or(&class) {
        "SimpleStrategy" => StrategyName::RackUnaware,
        "OldNetworkTopologyStrategy" => StrategyName::RackAware,
        "NetworkTopologyStrategy" => StrategyName::DatacenterShard,
        "LocalStrategy" => {
            let why = format!(
                "Unable to use given strategy class: {class} is reserved for internal use."
            );
            return Err(CqlError::config(why));
        }
        _ => {
            let full =
                if class.contains('.') { class.clone() } else { format!("{PACKAGE}{class}") };
            let why = format!("Unable to find replication strategy class '{full}'");
            return Err(CqlError::config(why));
        }
    };
    let everywhere = options.remove(FACTOR).map(|text| factor(&text)).transpose()?;
    if strategy == StrategyName::DatacenterShard {
        if let Some(everywhere) = everywhere {
            // As in later versions, which take it for all data centres that are not named.
            for center in &ground.data_centers {
                options.entry(center.clone()).or_insert(everywhere.to_string());
            }
        }
        let unknown = options.keys().find(|center| !ground.data_centers.contains(*center));
        if let Some(center) = unknown {
            let known: Vec<&str> = ground.data_centers.iter().map(String::as_str).collect();
            let CqlError { kind, message } = unrecognized(center, &class, keyspace);
            let why = format!("{message}. The data centers are: {}", known.join(", "));
            return Err(CqlError::new(kind, why));
        }
        let data_centers = options.iter().map(|(center, text)| Ok((center.clone(), factor(text)?)));
        let data_centers = data_centers.collect::<Result<BTreeMap<_, _>, CqlError>>()?;
        if data_centers.is_empty() {
            let why = "Configuration for at least one datacenter must be present";
            return Err(CqlError::config(why));
        }
        return Ok(Replication { strategy, factor: 0, data_centers });
    }
    let short = class.rsplit('.').next().unwrap_or_default();
    let needed =
        || CqlError::config(format!("{short} requires a replication_factor strategy option."));
    let factor = everywhere.ok_or_else(needed)?;
    options.keys().next().map_or(Ok(()), |it| Err(unrecognized(it, short, keyspace)))?;
    Ok(Replication { strategy, factor, data_centers: BTreeMap::new() })
}

fn unrecognized(option: &str, class: &str, keyspace: &str) -> CqlError {
    CqlError::config(format!(
        "Unrecognized strategy option {{{option}}} passed to {class} for keyspace {keyspace}"
    ))
}

fn factor(text: &str) -> Result<u32, CqlError> {
    match text.parse::<i32>().map(u32::try_from) {
        Ok(Ok(factor)) => Ok(factor),
        Ok(Err(_)) => {
            Err(CqlError::config(format!("Replication factor must be non-negative; found {text}")))
        }
        Err(_) => {
            Err(CqlError::config(format!("Replication factor must be numeric; found {text}")))
        }
    }
}
