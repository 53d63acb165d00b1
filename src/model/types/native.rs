//! The native types: their names in CQL, on the wire and in Java.

/// The package of the classes of types.
pub const CLASS_PREFIX: &str = "org.apache.cassandra.db.marshal.";

/// A type that is not made of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Display)]
#[display("{}", self.name())]
pub enum Native {
    /// 7-bit characters.
    Ascii,
    /// A signed number of 64 bits.
    Bigint,
    /// Any bytes.
    Blob,
    /// True or false.
    Boolean,
    /// A sum of signed changes, of 64 bits.
    Counter,
    /// A day: unsigned 32 bits, with 1970-01-01 at 2^31.
    Date,
    /// A decimal number of any length: 32 bits of scale, then a `varint`.
    Decimal,
    /// A floating-point number of 64 bits.
    Double,
    /// Months, days and nanoseconds.
    Duration,
    /// No value at all: the values of old tables that have only names.
    Empty,
    /// A floating-point number of 32 bits.
    Float,
    /// An IPv4 or IPv6 address.
    Inet,
    /// A signed number of 32 bits.
    Int,
    /// `timestamp` under its class of Cassandra 0.7, `DateType`.
    OldTimestamp,
    /// A signed number of 16 bits.
    Smallint,
    /// UTF-8.
    Text,
    /// Nanoseconds of a day, of 64 bits.
    Time,
    /// Milliseconds since 1970, of 64 bits.
    Timestamp,
    /// A UUID of version 1.
    Timeuuid,
    /// A signed number of 8 bits.
    Tinyint,
    /// A UUID.
    Uuid,
    /// A signed number of any length, in two's complement.
    Varint,
}

/// Names of a type, its number on the wire and the first protocol version that knows the number.
struct Names(&'static str, u16, u8, &'static str);

impl Native {
    /// All native types.
    pub const ALL: [Self; 22] = [
        Self::Ascii,
        Self::Bigint,
        Self::Blob,
        Self::Boolean,
        Self::Counter,
        Self::Date,
        Self::Decimal,
        Self::Double,
        Self::Duration,
        Self::Empty,
        Self::Float,
        Self::Inet,
        Self::Int,
        Self::OldTimestamp,
        Self::Smallint,
        Self::Text,
        Self::Time,
        Self::Timestamp,
        Self::Timeuuid,
        Self::Tinyint,
        Self::Uuid,
        Self::Varint,
    ];

    fn names(self) -> Names {
        match self {
            Self::Ascii => Names("ascii", 0x01, 1, "AsciiType"),
            Self::Bigint => Names("bigint", 0x02, 1, "LongType"),
            Self::Blob => Names("blob", 0x03, 1, "BytesType"),
            Self::Boolean => Names("boolean", 0x04, 1, "BooleanType"),
            Self::Counter => Names("counter", 0x05, 1, "CounterColumnType"),
            Self::Date => Names("date", 0x11, 4, "SimpleDateType"),
            Self::Decimal => Names("decimal", 0x06, 1, "DecimalType"),
            Self::Double => Names("double", 0x07, 1, "DoubleType"),
            Self::Duration => Names("duration", 0x15, 5, "DurationType"),
            Self::Empty => Names("empty", 0x00, 1, "EmptyType"),
            Self::Float => Names("float", 0x08, 1, "FloatType"),
            Self::Inet => Names("inet", 0x10, 1, "InetAddressType"),
            Self::Int => Names("int", 0x09, 1, "Int32Type"),
            Self::OldTimestamp => Names("timestamp", 0x0b, 1, "DateType"),
            Self::Smallint => Names("smallint", 0x13, 4, "ShortType"),
            Self::Text => Names("text", 0x0d, 1, "UTF8Type"),
            Self::Time => Names("time", 0x12, 4, "TimeType"),
            Self::Timestamp => Names("timestamp", 0x0b, 1, "TimestampType"),
            Self::Timeuuid => Names("timeuuid", 0x0f, 1, "TimeUUIDType"),
            Self::Tinyint => Names("tinyint", 0x14, 4, "ByteType"),
            Self::Uuid => Names("uuid", 0x0c, 1, "UUIDType"),
            Self::Varint => Names("varint", 0x0e, 1, "IntegerType"),
        }
    }

    /// Name in CQL.
    pub fn name(self) -> &'static str {
        self.names().0
    }

    /// The type that a statement names. `varchar` is another name of `text`.
    pub fn from_name(name: &str) -> Option<Self> {
        if name == "varchar" {
            return Some(Self::Text);
        }
        let mut named = Self::ALL.into_iter().filter(|it| it.name() == name);
        named.find(|it| !matches!(it, Self::OldTimestamp | Self::Empty))
    }

    /// Number of the type in the native protocol of this version. For zero, which stands for a
    /// custom type, the class name follows on the wire.
    pub fn protocol_id(self, version: u8) -> u16 {
        let Names(_, id, since, _) = self.names();
        if version < since { 0 } else { id }
    }

    /// Class name without its package.
    pub fn short_class(self) -> &'static str {
        self.names().3
    }

    /// The type of a class, given without its package.
    pub fn from_short_class(class: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.short_class() == class)
    }

    /// Whether it is a type of numbers.
    pub fn is_number(self) -> bool {
        use Native::{Bigint, Counter, Decimal, Double, Float, Int, Smallint, Tinyint, Varint};
        matches!(
            self,
            Tinyint | Smallint | Int | Bigint | Counter | Varint | Float | Double | Decimal
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_found_by_its_names() {
        for native in Native::ALL {
            assert_eq!(Native::from_short_class(native.short_class()), Some(native));
            let by_name = Native::from_name(native.name());
            match native {
                Native::OldTimestamp => assert_eq!(by_name, Some(Native::Timestamp)),
                Native::Empty => assert_eq!(by_name, None),
                _ => assert_eq!(by_name, Some(native)),
            }
        }
        assert_eq!(Native::from_name("varchar"), Some(Native::Text));
        assert_eq!(Native::from_name("Text"), None);
    }

    #[test]
    fn older_protocols_see_newer_types_as_custom() {
        let ids = |native: Native| [3, 4, 5].map(|version| native.protocol_id(version));
        assert_eq!(ids(Native::Int), [9, 9, 9]);
        assert_eq!(ids(Native::Date), [0, 0x11, 0x11]);
        assert_eq!(ids(Native::Duration), [0, 0, 0x15]);
    }
}
