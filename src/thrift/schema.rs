//! The IDL as data, from the macros: a test compares these tables with `cassandra.thrift`.

use super::idl::Exception;

/// Wire type bytes of the binary protocol. The numbers are part of the protocol: never change them.
pub mod wire_type {
    /// End of a struct.
    pub const STOP: u8 = 0;
    /// One byte; true only if it is 1.
    pub const BOOL: u8 = 2;
    /// One byte.
    pub const BYTE: u8 = 3;
    /// Eight bytes.
    pub const DOUBLE: u8 = 4;
    /// Two bytes, big-endian.
    pub const I16: u8 = 6;
    /// Four bytes, big-endian. Enums travel as this.
    pub const I32: u8 = 8;
    /// Eight bytes, big-endian.
    pub const I64: u8 = 10;
    /// A length and that many bytes: `string` and `binary`.
    pub const STRING: u8 = 11;
    /// Fields until a stop byte.
    pub const STRUCT: u8 = 12;
    /// Two element types, a count, keys and values in turn.
    pub const MAP: u8 = 13;
    /// An element type, a count, elements.
    pub const SET: u8 = 14;
    /// An element type, a count, elements.
    pub const LIST: u8 = 15;
}

/// A type of the IDL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// No value: the result of a call that only succeeds.
    Void,
    /// `bool`
    Bool,
    /// `i32`
    I32,
    /// `i64`
    I64,
    /// `string`: text.
    String,
    /// `binary`: bytes.
    Binary,
    /// An enum, by name.
    Enum(&'static str),
    /// A struct, by name.
    Struct(&'static str),
    /// `list<…>`
    List(&'static Kind),
    /// `set<…>`
    Set(&'static Kind),
    /// `map<…,…>`
    Map(&'static Kind, &'static Kind),
}

/// Presence of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requiredness {
    /// Always written; its absence is an error of the sender.
    Required,
    /// Written if it is set.
    Optional,
    /// No word in the IDL: always written, and its absence is no error.
    Default,
}

/// One field of a struct, of an exception or of the arguments of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Number on the wire.
    pub id: i16,
    /// Name in the IDL.
    pub name: &'static str,
    /// Type in the IDL.
    pub kind: Kind,
    /// Presence.
    pub requiredness: Requiredness,
    /// The default value as Rust source, if there is one.
    pub default: Option<&'static str>,
}

/// A struct, or the arguments of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Struct {
    /// Name in the IDL; `<method>_args` for arguments.
    pub name: &'static str,
    /// In the order of the declaration.
    pub fields: &'static [Field],
}

/// An enum with its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enum {
    /// Name in the IDL.
    pub name: &'static str,
    /// Name and number of each value.
    pub values: &'static [(&'static str, i32)],
}

/// An exception that a method declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Throws {
    /// Field of the result struct.
    pub id: i16,
    /// Which one.
    pub exception: Exception,
}
