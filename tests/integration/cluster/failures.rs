//! Promises to clients while a node stands still, or is killed and comes back.

use crate::cluster::nodes::{
    Cluster, PATIENCE, RPC_TIMEOUT, assert_unavailable, replicated, wait_until,
};
use crate::server::calls::{Path, STANDARD, first};
use crate::server::client::{CallError, Client, Level};
use alexandra::base::clock::{Clock, SystemClock};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

const NAME: Path<'static> =
    Path { family: STANDARD, super_column: None, column: Some(b"name".as_slice()) };

fn write(client: &mut Client, key: &str) -> Result<(), CallError> {
    client.insert(key, NAME, key.as_bytes(), 1)
}

/// Whether a row is found; a value that is not its own is a failure.
fn finds(client: &mut Client, key: &str) -> Result<bool, CallError> {
    let row = client.get_slice(key, STANDARD, first(10, false))?;
    assert!(row.len() <= 1, "{key}: {row:?}");
    Ok(!row.is_empty())
}

/// A call that does not wait for who is silent.
#[track_caller]
fn soon<T>(call: impl FnOnce() -> T) -> T {
    let clock = SystemClock::new();
    let result = call();
    assert!(clock.monotonic() < RPC_TIMEOUT * 4 / 5, "a call took {:?}", clock.monotonic());
    result
}

#[test]
fn a_paused_node_holds_up_nobody() {
    let cluster = Cluster::start(3, replicated(3));
    let mut clients = [0, 1].map(|number| cluster.client(number).at(Level::Quorum));
    for row in 0..50 {
        for client in &mut clients {
            write(client, &format!("before {row}")).unwrap();
        }
    }
    cluster.server(2).pause();
    let clock = SystemClock::new();
    let mut rows = 0;
    // From before it is noticed until after it is.
    while clock.monotonic() < 3 * RPC_TIMEOUT {
        for client in &mut clients {
            let key = format!("during {rows}");
            rows += 1;
            soon(|| write(client, &key)).unwrap();
            assert!(soon(|| finds(client, &key)).unwrap(), "{key}");
            assert!(soon(|| finds(client, "before 7")).unwrap());
            if rows % 25 == 0 {
                assert_eq!(soon(|| client.page(STANDARD, "", 40)).unwrap().len(), 40);
                let several = [key, "before 7".to_owned(), "before 8".to_owned()];
                let found = soon(|| client.multiget(&several, STANDARD)).unwrap();
                assert_eq!(found.iter().filter(|(_, columns)| columns.len() == 1).count(), 3);
            }
        }
        // Not to bury the machine.
        thread::sleep(Duration::from_millis(5));
    }
    cluster.server(2).resume();
    cluster.wait_until_seen(0, 2, true);
    cluster.wait_until_seen(1, 2, true);
    cluster.wait_for_hints(&[0, 1]);
    let mut client = cluster.client(2);
    // It refuses requests until it has heard how the ring is now.
    wait_until("the resumed node serves", || finds(&mut client, "during 0").is_ok());
    for row in 0..rows {
        assert!(finds(&mut client, &format!("during {row}")).unwrap(), "{row} of {rows}");
    }
}

/// A client of a node that is starting: it may be asked as soon as the port is open.
fn first_client(server: SocketAddr) -> Client {
    let clock = SystemClock::new();
    while TcpStream::connect(server).is_err() {
        assert!(clock.monotonic() < PATIENCE, "{server} does not open");
        thread::sleep(Duration::from_millis(1));
    }
    Client::connect(server)
}

#[test]
fn a_killed_node_is_missed_by_nobody_and_misses_nothing() {
    const ROWS: usize = 300;
    let mut cluster = Cluster::start(3, replicated(3));
    let mut clients = [0, 1].map(|number| cluster.client(number).at(Level::Quorum));
    let mut load = |phase: &str| {
        for row in 0..ROWS {
            let key = format!("{phase} {row}");
            write(&mut clients[row % 2], &key).unwrap();
            assert!(finds(&mut clients[(row + 1) % 2], &key).unwrap(), "{key}");
        }
    };
    load("before");
    cluster.kill(2);
    load("unnoticed");
    cluster.wait_until_seen(0, 2, false);
    cluster.wait_until_seen(1, 2, false);
    load("noticed");
    let address = cluster.nodes[2].thrift();
    let reader = thread::spawn(move || {
        let mut client = first_client(address).at(Level::Quorum);
        for phase in ["before", "unnoticed", "noticed"] {
            for row in 0..ROWS {
                let key = format!("{phase} {row}");
                assert!(finds(&mut client, &key).unwrap(), "{key} is not found at QUORUM");
            }
        }
    });
    cluster.launch(&[2]);
    load("back");
    reader.join().unwrap();
    cluster.wait_until_seen(0, 2, true);
    cluster.wait_until_seen(1, 2, true);
    cluster.wait_for_hints(&[0, 1]);
    let mut client = cluster.client(2);
    for phase in ["before", "unnoticed", "noticed", "back"] {
        for row in 0..ROWS {
            let key = format!("{phase} {row}");
            assert!(finds(&mut client, &key).unwrap(), "{key} is not found at ONE");
        }
    }
}

#[test]
fn nodes_that_are_all_killed_at_once_have_what_they_acknowledged() {
    const ROWS: usize = 300;
    let mut cluster = Cluster::start(3, replicated(3));
    let mut clients = [0, 1, 2].map(|number| cluster.client(number).at(Level::Quorum));
    for row in 0..ROWS {
        write(&mut clients[row % 3], &format!("row {row}")).unwrap();
    }
    for number in 0..3 {
        cluster.kill(number);
    }
    cluster.launch(&[0, 1, 2]);
    for number in 0..3 {
        let mut client = cluster.client(number).at(Level::Quorum);
        for row in 0..ROWS {
            assert!(finds(&mut client, &format!("row {row}")).unwrap(), "{row} by node {number}");
        }
    }
}

#[test]
fn any_is_a_hint_where_no_replica_is_left() {
    let mut cluster = Cluster::start(3, replicated(1));
    let keys: Vec<String> = (0..)
        .map(|row| format!("row {row}"))
        .filter(|key| cluster.owner(key) == 2)
        .take(20)
        .collect();
    cluster.kill(2);
    cluster.wait_until_seen(0, 2, false);
    let mut client = cluster.client(0);
    assert_unavailable(&write(&mut client, &keys[0]));
    assert_unavailable(&finds(&mut client, &keys[0]));
    let mut client = client.at(Level::Any);
    for key in &keys {
        write(&mut client, key).unwrap();
    }
    cluster.launch(&[2]);
    cluster.wait_until_seen(0, 2, true);
    cluster.wait_until_seen(1, 2, true);
    cluster.wait_for_hints(&[0]);
    for number in [1, 2] {
        let mut client = cluster.client(number);
        for key in &keys {
            assert!(finds(&mut client, key).unwrap(), "{key}, by node {number}");
        }
    }
}
