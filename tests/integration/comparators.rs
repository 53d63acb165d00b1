//! Column families in orders that came after 0.6, through the whole server.

use crate::server::Server;
use crate::server::calls::{self, ALL, Entry, KEYSPACE, Path, STANDARD};
use crate::server::client::{CallError, Client, Value};

/// The name of a like, for a post and at a time; without a time what bounds all likes of the post.
fn like(post: &str, at: Option<i64>, end: u8) -> Vec<u8> {
    let mut name = Vec::new();
    let time = at.map(i64::to_be_bytes);
    for component in [Some(post.as_bytes()), time.as_ref().map(<[u8; 8]>::as_slice)] {
        let Some(component) = component else { continue };
        name.extend_from_slice(&(component.len() as u16).to_be_bytes());
        name.extend_from_slice(component);
        name.push(0);
    }
    *name.last_mut().unwrap() = end;
    name
}

fn names(client: &mut Client, predicate: Value) -> Vec<Vec<u8>> {
    let found = client.get_slice("bob", STANDARD, predicate).unwrap();
    Entry::columns(&found).map(|column| column.name.clone()).collect()
}

fn between(start: &[u8], finish: &[u8]) -> Value {
    let range = [Value::bytes(start), Value::bytes(finish), Value::Bool(false), Value::I32(ALL)];
    Value::Struct(vec![(2, Value::Struct((1..).zip(range).collect()))])
}

#[test]
fn composite_columns_are_sliced_by_prefix_the_newest_first() {
    let directory = tempfile::tempdir().unwrap();
    let attributes = "CompareWith='CompositeType(UTF8Type, ReversedType(LongType))'";
    let mut server = Server::start(directory.path(), &calls::families_with(attributes));
    let mut client = Client::connect(server.thrift_address());
    let likes = [("b", 5), ("a", 1), ("a", 3), ("aa", 2)].map(|(post, at)| like(post, Some(at), 0));
    for name in &likes {
        client.insert("bob", Path::column(STANDARD, name), b"", 1).unwrap();
    }
    let refused = client.insert("bob", Path::column(STANDARD, b"plain"), b"", 1);
    assert!(matches!(refused, Err(CallError::Declared { field: 1, .. })), "{refused:?}");

    let check = |client: &mut Client| {
        let [b, first, third, aa] = &likes;
        let all = [third, first, aa, b].map(Clone::clone);
        assert_eq!(names(client, calls::first(ALL, false)), all);
        let of_a = between(&like("a", None, 0), &like("a", None, 1));
        assert_eq!(names(client, of_a), [third.clone(), first.clone()]);
    };
    check(&mut client);
    // What was replayed from the commit log goes to SSTables, which the second start reads.
    for _ in 0..2 {
        server.restart();
        check(&mut Client::connect(server.thrift_address()));
    }
    let mut client = Client::connect(server.thrift_address());
    let described = client.call("describe_keyspace", vec![(1, Value::bytes(KEYSPACE))]);
    let class = "org.apache.cassandra.db.marshal.CompositeType(\
                 org.apache.cassandra.db.marshal.UTF8Type,\
                 org.apache.cassandra.db.marshal.ReversedType(\
                 org.apache.cassandra.db.marshal.LongType))";
    assert!(format!("{described:?}").contains(&format!("{:?}", Value::bytes(class))));
}

#[test]
fn a_reversed_slice_may_start_at_a_name_of_any_length() {
    let directory = tempfile::tempdir().unwrap();
    let families = calls::families_with("CompareWith='AsciiType'");
    let mut server = Server::start(directory.path(), &families);
    let mut client = Client::connect(server.thrift_address());
    for name in [b"a", b"b", b"o"] {
        client.insert("bob", Path::column(STANDARD, name), b"", 1).unwrap();
    }
    // No column can have such a name; 0.6.13 answers with an internal error.
    let start = vec![b'n'; 65_536];
    let range = [Value::bytes(&start), Value::bytes(b""), Value::Bool(true), Value::I32(ALL)];
    let predicate = || Value::Struct(vec![(2, Value::Struct((1..).zip(range.clone()).collect()))]);
    let expected = [b"b".to_vec(), b"a".to_vec()];
    assert_eq!(names(&mut client, predicate()), expected);
    server.restart();
    assert_eq!(names(&mut Client::connect(server.thrift_address()), predicate()), expected);
}
