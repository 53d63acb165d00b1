//! Shapes and texts of answers.

use super::{INVALID_REQUEST, Outcome, Ports, Value, arguments, of_row, one, place};
use crate::server::calls::{self, KEYSPACE, STANDARD, SUPER, first};

const MARSHAL: &str = "org.apache.cassandra.db.marshal";

/// Description of a column family within that of its keyspace, sorted by property.
fn properties(described: Outcome, family: &str) -> Vec<(String, String)> {
    let Outcome::Answer(Some(Value::Map(families))) = described else { panic!("{described:?}") };
    let of_family = families.into_iter().find(|(name, _)| *name == Value::bytes(family));
    let Some((_, Value::Map(properties))) = of_family else { panic!("{family} is missing") };
    let text = |value| match value {
        Value::Bytes(bytes) => String::from_utf8(bytes).unwrap(),
        other => panic!("{other:?}"),
    };
    let mut properties: Vec<_> =
        properties.into_iter().map(|(name, value)| (text(name), text(value))).collect();
    properties.sort();
    properties
}

#[test]
fn column_families_are_described_in_the_words_of_the_generation() {
    let options = calls::families_with("CompareSubcolumnsWith='LongType'")
        .with("Partitioner", super::ORDERED);
    // Only super columns have subcolumns.
    let keyspace = format!(
        "<Keyspace Name='{KEYSPACE}'>\
         <ColumnFamily Name='{STANDARD}'><Comment>said of it</Comment></ColumnFamily>\
         <ColumnFamily Name='{SUPER}' ColumnType='Super' CompareWith='UTF8Type' \
         CompareSubcolumnsWith='LongType'/>\
         <ReplicaPlacementStrategy>org.apache.cassandra.locator.RackUnawareStrategy\
         </ReplicaPlacementStrategy><ReplicationFactor>1</ReplicationFactor>\
         <EndPointSnitch>org.apache.cassandra.locator.EndPointSnitch</EndPointSnitch></Keyspace>"
    );
    let ports = Ports::start_with(options.with("Keyspaces", &keyspace));
    let [old, middle, new] = ports.all("describe_keyspace", &[(1, Value::bytes(KEYSPACE))]);
    let owned = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let bytes = format!("{MARSHAL}.BytesType");
    let [utf8, long] = ["UTF8Type", "LongType"].map(|name| format!("{MARSHAL}.{name}"));
    let columns = "COLUMN_MAP(COLUMN_KEY, COLUMN_VALUE, COLUMN_TIMESTAMP)";
    let shape = format!("{KEYSPACE}.{STANDARD}(ROW_KEY, {columns})");
    let of_super =
        format!("{KEYSPACE}.{SUPER}(ROW_KEY, SUPER_COLUMN_MAP(SUPER_COLUMN_KEY, {columns}))");
    let standard = [
        ("CompareWith", bytes.as_str()),
        ("Desc", &shape),
        ("FlushPeriodInMinutes", "0"),
        ("Type", "Standard"),
    ];
    assert_eq!(properties(old.clone(), STANDARD), owned(&standard));
    let super_family = [
        ("CompareSubcolumnsWith", long.as_str()),
        ("CompareWith", &utf8),
        ("Desc", &of_super),
        ("FlushPeriodInMinutes", "0"),
        ("Type", "Super"),
    ];
    assert_eq!(properties(old, SUPER), owned(&super_family));
    let standard = [("CompareWith", bytes.as_str()), ("Desc", "said of it"), ("Type", "Standard")];
    for described in [middle, new] {
        assert_eq!(properties(described.clone(), STANDARD), owned(&standard));
        let of_super = properties(described, SUPER);
        let (_, text) = &of_super[2];
        let begin =
            format!("{KEYSPACE}.{SUPER}\nColumn Family Type: Super\nColumns Sorted By: {utf8}@");
        assert!(text.starts_with(&begin) && text.ends_with('\n'), "{text:?}");
        let names: Vec<&str> = of_super.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["CompareSubcolumnsWith", "CompareWith", "Desc", "Type"]);
    }
}

#[test]
fn keyspaces_that_are_not_there_are_not_found_and_system_is_described() {
    let ports = Ports::start();
    let unknown = ports.all("describe_keyspace", &[(1, Value::bytes("Nope"))]);
    assert_eq!(unknown, [(); 3].map(|()| Outcome::Declared(1, String::new())));
    // 0.4 closed the connection.
    for described in ports.all("describe_keyspace", &[(1, Value::bytes("system"))]) {
        assert!(!properties(described, "LocationInfo").is_empty());
    }
}

#[test]
fn the_configuration_can_be_read_everywhere() {
    let ports = Ports::start();
    for text in ports.all("get_string_property", &[(1, Value::bytes("config file"))]) {
        let Outcome::Answer(Some(Value::Bytes(text))) = text else { panic!("{text:?}") };
        assert!(String::from_utf8(text).unwrap().contains("<ClusterName>Tests</ClusterName>"));
    }
}

/// To 0.4 a range beside names was nothing; later it was a mistake.
#[test]
fn a_predicate_of_names_and_a_range_is_one_of_names_to_0_4() {
    let ports = Ports::start();
    let [.., mut new] = ports.clients();
    for name in ["a", "b"] {
        super::write(&mut new, "k", name, "value");
    }
    let (Value::Struct(names), Value::Struct(range)) =
        (calls::by_names([&b"b"[..]]), first(9, false))
    else {
        panic!("predicates are structs")
    };
    let both = Value::Struct(names.into_iter().chain(range).collect());
    let parent = || place(STANDARD, None, None);
    let [old, middle, new] = ports.all("get_slice", &of_row("k", [parent(), both.clone(), one()]));
    let column = calls::column(b"b", b"value", 1);
    let only_b = Value::list([Value::Struct(vec![(1, column)])]);
    assert_eq!(old, Outcome::Answer(Some(only_b.clone())));
    let why = "predicate column_names and slice_range may not both be present";
    assert_eq!([middle, new], [(); 2].map(|()| Outcome::invalid(why)));
    let keys = Value::list([Value::bytes("k")]);
    let many = [Value::bytes(KEYSPACE), keys, parent(), both, one()];
    let [old, ..] = ports.all("multiget_slice", &arguments(many));
    let found = Value::Map(vec![(Value::bytes("k"), only_b)]);
    assert_eq!(old, Outcome::Answer(Some(found)));
}

/// Which of two mistakes is told, and how a keyspace is that is not there, differed for no use.
#[test]
fn mistakes_are_told_in_the_words_of_0_6() {
    let ports = Ports::start();
    let parent = || place(STANDARD, None, None);
    let mut unknown = of_row("k", [parent(), one()]);
    unknown[0].1 = Value::bytes("Nope");
    let why = "Keyspace Nope does not exist in this schema.";
    assert_eq!(ports.all("get_count", &unknown), [(); 3].map(|()| Outcome::invalid(why)));
    // 0.4 looked at the key first.
    let slice = of_row("", [parent(), first(-1, false), one()]);
    let why = "get_slice requires non-negative count";
    assert_eq!(ports.all("get_slice", &slice), [(); 3].map(|()| Outcome::invalid(why)));
    let long = "k".repeat(65536);
    let count = of_row(&long, [parent(), one()]);
    let why = "Encoded key length of 65536 is longer than maximum of 65535";
    assert_eq!(ports.all("get_count", &count), [(); 3].map(|()| Outcome::invalid(why)));
}

#[test]
fn the_system_keyspace_is_read_and_not_written_everywhere() {
    let ports = Ports::start();
    let of_system = |mut arguments: Vec<(i16, Value)>| {
        arguments[0].1 = Value::bytes("system");
        arguments
    };
    let read = of_system(of_row("L", [place("LocationInfo", None, None), first(9, false), one()]));
    for answer in ports.all("get_slice", &read) {
        assert!(matches!(answer, Outcome::Answer(_)), "{answer:?}");
    }
    let path = place("LocationInfo", None, Some("c"));
    let written = of_row("L", [path, Value::bytes("v"), Value::I64(1), one()]);
    for refused in ports.all("insert", &of_system(written)) {
        assert!(matches!(refused, Outcome::Declared(INVALID_REQUEST, _)), "{refused:?}");
    }
}
