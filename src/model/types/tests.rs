//! Types as a whole: class names, texts, orders and JSON.

mod json;

use super::*;
use proptest::prelude::*;
use std::cmp::Ordering;

fn native(name: &str) -> CqlType {
    Native::from_name(name).unwrap().into()
}

fn list(element: CqlType) -> CqlType {
    CqlType::List(Arc::new(element))
}

fn set(element: CqlType) -> CqlType {
    CqlType::Set(Arc::new(element))
}

fn map(key: CqlType, value: CqlType) -> CqlType {
    CqlType::Map(Arc::new((key, value)))
}

fn tuple_of(names: &[&str]) -> CqlType {
    CqlType::Tuple(names.iter().map(|name| native(name)).collect())
}

/// A type with the fields `a int`, `"Foo" text` and `c set<int>`.
fn user() -> CqlType {
    let fields = [("a", native("int")), ("Foo", native("text")), ("c", set(native("int")))];
    CqlType::User(Arc::new(UserType {
        keyspace: "ks".to_owned(),
        name: "Address".to_owned(),
        fields: fields.map(|(name, of_type)| (name.to_owned(), of_type)).to_vec(),
    }))
}

fn class(short: &str) -> CqlType {
    CqlType::from_class(short).unwrap()
}

/// All native types, and some made of others.
fn all_types() -> Vec<CqlType> {
    let mut types: Vec<CqlType> = Native::ALL.map(CqlType::Native).to_vec();
    types.extend([
        list(native("int")),
        set(native("varint")).frozen(),
        map(native("text"), list(native("double")).frozen()),
        tuple_of(&["int", "text", "uuid"]),
        user(),
        list(tuple_of(&["decimal", "boolean"])).frozen(),
        class("LexicalUUIDType"),
    ]);
    types
}

/// Bytes of a constant, given as the forms of statements have it.
fn value(of_type: &str, text: &str) -> Vec<u8> {
    native(of_type).from_string(text).unwrap()
}

fn refusal(of_type: &CqlType, value: &[u8]) -> String {
    of_type.validate(value).unwrap_err().to_string()
}

fn sorted(of_type: &CqlType, values: &[&[u8]]) {
    for (at, a) in values.iter().enumerate() {
        for (other, b) in values.iter().enumerate() {
            assert_eq!(of_type.compare(a, b), at.cmp(&other), "{of_type}: {a:02x?} {b:02x?}");
        }
    }
}

/// These constants are in order, after the empty value.
fn sorted_texts(of_type: &str, texts: &[&str]) {
    let mut values = vec![Vec::new()];
    values.extend(texts.iter().map(|text| value(of_type, text)));
    sorted(&native(of_type), &values.iter().map(Vec::as_slice).collect::<Vec<_>>());
}

#[test]
fn types_are_shown_as_cql() {
    for (of_type, shown) in [
        (native("varchar"), "text"),
        (class("DateType"), "timestamp"),
        (map(native("text"), native("int")).frozen(), "frozen<map<text, int>>"),
        (list(list(native("int"))).frozen(), "frozen<list<frozen<list<int>>>>"),
        (tuple_of(&["int", "text"]), "frozen<tuple<int, text>>"),
        (user(), "\"Address\""),
        (set(user()).frozen(), "frozen<set<frozen<\"Address\">>>"),
        (class("LexicalUUIDType"), "'org.apache.cassandra.db.marshal.LexicalUUIDType'"),
    ] {
        assert_eq!(of_type.to_string(), shown);
    }
    assert_eq!(["a_1", "1a", "A", "a\"b", ""].map(quoted).join(" "), r#"a_1 "1a" "A" "a""b" """#);
}

#[test]
fn only_unfrozen_collections_and_user_types_have_many_cells() {
    for many in [list(native("int")), user(), map(native("int"), native("int"))] {
        assert!(many.is_multicell() && !many.frozen().is_multicell());
        assert_eq!(many.frozen().unfrozen(), &many);
        assert_eq!(many.frozen().frozen(), many.frozen());
    }
    for one in [native("int"), tuple_of(&["int"]), class("LexicalUUIDType")] {
        assert!(!one.is_multicell());
        assert_eq!(one.frozen(), one);
    }
}

#[test]
fn class_names_are_read_as_they_are_written() {
    for of_type in all_types() {
        let class = of_type.class_name();
        assert_eq!(CqlType::from_class(&class), Some(of_type), "{class}");
        let short = class.replace(CLASS_PREFIX, "");
        assert_eq!(CqlType::from_class(&short).unwrap().class_name(), class);
    }
    let nested = map(native("int"), list(user())).frozen();
    assert_eq!(
        nested.class_name().replace(CLASS_PREFIX, ""),
        "FrozenType(MapType(Int32Type,ListType(UserType(ks,41646472657373,61:Int32Type,\
         466f6f:UTF8Type,63:SetType(Int32Type)))))"
    );
    assert_eq!(CqlType::from_class(&nested.class_name()), Some(nested));
    assert_eq!(class(" MapType ( Int32Type , UTF8Type ) "), map(native("int"), native("text")));
}

#[test]
fn what_is_no_class_of_values_is_unknown() {
    let deep = "ListType(".repeat(100_000) + "Int32Type" + &")".repeat(100_000);
    for class in [
        "",
        "int",
        "ReversedType(Int32Type)",
        "CompositeType(Int32Type,Int32Type)",
        "ListType",
        "ListType()",
        "ListType(Int32Type,Int32Type)",
        "MapType(Int32Type)",
        "MapType(Int32Type,Int32Type,Int32Type)",
        "TupleType()",
        "Int32Type(Int32Type)",
        "ListType(Int32Type",
        "ListType(Int32Type))",
        "UserType(ks,zz,61:Int32Type)",
        "UserType(ks,6,61:Int32Type)",
        "UserType(ks,ff)",
        "UserType(ks,61,61Int32Type)",
        "com.example.Int32Type",
        &deep,
    ] {
        assert_eq!(CqlType::from_class(class), None, "{class:.40}");
    }
}

#[test]
fn refusals_carry_the_known_texts() {
    for (of_type, bytes, text) in [
        ("ascii", &b"a\xe2"[..], "Invalid byte for ascii: -30"),
        ("text", b"a\xc3", "String didn't validate."),
        ("tinyint", b"", "Expected 1 byte for a tinyint (0)"),
        ("smallint", b"abcd", "Expected 2 bytes for a smallint (4)"),
        ("int", b"abc", "Expected 4 or 0 byte int (3)"),
        ("bigint", b"abc", "Expected 8 or 0 byte long (3)"),
        ("counter", b"abc", "Expected 8 or 0 byte long (3)"),
        ("boolean", b"ab", "Expected 1 or 0 byte value (2)"),
        ("float", b"abc", "Expected 4 or 0 byte value for a float (3)"),
        ("double", b"abc", "Expected 8 or 0 byte value for a double (3)"),
        ("decimal", b"abc", "Expected 0 or at least 4 bytes (3)"),
        ("inet", b"abc", "Expected 4 or 16 byte inetaddress; got 616263"),
        ("uuid", b"abc", "UUID should be 16 or 0 bytes (3)"),
        ("timeuuid", b"abc", "UUID should be 16 or 0 bytes (3)"),
        ("timeuuid", &[0; 16], "Invalid version for TimeUUID type."),
        ("timestamp", b"abc", "Expected 8 or 0 byte long for date (3)"),
        ("date", b"", "Expected 4 byte long for date (0)"),
        ("time", b"", "Expected 8 byte long for time (0)"),
        ("duration", b"", "Expected at least 3 bytes for a duration (0)"),
    ] {
        assert_eq!(refusal(&native(of_type), bytes), text);
    }
    let long = vec![1; 65_536];
    let text = "Expected at most 65535 bytes for a varint (65536)";
    assert_eq!(refusal(&native("varint"), &long), text);
    assert_eq!(refusal(&class("EmptyType"), b"a"), "EmptyType only accept empty values");
}

#[test]
fn parts_are_checked_by_their_types() {
    let ints = list(native("int"));
    assert_eq!(refusal(&ints, b""), "Not enough bytes to read a list");
    assert_eq!(refusal(&ints, &collection::pack(&["abc"])), "Expected 4 or 0 byte int (3)");
    assert_eq!(refusal(&set(native("int")), b"\0"), "Not enough bytes to read a set");
    let texts = map(native("text"), native("int"));
    assert_eq!(texts.validate(&collection::pack_map(&[("a", [0; 4])])), Ok(()));
    assert_eq!(
        refusal(&texts, &collection::pack_map(&[("a", "b")])),
        "Expected 4 or 0 byte int (1)"
    );
    let pair = tuple_of(&["int", "text"]);
    for fields in [&[Some("abcd"), Some("a")][..], &[None, Some("")], &[Some("abcd")], &[]] {
        assert_eq!(pair.validate(&tuple::pack(fields)), Ok(()));
        assert_eq!(user().validate(&tuple::pack(fields)), Ok(()));
    }
    let three = tuple::pack(&[Some("abcd"), None, None, None]);
    assert_eq!(refusal(&pair, &three), "Invalid remaining data after end of tuple value");
    assert_eq!(refusal(&user(), &three), "Invalid remaining data after end of UDT value");
    assert_eq!(refusal(&pair, b"\0"), "Not enough bytes to read size of 0th component");
    assert_eq!(refusal(&pair, b"\0\0\0\x05a"), "Not enough bytes to read 0th component");
    assert_eq!(refusal(&user(), b"\0"), "Not enough bytes to read size of 0th field a");
    assert_eq!(refusal(&user(), b"\0\0\0\x05a"), "Not enough bytes to read 0th field a");
}

#[test]
fn values_sort_by_what_they_mean() {
    sorted_texts("tinyint", &["-128", "-1", "0", "127"]);
    sorted_texts("int", &["-2147483648", "-1", "0", "1", "2147483647"]);
    sorted_texts("bigint", &["-9223372036854775808", "-1", "0", "255", "256"]);
    let wide = "100000000000000000000000000000000000000000";
    sorted_texts("varint", &[&format!("-{wide}"), "-256", "-1", "0", "1", "128", wide]);
    sorted_texts("decimal", &["-1e5", "-1.5", "0", "0.001", "1.5", "2", "1e1"]);
    for of_type in ["float", "double"] {
        sorted_texts(of_type, &["-Infinity", "-1.5", "-0.0", "0.0", "2.25", "Infinity", "NaN"]);
    }
    sorted_texts("boolean", &["false", "true"]);
    sorted_texts("text", &["a", "a\0", "b", "\u{7ff}", "\u{10ffff}"]);
    sorted_texts("date", &["-5000-01-01", "1969-12-31", "1970-01-01", "2030-01-01"]);
    sorted_texts("timestamp", &["1969-12-31", "1970-01-01", "2030-01-01"]);
    sorted_texts("time", &["00:00:00", "23:59:59"]);
    let nan = (-f64::NAN).to_be_bytes();
    assert!(native("double").compare(&nan, &value("double", "NaN")).is_eq());
    assert!(native("varint").compare(&[0xff, 0xff], &[0xff]).is_eq());
    assert!(native("decimal").compare(&value("decimal", "1.0"), &value("decimal", "1")).is_eq());
}

#[test]
fn uuids_sort_by_version_and_time() {
    let early = "ffffffff-0000-1000-8000-000000000000";
    let late = "00000000-0001-1000-8000-000000000000";
    let low = "00000000-0001-1000-8000-00000000007f";
    let high = "00000000-0001-1000-8000-000000000080";
    let random = ["00000000-0000-4000-8000-000000000001", "80000000-0000-4000-8000-000000000000"];
    sorted_texts("uuid", &[early, late, low, high, random[0], random[1]]);
    sorted_texts("timeuuid", &[early, late, low, high]);
}

#[test]
fn collections_and_tuples_sort_part_by_part() {
    let ints = |numbers: &[i32]| {
        collection::pack(&numbers.iter().map(|it| it.to_be_bytes()).collect::<Vec<_>>())
    };
    let lists = [ints(&[]), ints(&[-1]), ints(&[-1, 5]), ints(&[0]), ints(&[1, -1])];
    let mut values: Vec<&[u8]> = vec![b""];
    values.extend(lists.iter().map(Vec::as_slice));
    sorted(&list(native("int")), &values);
    sorted(&set(native("int")).frozen(), &values);

    let entry = |key: &'static str, number: i32| (key, number.to_be_bytes());
    let maps = [
        collection::pack_map(&[entry("a", -1)]),
        collection::pack_map(&[entry("a", -1), entry("b", 0)]),
        collection::pack_map(&[entry("a", 1)]),
        collection::pack_map(&[entry("b", 0)]),
    ];
    sorted(&map(native("text"), native("int")), &maps.each_ref().map(Vec::as_slice));

    let number = |number: i32| Some(number.to_be_bytes().to_vec());
    let text = |text: &str| Some(text.as_bytes().to_vec());
    let tuples = [
        tuple::pack(&[None, text("b")]),
        tuple::pack(&[number(-1), None]),
        tuple::pack(&[number(-1), text("")]),
        tuple::pack(&[number(1), text("a")]),
    ];
    let pair = tuple_of(&["int", "text"]);
    sorted(&pair, &tuples.each_ref().map(Vec::as_slice));
    assert!(pair.compare(&tuple::pack(&[number(-1)]), &tuples[1]).is_eq());
}

#[test]
fn constants_become_values() {
    use ConstantKind::{Boolean, Duration, Float, Hex, Integer, String, Uuid};
    for (of_type, kind, text, bytes) in [
        ("ascii", String, "ab", &b"ab"[..]),
        ("text", String, "\u{e9}", "\u{e9}".as_bytes()),
        ("tinyint", Integer, "-1", &[0xff]),
        ("smallint", Integer, "258", &[1, 2]),
        ("int", Integer, "+258", &[0, 0, 1, 2]),
        ("counter", Integer, "1", &[0, 0, 0, 0, 0, 0, 0, 1]),
        ("varint", Integer, "-129", &[0xff, 0x7f]),
        ("decimal", Integer, "5", &[0, 0, 0, 0, 5]),
        ("decimal", Float, "0.05", &[0, 0, 0, 2, 5]),
        ("float", Integer, "1", &[0x3f, 0x80, 0, 0]),
        ("double", Float, "-Infinity", &[0xff, 0xf0, 0, 0, 0, 0, 0, 0]),
        ("boolean", Boolean, "TRUE", &[1]),
        ("blob", Hex, "0xCAfe", &[0xca, 0xfe]),
        ("blob", Hex, "0x", &[]),
        ("inet", String, "127.0.0.1", &[127, 0, 0, 1]),
        ("inet", String, "::ffff:127.0.0.1", &[127, 0, 0, 1]),
        ("inet", String, "::1", &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
        ("timestamp", Integer, "-1", &[0xff; 8]),
        ("timestamp", String, "", &[]),
        ("date", Integer, "1", &[0, 0, 0, 1]),
        ("date", String, "1970-01-01", &[0x80, 0, 0, 0]),
        ("time", String, "00:00:00.000000001", &[0, 0, 0, 0, 0, 0, 0, 1]),
        ("duration", Duration, "1d", &[0, 2, 0]),
        (
            "uuid",
            Uuid,
            "00000000-0000-4000-8000-00000000000F",
            &[0, 0, 0, 0, 0, 0, 0x40, 0, 0x80, 0, 0, 0, 0, 0, 0, 15],
        ),
    ] {
        let found = native(of_type).from_constant(kind, text);
        assert_eq!(found.as_deref(), Ok(bytes), "{of_type} {text}");
    }
    let custom = class("LexicalUUIDType");
    assert_eq!(custom.from_constant(Hex, "0x01"), Ok(vec![1]));
}

#[test]
fn constants_of_another_kind_are_told_from_malformed_ones() {
    use ConstantKind::{Boolean, Float, Integer, String, Uuid};
    for (of_type, kind, text) in [
        ("int", String, "1"),
        ("int", Float, "1.5"),
        ("text", Integer, "1"),
        ("uuid", String, "00000000-0000-4000-8000-000000000000"),
        ("boolean", Integer, "1"),
        ("blob", String, "ab"),
        ("timestamp", Float, "1.5"),
        ("double", Boolean, "true"),
    ] {
        let found = native(of_type).from_constant(kind, text);
        assert_eq!(found, Err(InvalidConstant::Kind), "{of_type} {text}");
    }
    assert_eq!(list(native("int")).from_constant(Integer, "1"), Err(InvalidConstant::Kind));
    for (of_type, kind, text, error) in [
        ("int", Integer, "99999999999", "Unable to make int from '99999999999'"),
        (
            "bigint",
            Integer,
            "9223372036854775808",
            "Unable to make long from '9223372036854775808'",
        ),
        ("smallint", Integer, "40000", "Unable to make short from '40000'"),
        ("tinyint", Integer, "128", "Unable to make byte from '128'"),
        ("timestamp", String, "2012", ""),
        ("timestamp", String, "nonsense", "Unable to coerce 'nonsense' to a formatted date (long)"),
        ("inet", String, "xyzz", "Unable to make inet address from 'xyzz'"),
        ("decimal", Float, "1e2147483649", "unable to make BigDecimal from '1e2147483649'"),
        (
            "timeuuid",
            Uuid,
            "00000000-0000-4000-8000-000000000000",
            "TimeUUID supports only version 1 UUIDs",
        ),
        ("ascii", String, "\u{e9}", "Invalid ASCII character in string literal: \u{e9}"),
        ("blob", ConstantKind::Hex, "0x123", "cannot parse '123' as hex bytes"),
        ("duration", Integer, "5", "Unable to convert '5' to a duration"),
    ] {
        let found = native(of_type).from_constant(kind, text);
        if error.is_empty() {
            // Digits are milliseconds, also between quotes.
            assert_eq!(found, Ok(2012i64.to_be_bytes().to_vec()));
        } else {
            assert_eq!(found, Err(InvalidConstant::Text(error.to_owned())));
        }
    }
    assert!(
        native("tinyint").from_string("").is_err() && native("duration").from_string("").is_err()
    );
    for text in ["inf", "nan", "1e", "", "0x1", "1_0", "infinity"] {
        let found = native("double").from_string(text);
        assert_eq!(found.is_ok(), text.is_empty(), "{text}");
    }
}

#[test]
fn constants_have_types_of_their_own() {
    use ConstantKind::{Float, Integer, String, Uuid};
    for (kind, text, name) in [
        (Integer, "1", "int"),
        (Integer, "2147483648", "bigint"),
        (Integer, "9223372036854775808", "varint"),
        (Float, "1.5", "double"),
        (String, "a", "ascii"),
        (String, "\u{e9}", "text"),
        (Uuid, "00000000-0000-1000-8000-000000000000", "timeuuid"),
        (Uuid, "00000000-0000-4000-8000-000000000000", "uuid"),
    ] {
        assert_eq!(kind.preferred_type(text).name(), name, "{text}");
    }
}

#[test]
fn values_are_shown_as_literals() {
    for (of_type, bytes, shown) in [
        (native("text"), b"it's".to_vec(), "'it''s'"),
        (native("int"), vec![0, 0, 0, 7], "7"),
        (native("int"), vec![], "null"),
        (native("int"), vec![7], "0x07"),
        (native("blob"), vec![], "0x"),
        (native("timestamp"), vec![0; 8], "'1970-01-01T00:00:00.000Z'"),
        (native("inet"), vec![127, 0, 0, 1], "'127.0.0.1'"),
        (native("varint"), vec![1; 3], "65793"),
        (list(native("text")), collection::pack(&["a", "b"]), "['a', 'b']"),
        (set(native("text")), collection::pack(&["a"]), "{'a'}"),
        (map(native("text"), native("text")), collection::pack_map(&[("a", "b")]), "{'a': 'b'}"),
        (tuple_of(&["int", "text"]), tuple::pack(&[None, Some("a")]), "(null, 'a')"),
        (user(), tuple::pack(&[Some(vec![0, 0, 0, 1])]), "{a: 1}"),
        (list(native("text")), b"abc".to_vec(), "0x616263"),
        (class("LexicalUUIDType"), vec![1, 2], "0x0102"),
    ] {
        assert_eq!(of_type.render(&bytes), shown);
    }
}

#[test]
fn casts_give_other_types() {
    let cast = |from: &str, text: &str, to: &str| {
        let (from_type, to_type) = (native(from), native(to));
        let (from, to) = (from_type.native().unwrap(), to_type.native().unwrap());
        assert!(can_cast(from, to), "{from} {to}");
        to_type.render(&from.cast(to, &value(from.name(), text)).unwrap().unwrap())
    };
    let time = "2015-05-21T11:03:02.000Z";
    assert_eq!(cast("double", "6.3", "int"), "6");
    assert_eq!(cast("counter", "2", "text"), "'2'");
    assert_eq!(cast("double", "6.0", "ascii"), "'6.0'");
    assert_eq!(cast("timestamp", time, "text"), format!("'{time}'"));
    assert_eq!(cast("timestamp", time, "date"), "'2015-05-21'");
    assert_eq!(cast("date", "2015-05-21", "timestamp"), "'2015-05-21T00:00:00.000Z'");
    assert_eq!(cast("date", "2015-05-21", "text"), "'2015-05-21'");
    assert_eq!(cast("time", "11:03:02", "text"), "'11:03:02.000000000'");
    assert_eq!(cast("inet", "127.0.0.1", "text"), "'127.0.0.1'");
    assert_eq!(cast("boolean", "true", "ascii"), "'true'");
    let uuid = "d2177dd0-eaa2-11de-a572-001b779c76e3";
    assert_eq!(cast("timeuuid", uuid, "timestamp"), "'2009-12-17T00:26:29.805Z'");
    assert_eq!(Native::Int.cast(Native::Text, b""), Ok(None));
    for (from, to) in [
        (Native::Int, Native::Boolean),
        (Native::Text, Native::Int),
        (Native::Int, Native::Counter),
        (Native::Time, Native::Date),
        (Native::Blob, Native::Text),
    ] {
        assert!(!can_cast(from, to), "{from} {to}");
    }
}

#[test]
fn some_types_take_values_of_others() {
    let takes = |to: &str, from: &str| native(to).assignable_from(&native(from));
    for (to, from) in [
        ("text", "ascii"),
        ("varint", "int"),
        ("time", "bigint"),
        ("blob", "int"),
        ("uuid", "timeuuid"),
    ] {
        assert!(takes(to, from) && !takes(from, to), "{to} {from}");
    }
    assert!(takes("timestamp", "bigint") && takes("bigint", "timestamp"));
    assert!(!takes("bigint", "int"));
    assert!(class("DateType").assignable_from(&native("timestamp")));
    assert!(list(native("text")).assignable_from(&list(native("ascii")).frozen()));
    assert!(!list(native("text")).assignable_from(&set(native("text"))));
    let (two, three) = (tuple_of(&["int", "text"]), tuple_of(&["int", "text", "int"]));
    assert!(three.assignable_from(&two) && !two.assignable_from(&three));
    assert!(user().assignable_from(&user().frozen()));
}

/// A type of any form, not too deep.
fn any_type() -> impl Strategy<Value = CqlType> {
    let leaf = prop::sample::select(all_types());
    leaf.prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(list),
            inner.clone().prop_map(|it| set(it).frozen()),
            (inner.clone(), inner.clone()).prop_map(|(key, value)| map(key.frozen(), value)),
            prop::collection::vec(inner, 1..4)
                .prop_map(|types| CqlType::Tuple(types.into()).frozen()),
        ]
    })
}

/// Bytes in which lengths and counts are often right.
fn any_bytes() -> BoxedStrategy<Vec<u8>> {
    let short =
        prop::collection::vec(prop::sample::select(vec![0u8, 1, 2, 4, 0x7f, 0x80, 0xff]), 0..20);
    let leaf = prop_oneof![
        4 => short,
        1 => prop::collection::vec(any::<u8>(), 0..40),
        1 => prop::sample::select(vec![1usize, 2, 4, 8, 16])
            .prop_flat_map(|it| prop::collection::vec(any::<u8>(), it)),
    ];
    leaf.prop_recursive(2, 12, 4, |inner| {
        let parts = prop::collection::vec(inner.clone(), 0..4);
        let fields = prop::collection::vec(prop::option::of(inner), 0..4);
        let tail = prop_oneof![9 => Just(vec![]), 1 => Just(vec![0u8])];
        prop_oneof![
            (parts.clone(), tail).prop_map(|(it, tail)| [collection::pack(&it), tail].concat()),
            parts.prop_map(|it| collection::pack_map(
                &it.into_iter().map(|it| (it.clone(), it)).collect::<Vec<_>>()
            )),
            fields.prop_map(|it| tuple::pack(&it)),
        ]
    })
    .boxed()
}

/// A valid value of a type, and none of those that JSON does not tell apart from others.
fn any_value(of_type: &CqlType) -> BoxedStrategy<Vec<u8>> {
    let sized = |length: usize| prop::collection::vec(any::<u8>(), length).boxed();
    let packed = |element: &CqlType| prop::collection::vec(any_value(element), 0..3);
    match of_type.clone() {
        CqlType::Native(native) => match native {
            Native::Ascii => "[ -~]{1,5}".prop_map(String::into_bytes).boxed(),
            Native::Text => "\\PC{1,5}".prop_map(String::into_bytes).boxed(),
            Native::Blob | Native::Varint => prop::collection::vec(any::<u8>(), 1..20).boxed(),
            Native::Boolean => any::<bool>().prop_map(|it| vec![it.into()]).boxed(),
            Native::Bigint | Native::Counter | Native::Timestamp | Native::OldTimestamp => sized(8),
            Native::Date | Native::Int => sized(4),
            Native::Decimal => sized(9),
            Native::Float => any::<f32>().prop_map(|it| it.to_be_bytes().into()).boxed(),
            Native::Double => any::<f64>().prop_map(|it| it.to_be_bytes().into()).boxed(),
            Native::Duration => (0..i32::MAX, 0..i32::MAX, 1..i64::MAX)
                .prop_map(|(months, days, nanoseconds)| {
                    Duration { months, days, nanoseconds }.encode()
                })
                .boxed(),
            Native::Empty => Just(Vec::new()).boxed(),
            Native::Inet => prop_oneof![sized(4), sized(16)].boxed(),
            Native::Smallint => sized(2),
            Native::Time => {
                (0..86_400_000_000_000i64).prop_map(|it| it.to_be_bytes().into()).boxed()
            }
            Native::Timeuuid => sized(16)
                .prop_map(|mut it| {
                    it[6] = it[6] & 0xf | 0x10;
                    it
                })
                .boxed(),
            Native::Tinyint => sized(1),
            Native::Uuid => sized(16),
        },
        CqlType::List(element) => packed(&element).prop_map(|it| collection::pack(&it)).boxed(),
        CqlType::Set(element) => packed(&element)
            .prop_map(move |mut it| {
                it.sort_by(|a, b| element.compare(a, b));
                it.dedup_by(|a, b| element.compare(a, b).is_eq());
                collection::pack(&it)
            })
            .boxed(),
        CqlType::Map(types) => {
            let entry = (any_value(&types.0), any_value(&types.1));
            let entries = prop::collection::vec(entry, 0..3);
            entries
                .prop_map(move |mut it| {
                    it.sort_by(|a, b| types.0.compare(&a.0, &b.0));
                    it.dedup_by(|a, b| types.0.compare(&a.0, &b.0).is_eq());
                    collection::pack_map(&it)
                })
                .boxed()
        }
        CqlType::Tuple(types) => {
            let fields: Vec<_> = types.iter().map(any_value).map(prop::option::of).collect();
            fields.prop_map(|it| tuple::pack(&it)).boxed()
        }
        CqlType::User(user) => {
            let fields = user.fields.iter().map(|(_, it)| prop::option::of(any_value(it)));
            fields.collect::<Vec<_>>().prop_map(|it| tuple::pack(&it)).boxed()
        }
        CqlType::Frozen(inner) => any_value(&inner),
        CqlType::Custom(_) => sized(16),
    }
}

/// Whether values of the type survive JSON.
fn survives_json(of_type: &CqlType) -> bool {
    match of_type {
        CqlType::Native(native) => *native != Native::Empty,
        CqlType::List(it) | CqlType::Set(it) | CqlType::Frozen(it) => survives_json(it),
        CqlType::Map(types) => survives_json(&types.0) && survives_json(&types.1),
        CqlType::Tuple(types) => types.iter().all(survives_json),
        CqlType::User(_) => true,
        CqlType::Custom(_) => false,
    }
}

proptest! {
    #[test]
    fn the_order_is_total_for_all_bytes(
        of_type in any_type(),
        values in prop::collection::vec(any_bytes(), 3),
    ) {
        for a in &values {
            prop_assert_eq!(of_type.compare(a, a), Ordering::Equal);
            for b in &values {
                let order = of_type.compare(a, b);
                prop_assert_eq!(order, of_type.compare(b, a).reverse());
                for c in &values {
                    let (next, whole) = (of_type.compare(b, c), of_type.compare(a, c));
                    if order.is_le() && next.is_le() {
                        prop_assert!(whole.is_le(), "{} {:02x?} {:02x?} {:02x?}", of_type, a, b, c);
                        prop_assert_eq!(whole.is_eq(), order.is_eq() && next.is_eq());
                    }
                }
            }
        }
    }

    #[test]
    fn no_bytes_and_no_text_make_it_panic(
        of_type in any_type(),
        bytes in any_bytes(),
        text in "\\PC{0,20}",
        json in "[\\[\\]{}:,\"0-9a-e.\\\\ -]{0,20}",
    ) {
        let is_valid = of_type.validate(&bytes).is_ok();
        let (shown, json_text) = (of_type.render(&bytes), of_type.to_json(&bytes));
        prop_assert!(!shown.is_empty());
        let is_json = serde_json::from_str::<&serde_json::value::RawValue>(&json_text).is_ok();
        prop_assert!(is_json, "{} {} {}", of_type, is_valid, json_text);
        for text in [&text, &json] {
            if let Ok(value) = of_type.from_string(text) {
                prop_assert_eq!(of_type.validate(&value), Ok(()));
            }
            if let Ok(Some(value)) = of_type.from_json(text) {
                prop_assert_eq!(of_type.validate(&value), Ok(()));
            }
            let _ = CqlType::from_class(text);
            let _ = document(text);
        }
        if let Some(native) = of_type.native() {
            for to in Native::ALL.into_iter().filter(|to| can_cast(native, *to)) {
                if let Ok(Some(value)) = native.cast(to, &bytes) {
                    prop_assert!(!is_valid || CqlType::from(to).validate(&value).is_ok());
                }
            }
        }
    }

    #[test]
    fn values_survive_json(
        (of_type, value) in any_type().prop_flat_map(|it| {
            let value = any_value(&it);
            (Just(it), value)
        })
    ) {
        prop_assert_eq!(of_type.validate(&value), Ok(()));
        if !survives_json(&of_type) {
            return Ok(());
        }
        let json = of_type.to_json(&value);
        let back = of_type.from_json(&json).map_err(|it| TestCaseError::fail(it.to_string()))?;
        let back = back.unwrap_or_default();
        prop_assert!(of_type.compare(&value, &back).is_eq(), "{} {}", of_type, json);
    }

    #[test]
    fn class_names_survive(of_type in any_type()) {
        let class = of_type.class_name();
        let back = CqlType::from_class(&class);
        prop_assert_eq!(back.map(|it| it.class_name()), Some(class));
    }

    #[test]
    fn arithmetic_never_panics(
        left in prop::sample::select(Native::ALL.to_vec()),
        right in prop::sample::select(Native::ALL.to_vec()),
        a in any_bytes(),
        b in any_bytes(),
    ) {
        use Arithmetic::{Add, Divide, Multiply, Remainder, Subtract};
        let numbers = (Number::decode(left, &a), Number::decode(right, &b));
        if let (Some(x), Some(y)) = numbers {
            for operator in [Add, Subtract, Multiply, Divide, Remainder] {
                if let Ok(result) = calculate(&x, operator, &y) {
                    prop_assert_eq!(Some(result.native()), result_type(x.native(), y.native()));
                }
            }
            let mut sum = Sum::new(left).unwrap();
            let _ = sum.add(&a).and_then(|()| sum.add(&a));
            let _ = (sum.sum(), sum.average(), x.negated());
        }
    }
}
