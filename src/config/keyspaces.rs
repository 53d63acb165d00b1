//! Keyspaces and column families of a document.

use super::classes::{SnitchName, StrategyName};
use super::document::{Document, Place, Value, parse_double};
use super::error::{ConfigError, Problem};
use super::ours;
use super::settings::{
    CacheSize, ColumnFamilySettings, CompactionStrategy, DEFAULT_MAX_COMPACTION_THRESHOLD,
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
const DATACENTER_FACTOR: &str = "DatacenterReplicationFactor";
/// What 0.6 remembers of a column family's keys.
const DEFAULT_KEYS_CACHED: u64 = 200_000;

/// Reads all keyspaces. Elements of one name are one keyspace: its children are those of all of
/// them, in the order of the file.
pub(super) fn read(
    doc: &mut Document<'_>,
    comparators: &ComparatorRegistry,
    storage: &StorageSettings,
    replication: &ReplicationSettings,
) -> Vec<KeyspaceSettings> {
    let root = doc.root;
    let elements: Vec<&Element> =
        root.children_named("Keyspaces").flat_map(|e| e.children_named("Keyspace")).collect();
    if elements.is_empty() && doc.release == Release::V06 {
        doc.refuse(doc.absent("Keyspaces", Problem::NoKeyspaces));
    }
    let global = Replication::of_file(doc, elements.is_empty());
    let mut parts_by_name: BTreeMap<&str, Vec<&Element>> = BTreeMap::new();
    for element in &elements {
        let name = element.attribute("Name").map_or("", |attribute| attribute.value.trim());
        parts_by_name.entry(name).or_default().push(element);
    }
    let mut keyspaces = Vec::new();
    for element in &elements {
        let Some(name) = doc.accept(keyspace_name(doc, element)) else { continue };
        let Some(parts) = parts_by_name.remove(name.as_str()) else {
            let text = format!("keyspace {name} is continued here; the first values count");
            doc.notes.warn(element.line, text);
            continue;
        };
        let mut reader = KeyspaceReader { doc, comparators, storage, replication, name, parts };
        keyspaces.extend(reader.read(&global));
    }
    keyspaces
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
    fn of_file(doc: &mut Document<'_>, no_keyspaces: bool) -> Self {
        if doc.release == Release::V06 {
            return Self { strategy: None, factor: None, snitch: None };
        }
        let read = Self {
            strategy: doc.optional("ReplicaPlacementStrategy", None, strategy),
            factor: doc.optional(
                "ReplicationFactor",
                Some(DEFAULT_REPLICATION_FACTOR),
                replication_factor,
            ),
            snitch: doc.optional("EndPointSnitch", None, snitch),
        };
        // A keyspace may bring its own, but without any keyspace nothing else can.
        for (name, problem) in [
            ("ReplicaPlacementStrategy", Problem::MissingGlobalStrategy),
            ("EndPointSnitch", Problem::MissingGlobalSnitch),
        ] {
            if no_keyspaces && !doc.sources.contains_key(name) {
                doc.refuse(doc.absent(name, problem));
            }
        }
        read
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
    fn read(&mut self, global: &Replication) -> Option<KeyspaceSettings> {
        let missing = self.missing_strategy();
        let strategy =
            self.replication("ReplicaPlacementStrategy", strategy, global.strategy, missing);
        let missing = self.absent(Problem::MissingReplicationFactor(self.name.clone()));
        let replication_factor =
            self.replication("ReplicationFactor", replication_factor, global.factor, missing);
        let missing = self.missing_snitch();
        let snitch = self.replication("EndPointSnitch", snitch, global.snitch, missing);
        let datacenter_replication_factors = self.datacenter_replication_factors();
        if strategy == Some(StrategyName::DatacenterShard)
            && snitch.is_some_and(|snitch| snitch != SnitchName::Datacenter)
            && self.children(DATACENTER_FACTOR).next().is_none()
        {
            self.doc.refuse(self.absent(Problem::DatacentersUnknown));
        }
        let inherited = self.inherited();
        let column_families = self.column_families(&inherited);
        Some(KeyspaceSettings {
            name: self.name.clone(),
            line: self.line(),
            strategy: strategy?,
            replication_factor: replication_factor?,
            snitch: snitch?,
            datacenter_replication_factors,
            column_families,
        })
    }

    /// A part of the replication: that of the keyspace, else that of all keyspaces. The latter
    /// has been reported already if it was refused.
    fn replication<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&Value<'a>) -> Result<T, ConfigError>,
        global: Option<T>,
        missing: ConfigError,
    ) -> Option<T> {
        if let Some(value) = self.child(name) {
            return self.doc.accept(read(&value));
        }
        if global.is_none() && !self.doc.sources.contains_key(name) {
            self.doc.refuse(missing);
        }
        global
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

    fn datacenter_replication_factors(&mut self) -> BTreeMap<String, u32> {
        let mut factors = BTreeMap::new();
        for element in self.children(DATACENTER_FACTOR) {
            let place = self.place(&format!("/{DATACENTER_FACTOR}"), element.line);
            let center = Value::of_attribute(element, &place, "Datacenter");
            let value = Value::of_element(element, place.clone());
            let (Some(center), Some(value)) = (center, value) else {
                self.doc.refuse(place.refuse(Problem::Missing));
                continue;
            };
            // A data centre may hold no replica at all.
            let Some(factor) = self.doc.at_least(&value, 0) else { continue };
            if factors.insert(center.text.to_owned(), factor).is_some() {
                let text = format!("data centre {} is given again; this one counts", center.text);
                self.doc.notes.warn(element.line, text);
            }
        }
        factors
    }

    fn inherited(&mut self) -> Inherited {
        let default = match self.doc.release {
            Release::V05 => CacheSize::Fraction(DEFAULT_KEYS_FRACTION_OF_05),
            _ => CacheSize::Entries(DEFAULT_KEYS_CACHED),
        };
        let fraction = self.child("KeysCachedFraction");
        let fraction = fraction.filter(|_| self.doc.release < Release::V06);
        let keys_cached = self.doc.read_or(fraction, default, cache_size);
        let row_key = self.child("RowKey").map(|value| value.text.to_owned());
        Inherited { keys_cached, row_key: row_key.unwrap_or(Labels::default().row_key) }
    }

    /// Of several elements of one name the last one's attributes count, and the first one's
    /// children.
    fn column_families(&mut self, inherited: &Inherited) -> Vec<ColumnFamilySettings> {
        let mut families: Vec<ColumnFamilySettings> = Vec::new();
        let mut index_by_name: BTreeMap<String, usize> = BTreeMap::new();
        for element in self.children("ColumnFamily") {
            let Some(mut family) = self.column_family(element, inherited) else { continue };
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
        families
    }

    fn column_family(
        &mut self,
        element: &'a Element,
        inherited: &Inherited,
    ) -> Option<ColumnFamilySettings> {
        let name = self.doc.accept(self.column_family_name(element))?;
        let place = self.place(&format!("/ColumnFamily[@Name='{}']", name.text), element.line);
        let kind = self.kind(element, &place, name.text);
        let comment = child_text(element, "Comment").map(str::to_owned);
        let attribute = |name| Value::of_attribute(element, &place, name);
        let keys_cached = attribute("KeysCached").or(attribute("KeysCachedFraction"));
        let keys_cached = self.doc.read_or(keys_cached, inherited.keys_cached, cache_size);
        let rows_cached = self.doc.read_or(attribute("RowsCached"), CacheSize::Off, cache_size);
        let row_cache_save_period = self.period(attribute("RowCacheSavePeriodInSeconds"), SECOND);
        let key_cache_save_period = self.period(attribute("KeyCacheSavePeriodInSeconds"), SECOND);
        let flush_period = attribute("FlushPeriodInMinutes");
        let flush_period = flush_period.filter(|_| self.doc.release == Release::V04);
        let flush_period = self.period(flush_period, MINUTE);
        let (min_compaction_threshold, max_compaction_threshold) =
            self.compaction_thresholds(element, &place);
        let gc_grace = attribute("GCGraceSeconds");
        let gc_grace = gc_grace.and_then(|value| self.doc.at_least(&value, 0));
        let compression = self.storage.compression;
        let compression =
            self.doc.read_or(attribute("Compression"), compression, ours::compression_of);
        let strategy = CompactionStrategy::SizeTiered;
        let compaction_strategy =
            self.doc.read_or(attribute("CompactionStrategy"), strategy, ours::compaction_strategy);
        let read_repair_chance = self.read_repair_chance(attribute("ReadRepairChance"));
        Some(ColumnFamilySettings {
            schema: Arc::new(ColumnFamilySchema {
                keyspace: self.name.clone(),
                name: name.text.to_owned(),
                kind: kind?,
                comment,
                gc_grace: gc_grace.map_or(self.storage.gc_grace, |seconds| SECOND * seconds),
                read_repair_chance,
            }),
            line: element.line,
            keys_cached,
            rows_cached,
            key_cache_save_period,
            row_cache_save_period,
            compaction_strategy,
            min_compaction_threshold,
            max_compaction_threshold,
            compression,
            flush_period,
            labels: labels(element, &inherited.row_key),
        })
    }

    fn column_family_name(&self, element: &'a Element) -> Result<Value<'a>, ConfigError> {
        let place = self.place("/ColumnFamily", element.line);
        let name = Value::of_attribute(element, &place, "Name");
        let name = name.ok_or_else(|| place.refuse(Problem::MissingColumnFamilyName))?;
        if name.text.contains('-') && self.doc.release == Release::V06 {
            return Err(name.refuse(Problem::HyphenInColumnFamilyName));
        }
        usable_as_file_name(&name)?;
        Ok(name)
    }

    fn kind(
        &mut self,
        element: &'a Element,
        place: &Place<'a>,
        name: &str,
    ) -> Option<ColumnFamilyKind> {
        let attribute = |name| Value::of_attribute(element, place, name);
        let is_super = match attribute("ColumnType") {
            Some(value) => self.doc.accept(is_super(&value, name)),
            None => Some(false),
        };
        if let Some(sort) = element.attribute("ColumnSort") {
            let place = Place { line: sort.line, ..place.clone() };
            self.doc.refuse(place.refuse(Problem::ColumnSort));
        }
        let compare_with = self.comparator(attribute("CompareWith"), "CompareWith");
        let subcolumns = attribute("CompareSubcolumnsWith");
        if is_super? {
            let columns = self.comparator(subcolumns, "CompareSubcolumnsWith");
            return Some(ColumnFamilyKind::Super {
                super_columns: compare_with?,
                columns: columns?,
            });
        }
        if let Some(value) = subcolumns {
            self.doc.refuse(value.refuse(Problem::SubcolumnsOfStandard(name.to_owned())));
        }
        Some(ColumnFamilyKind::Standard { columns: compare_with? })
    }

    fn comparator(
        &mut self,
        value: Option<Value<'a>>,
        attribute: &'static str,
    ) -> Option<Comparator> {
        let Some(value) = value else { return Some(Comparator::Bytes) };
        let found = self.comparators.resolve(value.text);
        if found.is_none() {
            let class = ComparatorRegistry::full_class_name(value.text);
            let made = ["ReversedType(T)", "CompositeType(T,U,...)"];
            let known = self.comparators.class_names().chain(made);
            let known = known.map(str::to_owned).collect();
            self.doc.refuse(value.refuse(match self.doc.release {
                Release::V06 => Problem::UnknownComparator { class, known },
                _ => Problem::UnloadableComparator { class, attribute, known },
            }));
        }
        found
    }

    fn period(&mut self, value: Option<Value<'a>>, unit: Duration) -> Option<Duration> {
        let count = self.doc.at_least(&value?, 0)?;
        (count > 0).then(|| unit * count)
    }

    /// The rules of nodetool, which is how the original sets them: the least minimum is 2, and a
    /// maximum of 0 switches compaction off.
    fn compaction_thresholds(&mut self, element: &'a Element, place: &Place<'a>) -> (u32, u32) {
        let max = Value::of_attribute(element, place, "MaxCompactionThreshold");
        let max = max.and_then(|value| self.doc.at_least(&value, 0));
        let max = max.unwrap_or(DEFAULT_MAX_COMPACTION_THRESHOLD);
        let min_value = Value::of_attribute(element, place, "MinCompactionThreshold");
        let min = min_value.as_ref().and_then(|value| self.doc.at_least(value, 2));
        let min = min.unwrap_or(DEFAULT_MIN_COMPACTION_THRESHOLD.min(max));
        match min_value {
            Some(value) if max > 0 && min > max => {
                self.doc.refuse(value.refuse(Problem::CompactionThresholds));
            }
            None if max == 1 => self.doc.refuse(place.refuse(Problem::CompactionThresholds)),
            _ => {}
        }
        (min, max)
    }

    fn read_repair_chance(&mut self, value: Option<Value<'a>>) -> f64 {
        let is_on = self.replication.do_consistency_checks;
        let default = if is_on { DEFAULT_READ_REPAIR_CHANCE } else { 0.0 };
        self.doc.read_or(value, default, |value| match value.double()? {
            chance if (0.0..=1.0).contains(&chance) => Ok(chance),
            _ => Err(value.refuse(Problem::OutOfBounds("from 0 to 1"))),
        })
    }
}

/// The `ColumnType` of a column family.
fn is_super(value: &Value<'_>, name: &str) -> Result<bool, ConfigError> {
    match value.text {
        "Standard" => Ok(false),
        "Super" => Ok(true),
        other => Err(value.refuse(Problem::InvalidColumnType {
            column_family: name.to_owned(),
            value: other.to_owned(),
        })),
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
