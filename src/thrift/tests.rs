//! The rules of the protocol, on bytes at hand.

use std::io::Read;

use super::codec::{Decode, DecodeError, Malformed, Reader};
use super::idl::*;
use super::message::Header;
use super::scan::{MAX_DEPTH, Scanner, Step};
use super::schema::wire_type as t;
use super::{Each, Encode, List};
use crate::base::budget::Budget;
use crate::config::settings::Release;

/// Bytes of a struct, written by hand.
#[derive(Default, Clone)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn field(self, field_type: u8, id: i16) -> Self {
        self.raw(&[field_type]).raw(&id.to_be_bytes())
    }

    fn i32(self, id: i16, value: i32) -> Self {
        self.field(t::I32, id).raw(&value.to_be_bytes())
    }

    fn string(self, id: i16, value: &[u8]) -> Self {
        self.field(t::STRING, id).length(value.len()).raw(value)
    }

    fn length(self, length: usize) -> Self {
        self.raw(&(length as i32).to_be_bytes())
    }

    fn stop(self) -> Vec<u8> {
        self.raw(&[t::STOP]).0
    }
}

fn bytes() -> Bytes {
    Bytes::default()
}

fn decode<'a, T: Decode<'a>>(bytes: &'a [u8]) -> Result<T, DecodeError> {
    let mut reader = Reader::new(bytes);
    let value = T::decode(&mut reader)?;
    assert_eq!(reader.position(), bytes.len(), "all bytes belong to the value");
    Ok(value)
}

fn missing<'a, T: Decode<'a> + std::fmt::Debug>(bytes: &'a [u8]) -> String {
    match decode::<T>(bytes) {
        Err(DecodeError::Missing(text)) => text.into(),
        other => panic!("{other:?}"),
    }
}

fn encoded<T: super::codec::WireType>(value: impl Encode<T>) -> Vec<u8> {
    let mut out = vec![];
    value.encode(&mut out);
    out
}

/// Requests that clients sent to an original, one in hex per line.
fn recorded() -> Vec<Vec<u8>> {
    let packed = include_bytes!("../../tests/data/requests-0.6.hex.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_string(&mut text).unwrap();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    text.lines().map(|line| line.as_bytes().chunks(2).map(byte).collect()).collect()
}

/// Decodes the arguments of any method, and says how many bytes they took.
fn decode_call(name: &[u8], args: &[u8]) -> Result<usize, DecodeError> {
    macro_rules! try_all {
        ($($method:literal $args:ident),* $(,)?) => {
            match name {
                $($method => {
                    let mut reader = Reader::new(args);
                    $args::decode(&mut reader)?;
                    Ok(reader.position())
                })*
                _ => {
                    let mut reader = Reader::new(args);
                    reader.skip(t::STRUCT)?;
                    Ok(reader.position())
                }
            }
        };
    }
    try_all! {
        b"login" LoginArgs, b"get" GetArgs, b"get_slice" GetSliceArgs, b"multiget" MultigetArgs,
        b"multiget_slice" MultigetSliceArgs, b"get_count" GetCountArgs,
        b"get_key_range" GetKeyRangeArgs, b"get_range_slice" GetRangeSliceArgs,
        b"get_range_slices" GetRangeSlicesArgs, b"insert" InsertArgs,
        b"batch_insert" BatchInsertArgs, b"remove" RemoveArgs, b"batch_mutate" BatchMutateArgs,
        b"get_string_property" GetStringPropertyArgs,
        b"get_string_list_property" GetStringListPropertyArgs,
        b"describe_keyspaces" DescribeKeyspacesArgs,
        b"describe_ring" DescribeRingArgs, b"describe_splits" DescribeSplitsArgs,
    }
}

#[test]
fn an_absent_object_is_named_with_the_dump_of_its_struct() {
    assert_eq!(
        missing::<DescribeKeyspaceArgs>(&bytes().stop()),
        "Required field 'keyspace' was not present! Struct: describe_keyspace_args(keyspace:null)"
    );
    let without_key = bytes().string(1, b"Keyspace1").field(t::STRUCT, 3).string(3, b"Cf").stop();
    assert_eq!(
        missing::<GetArgs>(&Bytes(without_key).stop()),
        "Required field 'key' was not present! Struct: get_args(keyspace:Keyspace1, key:null, \
         column_path:ColumnPath(column_family:Cf), consistency_level:ONE)"
    );
}

#[test]
fn an_absent_number_comes_first_and_prints_its_default() {
    let range = bytes().string(1, &[1, 0xAB]).string(2, b"").field(t::BOOL, 3).raw(&[1]).stop();
    assert_eq!(
        missing::<SliceRange>(&range),
        "Required field 'count' was not found in serialized data! Struct: \
         SliceRange(start:01 AB, finish:, reversed:true, count:100)"
    );
    assert_eq!(
        missing::<Column>(&bytes().stop()),
        "Required field 'timestamp' was not found in serialized data! Struct: \
         Column(name:null, value:null, timestamp:0)"
    );
}

#[test]
fn a_dump_is_bounded() {
    let long = vec![b'x'; 1 << 20];
    let text = missing::<Column>(&bytes().string(1, &long).stop());
    assert!(text.contains(&format!("name:{} ..., value:null", vec!["78"; 128].join(" "))));
    let text = missing::<DescribeSplitsArgs>(&bytes().string(1, &long).stop());
    assert!(text.len() < 5000, "{}", text.len());
}

#[test]
fn consistency_levels_known_unknown_and_absent() {
    let args = |level: Bytes| {
        let path = Bytes(level.field(t::STRUCT, 3).string(3, b"Cf").stop());
        path.string(1, b"Ks").string(2, b"k")
    };
    let get = |level: Bytes| args(level).stop();
    let level = |bytes: &[u8]| decode::<GetArgs>(bytes).map(|args| args.consistency_level);
    assert_eq!(level(&get(bytes().i32(4, 6))), Ok(ConsistencyLevel::Any));
    assert_eq!(level(&get(bytes())), Ok(ConsistencyLevel::One));
    let wrong_type = get(bytes().field(t::BOOL, 4).raw(&[1]));
    assert_eq!(level(&wrong_type), Ok(ConsistencyLevel::One));
    let unknown = missing::<GetArgs>(&get(bytes().i32(4, 7))).clone();
    assert!(unknown.starts_with("Required field 'consistency_level' was not present! "));
    assert!(unknown.ends_with("consistency_level:null)"), "{unknown}");
    // The original failed here with an internal error.
    let remove = args(bytes().i32(5, -1)).field(t::I64, 4).raw(&[0; 8]).stop();
    let unknown = missing::<RemoveArgs>(&remove).clone();
    assert!(unknown.starts_with("Required field 'consistency_level' was not present! "));
}

#[test]
fn a_number_means_the_level_of_its_generation() {
    use ConsistencyLevel::{All, Any, DcQuorum, DcQuorumSync, One, Quorum, Zero};
    let meant = |version: Release| {
        (-1..8).map(|number| ConsistencyLevel::meant_by(number, version)).collect::<Vec<_>>()
    };
    let [zero, one, quorum, all] = [Zero, One, Quorum, All].map(Some);
    let (dc, sync, any) = (Some(DcQuorum), Some(DcQuorumSync), Some(Any));
    let common = [None, zero, one, quorum];
    assert_eq!(meant(Release::V04), [&common[..], &[all, sync, all, None, None]].concat());
    assert_eq!(meant(Release::V05), [&common[..], &[dc, sync, all, None, None]].concat());
    assert_eq!(meant(Release::V06), [&common[..], &[dc, sync, all, any, None]].concat());
}

/// The level in the arguments of a client of a generation.
fn level_in<'a, T: Decode<'a>>(
    bytes: &'a [u8],
    version: Release,
    level: impl FnOnce(T) -> ConsistencyLevel,
) -> Result<ConsistencyLevel, DecodeError> {
    T::decode(&mut Reader::new(bytes).of(version)).map(level)
}

#[test]
fn before_0_6_a_level_had_to_be_sent() {
    let with = |level: Option<i32>| {
        let path = Bytes(bytes().field(t::STRUCT, 3).string(3, b"Cf").stop());
        let args = path.string(1, b"Ks").string(2, b"k").field(t::I64, 4).raw(&[0; 8]);
        // Both structs pass over what only the other one has.
        let args = level.iter().fold(args, |args, level| args.i32(4, *level).i32(5, *level));
        args.stop()
    };
    let get =
        |bytes: &[u8], version| level_in(bytes, version, |it: GetArgs<'_>| it.consistency_level);
    let remove =
        |bytes: &[u8], version| level_in(bytes, version, |it: RemoveArgs<'_>| it.consistency_level);
    let (absent, sent) = (with(None), with(Some(3)));
    for (version, meant) in [
        (Release::V04, ConsistencyLevel::All),
        (Release::V05, ConsistencyLevel::DcQuorum),
        (Release::V06, ConsistencyLevel::DcQuorum),
    ] {
        assert_eq!(get(&sent, version), Ok(meant));
        assert_eq!(remove(&sent, version), Ok(meant));
        // Its own IDL said ZERO: nobody would hear of a failure.
        assert_eq!(remove(&absent, version), Ok(ConsistencyLevel::One));
        let left_out = get(&absent, version);
        match version {
            Release::V06 => assert_eq!(left_out, Ok(ConsistencyLevel::One)),
            _ => assert!(matches!(left_out, Err(DecodeError::Missing(_))), "{left_out:?}"),
        }
    }
}

#[test]
fn objects_with_a_default_may_be_absent() {
    let predicate = bytes().field(t::STRUCT, 3).stop();
    let parent = Bytes(predicate).field(t::STRUCT, 2).string(3, b"Cf").stop();
    let bytes = Bytes(parent).string(1, b"Ks").i32(6, 5).stop();
    let args = decode::<GetRangeSliceArgs>(&bytes).unwrap();
    assert_eq!((&*args.start_key, &*args.finish_key, args.row_count), ("", "", 5));
}

#[test]
fn unknown_fields_and_wrong_types_are_passed_over() {
    let nested = bytes().string(1, b"x").field(t::LIST, 2).raw(&[t::I64]).length(2).raw(&[9; 16]);
    let bytes = bytes()
        .field(t::STRUCT, 99)
        .raw(&nested.stop())
        .field(t::MAP, 4)
        .raw(&[t::STRING, t::I16])
        .length(1)
        .length(1)
        .raw(b"kxx")
        .string(3, b"wrong type for a timestamp")
        .string(1, b"first")
        .string(1, b"n")
        .string(2, b"v")
        .field(t::I64, 3)
        .raw(&7_i64.to_be_bytes())
        .stop();
    assert_eq!(decode(&bytes), Ok(Column { name: b"n", value: b"v", timestamp: 7 }));
}

#[test]
fn a_bool_is_true_only_if_it_is_one() {
    for (byte, expected) in [(0, false), (1, true), (2, false), (255, false)] {
        assert_eq!(decode::<bool>(&[byte]), Ok(expected));
    }
}

#[test]
fn of_entries_with_the_same_key_the_last_stays() {
    for distinct in [1_usize, 2, 15, 16, 17, 300] {
        let mut map = bytes().raw(&[t::STRING, t::STRING]).length(distinct * 2);
        for round in ["old", "new"] {
            for key in 0..distinct {
                let (key, value) = (format!("k{key}"), format!("{round}{key}"));
                map = map.length(key.len()).raw(key.as_bytes());
                map = map.length(value.len()).raw(value.as_bytes());
            }
        }
        let args = decode::<super::Map<super::Text<'_>, super::Text<'_>>>(&map.0).unwrap();
        assert_eq!(args.len(), distinct);
        for (key, value) in &args.0 {
            assert_eq!(value, &key.replace('k', "new"));
        }
    }
    // Keys are compared as the text that the original made of them.
    let map = bytes().raw(&[t::STRING, t::STRING]).length(2);
    let map = map.length(1).raw(b"\xFF").length(1).raw(b"a").length(1).raw(b"\xFE").length(1);
    let bytes = map.raw(b"b").0;
    let map = decode::<super::Map<super::Text<'_>, super::Text<'_>>>(&bytes).unwrap();
    assert_eq!((map.len(), map.get("\u{FFFD}").map(|v| &**v)), (1, Some("b")));
}

#[test]
fn empty_containers_may_have_any_element_type() {
    assert_eq!(decode::<Vec<Column<'_>>>(&bytes().raw(&[t::I32]).length(0).0), Ok(vec![]));
    assert_eq!(decode::<Vec<Column<'_>>>(&bytes().raw(&[0]).length(0).0), Ok(vec![]));
}

#[test]
fn what_can_never_become_a_message() {
    let wrong = bytes().raw(&[t::I32]).length(1).raw(&[0; 4]).0;
    let expected = Malformed::ElementType { expected: t::STRUCT, found: t::I32 };
    assert_eq!(decode::<Vec<Column<'_>>>(&wrong), Err(expected.into()));
    let negative = bytes().raw(&(-1_i32).to_be_bytes()).0;
    assert_eq!(decode::<&[u8]>(&negative), Err(Malformed::NegativeLength(-1).into()));
    let cases: [(Bytes, Malformed); 5] = [
        (bytes().field(1, 9), Malformed::WireType(1)),
        (bytes().field(t::LIST, 9).raw(&[0]).length(1), Malformed::WireType(0)),
        (bytes().field(t::MAP, 9).raw(&[t::I32, 1]).length(1), Malformed::WireType(1)),
        (
            bytes().field(t::SET, 9).raw(&[t::I32, 255, 255, 255, 255]),
            Malformed::NegativeLength(-1),
        ),
        (bytes().field(t::STRING, 9).raw(&[128, 0, 0, 0]), Malformed::NegativeLength(i32::MIN)),
    ];
    for (bytes, malformed) in cases {
        assert_eq!(decode::<Column<'_>>(&bytes.stop()), Err(malformed.into()));
    }
}

#[test]
fn nesting_is_limited() {
    let nested = |depth: usize| {
        let open = (0..depth).fold(bytes(), |bytes, _| bytes.field(t::STRUCT, 1));
        open.raw(&vec![t::STOP; depth + 1]).0
    };
    let deep = nested(MAX_DEPTH - 2);
    let scan = |bytes: &[u8]| Scanner::value(t::STRUCT).unwrap().advance(bytes);
    assert_eq!(scan(&deep), Ok(Step::Done(deep.len())));
    assert_eq!(scan(&nested(MAX_DEPTH + 1)), Err(Malformed::TooDeep));
    assert_eq!(scan(&nested(1 << 20)), Err(Malformed::TooDeep));
}

#[test]
fn a_long_declared_length_shows_before_its_bytes_come() {
    let mut scanner = Scanner::value(t::STRUCT).unwrap();
    let string = bytes().field(t::STRING, 1).raw(&i32::MAX.to_be_bytes()).0;
    assert_eq!(scanner.advance(&string), Ok(Step::More));
    assert!(scanner.least_length() > i32::MAX as u64);
    let mut scanner = Scanner::value(t::STRUCT).unwrap();
    let list = bytes().field(t::LIST, 1).raw(&[t::I64]).raw(&i32::MAX.to_be_bytes()).0;
    assert_eq!(scanner.advance(&list), Ok(Step::More));
    assert!(scanner.least_length() > 8 * i32::MAX as u64);
}

#[test]
fn the_memory_of_lists_is_taken_from_the_budget() {
    let budget = Budget::new(64 << 20);
    let count = 1 << 20;
    let empty = bytes().raw(&[t::STRUCT]).length(count).raw(&vec![t::STOP; count]).0;
    let mut reader = Reader::new(&empty).within(&budget);
    let refused = Vec::<Mutation<'_>>::decode(&mut reader);
    assert!(matches!(refused, Err(DecodeError::OverBudget(bytes)) if bytes > 64 << 20));
    let column = encoded::<Mutation<'_>>(Mutation {
        column_or_supercolumn: Some(ColumnOrSuperColumn {
            column: Some(Column { name: b"", value: b"", timestamp: 0 }),
            super_column: None,
        }),
        deletion: None,
    });
    let real = bytes().raw(&[t::STRUCT]).length(100_000).raw(&column.repeat(100_000)).0;
    let mut reader = Reader::new(&real).within(&budget);
    assert_eq!(Vec::<Mutation<'_>>::decode(&mut reader).unwrap().len(), 100_000);
    let charge = reader.into_charge().unwrap().unwrap();
    assert!(charge.bytes() >= 100_000 * size_of::<Mutation<'_>>());
    drop(charge);
    assert_eq!(budget.used(), 0);
}

#[test]
fn an_answer_is_the_same_from_structs_and_from_iterators() {
    let columns = [
        Column { name: b"a", value: b"1", timestamp: -1 },
        Column { name: b"b", value: b"", timestamp: 2 },
    ];
    let structs = KeySlice {
        key: "k".into(),
        columns: vec![ColumnOrSuperColumn {
            column: None,
            super_column: Some(SuperColumn { name: b"s", columns: columns.to_vec() }),
        }],
    };
    let bytes = encoded::<KeySlice<'_>>(&structs);
    let list = encoded::<List<KeySlice<'_>>>(Each(std::iter::once(&structs)));
    assert_eq!(list, [&[t::STRUCT, 0, 0, 0, 1], &bytes[..]].concat());
    assert_eq!(encoded::<List<KeySlice<'_>>>(&vec![structs.clone()]), list);
    assert_eq!(decode(&bytes), Ok(structs));
}

#[test]
fn recorded_requests_decode_whole_and_every_prefix_is_incomplete() {
    let mut refused = 0;
    for request in recorded() {
        let header = Header::decode(&request).unwrap();
        let args = &request[header.length..];
        match decode_call(header.name, args) {
            Err(DecodeError::Missing(_)) => refused += 1,
            decoded => assert_eq!(decoded, Ok(args.len())),
        }
        let step = (args.len() / 200).max(1);
        for end in (0..args.len()).step_by(step) {
            assert_eq!(decode_call(header.name, &args[..end]), Err(DecodeError::Incomplete));
        }
    }
    assert_eq!(refused, 6, "the original refused these with an error of the protocol");
}

#[test]
fn the_scanner_finds_the_end_however_the_bytes_arrive() {
    let mut rng = fastrand::Rng::with_seed(11);
    for request in recorded() {
        let header = Header::decode(&request).unwrap();
        let args = &request[header.length..];
        let mut stream = args.to_vec();
        stream.extend_from_slice(b"the next request");
        for longest_step in [1, 7, 5000] {
            let mut scanner = Scanner::value(t::STRUCT).unwrap();
            let mut arrived = 0;
            let end = loop {
                let before = scanner.least_length();
                match scanner.advance(&stream[..arrived]).unwrap() {
                    Step::Done(end) => break end,
                    Step::More => assert!(scanner.least_length() >= before, "never goes back"),
                }
                arrived = (arrived + rng.usize(1..=longest_step)).min(stream.len());
            };
            assert_eq!(end, args.len());
        }
    }
}

#[test]
fn mutated_and_random_bytes_neither_panic_nor_take_memory() {
    let mut rng = fastrand::Rng::with_seed(23);
    let recorded: Vec<_> = recorded().into_iter().filter(|request| request.len() < 4096).collect();
    let mut outcomes = [0; 3];
    for _ in 0..40_000 {
        let mut request = recorded[rng.usize(..recorded.len())].clone();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(..request.len());
            match rng.u8(..4) {
                0 => request[at] = rng.u8(..),
                1 => request[at] ^= 1 << rng.u8(..8),
                2 => request.truncate(at.max(1)),
                _ => {
                    let other = &recorded[rng.usize(..recorded.len())];
                    let from = rng.usize(..other.len());
                    request.splice(at..at, other[from..].iter().take(20).copied());
                }
            }
        }
        let Ok(header) = Header::decode(&request) else { continue };
        let args = &request[header.length..];
        let scanned = Scanner::value(t::STRUCT).unwrap().advance(args);
        let decoded = decode_call(header.name, args);
        match &decoded {
            Ok(length) => assert_eq!(scanned, Ok(Step::Done(*length)), "both find the same end"),
            // The scanner does not know the types that the IDL wants, so it may go on.
            Err(DecodeError::Malformed(_)) => {}
            Err(DecodeError::Incomplete) => assert!(!matches!(scanned, Ok(Step::Done(_)))),
            Err(DecodeError::Missing(_)) => {}
            Err(DecodeError::OverBudget(_)) => panic!("there is no budget"),
        }
        outcomes[match decoded {
            Ok(_) => 0,
            Err(DecodeError::Incomplete) => 1,
            Err(_) => 2,
        }] += 1;
    }
    assert!(outcomes.iter().all(|count| *count > 1000), "each outcome is tried: {outcomes:?}");
    for _ in 0..20_000 {
        let bytes: Vec<u8> = (0..rng.usize(..64)).map(|_| rng.u8(..16)).collect();
        for name in [b"batch_mutate".as_slice(), b"get_slice", b"login", b"nothing"] {
            let decoded = decode_call(name, &bytes);
            let scanned = Scanner::value(t::STRUCT).unwrap().advance(&bytes);
            if let Ok(length) = decoded {
                assert_eq!(scanned, Ok(Step::Done(length)));
            }
        }
    }
}
