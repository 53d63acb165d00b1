//! Mistakes that 0.6 answers with an error, and for which 0.4 and 0.5 closed the connection.

use super::{Outcome, Ports, Value, arguments, call, of_row, one, place};
use crate::server::calls::{STANDARD, SUPER, first};
use crate::server::client::{connect, request, wait_for_end};
use std::io::Write;

const PROTOCOL_ERROR: Outcome = Outcome::Error(7);

/// A call, and what 0.6 makes of it.
struct Case {
    what: &'static str,
    method: &'static str,
    arguments: Vec<(i16, Value)>,
    answer: Outcome,
}

fn parent() -> Value {
    place(STANDARD, None, None)
}

fn column() -> Value {
    place(STANDARD, None, Some("c"))
}

fn insert(level: Option<Value>) -> Vec<(i16, Value)> {
    let rest = [column(), Value::bytes("v"), Value::I64(1)].into_iter().chain(level);
    of_row("written by a bad call", rest)
}

fn count(level: Option<Value>) -> Vec<(i16, Value)> {
    of_row("k", [parent()].into_iter().chain(level))
}

/// Calls that lack something.
fn lacking() -> Vec<Case> {
    let whole = insert(Some(one()));
    let without = |id: i16| whole.iter().filter(|(it, _)| *it != id).cloned().collect();
    let range =
        Value::Struct(vec![(1, Value::bytes("")), (2, Value::bytes("")), (3, Value::Bool(false))]);
    let predicate = Value::Struct(vec![(2, range)]);
    let nameless = Value::Struct(vec![(5, Value::bytes("c"))]);
    let case = |what, method, arguments| Case { what, method, arguments, answer: PROTOCOL_ERROR };
    vec![
        case("nothing at all", "get", vec![]),
        case("no keyspace", "insert", without(1)),
        case("no value", "insert", without(4)),
        case("no timestamp", "insert", without(5)),
        case("a slice without a count", "get_slice", of_row("k", [parent(), predicate, one()])),
        case("a path without its column family", "get", of_row("k", [nameless, one()])),
        case("no keyspace", "describe_keyspace", vec![]),
        case("no property", "get_string_property", vec![]),
    ]
}

/// Calls whose consistency level is not there, or is none.
fn without_level() -> Vec<Case> {
    let wrong_type = || Some(Value::Bool(true));
    let ok = Outcome::DONE;
    let case = |what, method, arguments, answer| Case { what, method, arguments, answer };
    let nothing = Outcome::Answer(Some(Value::I32(0)));
    vec![
        case("no level", "insert", insert(None), ok.clone()),
        case("a level of another type", "insert", insert(wrong_type()), ok),
        case("an unknown level", "insert", insert(Some(Value::I32(7))), PROTOCOL_ERROR),
        case("a negative level", "insert", insert(Some(Value::I32(-1))), PROTOCOL_ERROR),
        case("no level", "get_count", count(None), nothing.clone()),
        case("a level of another type", "get_count", count(wrong_type()), nothing),
        case("an unknown level", "get_count", count(Some(Value::I32(7))), PROTOCOL_ERROR),
    ]
}

#[test]
fn what_is_missing_closes_connections_of_0_4_and_0_5_and_is_an_error_of_0_6() {
    let ports = Ports::start();
    let next = [(1, Value::bytes("keyspaces"))];
    for Case { what, method, arguments, answer } in lacking().into_iter().chain(without_level()) {
        for (generation, address) in ports.addresses() {
            if generation == "0.6" {
                continue;
            }
            let mut stream = connect(address);
            stream.write_all(&request(method, arguments.clone())).unwrap();
            let sent = wait_for_end(&mut stream);
            assert_eq!(sent, 0, "{method} with {what}, {generation}");
        }
        // Nothing of it was executed so far.
        let [.., mut new] = ports.clients();
        assert_eq!(new.get_slice("written by a bad call", STANDARD, first(9, false)).unwrap(), []);
        assert_eq!(call(&mut new, method, &arguments), answer, "{method} with {what}, 0.6");
        let remove = of_row("written by a bad call", [parent(), Value::I64(1), one()]);
        assert_eq!(call(&mut new, "remove", &remove), Outcome::DONE);
        let list = call(&mut new, "get_string_list_property", &next);
        assert!(matches!(list, Outcome::Answer(_)), "the connection goes on");
    }
}

/// That it waits for one replica, `thrift::tests::before_0_6_a_level_had_to_be_sent` looks at.
#[test]
fn a_removal_needs_no_level() {
    let ports = Ports::start();
    for (generation, mut client) in ports.named() {
        let none = of_row("k", [parent(), Value::I64(1)]);
        let wrong_type = of_row("k", [parent(), Value::I64(1), Value::Bool(false)]);
        for arguments in [none, wrong_type] {
            assert_eq!(call(&mut client, "remove", &arguments), Outcome::DONE, "{generation}");
        }
        let unknown = of_row("k", [parent(), Value::I64(1), Value::I32(7)]);
        let refused = if generation == "0.6" { PROTOCOL_ERROR } else { Outcome::Closed };
        assert_eq!(call(&mut client, "remove", &unknown), refused, "{generation}");
    }
}

/// Levels 0 to 6, of reads and of writes, at each port.
#[test]
fn levels_are_those_of_the_generation() {
    let ports = Ports::start();
    let is_level = |generation: &str, level: i32| level <= 5 || generation == "0.6";
    for (generation, address) in ports.addresses() {
        for level in 0..=6 {
            let mut client = crate::server::client::Client::connect(address);
            let written = call(&mut client, "insert", &insert(Some(Value::I32(level))));
            let known = is_level(generation, level);
            let expected = if known { Outcome::DONE } else { Outcome::Closed };
            assert_eq!(written, expected, "a write at {level}, {generation}");
            let mut client = crate::server::client::Client::connect(address);
            let read = call(&mut client, "get_count", &count(Some(Value::I32(level))));
            let refused = |name| {
                let why = format!("Consistency level {name} may not be applied to read operations");
                Outcome::invalid(&why)
            };
            let expected = match level {
                _ if !known => Outcome::Closed,
                0 => refused("zero"),
                6 => refused("any"),
                // Also ALL, which 0.4 and 0.5 refused.
                _ => Outcome::Answer(Some(Value::I32(0))),
            };
            assert_eq!(read, expected, "a read at {level}, {generation}");
        }
    }
}

#[test]
fn what_is_wrong_is_told_and_the_connection_goes_on_everywhere() {
    let ports = Ports::start();
    let both = || Value::Struct(vec![]);
    for (generation, mut client) in ports.named() {
        // The originals of 0.4 and 0.5 had an internal error, or a timeout, for each of these.
        let no_super = "A column cannot be specified without specifying a super column for \
                        removal on super CF Super1";
        let path = place(SUPER, None, Some("c"));
        let removed = call(&mut client, "remove", &of_row("k", [path, Value::I64(1), one()]));
        assert_eq!(removed, Outcome::invalid(no_super), "{generation}");
        let element = Value::Map(vec![(Value::bytes(STANDARD), Value::list([both()]))]);
        let inserted = call(&mut client, "batch_insert", &of_row("k", [element, one()]));
        let why = "ColumnOrSuperColumn must have one or both of Column or SuperColumn";
        assert_eq!(inserted, Outcome::invalid(why), "{generation}");
        let keys = [Value::bytes("Keyspace1"), Value::list([]), column(), one()];
        let found = call(&mut client, "multiget", &arguments(keys));
        assert_eq!(found, Outcome::Answer(Some(Value::Map(vec![]))), "{generation}");
        let sliced = call(&mut client, "get_slice", &of_row("k", [parent(), both(), one()]));
        let why = "predicate column_names and slice_range may not both be null";
        assert_eq!(sliced, Outcome::invalid(why), "{generation}");
    }
}
