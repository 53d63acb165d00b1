//! Keyspaces and column families of a document.

use super::classes::{SnitchName, StrategyName};
use super::document::{Document, Place, Value, parse_double};
use super::error::{ConfigError, Problem};
use super::ours;
use super::settings::{
    CacheSize, ColumnFamilySettings, DEFAULT_MAX_COMPACTION_THRESHOLD,
    DEFAULT_MIN_COMPACTION_THRESHOLD, KeyspaceSettings, Labels, Release, ReplicationSettings,
    SYSTEM_KEYSPACE, StorageSettings,
};
use super::xml::Element;
use crate::model::comparator::{Comparator, ComparatorRegistry};
use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Before 0.6 a keyspace without a factor had as many replicas.
const DEFAULT_REPLICATION_FACTOR: u32 = 3;
/// The share of reads at ONE that repair, unless consistency checks are off.
const DEFAULT_READ_REPAIR_CHANCE: f64 = 0.1;
/// What 0.5 remembers of a keyspace's keys.
const DEFAULT_KEYS_FRACTION_OF_05: f64 = 0.01;
/// What 0.6 remembers of a column family's keys.
const DEFAULT_KEYS_CACHED: u64 = 200_000;

/// Reads all keyspaces. Elements of one name are one keyspace: its children are those of all of
/// them, in the order of the file.
pub(super) fn read(
    doc: &mut Document<'_>,
    comparators: &ComparatorRegistry,
    storage: &StorageSettings,
    replication: &ReplicationSettings,
) -> Result<Vec<KeyspaceSettings>, ConfigError> {
    let root = doc.root;
    let elements: Vec<&Element> =
        root.children_named("Keyspaces").flat_map(|e| e.children_named("Keyspace")).collect();
    if elements.is_empty() && doc.release == Release::V06 {
        return Err(doc.absent("Keyspaces", Problem::NoKeyspaces));
    }
    let global = Replication::of_file(doc, elements.is_empty())?;
    let mut parts_by_name: BTreeMap<&str, Vec<&Element>> = BTreeMap::new();
    for element in &elements {
        let name = element.attribute("Name").map_or("", |attribute| attribute.value.trim());
        parts_by_name.entry(name).or_default().push(element);
    }
    let mut keyspaces = Vec::new();
    for element in &elements {
        let name = keyspace_name(doc, element)?;
        let Some(parts) = parts_by_name.remove(name.as_str()) else {
            let text = format!("keyspace {name} is continued here; the first values count");
            doc.notes.warn(element.line, text);
            continue;
        };
        let mut reader = KeyspaceReader { doc, comparators, storage, replication, name, parts };
        keyspaces.push(reader.read(&global)?);
    }
    Ok(keyspaces)
}

fn keyspace_name(doc: &Document<'_>, element: &Element) -> Result<String, ConfigError> {
    let place = doc.place("Keyspaces/Keyspace", element.line);
    let Some(name) = Value::of_attribute(element, &place, "Name") else {
        return Err(place.refuse(Problem::MissingKeyspaceName));
    };
    if name.text.eq_ignore_ascii_case(SYSTEM_KEYSPACE) {
        return Err(name.refuse(Problem::ReservedKeyspaceName));
    }
    usable_as_file_name(&name)?;
    Ok(name.text.to_owned())
}

/// Names become parts of paths, so they must not lead elsewhere.
fn usable_as_file_name(name: &Value<'_>) -> Result<(), ConfigError> {
    let is_bad = |c: char| c == '/' || c.is_control();
    if name.text.contains(is_bad) || name.text == "." || name.text == ".." {
        return Err(name.refuse(Problem::UnusableName));
    }
    Ok(())
}

/// The replication of all keyspaces together, before 0.6; nothing in a file of 0.6.
struct Replication {
    strategy: Option<StrategyName>,
    factor: Option<u32>,
    snitch: Option<SnitchName>,
}

impl Replication {
    fn of_file(doc: &mut Document<'_>, no_keyspaces: bool) -> Result<Self, ConfigError> {
        if doc.release == Release::V06 {
            return Ok(Self { strategy: None, factor: None, snitch: None });
        }
        let strategy = doc.find("ReplicaPlacementStrategy").map(|v| strategy(&v)).transpose()?;
        let factor = match doc.find("ReplicationFactor") {
            Some(value) => replication_factor(&value)?,
            None => DEFAULT_REPLICATION_FACTOR,
        };
        let snitch = doc.find("EndPointSnitch").map(|v| snitch(&v)).transpose()?;
        // A keyspace may bring its own, but without any keyspace nothing else can.
        if no_keyspaces && strategy.is_none() {
            return Err(doc.absent("ReplicaPlacementStrategy", Problem::MissingGlobalStrategy));
        }
        if no_keyspaces && snitch.is_none() {
            return Err(doc.absent("EndPointSnitch", Problem::MissingGlobalSnitch));
        }
        Ok(Self { strategy, factor: Some(factor), snitch })
    }
}

fn strategy(value: &Value<'_>) -> Result<StrategyName, ConfigError> {
    let found = StrategyName::from_class_name(value.text);
    found.ok_or_else(|| value.refuse(Problem::InvalidStrategy(value.text.to_owned())))
}

fn snitch(value: &Value<'_>) -> Result<SnitchName, ConfigError> {
    let found = SnitchName::from_class_name(value.text);
    found.ok_or_else(|| value.refuse(Problem::InvalidSnitch(value.text.to_owned())))
}

/// The original does not check the range; without a replica every write would be lost.
fn replication_factor(value: &Value<'_>) -> Result<u32, ConfigError> {
    match u32::try_from(value.integer()?) {
        Ok(factor) if factor > 0 => Ok(factor),
        _ => Err(value.refuse(Problem::OutOfBounds("at least 1"))),
    }
}

/// What column families take from their keyspace where they do not say it.
struct Inherited {
    keys_cached: CacheSize,
    row_key: String,
}

/// One keyspace that is being read.
struct KeyspaceReader<'d, 'a> {
    doc: &'d mut Document<'a>,
    comparators: &'d ComparatorRegistry,
    storage: &'d StorageSettings,
    replication: &'d ReplicationSettings,
    name: String,
    parts: Vec<&'a Element>,
}

impl<'a> KeyspaceReader<'_, 'a> {
    fn read(&mut self, global: &Replication) -> Result<KeyspaceSettings, ConfigError> {
        let strategy = match self.child("ReplicaPlacementStrategy") {
            Some(value) => strategy(&value)?,
            None => global.strategy.ok_or_else(|| self.missing_strategy())?,
        };
        let replication_factor = match self.child("ReplicationFactor") {
            Some(value) => replication_factor(&value)?,
            None => global
                .factor
                .ok_or_else(|| self.absent(Problem::MissingReplicationFactor(self.name.clone())))?,
        };
        let snitch = match self.child("EndPointSnitch") {
            Some(value) => snitch(&value)?,
            None => global.snitch.ok_or_else(|| self.missing_snitch())?,
        };
        let datacenter_replication_factors = self.datacenter_replication_factors()?;
        if strategy == StrategyName::DatacenterShard
            && snitch != SnitchName::Datacenter
            && datacenter_replication_factors.is_empty()
        {
            return Err(self.absent(Problem::DatacentersUnknown));
        }
        let inherited = self.inherited()?;
        let column_families = self.column_families(&inherited)?;
        Ok(KeyspaceSettings {
            name: self.name.clone(),
            line: self.line(),
            strategy,
            replication_factor,
            snitch,
            datacenter_replication_factors,
            column_families,
        })
    }

    fn line(&self) -> u32 {
        self.parts.first().map_or(0, |element| element.line)
    }

    /// The place of a child of this keyspace, or of the keyspace itself.
    fn place(&self, child: &str, line: u32) -> Place<'a> {
        self.doc.place(&format!("Keyspaces/Keyspace[@Name='{}']{child}", self.name), line)
    }

    fn absent(&self, problem: Problem) -> ConfigError {
        self.place("", self.line()).refuse(problem)
    }

    fn missing_strategy(&self) -> ConfigError {
        if self.doc.release == Release::V06 {
            return self.absent(Problem::MissingStrategy(self.name.clone()));
        }
        self.doc.absent("ReplicaPlacementStrategy", Problem::MissingGlobalStrategy)
    }

    fn missing_snitch(&self) -> ConfigError {
        if self.doc.release == Release::V06 {
            return self.absent(Problem::MissingSnitch(self.name.clone()));
        }
        self.doc.absent("EndPointSnitch", Problem::MissingGlobalSnitch)
    }

    fn children(&self, name: &'static str) -> impl Iterator<Item = &'a Element> + use<'a> {
        let parts = self.parts.clone();
        parts.into_iter().flat_map(move |part| part.children_named(name))
    }

    /// The first child of that name, unless it is empty.
    fn child(&self, name: &'static str) -> Option<Value<'a>> {
        let element = self.children(name).next()?;
        Value::of_element(element, self.place(&format!("/{name}"), element.line))
    }

    fn datacenter_replication_factors(&mut self) -> Result<BTreeMap<String, u32>, ConfigError> {
        const NAME: &str = "DatacenterReplicationFactor";
        let mut factors = BTreeMap::new();
        for element in self.children(NAME) {
            let place = self.place(&format!("/{NAME}"), element.line);
            let missing = || place.refuse(Problem::Missing);
            let center = Value::of_attribute(element, &place, "Datacenter").ok_or_else(missing)?;
            let value = Value::of_element(element, place.clone()).ok_or_else(missing)?;
            // A data centre may hold no replica at all.
            let factor = self.doc.at_least(&value, 0)?;
            if factors.insert(center.text.to_owned(), factor).is_some() {
                let text = format!("data centre {} is given again; this one counts", center.text);
                self.doc.notes.warn(element.line, text);
            }
        }
        Ok(factors)
    }

    fn inherited(&self) -> Result<Inherited, ConfigError> {
        let keys_cached = match (self.doc.release, self.child("KeysCachedFraction")) {
            (Release::V04 | Release::V05, Some(value)) => cache_size(&value)?,
            (Release::V05, None) => CacheSize::Fraction(DEFAULT_KEYS_FRACTION_OF_05),
            _ => CacheSize::Entries(DEFAULT_KEYS_CACHED),
        };
        let row_key = self.child("RowKey").map(|value| value.text.to_owned());
        Ok(Inherited { keys_cached, row_key: row_key.unwrap_or(Labels::default().row_key) })
    }

    /// Of several elements of one name the last one's attributes count, and the first one's
    /// children.
    fn column_families(
        &mut self,
        inherited: &Inherited,
    ) -> Result<Vec<ColumnFamilySettings>, ConfigError> {
        let mut families: Vec<ColumnFamilySettings> = Vec::new();
        let mut index_by_name: BTreeMap<String, usize> = BTreeMap::new();
        for element in self.children("ColumnFamily") {
            let mut family = self.column_family(element, inherited)?;
            let index = index_by_name.entry(family.schema.name.clone()).or_insert(families.len());
            let Some(known) = families.get_mut(*index) else {
                families.push(family);
                continue;
            };
            let text = format!(
                "column family {} is given on line {} already; these attributes count",
                family.schema.name, known.line
            );
            self.doc.notes.warn(element.line, text);
            let schema = Arc::unwrap_or_clone(family.schema);
            let comment = known.schema.comment.clone();
            family.schema = Arc::new(ColumnFamilySchema { comment, ..schema });
            family.labels = known.labels.clone();
            *known = family;
        }
        Ok(families)
    }

    fn column_family(
        &mut self,
        element: &'a Element,
        inherited: &Inherited,
    ) -> Result<ColumnFamilySettings, ConfigError> {
        let place = self.place("/ColumnFamily", element.line);
        let Some(name) = Value::of_attribute(element, &place, "Name") else {
            return Err(place.refuse(Problem::MissingColumnFamilyName));
        };
        if name.text.contains('-') && self.doc.release == Release::V06 {
            return Err(name.refuse(Problem::HyphenInColumnFamilyName));
        }
        usable_as_file_name(&name)?;
        let place = self.place(&format!("/ColumnFamily[@Name='{}']", name.text), element.line);
        let kind = self.kind(element, &place, name.text)?;
        let comment = child_text(element, "Comment").map(str::to_owned);
        let attribute = |name| Value::of_attribute(element, &place, name);
        let keys_cached = match attribute("KeysCached").or(attribute("KeysCachedFraction")) {
            Some(value) => cache_size(&value)?,
            None => inherited.keys_cached,
        };
        let rows_cached = attribute("RowsCached").map_or(Ok(CacheSize::Off), |v| cache_size(&v))?;
        let row_cache_save_period =
            self.period(attribute("RowCacheSavePeriodInSeconds"), SECOND)?;
        let key_cache_save_period =
            self.period(attribute("KeyCacheSavePeriodInSeconds"), SECOND)?;
        let flush_period = match attribute("FlushPeriodInMinutes") {
            value if self.doc.release == Release::V04 => self.period(value, MINUTE)?,
            _ => None,
        };
        let (min_compaction_threshold, max_compaction_threshold) =
            self.compaction_thresholds(element, &place)?;
        let gc_grace = match attribute("GCGraceSeconds") {
            Some(value) => SECOND * self.doc.at_least(&value, 0)?,
            None => self.storage.gc_grace,
        };
        let compression = attribute("Compression");
        let compression =
            compression.map_or(Ok(self.storage.compression), |v| ours::compression_of(&v))?;
        Ok(ColumnFamilySettings {
            schema: Arc::new(ColumnFamilySchema {
                keyspace: self.name.clone(),
                name: name.text.to_owned(),
                kind,
                comment,
            }),
            line: element.line,
            keys_cached,
            rows_cached,
            key_cache_save_period,
            row_cache_save_period,
            compaction_strategy: ours::compaction_strategy(attribute("CompactionStrategy"))?,
            min_compaction_threshold,
            max_compaction_threshold,
            gc_grace,
            compression,
            read_repair_chance: self.read_repair_chance(attribute("ReadRepairChance"))?,
            flush_period,
            labels: labels(element, &inherited.row_key),
        })
    }

    fn kind(
        &self,
        element: &'a Element,
        place: &Place<'a>,
        name: &str,
    ) -> Result<ColumnFamilyKind, ConfigError> {
        let attribute = |name| Value::of_attribute(element, place, name);
        let is_super = match attribute("ColumnType") {
            None => false,
            Some(value) => match value.text {
                "Standard" => false,
                "Super" => true,
                other => {
                    return Err(value.refuse(Problem::InvalidColumnType {
                        column_family: name.to_owned(),
                        value: other.to_owned(),
                    }));
                }
            },
        };
        if let Some(sort) = element.attribute("ColumnSort") {
            let place = Place { line: sort.line, ..place.clone() };
            return Err(place.refuse(Problem::ColumnSort));
        }
        let compare_with = self.comparator(attribute("CompareWith"), "CompareWith")?;
        let subcolumns = attribute("CompareSubcolumnsWith");
        match subcolumns {
            Some(value) if !is_super => {
                Err(value.refuse(Problem::SubcolumnsOfStandard(name.to_owned())))
            }
            _ if !is_super => Ok(ColumnFamilyKind::Standard { columns: compare_with }),
            value => Ok(ColumnFamilyKind::Super {
                super_columns: compare_with,
                columns: self.comparator(value, "CompareSubcolumnsWith")?,
            }),
        }
    }

    fn comparator(
        &self,
        value: Option<Value<'a>>,
        attribute: &'static str,
    ) -> Result<Comparator, ConfigError> {
        let Some(value) = value else { return Ok(Comparator::Bytes) };
        self.comparators.resolve(value.text).ok_or_else(|| {
            let class = ComparatorRegistry::full_class_name(value.text);
            let made = ["ReversedType(T)", "CompositeType(T,U,...)"];
            let known: Vec<&str> = self.comparators.class_names().chain(made).collect();
            let known = known.join(", ");
            value.refuse(match self.doc.release {
                Release::V06 => Problem::UnknownComparator { class, known },
                _ => Problem::UnloadableComparator { class, attribute, known },
            })
        })
    }

    fn period(
        &mut self,
        value: Option<Value<'a>>,
        unit: Duration,
    ) -> Result<Option<Duration>, ConfigError> {
        let Some(value) = value else { return Ok(None) };
        let count = self.doc.at_least(&value, 0)?;
        Ok((count > 0).then(|| unit * count))
    }

    /// The rules of nodetool, which is how the original sets them: the least minimum is 2, and a
    /// maximum of 0 switches compaction off.
    fn compaction_thresholds(
        &mut self,
        element: &'a Element,
        place: &Place<'a>,
    ) -> Result<(u32, u32), ConfigError> {
        let max = match Value::of_attribute(element, place, "MaxCompactionThreshold") {
            Some(value) => self.doc.at_least(&value, 0)?,
            None => DEFAULT_MAX_COMPACTION_THRESHOLD,
        };
        let min_value = Value::of_attribute(element, place, "MinCompactionThreshold");
        let min = match &min_value {
            Some(value) => self.doc.at_least(value, 2)?,
            None => DEFAULT_MIN_COMPACTION_THRESHOLD.min(max),
        };
        match min_value {
            Some(value) if max > 0 && min > max => Err(value.refuse(Problem::CompactionThresholds)),
            None if max == 1 => Err(place.refuse(Problem::CompactionThresholds)),
            _ => Ok((min, max)),
        }
    }

    fn read_repair_chance(&self, value: Option<Value<'a>>) -> Result<f64, ConfigError> {
        let Some(value) = value else {
            let is_on = self.replication.do_consistency_checks;
            return Ok(if is_on { DEFAULT_READ_REPAIR_CHANCE } else { 0.0 });
        };
        match value.double()? {
            chance if (0.0..=1.0).contains(&chance) => Ok(chance),
            _ => Err(value.refuse(Problem::OutOfBounds("from 0 to 1"))),
        }
    }
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);

fn labels(element: &Element, row_key: &str) -> Labels {
    let default = Labels::default();
    let label = |name, default| child_text(element, name).map_or(default, str::to_owned);
    Labels {
        row_key: row_key.to_owned(),
        super_column_map: label("SuperColumnMap", default.super_column_map),
        super_column_key: label("SuperColumnKey", default.super_column_key),
        column_map: label("ColumnMap", default.column_map),
        column_key: label("ColumnKey", default.column_key),
        column_value: label("ColumnValue", default.column_value),
        column_timestamp: label("ColumnTimestamp", default.column_timestamp),
    }
}

fn child_text<'a>(element: &'a Element, name: &str) -> Option<&'a str> {
    let child = element.children.iter().find(|child| child.name == name)?;
    Some(child.text.trim()).filter(|text| !text.is_empty())
}

/// `<n>%` of the keys, or a number: 0 is off, up to 1 a fraction, above a number of entries.
fn cache_size(value: &Value<'_>) -> Result<CacheSize, ConfigError> {
    let bad = || value.refuse(Problem::NotANumber("a number or percentage that is not negative"));
    let number = |text: &str| parse_double(text).filter(|n| *n >= 0.0).ok_or_else(bad);
    let size = match value.text.strip_suffix('%') {
        Some(percent) => number(percent.trim_end())? / 100.0,
        None => number(value.text)?,
    };
    Ok(match size {
        0.0 => CacheSize::Off,
        share if share <= 1.0 || value.text.ends_with('%') => CacheSize::Fraction(share),
        entries => CacheSize::Entries(entries as u64),
    })
}
