//! Column families with the types of their keys, names and values.

use super::connection::Connection;
use super::literals;
use super::mistake::Mistake;
use super::statement::{Family, Name, Part};
use crate::admin::report::FamilyTypes;
use crate::model::comparator::{Comparator, ComparatorRegistry};
use crate::model::types::{CqlType, Native};
use crate::thrift::idl::{DescribeKeyspaceArgs, Exception};
use crate::thrift::remote::CallError;
use std::collections::BTreeMap;

/// Types of a column family.
#[derive(Debug, Clone)]
pub(super) struct Types {
    /// Of columns or super columns.
    pub(super) names: Comparator,
    /// Of the columns of super columns; `None` in a standard column family.
    pub(super) sub_names: Option<Comparator>,
    pub(super) keys: CqlType,
    /// `None` is text, as in the original.
    pub(super) values: Option<CqlType>,
    /// Columns that are declared: names in cells and for people, types of values.
    columns: Vec<(Vec<u8>, String, CqlType)>,
}

impl Types {
    /// From what `describe_keyspace` tells. A class that is not known is one of bytes.
    fn described(properties: &[(String, String)]) -> Self {
        let comparator = |name: &str| {
            let (_, class) = properties.iter().find(|(property, _)| property == name)?;
            Some(ComparatorRegistry::default().resolve(class).unwrap_or(Comparator::Bytes))
        };
        let is_super = properties.iter().any(|(name, value)| name == "Type" && value == "Super");
        Self {
            names: comparator("CompareWith").unwrap_or(Comparator::Bytes),
            sub_names: is_super
                .then(|| comparator("CompareSubcolumnsWith").unwrap_or(Comparator::Bytes)),
            keys: Native::Text.into(),
            values: None,
            columns: Vec::new(),
        }
    }

    /// Adds what the admin side tells, if that is about the same column family.
    fn declare(&mut self, told: &FamilyTypes) {
        let classes =
            [Some(&self.names), self.sub_names.as_ref()].map(|it| it.map(Comparator::class_name));
        if classes != [Some(told.comparator.clone()), told.subcomparator.clone()] {
            return;
        }
        if let Some(keys) = CqlType::from_class(&told.key_type) {
            self.keys = keys;
        }
        let values = CqlType::from_class(&told.value_type);
        self.values = values.filter(|it| *it != CqlType::Native(Native::Blob));
        let columns = told.columns.iter().filter_map(|column| {
            let name = CqlType::Native(Native::Blob).from_string(&column.cell).ok()?;
            Some((name, column.name.clone(), CqlType::from_class(&column.value_type)?))
        });
        self.columns = columns.collect();
    }

    /// Gives a part another type.
    fn assume(&mut self, part: &Part, type_name: &Name) -> Result<(), Mistake> {
        let unknown = || literals::unknown_type(type_name.span.clone(), &type_name.text);
        let comparator = || literals::comparator_named(&type_name.text).ok_or_else(unknown);
        let of_type = || literals::type_named(&type_name.text).ok_or_else(unknown);
        match part {
            Part::Comparator => self.names = comparator()?,
            // Without super columns there are none to name.
            Part::SubComparator if self.sub_names.is_none() => {}
            Part::SubComparator => self.sub_names = Some(comparator()?),
            Part::Validator => self.values = Some(of_type()?),
            Part::Keys => self.keys = of_type()?,
            Part::Column(term) => {
                let comparator = self.column_names();
                let name = literals::name(comparator, term, literals::Place::Exact)?;
                let shown = comparator.show(&name);
                self.columns.retain(|(column, ..)| *column != name);
                self.columns.push((name, shown, of_type()?));
            }
        }
        Ok(())
    }

    /// The order of the columns that have values: those of a row or of a super column.
    pub(super) fn column_names(&self) -> &Comparator {
        self.sub_names.as_ref().unwrap_or(&self.names)
    }

    pub(super) fn value_type(&self, column: &[u8]) -> Option<&CqlType> {
        let declared = self.columns.iter().find(|(name, ..)| name == column);
        declared.map(|(.., of_type)| of_type).or(self.values.as_ref())
    }

    /// The name of a column for people, if it is declared.
    pub(super) fn declared_name(&self, column: &[u8]) -> Option<&str> {
        let declared = self.columns.iter().find(|(name, ..)| name == column);
        declared.map(|(_, name, _)| name.as_str())
    }

    /// Lines about all of them.
    pub(super) fn describe(&self) -> Vec<(String, String)> {
        let class = |comparator| literals::short_class(comparator);
        let mut lines = vec![
            ("Row keys".to_owned(), self.keys.to_string()),
            (
                if self.sub_names.is_some() { "Super columns" } else { "Columns" }.to_owned(),
                class(&self.names),
            ),
        ];
        if let Some(sub_names) = &self.sub_names {
            lines.push(("Columns of super columns".to_owned(), class(sub_names)));
        }
        let values = self.values.as_ref().map_or("text".to_owned(), ToString::to_string);
        lines.push(("Values".to_owned(), values));
        let columns = self.columns.iter();
        lines.extend(columns.map(|(_, name, it)| (format!("Value of {name}"), it.to_string())));
        lines
    }
}

/// A column family that the session has met.
#[derive(Debug)]
struct Known {
    /// Comparators, as Thrift describes them.
    described: Types,
    /// Answer of the admin side at that time.
    told: Option<FamilyTypes>,
    assumed: Vec<(Part, Name)>,
}

impl Known {
    fn types(&self) -> Types {
        let mut types = self.described.clone();
        if let Some(told) = &self.told {
            types.declare(told);
        }
        for (part, type_name) in &self.assumed {
            // It made sense once: another column family may have the name since.
            let _ = types.assume(part, type_name);
        }
        types
    }
}

/// The column families that the session has met.
#[derive(Debug, Default)]
pub(super) struct Families {
    known: BTreeMap<String, BTreeMap<String, Known>>,
    /// Keyspace of `use`.
    pub(super) keyspace: Option<String>,
}

impl Families {
    /// Those of another server.
    pub(super) fn new(keyspace: Option<String>) -> Self {
        Self { known: BTreeMap::new(), keyspace }
    }

    /// The keyspace of a name.
    pub(super) fn keyspace_of(&self, family: &Family) -> Result<String, Mistake> {
        let named = family.keyspace.as_ref().map(|keyspace| keyspace.text.clone());
        named.or_else(|| self.keyspace.clone()).ok_or_else(|| {
            let name = &family.name.text;
            Mistake::at(family.name.span.clone(), format!("{name} of which keyspace?"))
                .hinted(format!("write <keyspace>.{name}, or first: use <keyspace>"))
        })
    }

    /// The types of a column family that the server has now: others may change them meanwhile.
    pub(super) fn find(
        &mut self,
        connection: &mut Connection,
        family: &Family,
    ) -> Result<Types, Mistake> {
        Ok(self.known(connection, family)?.types())
    }

    fn known(
        &mut self,
        connection: &mut Connection,
        family: &Family,
    ) -> Result<&mut Known, Mistake> {
        let keyspace = self.keyspace_of(family)?;
        let Name { text: name, span } = &family.name;
        let told = connection.told(&keyspace, name)?;
        let known = self.known.get(&keyspace).and_then(|families| families.get(name));
        if known.is_none_or(|known| known.told != told) {
            let place = family.keyspace.as_ref().unwrap_or(&family.name);
            let keyspace = Name { text: keyspace.clone(), span: place.span.clone() };
            self.load(connection, &keyspace)?;
        }
        let families = self.known.entry(keyspace.clone()).or_default();
        let others = families.keys().cloned().collect::<Vec<_>>();
        let known = families.get_mut(name).ok_or_else(|| {
            if let Some(why) = connection.refusal(&keyspace, name) {
                let hint = "use cqlsh or a driver at the CqlPort of the server";
                return Mistake::at(span.clone(), why).hinted(hint);
            }
            Mistake::at(span.clone(), format!("No such column family: {name}"))
                .on_output()
                .or_meant(name, others.iter().map(String::as_str))
        })?;
        known.told = told;
        Ok(known)
    }

    /// Learns the column families of a keyspace. What was assumed of those known before stays.
    pub(super) fn load(
        &mut self,
        connection: &mut Connection,
        keyspace: &Name,
    ) -> Result<(), Mistake> {
        let described =
            connection.call(&DescribeKeyspaceArgs { keyspace: (&keyspace.text).into() });
        let described = described.map_err(|error| match error {
            CallError::Declared(Exception::NotFound, _) => {
                let text = format!("No such keyspace: {}", keyspace.text);
                Mistake::at(keyspace.span.clone(), text).on_output()
            }
            other => Mistake::from(other),
        })?;
        let mut earlier = self.known.remove(&keyspace.text).unwrap_or_default();
        let known = described.0.into_iter().map(|(name, properties)| {
            let properties = properties.0.into_iter();
            let properties: Vec<(String, String)> =
                properties.map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
            let earlier = earlier.remove(&*name).map(|it| (it.told, it.assumed));
            let (told, assumed) = earlier.unwrap_or_default();
            (name.into_owned(), Known { described: Types::described(&properties), told, assumed })
        });
        self.known.insert(keyspace.text.clone(), known.collect());
        Ok(())
    }

    /// Gives a part of a column family another type, for this session.
    pub(super) fn assume(
        &mut self,
        connection: &mut Connection,
        family: &Family,
        part: &Part,
        type_name: &Name,
    ) -> Result<(), Mistake> {
        let known = self.known(connection, family)?;
        if *part == Part::SubComparator && known.described.sub_names.is_none() {
            let text = format!("{} has no super columns", family.name.text);
            return Err(Mistake::at(family.name.span.clone(), text));
        }
        known.types().assume(part, type_name)?;
        known.assumed.push((part.clone(), type_name.clone()));
        Ok(())
    }

    /// Names of keyspaces and column families that are known, for completion.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        self.known.iter().flat_map(|(keyspace, families)| {
            families.keys().map(move |family| format!("{keyspace}.{family}"))
        })
    }
}
