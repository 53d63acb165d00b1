//! Every call, made by whoever may and whoever may not make it.

use crate::admin::{Node, admin_address, exchange};
use crate::server::calls::{KEYSPACE, Path, STANDARD, first, plain_families};
use crate::server::client::{CallError, Client, Value};
use crate::server::{Server, configure, serve};
use alexandra::thrift::METHODS;
use std::collections::BTreeSet;
use std::fs;

/// Right that a call needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    Reading,
    Writing,
}

type Call = (&'static str, Needs, Vec<(i16, Value)>);

fn calls() -> Vec<Call> {
    use Needs::{Nothing, Reading, Writing};
    let text = |text: &str| Value::bytes(text);
    let (keyspace, key, level) = (text(KEYSPACE), text("key"), Value::I32(1));
    let parent = Value::Struct(vec![(3, text(STANDARD))]);
    let path = Path::column(STANDARD, b"column").to_value();
    let keys = Value::list([key.clone()]);
    let column = crate::server::calls::column(b"column", b"value", 1);
    let entry = Value::Struct(vec![(1, column)]);
    let insertion = Value::list([Value::Struct(vec![(1, entry.clone())])]);
    let by_family = |of_family| Value::Map(vec![(text(STANDARD), of_family)]);
    let by_key = Value::Map(vec![(key.clone(), by_family(insertion))]);
    let range = [(3, text("0")), (4, text("0")), (5, Value::I32(9))];
    let of_keyspace = |rest: Vec<Value>| [vec![keyspace.clone()], rest].concat();
    let row = |rest: Vec<Value>| of_keyspace([vec![key.clone()], rest].concat());
    let names = |from: &str| vec![text(from), text(""), Value::I32(9), level.clone()];
    let all = [
        ("get", Reading, row(vec![path.clone(), level.clone()])),
        ("get_slice", Reading, row(vec![parent.clone(), first(9, false), level.clone()])),
        ("multiget", Reading, of_keyspace(vec![keys.clone(), path.clone(), level.clone()])),
        (
            "multiget_slice",
            Reading,
            of_keyspace(vec![keys, parent.clone(), first(9, false), level.clone()]),
        ),
        ("get_count", Reading, row(vec![parent.clone(), level.clone()])),
        ("get_key_range", Reading, of_keyspace([vec![text(STANDARD)], names("")].concat())),
        (
            "get_range_slice",
            Reading,
            of_keyspace([vec![parent.clone(), first(9, false)], names("")].concat()),
        ),
        (
            "get_range_slices",
            Reading,
            of_keyspace(vec![parent, first(9, false), Value::Struct(range.into()), level.clone()]),
        ),
        ("insert", Writing, row(vec![path.clone(), text("value"), Value::I64(1), level.clone()])),
        ("batch_insert", Writing, row(vec![by_family(Value::list([entry])), level.clone()])),
        ("remove", Writing, row(vec![path, Value::I64(0), level.clone()])),
        ("batch_mutate", Writing, of_keyspace(vec![by_key, level])),
        // Of all keyspaces, of which there is one here.
        ("describe_splits", Reading, vec![text("0"), text("0"), Value::I32(9)]),
        ("get_string_property", Nothing, vec![text("version")]),
        ("get_string_list_property", Nothing, vec![text("keyspaces")]),
        ("describe_keyspaces", Nothing, vec![]),
        ("describe_cluster_name", Nothing, vec![]),
        ("describe_version", Nothing, vec![]),
        ("describe_partitioner", Nothing, vec![]),
        ("describe_ring", Nothing, of_keyspace(vec![])),
        ("describe_keyspace", Nothing, of_keyspace(vec![])),
    ];
    all.map(|(name, needs, values)| (name, needs, (1..).zip(values).collect())).into()
}

/// A server with users of different rights.
fn start(directory: &std::path::Path) -> Server {
    let options = plain_families()
        .with("Authenticator", "org.apache.cassandra.auth.SimpleAuthenticator")
        .with("KeyspaceRights", "true")
        // Only this one has ranges of keys in all generations.
        .with("Partitioner", "OrderPreservingPartitioner");
    let address = configure(directory, &options);
    fs::write(directory.join("passwd"), "writer=1\nreader=2\nother=3\n").unwrap();
    let access = format!("{KEYSPACE}=writer\n{KEYSPACE}.<ro>=reader\nOther=other\n");
    fs::write(directory.join("access"), access).unwrap();
    let mut command = serve(directory);
    for name in ["passwd", "access"] {
        command.arg(format!("-D{name}.properties={}", directory.join(name).display()));
    }
    Server::launch(directory, address, command)
}

#[test]
fn every_call_needs_its_right() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path());
    let calls = calls();
    let called: BTreeSet<&str> = calls.iter().map(|(name, ..)| *name).collect();
    let methods: BTreeSet<&str> = METHODS.iter().map(|method| method.name).collect();
    assert_eq!(methods.difference(&called).collect::<Vec<_>>(), [&"login"]);

    let logins = [
        ("nobody", None, "Login is required before any other API calls"),
        ("other", Some(("Other", "3")), "User other could not be authorized to use keyspace"),
        ("reader", Some((KEYSPACE, "2")), "User reader may only read keyspace Keyspace1"),
        ("writer", Some((KEYSPACE, "1")), ""),
    ];
    for (user, login, refusal) in logins {
        let mut client = Client::connect(server.thrift_address());
        if let Some((keyspace, password)) = login {
            client.login(keyspace, &[("username", user), ("password", password)]).unwrap();
        }
        for (name, needs, arguments) in &calls {
            let may = match user {
                "nobody" | "other" => *needs == Needs::Nothing,
                "reader" => *needs != Needs::Writing,
                _ => true,
            };
            match client.call(name, arguments.clone()) {
                // Nobody has written before the writer.
                Ok(_) | Err(CallError::Declared { field: 2, .. }) if may => {}
                Err(CallError::Declared { field: 1, why }) if !may => {
                    assert!(why.starts_with(refusal), "{name} by {user}: {why}");
                }
                // It declares no exception.
                Err(CallError::Application { .. }) if !may && *name == "describe_splits" => {}
                other => panic!("{name} by {user}: {other:?}"),
            }
        }
    }
    let admin = admin_address(directory.path());
    let (_, metrics) = exchange(admin, "GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n");
    for (call, level, times) in
        [("insert", "ONE", 3), ("get", "ONE", 2), ("describe_splits", "", 2)]
    {
        let labels = format!("protocol=\"thrift\",call=\"{call}\",level=\"{level}\"");
        let denied =
            format!("alexandra_request_failures_total{{{labels},kind=\"denied\"}} {times}\n");
        assert!(metrics.contains(&denied), "{denied} is not in {metrics}");
    }
}

#[test]
fn every_change_by_http_and_every_look_at_rows_needs_the_token() {
    let node = Node::start(&plain_families().with("AdminToken", "open sesame"));
    let manual = fs::read_to_string("docs/nodetool.md").unwrap();
    let rows = manual.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let requests = rows.map(|(request, _)| request).filter(|request| request.contains(" /"));
    let mut tried = 0;
    for request in requests {
        let is_look = request.starts_with("GET ");
        if is_look && request != "GET /api/v1/rows" {
            continue;
        }
        let choice = if is_look { "?keyspace=Keyspace1&column_family=Standard1" } else { "" };
        let head = format!("{request}{choice} HTTP/1.1");
        let json = ["Content-Type: application/json"].into_iter().filter(|_| !is_look);
        for from in [None, Some("X-Forwarded-For: 10.9.9.9")] {
            let head: Vec<&str> = [head.as_str(), "Host: 127.0.0.1"]
                .into_iter()
                .chain(json.clone())
                .chain(from)
                .collect();
            let (status, body) = node.request(&head, if is_look { "" } else { "{}" });
            assert_eq!(status, 401, "{head:?}: {body}");
            tried += 1;
        }
    }
    assert!(tried >= 2 * 20, "{tried}");
}
