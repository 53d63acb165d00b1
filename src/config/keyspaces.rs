//! Keyspaces and column families of a document.

use super::classes::{SnitchName, StrategyName};
use super::declared;
use super::document::{Document, Value, parse_double};
use super::error::{ConfigError, Place, Problem};
use super::settings::{
    CacheSize, ColumnFamilySettings, CompactionStrategy, Compression,
    DEFAULT_MAX_COMPACTION_THRESHOLD, DEFAULT_MIN_COMPACTION_THRESHOLD, KeyspaceSettings, Labels,
    Release, ReplicationSettings, SYSTEM_KEYSPACE, StorageSettings,
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
/// Share of a keyspace's keys that 0.5 caches.
const DEFAULT_KEYS_FRACTION_OF_05: f64 = 0.01;
const DATACENTER_FACTOR: &str = "DatacenterReplicationFactor";
/// Number of a column family's keys that 0.6 caches.
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
        let problem = Problem::from("No keyspaces configured");
        let problem = problem.advising("add <Keyspaces> with one <Keyspace>");
        doc.refuse(doc.absent("Keyspaces", problem));
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
        return Err(place.refuse("Table name attribute is required"));
    };
    if name.text.eq_ignore_ascii_case(SYSTEM_KEYSPACE) {
        let text = "'system' is a reserved table name for Cassandra internals";
        return Err(name.refuse(text));
    }
    usable_as_file_name(&name)?;
    Ok(name.text.to_owned())
}

/// Most bytes of a name. In the names of files it gets endings, in those of snapshots a beginning.
const MAX_NAME_BYTES: usize = 190;

/// Names become parts of paths, so they must not lead elsewhere.
fn usable_as_file_name(name: &Value<'_>) -> Result<(), ConfigError> {
    let is_bad = |c: char| c == '/' || c.is_control();
    if name.text.contains(is_bad) || name.text == "." || name.text == ".." {
        let text = "names of directories and files cannot contain '/' or control characters";
        return Err(name.refuse(text));
    }
    if name.text.len() > MAX_NAME_BYTES {
        let text =
            format!("names of directories and files can have at most {MAX_NAME_BYTES} bytes");
        return Err(name.refuse(text));
    }
    Ok(())
}

const STRATEGY: &str = "ReplicaPlacementStrategy";
const SNITCH: &str = "EndPointSnitch";

/// The replication of all keyspaces together, before 0.6; nothing in a file of 0.6.
#[derive(Default)]
struct Replication {
    strategy: Option<StrategyName>,
    factor: Option<u32>,
    snitch: Option<SnitchName>,
}

impl Replication {
    fn of_file(doc: &mut Document<'_>, no_keyspaces: bool) -> Self {
        if doc.release == Release::V06 {
            return Self::default();
        }
        let strategy = doc.optional(STRATEGY, strategy);
        let factor = doc.optional("ReplicationFactor", replication_factor);
        let factor = factor.or(Some(DEFAULT_REPLICATION_FACTOR));
        let snitch = doc.optional(SNITCH, snitch);
        // A keyspace may bring its own, but without any keyspace nothing else can.
        for name in [STRATEGY, SNITCH] {
            if no_keyspaces && !doc.sources.contains_key(name) {
                doc.refuse(doc.absent(name, missing_class(name, &format!("/Storage/{name}"))));
            }
        }
        Self { strategy, factor, snitch }
    }
}

/// The problem of an element that is absent, and names a class.
fn missing_class(element: &str, place: &str) -> Problem {
    let text = format!("Missing {} directive {place}", element.to_lowercase());
    Problem::from(text).allowing(match element {
        STRATEGY => StrategyName::ALL.map(StrategyName::class_name),
        _ => SnitchName::ALL.map(SnitchName::class_name),
    })
}

/// Both spellings of the data-centre strategy are known.
fn strategy(value: &Value<'_>) -> Result<StrategyName, ConfigError> {
    if value.text == "org.apache.cassandra.locator.DatacenterShardStrategy" {
        return Ok(StrategyName::DatacenterShard);
    }
    value.class("replicaplacementstrategy", &StrategyName::ALL, StrategyName::class_name)
}

fn snitch(value: &Value<'_>) -> Result<SnitchName, ConfigError> {
    value.class("endpointsnitch", &SnitchName::ALL, SnitchName::class_name)
}

/// The original does not check the range; without a replica every write would be lost.
fn replication_factor(value: &Value<'_>) -> Result<u32, ConfigError> {
    match u32::try_from(value.integer()?) {
        Ok(factor) if factor > 0 => Ok(factor),
        _ => Err(value.refuse("must be at least 1")),
    }
}

/// Defaults that column families take from their keyspace.
struct Inherited {
    keys_cached: CacheSize,
    row_key: Option<String>,
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
        let name = self.name.clone();
        let missing = self.missing_class(STRATEGY, &format!("for {name}"));
        let strategy = self.replication(STRATEGY, strategy, global.strategy, missing);
        let text = format!("Missing replicationfactor directory for keyspace {name}");
        let missing = self.absent(
            Problem::from(text)
                .advising("add <ReplicationFactor>1</ReplicationFactor> for a single node"),
        );
        let replication_factor =
            self.replication("ReplicationFactor", replication_factor, global.factor, missing);
        let missing = self.missing_class(SNITCH, &format!("for keyspace {name}"));
        let snitch = self.replication(SNITCH, snitch, global.snitch, missing);
        let datacenter_replication_factors = self.datacenter_replication_factors();
        if strategy == Some(StrategyName::DatacenterShard)
            && snitch.is_some_and(|snitch| snitch != SnitchName::Datacenter)
            && self.children(DATACENTER_FACTOR).next().is_none()
        {
            let problem =
                Problem::startup("DatacenterShardStrategy requires DatacenterEndpointSnitch");
            self.doc.refuse(self.absent(problem.advising(
                "or one <DatacenterReplicationFactor Datacenter=\"…\"> for each data centre",
            )));
        }
        let inherited = self.inherited();
        let column_families = self.column_families(&inherited);
        Some(KeyspaceSettings {
            name,
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

    fn absent(&self, problem: impl Into<Problem>) -> ConfigError {
        self.place("", self.line()).refuse(problem)
    }

    /// The error for a class that neither the keyspace nor, before 0.6, the file names.
    fn missing_class(&self, element: &'static str, of_keyspace: &str) -> ConfigError {
        if self.doc.release == Release::V06 {
            return self.absent(missing_class(element, of_keyspace));
        }
        self.doc.absent(element, missing_class(element, &format!("/Storage/{element}")))
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
                self.doc.refuse(place.refuse(Problem::missing()));
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
        Inherited { keys_cached, row_key }
    }

    /// Of several elements of one name the last one's attributes count, and the first one's
    /// children.
    fn column_families(&mut self, inherited: &Inherited) -> Vec<ColumnFamilySettings> {
        let mut families: Vec<ColumnFamilySettings> = Vec::new();
        let mut first_by_name: BTreeMap<&str, (&Element, usize)> = BTreeMap::new();
        for element in self.children("ColumnFamily") {
            let name = element.attribute("Name").map_or("", |attribute| attribute.value.trim());
            let known = first_by_name.get(name).copied();
            let parent = known.map_or(element, |(first, _)| first);
            let Some(family) = self.column_family(element, parent, inherited) else { continue };
            let Some((first, index)) = known else {
                first_by_name.insert(name, (element, families.len()));
                families.push(family);
                continue;
            };
            let text = format!(
                "column family {name} is given on line {} already; these attributes count",
                first.line
            );
            self.doc.notes.warn(element.line, text);
            families[index] = family;
        }
        families
    }

    /// The column family of an element with the children of another.
    fn column_family(
        &mut self,
        element: &'a Element,
        parent: &'a Element,
        inherited: &Inherited,
    ) -> Option<ColumnFamilySettings> {
        let name = self.doc.accept(self.column_family_name(element))?.text;
        let place = self.place(&format!("/ColumnFamily[@Name='{name}']"), element.line);
        let (comparators, release) = (self.comparators, self.doc.release);
        let (storage, is_checked) = (self.storage, self.replication.do_consistency_checks);
        let mut family = FamilyReader { doc: self.doc, comparators, element, place };
        let kind = family.kind(name);
        let table = kind
            .as_ref()
            .map(|it| declared::table(family.doc, [element, parent], &family.place, it));
        let keys_cached = family.attribute("KeysCached");
        let keys_cached = keys_cached.or(family.attribute("KeysCachedFraction"));
        let keys_cached = family.doc.read_or(keys_cached, inherited.keys_cached, cache_size);
        let rows_cached = family.read("RowsCached", CacheSize::Off, cache_size);
        let row_cache_save_period = family.period("RowCacheSavePeriodInSeconds", SECOND);
        let key_cache_save_period = family.period("KeyCacheSavePeriodInSeconds", SECOND);
        let is_of_04 = release == Release::V04;
        let flush_period = is_of_04.then(|| family.period("FlushPeriodInMinutes", MINUTE));
        let (min_compaction_threshold, max_compaction_threshold) = family.compaction_thresholds();
        let gc_grace = family.at_least("GCGraceSeconds", 0).map(|seconds| SECOND * seconds);
        let compression = family.read("Compression", storage.compression, compression);
        let strategy = CompactionStrategy::SizeTiered;
        let compaction_strategy = family.read("CompactionStrategy", strategy, compaction_strategy);
        let chance = if is_checked { DEFAULT_READ_REPAIR_CHANCE } else { 0.0 };
        let read_repair_chance = family.read("ReadRepairChance", chance, share);
        Some(ColumnFamilySettings {
            schema: Arc::new(ColumnFamilySchema {
                comment: child_text(parent, "Comment").map(str::to_owned),
                gc_grace: gc_grace.unwrap_or(storage.gc_grace),
                read_repair_chance,
                table: Arc::new(table?),
                ..ColumnFamilySchema::new(self.name.clone(), name.to_owned(), kind?)
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
            flush_period: flush_period.flatten(),
            labels: labels(parent, inherited.row_key.as_deref()),
        })
    }

    fn column_family_name(&self, element: &'a Element) -> Result<Value<'a>, ConfigError> {
        let place = self.place("/ColumnFamily", element.line);
        let name = Value::of_attribute(element, &place, "Name");
        let name = name.ok_or_else(|| place.refuse("ColumnFamily name attribute is required"))?;
        if name.text.contains('-') && self.doc.release == Release::V06 {
            return Err(name.refuse("ColumnFamily names cannot contain hyphens"));
        }
        usable_as_file_name(&name)?;
        Ok(name)
    }
}

/// One column family that is being read.
struct FamilyReader<'d, 'a> {
    doc: &'d mut Document<'a>,
    comparators: &'d ComparatorRegistry,
    element: &'a Element,
    place: Place<'a>,
}

impl<'a> FamilyReader<'_, 'a> {
    fn attribute(&self, name: &'static str) -> Option<Value<'a>> {
        Value::of_attribute(self.element, &self.place, name)
    }

    fn read<T>(
        &mut self,
        name: &'static str,
        default: T,
        read: impl FnOnce(&Value<'a>) -> Result<T, ConfigError>,
    ) -> T {
        self.doc.read_or(self.attribute(name), default, read)
    }

    fn at_least(&mut self, name: &'static str, least: u32) -> Option<u32> {
        let value = self.attribute(name)?;
        self.doc.at_least(&value, least)
    }

    fn period(&mut self, name: &'static str, unit: Duration) -> Option<Duration> {
        let count = self.at_least(name, 0)?;
        (count > 0).then(|| unit * count)
    }

    fn kind(&mut self, name: &str) -> Option<ColumnFamilyKind> {
        let is_super = match self.attribute("ColumnType") {
            Some(value) => self.doc.accept(is_super(&value, name)),
            None => Some(false),
        };
        if let Some(sort) = self.element.attribute("ColumnSort") {
            let place = Place { line: sort.line, ..self.place.clone() };
            let text = "ColumnSort is no longer an accepted attribute.  Use CompareWith instead.";
            self.doc.refuse(place.refuse(text));
        }
        let compare_with = self.comparator("CompareWith");
        if is_super? {
            let columns = self.comparator("CompareSubcolumnsWith");
            let (super_columns, columns) = (compare_with?, columns?);
            return Some(ColumnFamilyKind::Super { super_columns, columns });
        }
        if let Some(value) = self.attribute("CompareSubcolumnsWith") {
            self.doc.refuse(value.refuse(format!(
                "CompareSubcolumnsWith is only a valid attribute on super columnfamilies (not \
                 regular columnfamily {name})"
            )));
        }
        Some(ColumnFamilyKind::Standard { columns: compare_with? })
    }

    fn comparator(&mut self, attribute: &'static str) -> Option<Comparator> {
        let Some(value) = self.attribute(attribute) else { return Some(Comparator::Bytes) };
        let found = self.comparators.resolve(value.text);
        if found.is_none() {
            let class = ComparatorRegistry::full_class_name(value.text);
            let made = ["ReversedType(T)", "CompositeType(T,U,...)"];
            let problem = Problem::from(match self.doc.release {
                Release::V06 => format!("java.lang.ClassNotFoundException: {class}"),
                _ => format!("Unable to load class {class} for {attribute} attribute"),
            });
            let problem = problem.allowing(self.comparators.class_names().chain(made));
            self.doc.refuse(value.refuse(problem));
        }
        found
    }

    /// The rules of nodetool, which is how the original sets them: the least minimum is 2, and a
    /// maximum of 0 switches compaction off.
    fn compaction_thresholds(&mut self) -> (u32, u32) {
        let max = self.at_least("MaxCompactionThreshold", 0);
        let max = max.unwrap_or(DEFAULT_MAX_COMPACTION_THRESHOLD);
        let min = self.at_least("MinCompactionThreshold", 2);
        let min = min.unwrap_or(DEFAULT_MIN_COMPACTION_THRESHOLD.min(max));
        let text = "Min threshold can't be greater than Max threshold";
        match self.attribute("MinCompactionThreshold") {
            Some(value) if max > 0 && min > max => self.doc.refuse(value.refuse(text)),
            None if max == 1 => self.doc.refuse(self.place.refuse(text)),
            _ => {}
        }
        (min, max)
    }
}

fn share(value: &Value<'_>) -> Result<f64, ConfigError> {
    match value.double()? {
        share if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err(value.refuse("must be from 0 to 1")),
    }
}

/// The compression that a value names.
pub(super) fn compression(value: &Value<'_>) -> Result<Compression, ConfigError> {
    value.one_of("Compression", &[Compression::Lz4, Compression::None])
}

fn compaction_strategy(value: &Value<'_>) -> Result<CompactionStrategy, ConfigError> {
    let known = [CompactionStrategy::SizeTiered, CompactionStrategy::Leveled];
    value.one_of("CompactionStrategy", &known)
}

/// The `ColumnType` of a column family.
fn is_super(value: &Value<'_>, name: &str) -> Result<bool, ConfigError> {
    match value.text {
        "Standard" => Ok(false),
        "Super" => Ok(true),
        other => {
            let problem = format!("ColumnFamily {name} has invalid type {other}");
            Err(value.refuse(Problem::from(problem).allowing(["Standard", "Super"])))
        }
    }
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);

fn labels(element: &Element, row_key: Option<&str>) -> Labels {
    let of_family = Labels::OF_FAMILY.into_iter().map(|name| (name, child_text(element, name)));
    let all = of_family.chain([("RowKey", row_key)]);
    Labels(all.filter_map(|(name, text)| Some((name, text?.to_owned()))).collect())
}

fn child_text<'a>(element: &'a Element, name: &str) -> Option<&'a str> {
    let child = element.children.iter().find(|child| child.name == name)?;
    Some(child.text.trim()).filter(|text| !text.is_empty())
}

/// `<n>%` of the keys, or a number: 0 is off, up to 1 a fraction, above a number of entries.
fn cache_size(value: &Value<'_>) -> Result<CacheSize, ConfigError> {
    let bad = || value.refuse_as_no("a number or percentage that is not negative");
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
