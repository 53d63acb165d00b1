//! Ports for clients of 0.4 and 0.5.

use super::client::{Client, Running, Value, call};
use super::{LOG, ONE, encoded, get_args, insert_args, slice_args, text_args};
use alexandra::config::settings::Release;
use alexandra::thrift::idl::GetKeyRangeArgs;

#[test]
fn older_generations_have_other_methods_and_exceptions() {
    let server = Running::start(|options| options.clients.version = Release::V04);
    let mut client = server.connect();
    let slice = |client: &mut Client, key| client.call("get_slice", &slice_args(key, 1));
    assert_eq!(slice(&mut client, "unavailable").exception(), Some((3, None)));
    assert_eq!(slice(&mut client, "timed out").exception(), Some((3, None)));
    let timed_out = client.call("insert", &insert_args("timed out")).exception();
    assert_eq!(timed_out, Some((2, None)), "0.4 has no timeout");
    let range = encoded::<GetKeyRangeArgs<'_>>(GetKeyRangeArgs {
        keyspace: "Ks".into(),
        column_family: "Cf".into(),
        start: "a".into(),
        finish: "b".into(),
        count: 2,
        consistency_level: ONE,
    });
    let keys = Value::List(vec![Value::bytes("a"), Value::bytes("b")]);
    assert_eq!(client.call("get_key_range", &range).result(), Some(&keys));

    let server = Running::start(|_| ());
    let dropped = server.connect().call("get_key_range", &range);
    assert_eq!(dropped.result(), Some(&keys), "only the address of an old application changes");
}

#[test]
fn a_call_that_came_later_is_told_to_the_operator() {
    LOG.install();
    let server = Running::start(|options| options.clients.version = Release::V05);
    let mut client = server.connect();
    for name in ["describe_ring", "no_such_call", "describe_ring"] {
        let kind = client.call(name, &[0]).error().map(|(kind, _)| kind);
        assert_eq!(kind, Some(if name == "describe_ring" { 7 } else { 1 }), "{name}");
    }
    let [line] = LOG.about(&client).try_into().unwrap();
    assert!(line.contains("describe_ring, which came with 0.6, where other calls"), "{line}");
    assert!(line.contains("ThriftListeners"), "{line}");
}

#[test]
fn what_lacks_something_closes_the_connection_as_before_0_6() {
    LOG.install();
    for version in [Release::V04, Release::V05] {
        let server = Running::start(|options| options.clients.version = version);
        let mut client = server.connect();
        let next = call("get_string_property", 3, &text_args(b"version"));
        let calls = [call("get", 1, &get_args("k")), call("get_count", 2, &[0]), next];
        client.send(&calls.concat());
        assert_eq!(client.reply().seqid, 1, "what came before is answered");
        assert_eq!(client.wait_for_end(), 0, "and nothing behind it is executed");
        let [line] = LOG.about(&client).try_into().unwrap();
        let why = format!("as clients of {version} expect: Required field 'keyspace' was not ");
        assert!(line.contains(&why) && !line.contains("Struct"), "{line}");
    }
}
