//! Rules of 0.6 that hold for all generations, because all see the same data.

use super::{Outcome, Ports, Value, call, of_row, one, place};
use crate::server::calls::{self, Path, STANDARD, SUPER, first};

const NOT_FOUND: Outcome = Outcome::Declared(2, String::new());

/// Of two values with one timestamp 0.4 and 0.5 kept what came last, so that replicas which heard
/// of them in different orders differed forever.
#[test]
fn of_two_values_with_one_timestamp_the_greater_stays() {
    let ports = Ports::start();
    for (generation, mut client) in ports.named() {
        for (key, values) in [("up", ["a", "b"]), ("down", ["b", "a"])] {
            let key = format!("{generation} {key}");
            for value in values {
                super::write(&mut client, &key, "c", value);
            }
            let path = place(STANDARD, None, Some("c"));
            let found = call(&mut client, "get", &of_row(&key, [path, one()]));
            let column = Value::Struct(vec![(1, calls::column(b"c", b"b", 1))]);
            assert_eq!(found, Outcome::Answer(Some(column)), "{key}");
        }
    }
}

fn insert_sub(client: &mut crate::server::client::Client, key: &str, name: &str, at: i64) {
    let path = Path { family: SUPER, super_column: Some(b"s"), column: Some(name.as_bytes()) };
    client.insert(key, path, b"v", at).unwrap();
}

fn remove_super(client: &mut crate::server::client::Client, key: &str, at: i64) {
    client.remove(key, Path { family: SUPER, super_column: Some(b"s"), column: None }, at).unwrap();
}

/// 0.4 found a deleted super column, and did not find one with newer columns again.
#[test]
fn super_columns_are_there_as_long_as_a_column_of_them_is() {
    let ports = Ports::start();
    for (generation, mut client) in ports.named() {
        let path = || place(SUPER, Some("s"), None);
        let get = |client: &mut _| call(client, "get", &of_row(generation, [path(), one()]));
        insert_sub(&mut client, generation, "a", 1);
        remove_super(&mut client, generation, 2);
        assert_eq!(get(&mut client), NOT_FOUND, "{generation}");
        insert_sub(&mut client, generation, "b", 3);
        let columns = Value::list([calls::column(b"b", b"v", 3)]);
        let found = Value::Struct(vec![(1, Value::bytes("s")), (2, columns)]);
        let found = Outcome::Answer(Some(Value::Struct(vec![(2, found)])));
        assert_eq!(get(&mut client), found, "{generation}");
    }
}

/// 0.4 counted deleted columns as well; it and 0.5 counted super columns by their own deletion.
#[test]
fn only_what_is_visible_counts() {
    let ports = Ports::start();
    for (generation, mut client) in ports.named() {
        for name in ["a", "b", "c"] {
            super::write(&mut client, generation, name, "v");
        }
        client.remove(generation, Path::column(STANDARD, b"b"), 2).unwrap();
        let count = of_row(generation, [place(STANDARD, None, None), one()]);
        let two = Outcome::Answer(Some(Value::I32(2)));
        assert_eq!(call(&mut client, "get_count", &count), two, "{generation}");
        let found = client.get_slice(generation, STANDARD, first(2, false)).unwrap();
        assert_eq!(found.len(), 2, "a deleted column takes no place, {generation}");
        insert_sub(&mut client, generation, "a", 1);
        remove_super(&mut client, generation, 2);
        insert_sub(&mut client, generation, "b", 3);
        let other = Path { family: SUPER, super_column: Some(b"t"), column: Some(b"a") };
        client.insert(generation, other, b"v", 1).unwrap();
        let found = client.get_slice(generation, SUPER, first(1, false)).unwrap();
        assert_eq!(found.len(), 1, "{generation}");
        let count = of_row(generation, [place(SUPER, None, None), one()]);
        assert_eq!(call(&mut client, "get_count", &count), two, "{generation}");
    }
}

/// To 0.4 and 0.5 two of these were one column, of which the former was lost.
#[test]
fn time_uuids_of_one_moment_are_two_columns() {
    let options = calls::families_with("CompareWith='TimeUUIDType'");
    let ports = Ports::start_with(options.with("Partitioner", super::ORDERED));
    let uuid = |node: u8| [0, 0, 0, 1, 0, 0, 0x10, 0, 0x80, 0, 0, 0, 0, 0, 0, node];
    for (generation, mut client) in ports.named() {
        for node in [1, 2] {
            client.insert(generation, Path::column(STANDARD, &uuid(node)), b"v", 1).unwrap();
        }
        let found = client.get_slice(generation, STANDARD, first(9, false)).unwrap();
        assert_eq!(found.len(), 2, "{generation}");
    }
}

/// 0.4 and 0.5 took any bytes for text, and sorted it by its UTF-16 units.
#[test]
fn names_of_text_are_utf8_and_sort_by_its_bytes() {
    let options = calls::families_with("CompareWith='UTF8Type'");
    let ports = Ports::start_with(options.with("Partitioner", super::ORDERED));
    let names = ["\u{ffee}", "\u{10000}"];
    for (generation, mut client) in ports.named() {
        for name in names {
            super::write(&mut client, generation, name, "v");
        }
        let found = client.get_slice(generation, STANDARD, first(9, false)).unwrap();
        let found: Vec<_> = calls::Entry::columns(&found).map(|it| it.name.as_slice()).collect();
        assert_eq!(found, names.map(str::as_bytes), "{generation}");
        let mut path = place(STANDARD, None, None);
        if let Value::Struct(fields) = &mut path {
            fields.push((5, Value::bytes(b"a\xff")));
        }
        let insert = of_row(generation, [path, Value::bytes("v"), Value::I64(1), one()]);
        let refused = Outcome::invalid("invalid UTF8 bytes [97, -1]");
        assert_eq!(call(&mut client, "insert", &insert), refused, "{generation}");
    }
}
