//! The types of CQL as types of names.

use super::CustomComparator;
use crate::model::types::{CqlType, Native};
use std::cmp::Ordering;

/// A type of CQL as one of names.
#[derive(Debug)]
pub(super) struct Typed {
    class_name: String,
    of_type: CqlType,
}

impl Typed {
    /// Those of one word. Counters and durations have no order, and `EmptyType` has one name.
    pub(super) fn natives() -> impl Iterator<Item = Self> {
        let all = Native::ALL.into_iter();
        let sorting =
            all.filter(|it| !matches!(it, Native::Counter | Native::Duration | Native::Empty));
        sorting.map(|native| Self::new(native.into()))
    }

    /// That of a class that is made of others: a tuple, or a frozen type.
    pub(super) fn made(class: &str) -> Option<Self> {
        let of_type = CqlType::from_class(class)?;
        (!of_type.is_multicell()).then(|| Self::new(of_type))
    }

    fn new(of_type: CqlType) -> Self {
        Self { class_name: of_type.class_name(), of_type }
    }
}

impl CustomComparator for Typed {
    fn class_name(&self) -> &str {
        &self.class_name
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        self.of_type.compare(a, b)
    }

    fn validate(&self, name: &[u8]) -> Result<(), String> {
        self.of_type.validate(name).map_err(|invalid| invalid.to_string())
    }

    fn render(&self, name: &[u8]) -> String {
        self.of_type.show(name)
    }

    fn parse(&self, text: &str) -> Result<Vec<u8>, String> {
        self.of_type.from_string(text).map_err(|invalid| invalid.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::comparator::tests::sorted;
    use crate::model::comparator::{Comparator, ComparatorRegistry};
    use crate::model::types::collection;

    fn by_name(class: &str) -> Comparator {
        ComparatorRegistry::default().resolve(class).unwrap()
    }

    #[test]
    fn integers_of_any_length_sort_by_value() {
        let long = [1; 65];
        let names: [&[u8]; 9] =
            [b"", &[0x80, 0, 0], &[0x80, 0], &[0xff, 0], &[0xff], &[0], &[1], &[0, 0x80], &long];
        let integer = by_name("IntegerType");
        sorted(&integer, &names);
        assert_eq!(integer.compare(&[0xff, 0xff], &[0xff]), Ordering::Equal);
        let shown = names.map(|name| integer.render(name));
        assert_eq!(shown[..8], ["", "-8388608", "-32768", "-256", "-1", "0", "1", "128"]);
        assert_eq!(shown[8], "01".repeat(65));
    }

    #[test]
    fn doubles_sort_as_in_java() {
        let numbers = [f64::NEG_INFINITY, -1.5, -0.0, 0.0, 2.25, f64::INFINITY, f64::NAN]
            .map(f64::to_be_bytes);
        let mut names: Vec<&[u8]> = vec![b""];
        names.extend(numbers.iter().map(<[u8; 8]>::as_slice));
        let double = by_name("DoubleType");
        sorted(&double, &names);
        assert_eq!(double.compare(&(-f64::NAN).to_be_bytes(), names[7]), Ordering::Equal);
        assert_eq!(double.render(names[5]), "2.25");
        let refusal = double.validate(b"abc").unwrap_err().to_string();
        assert_eq!(refusal, "Expected 8 or 0 byte value for a double (3)");
    }

    #[test]
    fn names_are_shown_without_quotes() {
        let [before, after] = [-1i64, 1_290_241_963_120].map(i64::to_be_bytes);
        for class in ["DateType", "TimestampType"] {
            let date = by_name(class);
            sorted(&date, &[b"", &before, &after]);
            let shown = [&before, &after].map(|name| date.render(name));
            assert_eq!(shown, ["1969-12-31T23:59:59.999Z", "2010-11-20T08:32:43.120Z"]);
        }
        let boolean = by_name("BooleanType");
        sorted(&boolean, &[b"", &[0], &[1]]);
        assert_eq!([[0], [1]].map(|name| boolean.render(&name)), ["false", "true"]);
        assert!(boolean.validate(&[0, 0]).is_err());
        assert_eq!(by_name("InetAddressType").render(&[192, 0, 2, 1]), "192.0.2.1");
        assert_eq!(by_name("ShortType").render(b"abc"), "616263");
        assert_eq!(by_name("TimeType").render(b""), "");
    }

    #[test]
    fn frozen_types_and_tuples_are_types_of_names() {
        let list = by_name("FrozenType(ListType(Int32Type))");
        let [one, two] = [1i32, 2].map(i32::to_be_bytes);
        let [short, long] = [collection::pack(&[two]), collection::pack(&[two, one])];
        sorted(&list, &[b"", &collection::pack(&[one]), &short, &long]);
        assert_eq!(list.render(&long), "[2, 1]");
        let tuple = by_name("CompositeType(TupleType(UTF8Type,LongType),ReversedType(UUIDType))");
        assert_eq!(by_name(&tuple.class_name()), tuple);
        for wrong in ["ListType(Int32Type)", "DurationType", "CounterColumnType", "TupleType()"] {
            assert_eq!(ComparatorRegistry::default().resolve(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn every_class_of_the_registry_finds_itself() {
        let registry = ComparatorRegistry::default();
        let names: Vec<&str> = registry.class_names().collect();
        assert_eq!(names.len(), 20);
        for name in names {
            assert_eq!(registry.resolve(name).unwrap().class_name(), name);
        }
    }
}
