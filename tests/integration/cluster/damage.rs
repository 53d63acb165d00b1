//! The port for other nodes is open to whoever reaches it.

use crate::cluster::nodes::{Cluster, replicated, wait_until};
use crate::server::calls::{Path, STANDARD, first};
use crate::server::client::Level;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Memory that all of this may cost a server, with that of tests of the ring meanwhile.
const MOST_GROWTH: u64 = 24 << 20;

/// The head of a frame with that length.
fn head(length: u32) -> Vec<u8> {
    [0xca55_2dfa, 0x0100, length].map(u32::to_be_bytes).concat()
}

/// Sends this and leaves the connection open.
fn send(server: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    // The server may close before everything was sent.
    let _ = stream.write_all(bytes);
    stream
}

/// Waits until the server closes a connection.
fn assert_closed(mut stream: TcpStream) {
    let end = stream.read(&mut [0; 64]);
    let is_closed = match &end {
        Ok(count) => *count == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    };
    assert!(is_closed, "{end:?}");
}

#[test]
fn garbage_on_the_storage_port_does_no_harm() {
    let cluster = Cluster::start(3, replicated(3));
    let mut client = cluster.client(1).at(Level::All);
    let path = Path::column(STANDARD, b"name");
    client.insert("key", path, b"value", 1).unwrap();
    let before = cluster.server(0).resident_bytes();
    let server = cluster.nodes[0].storage();
    let mut rng = fastrand::Rng::with_seed(0x0bad);
    let mut open = Vec::new();
    for length in [0x7fff_ffff, u32::MAX, 0x8000_0000, 128 << 20, 100 << 20] {
        for _ in 0..8 {
            open.push(send(server, &[head(length), vec![0; 1000]].concat()));
        }
    }
    for _ in 0..50 {
        let garbage: Vec<u8> = (0..rng.usize(1..5000)).map(|_| rng.u8(..)).collect();
        assert_closed(send(server, &[b"GET / HTTP/1.1".as_slice(), &garbage].concat()));
        // A frame that is none inside.
        open.push(send(server, &[head(garbage.len() as u32), garbage].concat()));
    }
    for row in 0..100 {
        let key = format!("row {row}");
        client.insert(&key, path, b"value", 1).unwrap();
        let found = client.get_slice(&key, STANDARD, first(10, false)).unwrap();
        assert_eq!(found.len(), 1);
    }
    let grown = || cluster.server(0).resident_bytes().saturating_sub(before);
    assert!(grown() < MOST_GROWTH, "{} bytes more", grown());
    let log = cluster.server(0).log();
    assert!(!log.contains("panicked"), "{}", cluster.server(0).log_end());
    assert!(log.lines().count() < 200, "{} lines", log.lines().count());
    drop(open);
    wait_until("the ring goes on", || {
        (0..3).all(|number| cluster.nodetool(number, &["ring"]).matches("Up   ").count() == 3)
    });
}
