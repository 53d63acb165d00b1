//! `get_key_range` and `get_range_slice`.

use super::{GENERATIONS, Outcome, Ports, Value, arguments, one, place};
use crate::server::calls::{self, KEYSPACE, Path, STANDARD, first};

fn key_range(family: &str, [start, finish]: [&str; 2], count: i32) -> Vec<(i16, Value)> {
    let texts = [KEYSPACE, family, start, finish].map(Value::bytes);
    arguments(texts.into_iter().chain([Value::I32(count), one()]))
}

fn range_slice([start, finish]: [&str; 2], rows: i32) -> Vec<(i16, Value)> {
    let bounds = [Value::bytes(start), Value::bytes(finish), Value::I32(rows), one()];
    let head = [Value::bytes(KEYSPACE), place(STANDARD, None, None), first(9, false)];
    arguments(head.into_iter().chain(bounds))
}

/// Rows named after the generations that wrote them, and one that was deleted.
fn with_rows(partitioner: &str) -> Ports {
    let ports = Ports::start_with(calls::plain_families().with("Partitioner", partitioner));
    for (generation, mut client) in ports.named() {
        super::write(&mut client, generation, "column", "value");
    }
    let [.., mut new] = ports.clients();
    super::write(&mut new, "0.45", "column", "value");
    new.remove("0.45", Path { family: STANDARD, super_column: None, column: None }, 2).unwrap();
    ports
}

fn everywhere(outcome: &Outcome) -> [Outcome; 3] {
    [(); 3].map(|()| outcome.clone())
}

/// Also where 0.6 clients are served, whose IDL does not have it.
#[test]
fn every_port_answers_get_key_range_as_0_5_did() {
    let ports = with_rows(super::ORDERED);
    let keys = |range, count| ports.all("get_key_range", &key_range(STANDARD, range, count));
    let list = |keys: &[&str]| {
        everywhere(&Outcome::Answer(Some(Value::list(keys.iter().map(Value::bytes)))))
    };
    assert_eq!(keys(["", ""], 9), list(&GENERATIONS));
    assert_eq!(keys(["", ""], 2), list(&["0.4", "0.5"]));
    assert_eq!(keys(["0.41", "0.5"], 9), list(&["0.5"]));
    assert_eq!(keys(["0.6", "0.4"], 9), list(&[]));
    let refused = |why| everywhere(&Outcome::invalid(why));
    assert_eq!(keys(["", ""], 0), refused("maxResults must be positive"));
    let unknown = ports.all("get_key_range", &key_range("Nope", ["", ""], 0));
    assert_eq!(unknown, refused("Column Family Nope is invalid."));
}

#[test]
fn keys_without_order_have_no_key_ranges() {
    let ports = with_rows("org.apache.cassandra.dht.RandomPartitioner");
    let why = "range queries may only be performed against an order-preserving partitioner";
    let refused = ports.all("get_key_range", &key_range(STANDARD, ["", ""], 0));
    assert_eq!(refused, everywhere(&Outcome::invalid(why)));
    // 0.5 could not do this; since 0.6 rows come in the order of their hashes.
    let [old, middle, new] = ports.all("get_range_slice", &range_slice(["", ""], 9));
    let Outcome::Answer(Some(Value::List(rows))) = &middle else { panic!("{middle:?}") };
    assert_eq!(rows.len(), 4, "the deleted one is among them");
    assert_eq!([old, new], [(); 2].map(|()| middle.clone()));
}

#[test]
fn the_number_of_rows_has_its_name_of_the_generation() {
    let ports = with_rows(super::ORDERED);
    let [old, middle, new] = ports.all("get_range_slice", &range_slice(["", ""], 0));
    // Who asks so at the port of 0.4 is of 0.5.
    assert_eq!(old, Outcome::invalid("row_count must be positive"));
    assert_eq!(middle, old);
    assert_eq!(new, Outcome::invalid("maxRows must be positive"));
}
