//! Types of names that came after 0.6: numbers, dates and truth values.

use super::{CustomComparator, compare_longs, hex};
use crate::base::utc::UtcTime;
use std::cmp::Ordering;

/// Most bytes of an integer that is shown in decimal digits: what is longer is no number that
/// anybody reads.
const MOST_DECIMAL_BYTES: usize = 16;

/// A type of names that 0.7 or 0.8 brought, under the class name that it had there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Later {
    /// `IntegerType`: a number in two's complement, of any length.
    Integer,
    /// `DateType`: eight bytes, milliseconds since 1970, signed.
    Date,
    /// `DoubleType`: eight bytes, a floating-point number; what is none comes last.
    Double,
    /// `BooleanType`: one byte, 0 for false, before all others, for true.
    Boolean,
}

impl Later {
    pub(super) const ALL: [Self; 4] = [Self::Integer, Self::Date, Self::Double, Self::Boolean];

    fn length(self) -> Option<usize> {
        match self {
            Self::Integer => None,
            Self::Date | Self::Double => Some(8),
            Self::Boolean => Some(1),
        }
    }
}

impl CustomComparator for Later {
    fn class_name(&self) -> &'static str {
        match self {
            Self::Integer => "org.apache.cassandra.db.marshal.IntegerType",
            Self::Date => "org.apache.cassandra.db.marshal.DateType",
            Self::Double => "org.apache.cassandra.db.marshal.DoubleType",
            Self::Boolean => "org.apache.cassandra.db.marshal.BooleanType",
        }
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        if a.is_empty() || b.is_empty() {
            return a.len().cmp(&b.len());
        }
        match self {
            Self::Integer => compare_integers(a, b),
            Self::Date => compare_longs(a, b),
            Self::Double => compare_doubles(a, b),
            Self::Boolean => (a != [0]).cmp(&(b != [0])),
        }
    }

    fn validate(&self, name: &[u8]) -> Result<(), String> {
        match self.length() {
            Some(length) if name.len() != length => {
                Err(format!("Expected {length} or 0 byte value ({})", name.len()))
            }
            _ => Ok(()),
        }
    }

    fn render(&self, name: &[u8]) -> String {
        if name.is_empty() || self.length().is_some_and(|length| length != name.len()) {
            return hex(name);
        }
        match self {
            Self::Integer if name.len() > MOST_DECIMAL_BYTES => hex(name),
            Self::Integer => integer(name).to_string(),
            Self::Date => match u64::try_from(integer(name)) {
                Ok(millis) => UtcTime(millis).to_string(),
                // Before 1970.
                Err(_) => integer(name).to_string(),
            },
            Self::Double => f64::from_bits(integer(name) as u64).to_string(),
            Self::Boolean => (name != [0]).to_string(),
        }
    }
}

/// The number of at most sixteen bytes.
fn integer(bytes: &[u8]) -> i128 {
    let sign = if bytes.first().is_some_and(|first| *first >= 0x80) { -1 } else { 0 };
    bytes.iter().fold(sign, |number, byte| number << 8 | i128::from(*byte))
}

/// By value: what fills up the front makes no difference.
fn compare_integers(a: &[u8], b: &[u8]) -> Ordering {
    let is_negative = |bytes: &[u8]| bytes.first().is_some_and(|first| *first >= 0x80);
    let fill = |bytes: &[u8]| if is_negative(bytes) { 0xff } else { 0 };
    let digits = |bytes: &[u8]| bytes.iter().skip_while(|byte| **byte == fill(bytes)).count();
    let (x, y) = (&a[a.len() - digits(a)..], &b[b.len() - digits(b)..]);
    match (is_negative(a), is_negative(b)) {
        (false, true) => Ordering::Greater,
        (true, false) => Ordering::Less,
        (false, false) => x.len().cmp(&y.len()).then_with(|| x.cmp(y)),
        (true, true) => y.len().cmp(&x.len()).then_with(|| x.cmp(y)),
    }
}

/// As Java compares them: below zero comes before zero, and what is no number last.
fn compare_doubles(a: &[u8], b: &[u8]) -> Ordering {
    let number = |bytes: &[u8]| bytes.try_into().ok().map(f64::from_be_bytes);
    match (number(a), number(b)) {
        (Some(x), Some(y)) if x.is_nan() || y.is_nan() => x.is_nan().cmp(&y.is_nan()),
        (Some(x), Some(y)) => x.total_cmp(&y),
        // Such names never pass validation, but still have an order.
        _ => a.len().cmp(&b.len()).then_with(|| a.cmp(b)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::comparator::tests::sorted;
    use crate::model::comparator::{Comparator, ComparatorRegistry};
    use proptest::prelude::*;

    fn by_name(class: &str) -> Comparator {
        ComparatorRegistry::default().resolve(class).unwrap()
    }

    #[test]
    fn integers_of_any_length_sort_by_value() {
        let names: [&[u8]; 9] = [
            b"",
            &[0x80, 0, 0],
            &[0x80, 0],
            &[0xff, 0],
            &[0xff],
            &[0],
            &[1],
            &[0, 0x80],
            &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ];
        let integer = by_name("IntegerType");
        sorted(&integer, &names);
        assert_eq!(integer.compare(&[0xff, 0xff], &[0xff]), Ordering::Equal);
        let shown = names.map(|name| integer.render(name));
        assert_eq!(shown[1..8], ["-8388608", "-32768", "-256", "-1", "0", "1", "128"]);
        assert_eq!(shown[8].len(), 34);
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
        assert_eq!(
            double.validate(b"abc").unwrap_err().to_string(),
            "Expected 8 or 0 byte value (3)"
        );
    }

    #[test]
    fn dates_and_truth_values_are_shown_as_such() {
        let date = by_name("DateType");
        let [before, after] = [-1i64, 1_290_241_963_120].map(i64::to_be_bytes);
        sorted(&date, &[b"", &before, &after]);
        let shown = [&before, &after].map(|name| date.render(name));
        assert_eq!(shown, ["-1", "2010-11-20T08:32:43.120Z"]);
        let boolean = by_name("BooleanType");
        sorted(&boolean, &[b"", &[0], &[1]]);
        assert_eq!([[0], [1]].map(|name| boolean.render(&name)), ["false", "true"]);
        assert!(boolean.validate(&[0, 0]).is_err());
    }

    proptest! {
        #[test]
        fn integers_compare_as_numbers(
            x in prop::collection::vec(any::<u8>(), 1..17),
            y in prop::collection::vec(any::<u8>(), 1..17),
        ) {
            prop_assert_eq!(Later::Integer.compare(&x, &y), integer(&x).cmp(&integer(&y)));
        }
    }
}
