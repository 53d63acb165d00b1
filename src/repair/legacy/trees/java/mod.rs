//! Trees in the object serialization of Java, as nodes of 0.6 send them.
//!
//! ```text
//! stream  = ac ed 00 05, MerkleTree
//! class   = 72 UTF name, i64 serialVersionUID, u8 flags, u16 number of fields, each:
//!               u8 kind, UTF name, if it is 'L' or '[': the type as a text
//!               78, class of which it is one, or 70
//! text    = 74 UTF
//! object  = 73 class, values: those of the class of which it is one come first
//! array   = 75 class, i32 length, bytes
//!
//! MerkleTree  u8 hashdepth, i64 maxsize, i64 size, node root
//! Inner       array hash or 70, node lchild, node rchild, token
//! Leaf        array hash
//! token       of BigInteger, text or array
//! BigInteger  5 i32 of which the last is the sign, array magnitude, 78
//! ```
//!
//! Each class, text, array and object gets a number at its first occurrence, and `71 i32 number`
//! may stand for further ones. Hashes of inner nodes are not sent: they are the XOR of those below.

mod reader;
#[cfg(test)]
pub(crate) mod tests;
mod writer;

pub(crate) use reader::{TreeError, decode};
pub(crate) use writer::encode;

use crate::ring::Partitioner;

const STREAM_HEAD: u32 = 0xaced_0005;
const NULL: u8 = 0x70;
const REFERENCE: u8 = 0x71;
const CLASS: u8 = 0x72;
const OBJECT: u8 = 0x73;
const TEXT: u8 = 0x74;
const ARRAY: u8 = 0x75;
const END: u8 = 0x78;

/// The first number.
const FIRST_NUMBER: u32 = 0x7e_0000;

/// Flags of a class: its objects are written, and it writes more than its fields.
const SERIALIZABLE: u8 = 2;
const WRITES_ITSELF: u8 = 1;

/// Kind, name and type of a field. Numbers need no type.
type Field = (u8, &'static str, Option<&'static str>);

#[derive(Debug, PartialEq, Eq)]
struct Class {
    name: &'static str,
    uid: u64,
    flags: u8,
    fields: &'static [Field],
    parent: Option<&'static Class>,
}

const fn class(
    (name, uid): (&'static str, u64),
    fields: &'static [Field],
    parent: Option<&'static Class>,
) -> Class {
    Class { name, uid, flags: SERIALIZABLE, fields, parent }
}

const NODE_TYPE: Option<&str> = Some("Lorg/apache/cassandra/utils/MerkleTree$Hashable;");
const TOKEN_TYPE: Option<&str> = Some("Lorg/apache/cassandra/dht/Token;");
const OBJECT_TYPE: Option<&str> = Some("Ljava/lang/Object;");
const BYTES_TYPE: Option<&str> = Some("[B");

static TREE: Class = class(
    ("org.apache.cassandra.utils.MerkleTree", 2),
    &[
        (b'B', "hashdepth", None),
        (b'J', "maxsize", None),
        (b'J', "size", None),
        (b'L', "root", NODE_TYPE),
    ],
    None,
);
static NODE: Class = class(
    ("org.apache.cassandra.utils.MerkleTree$Hashable", 1),
    &[(b'[', "hash", BYTES_TYPE)],
    None,
);
static INNER: Class = class(
    ("org.apache.cassandra.utils.MerkleTree$Inner", 1),
    &[(b'L', "lchild", NODE_TYPE), (b'L', "rchild", NODE_TYPE), (b'L', "token", TOKEN_TYPE)],
    Some(&NODE),
);
static LEAF: Class = class(("org.apache.cassandra.utils.MerkleTree$Leaf", 1), &[], Some(&NODE));
static BYTES: Class = class(("[B", 0xacf3_17f8_0608_54e0), &[], None);
static TOKEN: Class =
    class(("org.apache.cassandra.dht.Token", 1), &[(b'L', "token", OBJECT_TYPE)], None);
static BIG_INTEGER_TOKEN: Class =
    class(("org.apache.cassandra.dht.BigIntegerToken", 0xaf0a_ed95_6a16_67b2), &[], Some(&TOKEN));
static STRING_TOKEN: Class =
    class(("org.apache.cassandra.dht.StringToken", 0x4bd4_53ce_bb4c_7db3), &[], Some(&TOKEN));
static BYTES_TOKEN: Class =
    class(("org.apache.cassandra.dht.BytesToken", 0x2a3b_2cf5_3510_fb0c), &[], Some(&TOKEN));
static NUMBER: Class = class(("java.lang.Number", 0x86ac_951d_0b94_e08b), &[], None);
static BIG_INTEGER: Class = Class {
    name: "java.math.BigInteger",
    uid: 0x8cfc_9f1f_a93b_fb1d,
    flags: SERIALIZABLE | WRITES_ITSELF,
    fields: &[
        (b'I', "bitCount", None),
        (b'I', "bitLength", None),
        (b'I', "firstNonzeroByteNum", None),
        (b'I', "lowestSetBit", None),
        (b'I', "signum", None),
        (b'[', "magnitude", BYTES_TYPE),
    ],
    parent: Some(&NUMBER),
};

fn token_class(partitioner: Partitioner) -> &'static Class {
    match partitioner {
        Partitioner::Random => &BIG_INTEGER_TOKEN,
        Partitioner::OrderPreserving => &STRING_TOKEN,
        Partitioner::CollatingOrderPreserving => &BYTES_TOKEN,
    }
}
