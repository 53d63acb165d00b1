//! Bodies as nodes of 0.6.13 sent them, and laws for all others.

use super::*;
use crate::base::context::RequestContext;
use crate::model::cell::{Cell, Expiry};
use crate::model::comparator::Comparator;
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::model::mutation::{DecodeError, MutationBuilder, RowMutation};
use crate::model::range_deletion::encode_range;
use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema, FamilyId, Schema};
use crate::model::slice::Slice;
use crate::model::version::RowVersion;
use crate::net::frame::{Frame, FrameReader, HEAD_BYTES};
use crate::net::message::{HINT, Message};
use crate::net::verb::Verb;
use crate::ring::{Partitioner, RowRange, Token};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::Read;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

const STANDARD: FamilyId = FamilyId(0);
const TEXTS: FamilyId = FamilyId(1);
const SUPER: FamilyId = FamilyId(2);

/// The column families of the nodes whose messages were recorded.
pub(super) fn schema() -> Schema {
    let family = |name: &str, kind| {
        let (keyspace, name) = ("Keyspace1".into(), name.into());
        Arc::new(ColumnFamilySchema::new(keyspace, name, kind))
    };
    let (columns, super_columns) = (Comparator::Utf8, Comparator::Bytes);
    Schema::new([
        family("Standard1", ColumnFamilyKind::Standard { columns: Comparator::Bytes }),
        family("Standard2", ColumnFamilyKind::Standard { columns: Comparator::Utf8 }),
        family("Super1", ColumnFamilyKind::Super { super_columns, columns }),
    ])
}

/// Payloads of messages between nodes of 0.6.13, by group and number.
fn recorded() -> BTreeMap<String, Vec<u8>> {
    let lines = lines(include_bytes!("../../../tests/data/internode-0.6.13.txt.gz"));
    lines.into_iter().map(|(name, frame)| (name, payload(&frame))).collect()
}

/// The same of messages about streams and repair. What is no message stands there as it is.
pub(super) fn recorded_streams() -> BTreeMap<String, Vec<u8>> {
    let lines = lines(include_bytes!("../../../tests/data/streams-0.6.13.txt.gz"));
    let is_message =
        |name: &str| name == "repair 1" || name.starts_with("stream") && name != "stream 6";
    let entry = |(name, bytes): (String, Vec<u8>)| {
        let bytes = if is_message(&name) { payload(&bytes) } else { bytes };
        (name, bytes)
    };
    lines.into_iter().map(entry).collect()
}

/// Lines of a name and bytes.
fn lines(packed: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed).read_to_string(&mut text).unwrap();
    let entry = |line: &str| {
        let (name, hex) = line.rsplit_once(' ').unwrap();
        let (digits, []) = hex.as_bytes().as_chunks::<2>() else { panic!("odd digits") };
        let byte = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
        (name.to_owned(), digits.iter().map(byte).collect())
    };
    text.lines().map(entry).collect()
}

/// The message in a frame.
fn payload(frame: &[u8]) -> Vec<u8> {
    let mut reader = FrameReader::new();
    reader.space()[..frame.len()].copy_from_slice(frame);
    reader.filled(frame.len());
    let Ok(Some(Frame::Message(payload))) = reader.next_frame() else { panic!("no frame") };
    assert_eq!(payload, &frame[HEAD_BYTES..]);
    payload.to_vec()
}

/// The body, decoded and encoded again. `asked` is the column family of the request.
fn again(message: &Message<'_>, request: Option<&Message<'_>>) -> Vec<u8> {
    let (schema, random) = (schema(), Partitioner::Random);
    let body = message.body;
    match (message.verb, request.map(|request| request.verb)) {
        (Verb::Mutation | Verb::ReadRepair, _) => encode_mutation(
            &decode_mutation(body, &schema, &RequestContext::default()).unwrap(),
            &schema,
        )
        .unwrap(),
        (Verb::Read, _) => ReadCommand::decode(body, &schema).unwrap().encode(&schema).unwrap(),
        (Verb::RangeSlice, _) => {
            let command = RangeCommand::decode(body, &schema, random).unwrap();
            match &command.range.end {
                // Said otherwise here: see [`ranges_have_the_forms_of_0_6`].
                Bound::Included(token) if *token != Token::Random(0) => {
                    command.encode(&schema, random).unwrap()
                }
                _ => body.to_vec(),
            }
        }
        (Verb::ReadResponse, Some(Verb::Mutation)) => {
            let response = WriteResponse::decode(body).unwrap();
            WriteResponse::encode(&response.keyspace, &response.key).unwrap()
        }
        (Verb::ReadResponse, Some(Verb::Read)) => {
            let asked = ReadCommand::decode(request.unwrap().body, &schema).unwrap();
            let family = schema.family(asked.family);
            ReadReply::decode(body, family).unwrap().encode(family).unwrap()
        }
        (Verb::ReadResponse, Some(Verb::RangeSlice)) => {
            let asked = RangeCommand::decode(request.unwrap().body, &schema, random).unwrap();
            let family = schema.family(asked.family);
            RangeReply::decode(body, family).unwrap().encode(family).unwrap()
        }
        // Gossip is read elsewhere.
        _ => body.to_vec(),
    }
}

#[test]
fn recorded_messages_are_read_and_written_alike() {
    let recorded = recorded();
    let messages: Vec<_> =
        recorded.iter().map(|(name, payload)| (name, Message::decode(payload).unwrap())).collect();
    let mut seen = BTreeMap::new();
    for (name, message) in &messages {
        let request = messages
            .iter()
            .find(|(_, other)| other.id == message.id && !matches!(other.verb, Verb::ReadResponse));
        let body = again(message, request.map(|(_, request)| request));
        assert_eq!(body, message.body, "{name}");
        let written = Message { body: &body, ..message.clone() }.encode().unwrap();
        let (same, padding) = recorded[*name].split_at(written.len());
        assert_eq!(same, written, "{name}");
        assert!(padding.iter().all(|&byte| byte == 0), "{name}");
        *seen.entry(message.verb.to_string()).or_insert(0) += 1;
    }
    let verbs: Vec<_> = seen.iter().map(|(verb, count)| (verb.as_str(), *count)).collect();
    let gossip = [("GOSSIP_DIGEST_ACK", 3), ("GOSSIP_DIGEST_ACK2", 2), ("GOSSIP_DIGEST_SYN", 2)];
    let others = [
        ("MUTATION", 6),
        ("RANGE_SLICE", 4),
        ("READ", 13),
        ("READ_REPAIR", 1),
        ("READ_RESPONSE", 18),
    ];
    assert_eq!(verbs, [&gossip[..], &others].concat());
}

#[test]
fn a_recorded_hint_names_its_target() {
    let recorded = recorded();
    let message = Message::decode(&recorded["mutation 7"]).unwrap();
    let targets = decode_hint(message.header(HINT).unwrap(), message.from).unwrap();
    assert_eq!(targets, [std::net::IpAddr::from([127, 0, 10, 4])].into());
    let targets: Vec<_> = targets.into_iter().collect();
    assert_eq!(encode_hint(&targets), message.header(HINT).unwrap());
}

/// Data of an answer of 0.6.13 have the digest that another answered.
#[test]
fn recorded_digests_are_those_of_the_data() {
    let (recorded, schema) = (recorded(), schema());
    let reply = |name: &str, family: FamilyId| {
        let message = Message::decode(&recorded[name]).unwrap();
        ReadReply::decode(message.body, schema.family(family)).unwrap()
    };
    let data = |name, family| match reply(name, family) {
        ReadReply::Data { version, .. } => version,
        ReadReply::Digest(_) => panic!("{name} is a digest"),
    };
    let key1 = data("read 1b", STANDARD);
    let part = |at: usize| RowVersion { cells: vec![key1.cells[at].clone()], ..key1.clone() };
    let super_row = data("read 4b", SUPER);
    let within = |name: &[u8]| RowVersion {
        cells: super_row.cells.iter().filter(|cell| cell.super_name() == name).cloned().collect(),
        ..super_row.clone()
    };
    for (name, family, version) in [
        ("1b", STANDARD, part(0)),
        ("2b", STANDARD, key1.clone()),
        ("3b", STANDARD, part(1)),
        ("4b", STANDARD, data("read 2b", STANDARD)),
        ("5b", STANDARD, data("read 3b", STANDARD)),
        ("6b", STANDARD, RowVersion::default()),
        ("7b", SUPER, super_row.clone()),
        ("8b", SUPER, within(b"sc1")),
    ] {
        let told = reply(&format!("digest-read {name}"), family);
        assert_eq!(told, ReadReply::Digest(version.digest(schema.family(family))), "{name}");
    }
}

/// A command for one row of a range, and the same as a peer reads it.
fn range_read(
    range: RowRange,
    partitioner: Partitioner,
) -> Result<(Vec<u8>, RowRange), EncodeError> {
    let (slice, max_rows) = (Slice::all(None), 1);
    let command = RangeCommand { family: STANDARD, slice, range, max_rows };
    let body = command.encode(&schema(), partitioner)?;
    let read = RangeCommand::decode(&body, &schema(), partitioner).unwrap();
    Ok((body, read.range))
}

/// The end of a command for one row of a range.
fn bounds(form: u8, left: &[u8], right: &[u8]) -> Vec<u8> {
    let token = |token: &[u8]| [&[0, 0, 0, token.len() as u8], token].concat();
    [vec![0, 0, 0, form], token(left), token(right), vec![0, 0, 0, 1]].concat()
}

/// 2^127 in the form of Java.
const LAST: [u8; 17] = {
    let mut bytes = [0; 17];
    bytes[1] = 0x80;
    bytes
};

#[test]
fn ranges_have_the_forms_of_0_6() {
    let range = |start, end| RowRange { start, end };
    let (two, minimum) = (Token::Random(2), Bound::Included(Token::Minimum));
    let at = |number| Bound::Included(Token::Random(number));
    let behind = |number| Bound::Excluded(Token::Random(number));
    for (range, expected) in [
        (RowRange::all(), bounds(1, &[0xff], &LAST)),
        (range(Bound::Unbounded, at(2)), bounds(1, &[0xff], &[2])),
        (range(at(2), at(2)), bounds(1, &[2], &[2])),
        (range(at(2), Bound::Unbounded), bounds(1, &[2], &LAST)),
        (range(behind(1), at(2)), bounds(0, &[1], &[2])),
        (range(behind(1), Bound::Unbounded), bounds(0, &[1], &LAST)),
    ] {
        let (body, read) = range_read(range.clone(), Partitioner::Random).unwrap();
        assert!(body.ends_with(&expected), "{range:?}");
        assert_eq!(read, range);
    }
    let (body, read) = range_read(RowRange::all(), Partitioner::OrderPreserving).unwrap();
    assert!(body.ends_with(&bounds(1, &[], &[])));
    assert_eq!(read, RowRange::all());
    for unsayable in [
        range(behind(2), at(2)),
        range(behind(3), at(2)),
        range(at(3), at(2)),
        range(at(1), Bound::Excluded(two)),
        range(Bound::Unbounded, minimum),
    ] {
        assert_eq!(range_read(unsayable, Partitioner::Random), Err(EncodeError::Range));
    }
}

/// As the right token 0 and -1 mean the end of the ring to some releases.
#[test]
fn ranges_without_keys_mean_the_same_to_all_releases() {
    let no_key = {
        let mut bytes = LAST;
        bytes[16] = 1;
        bounds(1, &bytes, &bytes)
    };
    let at = |number| Bound::Included(Token::Random(number));
    let behind = |number| Bound::Excluded(Token::Random(number));
    for (start, end) in [
        (Bound::Unbounded, at(0)),
        (at(0), at(0)),
        (behind(1 << 127), Bound::Unbounded),
        (behind(u128::MAX), Bound::Unbounded),
    ] {
        let (body, read) = range_read(RowRange { start, end }, Partitioner::Random).unwrap();
        assert!(body.ends_with(&no_key), "{body:?}");
        let keys = [0, 1, (1 << 127) - 1, 1 << 127].map(Token::Random);
        assert!(!keys.iter().any(|token| read.contains(token)));
    }
}

/// Up to 0.6.8 the minimum token was 0.
#[test]
fn ranges_of_older_nodes_end_with_the_ring() {
    let (mut body, _) = range_read(RowRange::all(), Partitioner::Random).unwrap();
    body.truncate(body.len() - bounds(1, &[0xff], &LAST).len());
    let decode = |form, left: u8, right: u8| {
        let body = [&body[..], &bounds(form, &[left], &[right])].concat();
        RangeCommand::decode(&body, &schema(), Partitioner::Random).map(|command| command.range)
    };
    let [zero, five] = [0, 5].map(Token::Random);
    let to_end = |start| Ok(RowRange { start, end: Bound::Unbounded });
    assert_eq!(decode(0, 5, 0), to_end(Bound::Excluded(five.clone())));
    assert_eq!(decode(0, 5, 4), Err(BodyError::RangeWraps));
    // The last piece of a range that begins with a key.
    assert_eq!(decode(1, 5, 0), to_end(Bound::Included(five)));
    // From 0.6.6 on they ask for the whole ring in one piece.
    assert_eq!(decode(1, 0, 0), to_end(Bound::Included(zero.clone())));
    assert_eq!(decode(0, 0, 0), to_end(Bound::Excluded(zero.clone())));
    // From the minimum of today to 0, which a node may have for its token.
    let upto_zero = RowRange { start: Bound::Unbounded, end: Bound::Included(zero) };
    assert_eq!(decode(0, 0xff, 0), Ok(upto_zero));
}

/// Replaces a text by one of the same length.
fn replaced(body: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let at = body.windows(from.len()).rposition(|window| window == from.as_bytes()).unwrap();
    [&body[..at], to.as_bytes(), &body[at + from.len()..]].concat()
}

#[test]
fn a_peer_of_another_configuration_is_told_apart() {
    let schema = schema();
    let recorded = recorded();
    let body = |name: &str| Message::decode(&recorded[name]).unwrap().body.to_vec();
    let refused = |body: &[u8]| {
        decode_mutation(body, &schema, &RequestContext::default()).unwrap_err().to_string()
    };
    let (standard, grouped) = (body("mutation 1"), body("mutation 3"));
    for (body, text) in [
        (
            replaced(&standard, "Keyspace1", "Keyspace2"),
            "column family Keyspace2.Standard1 is not configured",
        ),
        (
            // The name in front of a row and that in it.
            replaced(&standard, "Standard1", "Standard2"),
            "byte 21 does not fit the format",
        ),
        (
            replaced(&standard, "BytesType", "AsciiType"),
            "column family Keyspace1.Standard1 has the comparator \
             org.apache.cassandra.db.marshal.BytesType here, and \
             org.apache.cassandra.db.marshal.AsciiType where it was written",
        ),
        (
            replaced(&grouped, "UTF8Type", "LongType"),
            "column family Keyspace1.Super1 has the subcolumn comparator \
             org.apache.cassandra.db.marshal.UTF8Type here, and \
             org.apache.cassandra.db.marshal.LongType where it was written",
        ),
        (
            replaced(&grouped, "Super", "Suber"),
            "column family Keyspace1.Super1 has the column type Super here, and Suber where it was \
             written",
        ),
    ] {
        assert_eq!(refused(&body), text);
    }
    // Errors are logged: what a peer says stands there in short.
    let clipped = format!("column family {}...", "x".repeat(100));
    let unknown = [&[0x40, 0][..], "x".repeat(0x4000).as_bytes(), &standard[11..]].concat();
    assert!(refused(&unknown).starts_with(&clipped));
    let mut system = vec![0, 6];
    system.extend(b"system");
    assert_eq!(refused(&system), "the keyspace system is not written to from outside");
}

#[test]
fn of_the_system_keyspace_batches_alone_are_written_by_others() {
    let schema = Schema::new(crate::kit::storage::system_families());
    let context = RequestContext::default();
    let decode = |mutation: &RowMutation| {
        decode_mutation(&encode_mutation(mutation, &schema).unwrap(), &schema, &context)
    };
    let written = |family: &str| {
        let mut row = MutationBuilder::new(&schema, "system", b"row");
        let family = schema.family_id("system", family).unwrap();
        row.family(family).insert((b"", b"name"), b"value", 1);
        row.finish()
    };
    let batch = written("Batches");
    assert_eq!(decode(&batch).unwrap().record(), batch.record());
    assert!(matches!(decode(&written("LocationInfo")), Err(BodyError::SystemKeyspace(_))));
}

/// A name that is not UTF-8, the deletion of a super column in a standard family, and so on, have
/// no way into storage.
#[test]
fn names_are_those_of_their_family() {
    let schema = schema();
    let with = |family: FamilyId, cell: Cell| {
        let mut builder = MutationBuilder::new(&schema, "Keyspace1", b"k");
        builder.family(family).cell(&cell);
        decode_mutation(
            &encode_mutation(&builder.finish(), &schema).unwrap(),
            &schema,
            &RequestContext::default(),
        )
    };
    let live = |super_name, name| Cell::live(super_name, name, b"v", 1);
    assert!(with(STANDARD, live(b"", b"n")).is_ok());
    assert!(matches!(
        with(STANDARD, live(b"", b"")),
        Err(BodyError::Row(DecodeError::Name { .. }))
    ));
    assert!(matches!(with(SUPER, live(b"s", b"")), Err(BodyError::Row(DecodeError::Name { .. }))));
    assert!(matches!(with(SUPER, live(b"", b"n")), Err(BodyError::Row(DecodeError::Name { .. }))));
    assert!(with(SUPER, Cell::super_tombstone(b"s", Deletion::at(1, 1))).is_ok());
    // A node of 0.6 takes no such time, so that it is moved.
    let early = with(SUPER, Cell::super_tombstone(b"s", Deletion::at(1, -7))).unwrap();
    assert_eq!(early.families[0].cells[0].deletion(), Some(Deletion::at(1, 1)));

    let command = |slice| {
        let command = ReadCommand { family: SUPER, key: "k".into(), slice, digest_only: false };
        ReadCommand::decode(&command.encode(&schema).unwrap(), &schema)
    };
    let range = |start: &[u8], finish: &[u8], reversed| {
        command(Slice::range(None, start, finish, reversed, 10))
    };
    assert!(range(b"a", b"b", false).is_ok());
    assert!(matches!(range(b"b", b"a", false), Err(BodyError::EmptySlice { .. })));
    assert!(range(b"b", b"a", true).is_ok());
    assert!(matches!(range(b"a", b"b", true), Err(BodyError::EmptySlice { .. })));
    assert!(range(b"b", b"", true).is_ok());
}

/// Few bytes can ask for many when a long name stands in each cell.
#[test]
fn a_long_super_column_name_does_not_multiply_without_bound() {
    let schema = schema();
    let family = schema.family(SUPER);
    let super_name = vec![b's'; 65535];
    let cell = |i: u32| Cell::live(&super_name, format!("{i:08}").as_bytes(), b"", 1);
    let body = |count: u32| {
        let cells = (0..count).map(cell).collect();
        let version = RowVersion { cells, ..RowVersion::default() };
        ReadReply::Data { key: "k".into(), version }.encode(family).unwrap()
    };
    assert!(ReadReply::decode(&body(100), family).is_ok());
    let large = body(600);
    assert!(large.len() < 100_000);
    assert_eq!(ReadReply::decode(&large, family), Err(DecodeError::TooLarge(32 << 20).into()));
}

#[test]
fn cells_that_cannot_be_are_refused() {
    let (schema, at) = (schema(), Deletion::at(1, 1));
    let with = |family: FamilyId, cell: Cell| {
        let mut builder = MutationBuilder::new(&schema, "Keyspace1", b"key1");
        builder.family(family).cell(&cell);
        let expiry = Expiry { ttl: 1, at: 1 };
        let place = (if family == SUPER { &b"s"[..] } else { b"" }, &b"n"[..]);
        builder.insert_expiring(place, b"", 1, expiry);
        let body = encode_mutation(&builder.finish(), &schema).unwrap();
        decode_mutation(&body, &schema, &RequestContext::default()).map(drop)
    };
    let range = encode_range((Bound::Included(b"b"), Bound::Excluded(b"a")));
    let sound = encode_range((Bound::Included(b"a"), Bound::Excluded(b"b")));
    for (family, super_name) in [(STANDARD, &b"\0"[..]), (SUPER, b"")] {
        let is_taken = |cell| with(family, cell).is_ok();
        assert!(is_taken(Cell::range_tombstone((super_name, &sound), at)));
        assert!(!is_taken(Cell::range_tombstone((super_name, &range), at)), "it ends before");
        assert!(!is_taken(Cell::range_tombstone((b"s", &sound), at)));
        assert!(!is_taken(Cell::live(super_name, &sound, b"", 1)));
        let within = if family == SUPER { &b"s"[..] } else { b"" };
        assert!(is_taken(Cell::prefix_tombstone((within, b"c"), at)));
        assert!(!is_taken(Cell::prefix_tombstone((within, b"c\0"), at)));
        assert!(!is_taken(Cell::live(within, b"", b"", 1)));
    }
}

/// Clients of 0.6 may send batches that do nothing, and its nodes pass them on.
#[test]
fn a_mutation_that_does_nothing_is_one() {
    let schema = schema();
    let nothing = MutationBuilder::new(&schema, "Keyspace1", b"key1").finish();
    let body = encode_mutation(&nothing, &schema).unwrap();
    let read = decode_mutation(&body, &schema, &RequestContext::default()).unwrap();
    assert_eq!((read.keyspace().as_ref(), read.key.as_bytes()), ("Keyspace1", &b"key1"[..]));
    assert!(read.families.is_empty());
}

/// Keys of CQL are bytes. Those that 0.6 would take for text are as it has them.
#[test]
fn keys_of_any_bytes_arrive_as_they_were() {
    let schema = schema();
    let keys: [&[u8]; 8] = [
        b"a",
        b"\0\0\0\x01",
        b"\0\0\0\xc8",
        b"\xff",
        b"\xff\xffa",
        b"\xc0\x80",
        &[0xed, 0xa0, 0x80],
        b"\x80",
    ];
    for key in keys {
        let mut row = MutationBuilder::new(&schema, "Keyspace1", key);
        row.family(STANDARD).insert((b"", b"name"), b"value", 1);
        let body = encode_mutation(&row.finish(), &schema).unwrap();
        let read = decode_mutation(&body, &schema, &RequestContext::default()).unwrap();
        assert_eq!(read.key.as_bytes(), key);
    }
    // A key has one form.
    let nothing = MutationBuilder::new(&schema, "Keyspace1", b"\xff").finish();
    let mut body = encode_mutation(&nothing, &schema).unwrap();
    let at = body.iter().rposition(|byte| *byte == 0xff).unwrap();
    body[at] = b'a';
    assert!(decode_mutation(&body, &schema, &RequestContext::default()).is_err());
}

#[test]
fn a_key_that_is_too_long_is_not_sent() {
    let schema = schema();
    let version = RowVersion::default();
    let encode = |key: &[u8]| {
        let reply = ReadReply::Data { key: RowKey::new(key), version: version.clone() };
        reply.encode(schema.family(STANDARD)).map(drop)
    };
    assert!(matches!(encode(&vec![0xff; 65_535]), Err(EncodeError::TooLong(_))));
    assert!(matches!(encode("\u{1f600}".repeat(11_000).as_bytes()), Err(EncodeError::TooLong(_))));
    assert_eq!(encode("Ключ \u{1f600}".as_bytes()), Ok(()));
}

fn names() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof!["[a-c]{1,2}", "[a-z\u{0}é日😀]{1,9}"].prop_map(String::into_bytes)
}

/// A cell that a client could have written.
fn cell(family: FamilyId) -> impl Strategy<Value = Cell> {
    let time = prop_oneof![1..5i32, Just(i32::MAX)];
    let at = prop_oneof![0..5i64, Just(i64::MIN), Just(i64::MAX)];
    (names(), names(), at, time, vec(0u8.., 0..9), 0..12u8).prop_map(
        move |(super_name, name, at, time, value, kind)| {
            let super_name = if family == SUPER { super_name } else { Vec::new() };
            let (place, deletion) = ((&*super_name, &*name), Deletion::at(at, time));
            match kind {
                0 if !name.contains(&0) => Cell::prefix_tombstone(place, deletion),
                1 => {
                    let range = encode_range((Bound::Included(&name), Bound::Unbounded));
                    let super_name = schema().family(family).range_super_name();
                    Cell::range_tombstone((super_name, &range), deletion)
                }
                2 => Cell::expiring(place, &value, at, Expiry { ttl: 7, at: time.into() }),
                3..6 => Cell::live(&super_name, &name, &value, at),
                6..9 if family == SUPER => {
                    Cell::super_tombstone(&super_name, Deletion::at(at, time))
                }
                _ => Cell::tombstone(&super_name, &name, Deletion::at(at, time)),
            }
        },
    )
}

fn family() -> impl Strategy<Value = FamilyId> {
    prop_oneof![Just(STANDARD), Just(TEXTS), Just(SUPER)]
}

fn deletion() -> impl Strategy<Value = Deletion> {
    prop_oneof![
        Just(Deletion::NONE),
        (0..5i64, 0..5i32).prop_map(|(at, time)| Deletion::at(at, time))
    ]
}

/// Knowledge of a row that a replica may have.
fn version(family: FamilyId) -> impl Strategy<Value = RowVersion> {
    (deletion(), vec(cell(family), 0..9)).prop_map(move |(deletion, cells)| {
        let schema = schema();
        let one = |cell| RowVersion { cells: vec![cell], ..RowVersion::default() };
        let mut versions: Vec<RowVersion> = cells.into_iter().map(one).collect();
        versions.push(RowVersion { deletion, cells: Vec::new() });
        RowVersion::merge(schema.family(family), &versions)
    })
}

fn key() -> impl Strategy<Value = RowKey> {
    "[a-z\u{0}é日😀]{1,9}".prop_map(|key| RowKey::from(key.as_str()))
}

fn slice(family: FamilyId) -> impl Strategy<Value = Slice> {
    let parent =
        if family == SUPER { proptest::option::of(names()).boxed() } else { Just(None).boxed() };
    let limit = prop_oneof![0usize..9, Just(usize::MAX)];
    let bound = || prop_oneof![Just(Vec::new()), names()];
    (parent, vec(names(), 0..5), bound(), bound(), any::<[bool; 2]>(), limit).prop_map(
        move |(parent, names, a, b, [reversed, by_names], limit)| {
            let schema = schema();
            if by_names {
                let names = names.iter().map(Vec::as_slice);
                return Slice::names(schema.family(family), parent.as_deref(), names);
            }
            let (start, finish) =
                if a.is_empty() || b.is_empty() || (a <= b) != reversed { (a, b) } else { (b, a) };
            Slice::range(parent.as_deref(), &start, &finish, reversed, limit)
        },
    )
}

/// Ranges that have keys, of which the end is said as it is.
fn row_range() -> impl Strategy<Value = RowRange> {
    let token = || prop_oneof![0..9u128, Just(1 << 126), Just(1 << 127), Just(u128::MAX)];
    let ranges = (token(), token(), 0..3u8, any::<bool>()).prop_map(|(a, b, start, open)| {
        let (low, high) = (a.min(b), a.max(b));
        let start = match start {
            0 => Bound::Unbounded,
            1 if low < high || open => Bound::Excluded(Token::Random(low)),
            _ => Bound::Included(Token::Random(low)),
        };
        let end = if open { Bound::Unbounded } else { Bound::Included(Token::Random(high)) };
        RowRange { start, end }
    });
    let is_said = |range: &RowRange| match &range.end {
        Bound::Unbounded => range.contains(&Token::Random(1 << 127)),
        end => ![0, 1 << 127].iter().any(|&it| *end == Bound::Included(Token::Random(it))),
    };
    ranges.prop_filter("no keys", is_said)
}

fn mutation() -> impl Strategy<Value = RowMutation> {
    let part = family().prop_flat_map(|id| (Just(id), deletion(), vec(cell(id), 0..6)));
    (key(), vec(part, 1..4)).prop_map(|(key, parts)| {
        let schema = schema();
        let mut builder = MutationBuilder::new(&schema, "Keyspace1", key.as_bytes());
        for (id, deletion, cells) in &parts {
            builder.family(*id).delete_row(*deletion);
            for cell in cells {
                builder.cell(cell);
            }
        }
        builder.finish()
    })
}

/// Effect of a mutation on an empty row, by family.
fn effect(mutation: &RowMutation) -> BTreeMap<FamilyId, RowVersion> {
    let schema = schema();
    let mut effects: BTreeMap<FamilyId, RowVersion> = BTreeMap::new();
    for part in &mutation.families {
        let family = schema.family(part.family);
        let effect = effects.entry(part.family).or_default();
        let one = |cell: &Cell| RowVersion { cells: vec![cell.clone()], ..RowVersion::default() };
        let mut versions: Vec<RowVersion> = part.cells.iter().map(one).collect();
        versions.push(RowVersion { deletion: part.deletion, cells: Vec::new() });
        versions.push(std::mem::take(effect));
        *effect = RowVersion::merge(family, &versions);
    }
    effects
}

/// Decodes the bytes as everything they could be.
fn decode_all(body: &[u8]) {
    let schema = schema();
    let _ = (
        decode_mutation(body, &schema, &RequestContext::default()),
        ReadCommand::decode(body, &schema),
    );
    let _ = WriteResponse::decode(body);
    for partitioner in Partitioner::ALL {
        let _ = RangeCommand::decode(body, &schema, partitioner);
    }
    for id in [STANDARD, TEXTS, SUPER] {
        let family = schema.family(id);
        let _ = (ReadReply::decode(body, family), RangeReply::decode(body, family));
    }
}

proptest! {
    #[test]
    fn mutations_are_read_back(mutation in mutation()) {
        let schema = schema();
        let body = encode_mutation(&mutation, &schema).unwrap();
        let read = decode_mutation(&body, &schema, &RequestContext::default()).unwrap();
        prop_assert_eq!(&read.key, &mutation.key);
        prop_assert_eq!(effect(&read), effect(&mutation));
        prop_assert_eq!(encode_mutation(&read, &schema).unwrap(), body);
    }

    #[test]
    fn commands_are_read_back(
        (family, slice) in family().prop_flat_map(|id| (Just(id), slice(id))),
        key in key(),
        digest_only: bool,
        range in row_range(),
        max_rows in prop_oneof![0usize..9, Just(usize::MAX)],
    ) {
        let (schema, random) = (schema(), Partitioner::Random);
        let read = ReadCommand { family, key, slice: slice.clone(), digest_only };
        prop_assert_eq!(&ReadCommand::decode(&read.encode(&schema).unwrap(), &schema), &Ok(read));
        let scan = RangeCommand { family, slice, range, max_rows };
        let body = scan.encode(&schema, random).unwrap();
        prop_assert_eq!(RangeCommand::decode(&body, &schema, random), Ok(scan));
    }

    #[test]
    fn answers_are_read_back(
        (id, versions) in family().prop_flat_map(|id| (Just(id), vec(version(id), 1..4))),
        key in key(),
        digest: [u8; 16],
    ) {
        let schema = schema();
        let family = schema.family(id);
        let rows = versions.iter().map(|version| (key.clone(), version.clone())).collect();
        let reply = RangeReply { rows };
        prop_assert_eq!(RangeReply::decode(&reply.encode(family).unwrap(), family), Ok(reply));
        for reply in [
            ReadReply::Data { key: key.clone(), version: versions[0].clone() },
            ReadReply::Digest(digest),
        ] {
            let body = reply.encode(family).unwrap();
            prop_assert_eq!(ReadReply::decode(&body, family), Ok(reply));
        }
        let response = WriteResponse { keyspace: "Keyspace1".into(), key };
        let body = WriteResponse::encode("Keyspace1", &response.key).unwrap();
        prop_assert_eq!(WriteResponse::decode(&body), Ok(response));
    }

    /// A peer need not keep the order, nor send each column once.
    #[test]
    fn answers_out_of_order_are_put_in_order(
        (id, cells) in family().prop_flat_map(|id| (Just(id), vec(cell(id), 0..9))),
        shift in 0usize..9,
    ) {
        let schema = schema();
        let family = schema.family(id);
        let mut cells = cells;
        // The deletion of a super column is told before its columns in any case.
        cells.retain(Cell::is_live);
        cells.extend_from_within(..cells.len() / 2);
        let one = |cell: &Cell| RowVersion { cells: vec![cell.clone()], ..RowVersion::default() };
        let versions: Vec<RowVersion> = cells.iter().map(one).collect();
        let version = RowVersion::merge(family, &versions);
        let middle = shift.min(cells.len());
        cells.rotate_left(middle);
        let sent = RowVersion { cells, ..RowVersion::default() };
        let body = ReadReply::Data { key: "k".into(), version: sent }.encode(family).unwrap();
        let reply = ReadReply::Data { key: "k".into(), version };
        prop_assert_eq!(ReadReply::decode(&body, family), Ok(reply));
    }

    #[test]
    fn damaged_bodies_are_read_without_panic(
        which in 0usize..49,
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
        cut in any::<prop::sample::Index>(),
    ) {
        let recorded = recorded();
        let payload = recorded.values().nth(which).unwrap();
        let mut body = Message::decode(payload).unwrap().body.to_vec();
        decode_all(&body[..cut.index(body.len())]);
        for (at, byte) in changes {
            let at = at.index(body.len());
            body[at] = byte;
        }
        decode_all(&body);
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in vec(prop_oneof![0u8..3, 0u8..], 0..80)) {
        decode_all(&bytes);
    }
}
