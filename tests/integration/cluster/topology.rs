//! The ring grows and shrinks while clients read and write: they notice nothing, and nothing is
//! lost.

use crate::cluster::nodes::{Cluster, assert_unavailable, replicated, wait_until};
use crate::server::calls::{ALL, Entry, Path, STANDARD, first};
use crate::server::client::{Client, Level};
use crate::server::{Options, ended, reconfigure, refused, serve};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const NAME: Path<'static> =
    Path { family: STANDARD, super_column: None, column: Some(b"name".as_slice()) };

/// Rows of each thread of a load.
const ROWS: u64 = 60;

/// Threads that write rows of their own at QUORUM, delete some, and read them back at once through
/// another node. Any error or any answer that is not the last write is a failure.
struct Load {
    stop: Arc<AtomicBool>,
    servers: Arc<Mutex<Vec<SocketAddr>>>,
    rounds: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Vec<Option<u64>>>>,
}

impl Load {
    fn start(cluster: &Cluster, numbers: &[usize]) -> Self {
        let servers = numbers.iter().map(|number| cluster.nodes[*number].thrift()).collect();
        let (stop, rounds) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let servers = Arc::new(Mutex::new(servers));
        let threads = (0..3).map(|thread| {
            let (stop, servers) = (Arc::clone(&stop), Arc::clone(&servers));
            let rounds = Arc::clone(&rounds);
            thread::spawn(move || work(thread, &stop, &servers, &rounds))
        });
        let threads = threads.collect();
        Self { stop, servers, rounds, threads }
    }

    /// Clients go to these nodes from now on.
    fn go_to(&self, cluster: &Cluster, numbers: &[usize]) {
        let servers = numbers.iter().map(|number| cluster.nodes[*number].thrift()).collect();
        *self.servers.lock().unwrap() = servers;
        self.go_on();
    }

    /// Waits until all threads have done something more.
    fn go_on(&self) {
        let seen = self.rounds.load(Ordering::SeqCst);
        wait_until("the load goes on", || {
            self.threads.iter().all(|thread| !thread.is_finished())
                && self.rounds.load(Ordering::SeqCst) > seen + 30
        });
    }

    /// Ends it, and says what each thread wrote last to each of its rows.
    fn stop(self) -> Vec<Vec<Option<u64>>> {
        self.go_on();
        self.stop.store(true, Ordering::SeqCst);
        self.threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    }
}

fn key(thread: usize, row: u64) -> String {
    format!("row {row} of {thread}")
}

fn work(
    thread: usize,
    stop: &AtomicBool,
    servers: &Mutex<Vec<SocketAddr>>,
    rounds: &AtomicU64,
) -> Vec<Option<u64>> {
    let mut last = vec![None; ROWS as usize];
    let mut connected: Vec<(SocketAddr, Client)> = Vec::new();
    for time in 1.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let now = servers.lock().unwrap().clone();
        connected.retain(|(server, _)| now.contains(server));
        for server in now {
            if !connected.iter().any(|(known, _)| *known == server) {
                connected.push((server, Client::connect(server).at(Level::Quorum)));
            }
        }
        let row = fastrand::u64(..ROWS);
        let key = key(thread, row);
        let writer = fastrand::usize(..connected.len());
        let client = &mut connected[writer].1;
        let timestamp = i64::try_from(time).unwrap();
        if fastrand::u8(..8) == 0 {
            let path = Path { column: None, ..NAME };
            client.remove(&key, path, timestamp).unwrap();
            last[row as usize] = None;
        } else {
            client.insert(&key, NAME, time.to_string().as_bytes(), timestamp).unwrap();
            last[row as usize] = Some(time);
        }
        let reader = fastrand::usize(..connected.len());
        assert_eq!(read(&mut connected[reader].1, &key), last[row as usize], "{key}");
        rounds.fetch_add(1, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(2));
    }
    last
}

fn read(client: &mut Client, key: &str) -> Option<u64> {
    let row = client.get_slice(key, STANDARD, first(ALL, false)).unwrap();
    let values = Entry::columns(&row);
    let values: Vec<u64> =
        values.map(|column| str::from_utf8(&column.value).unwrap().parse().unwrap()).collect();
    assert!(values.len() <= 1, "{key}: {values:?}");
    values.first().copied()
}

/// The last writes are read at QUORUM through each of these nodes.
fn check(cluster: &Cluster, numbers: &[usize], last: &[Vec<Option<u64>>]) {
    for number in numbers {
        let mut client = cluster.client(*number).at(Level::Quorum);
        for (thread, rows) in last.iter().enumerate() {
            for (row, expected) in rows.iter().enumerate() {
                let key = key(thread, row as u64);
                assert_eq!(read(&mut client, &key), *expected, "{key} through node {number}");
            }
        }
    }
}

fn joining() -> Options {
    Options::default().with("AutoBootstrap", "true")
}

/// The members that a node knows.
fn members(cluster: &Cluster, observer: usize) -> usize {
    let ring = cluster.nodes[observer].ask("ring");
    let endpoints = ring["endpoints"].as_array().unwrap();
    endpoints.iter().filter(|it| it["state"] == "Normal").count()
}

#[track_caller]
fn wait_for_members(cluster: &Cluster, observers: &[usize], count: usize) {
    for observer in observers {
        let what = format!("node {observer} knows {count} members");
        wait_until(&what, || members(cluster, *observer) == count);
    }
}

#[test]
fn a_ring_grows_and_shrinks_under_load() {
    let mut cluster = Cluster::start(3, replicated(3));
    let load = Load::start(&cluster, &[0, 1, 2]);
    load.go_on();

    // A fourth node joins.
    let fourth = cluster.add(&joining());
    cluster.launch(&[fourth]);
    wait_for_members(&cluster, &[0, 1, 2, 3], 4);
    load.go_to(&cluster, &[0, 1, 2, 3]);

    // One moves.
    let report = cluster.nodetool(1, &["move", "12345678901234567890"]);
    assert!(report.contains("to 12345678901234567890"), "{report}");
    wait_for_members(&cluster, &[0, 1, 2, 3], 4);
    load.go_on();

    // One leaves.
    load.go_to(&cluster, &[0, 1, 3]);
    let report = cluster.nodetool(2, &["decommission"]);
    assert!(report.contains("has left the ring"), "{report}");
    wait_for_members(&cluster, &[0, 1, 3], 3);
    let health = cluster.try_nodetool(2, &["health"]);
    let told = String::from_utf8_lossy(&health.stdout);
    assert!(!health.status.success(), "{health:?}");
    assert_eq!(told, "is no member of the ring: Decommissioned\n");
    cluster.stop(2);
    load.go_on();

    for number in [0, 1, 3] {
        let report = cluster.nodetool(number, &["cleanup"]);
        assert!(report.contains("bytes"), "{report}");
    }
    let last = load.stop();
    check(&cluster, &[0, 1, 3], &last);
}

#[test]
fn a_dead_node_is_removed_under_load() {
    let mut cluster = Cluster::start(4, replicated(3));
    let load = Load::start(&cluster, &[0, 1, 2]);
    load.go_on();
    cluster.kill(3);
    cluster.wait_until_seen(0, 3, false);
    let token = cluster.token_of(3);
    let report = cluster.nodetool(0, &["removetoken", &token]);
    assert!(report.contains("is removed from the ring"), "{report}");
    wait_for_members(&cluster, &[0, 1, 2], 3);
    load.go_on();
    let last = load.stop();
    check(&cluster, &[0, 1, 2], &last);
}

#[test]
fn a_node_that_was_removed_while_it_was_cut_off_serves_nobody() {
    let cluster = Cluster::start(4, replicated(3));
    let token = cluster.token_of(3);
    // To the others it is as silent as one behind a broken network, and it runs on afterwards.
    cluster.server(3).pause();
    for observer in [0, 1, 2] {
        cluster.wait_until_seen(observer, 3, false);
    }
    cluster.nodetool(0, &["removetoken", &token]);
    wait_for_members(&cluster, &[0, 1, 2], 3);
    cluster.server(3).resume();
    wait_until("it hears of its removal", || {
        cluster.server(3).log().contains("this node was removed from the ring")
    });
    for level in [Level::One, Level::Quorum, Level::Any] {
        let mut client = cluster.client(3).at(level);
        assert_unavailable(&client.insert("key", NAME, b"value", 1));
        if level != Level::Any {
            assert_unavailable(&client.get_slice("key", STANDARD, first(ALL, false)));
        }
    }
    let status = cluster.try_nodetool(3, &["status"]);
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    let told = format!("look at {} (Up, Removed)", cluster.nodes[3].address);
    assert!(!status.status.success() && text.contains(&told), "{text}");
    assert!(text.contains("was removed from the ring or replaced: it serves nobody"), "{text}");
    // The others go on, and take no requests of it.
    let mut client = cluster.client(0);
    client.insert("key", NAME, b"value", 1).unwrap();
    assert_eq!(members(&cluster, 0), 3);
}

#[test]
fn a_dead_node_is_replaced_under_load() {
    let mut cluster = Cluster::start(3, replicated(3));
    let load = Load::start(&cluster, &[0, 1]);
    load.go_on();
    let token = cluster.token_of(2);
    cluster.kill(2);
    for observer in [0, 1] {
        cluster.wait_until_seen(observer, 2, false);
    }
    let new = cluster.add(&Options::default());
    cluster.nodes[new].launch_with(&[&format!("-Dcassandra.replace_token={token}")]);
    wait_for_members(&cluster, &[0, 1, new], 3);
    assert_eq!(cluster.token_of(new), token);
    load.go_to(&cluster, &[0, 1, new]);
    let last = load.stop();
    check(&cluster, &[0, 1, new], &last);
    // Whose place it was does not get it back.
    cluster.launch(&[2]);
    let old = cluster.nodes[2].address.to_string();
    wait_until("the old one is seen", || {
        let ring = cluster.nodes[0].ask("ring");
        let endpoints = ring["endpoints"].as_array().unwrap().clone();
        endpoints.iter().any(|it| it["address"] == *old && it["status"] == "Up")
    });
    assert_eq!(cluster.token_of(new), token);
    assert_eq!(members(&cluster, 0), 3);
}

#[test]
fn a_lost_disk_is_made_good_at_the_same_address() {
    let mut cluster = Cluster::start(3, replicated(3));
    let load = Load::start(&cluster, &[0, 1]);
    load.go_on();
    let token = cluster.token_of(2);
    cluster.kill(2);
    let directory = cluster.nodes[2].directory.clone();
    lose(&directory, &["data", "commitlog", "hints"]);
    for observer in [0, 1] {
        cluster.wait_until_seen(observer, 2, false);
    }
    // With a bootstrap its ranges would seem to be elsewhere.
    reconfigure(&directory, &joining());
    let refusal = refused(&serve(&directory));
    assert!(refusal.text.contains("whose data are not here"), "{}", refusal.text);
    assert!(refusal.text.contains(&format!("-Dcassandra.replace_token={token}")));
    assert_eq!(cluster.token_of(2), token);
    cluster.nodes[2].launch_with(&[&format!("-Dcassandra.replace_token={token}")]);
    wait_for_members(&cluster, &[0, 1, 2], 3);
    load.go_to(&cluster, &[0, 1, 2]);
    let last = load.stop();
    cluster.wait_for_hints(&[0, 1]);
    check(&cluster, &[0, 1, 2], &last);
    // It has all of it itself.
    cluster.kill(0);
    cluster.kill(1);
    let mut client = cluster.client(2).at(Level::One);
    for (thread, rows) in last.iter().enumerate() {
        for (row, expected) in rows.iter().enumerate() {
            let key = key(thread, row as u64);
            assert_eq!(read(&mut client, &key), *expected, "{key}");
        }
    }
}

/// Takes directories of a node away, as far as they are there.
fn lose(directory: &std::path::Path, names: &[&str]) {
    for name in names {
        let path = directory.join(name);
        if path.exists() {
            std::fs::remove_dir_all(path).unwrap();
        }
    }
}

#[test]
fn a_member_without_its_data_does_not_serve_emptiness() {
    let mut cluster = Cluster::start(3, replicated(2));
    let mut client = cluster.client(0).at(Level::All);
    for row in 0..20 {
        client.insert(&format!("row {row}"), NAME, b"1", 1).unwrap();
    }
    let tokens: Vec<String> = (0..3).map(|number| cluster.token_of(number)).collect();
    cluster.kill(1);
    cluster.wait_until_seen(0, 1, false);
    let directory = cluster.nodes[1].directory.clone();
    let command = serve(&directory);
    // Only the data are gone, and the commit log has writes.
    lose(&directory, &["data"]);
    let refusal = refused(&command);
    assert_eq!(refusal.exit_code, Some(3), "{}", refusal.text);
    assert!(refusal.text.contains("the data directories hold nothing"), "{}", refusal.text);
    // All is gone. It is one of its own seeds, too.
    lose(&directory, &["data", "commitlog", "hints"]);
    let variants = [
        Options::default(),
        Options::default().with("AutoBootstrap", "true"),
        Options::default().with("InitialToken", ""),
    ];
    for variant in &variants {
        reconfigure(&directory, variant);
        for _ in 0..2 {
            let refusal = refused(&command);
            assert_eq!(refusal.exit_code, Some(3), "{variant:?}: {}", refusal.text);
            for text in ["whose data are not here", "-Dcassandra.replace_token", &tokens[1]] {
                assert!(refusal.text.contains(text), "{variant:?}: {}", refusal.text);
            }
        }
    }
    for observer in [0, 2] {
        assert_eq!(token_at(&cluster, observer, 1), Some(tokens[1].clone()));
    }
    // The operator accepts the loss.
    reconfigure(&directory, &Options::default().with("InitialToken", &tokens[1]));
    cluster.nodes[1].launch_with(&["-Dcassandra.accept_data_loss=true"]);
    cluster.wait_until_seen(0, 1, true);
    assert_eq!(token_at(&cluster, 0, 1), Some(tokens[1].clone()));
    // It is a member like any other now.
    cluster.stop(1);
    cluster.launch(&[1]);
    cluster.wait_until_seen(0, 1, true);
}

#[test]
fn a_node_without_data_does_not_take_the_token_of_another() {
    let mut cluster = Cluster::start(2, replicated(2));
    let token = cluster.token_of(1);
    let new = cluster.add(&Options::default().with("InitialToken", &token));
    let is_refused = |cluster: &Cluster| {
        let refusal = refused(&serve(&cluster.nodes[new].directory));
        assert_eq!(refusal.exit_code, Some(3), "{}", refusal.text);
        let advice = format!("-Dcassandra.replace_token={token}");
        assert!(refusal.text.contains(&advice), "{}", refusal.text);
        assert_eq!(token_at(cluster, 0, 1).as_ref(), Some(&token));
    };
    is_refused(&cluster);
    cluster.kill(1);
    cluster.wait_until_seen(0, 1, false);
    is_refused(&cluster);
}

#[test]
fn a_member_without_its_data_and_without_other_seeds_ends_when_others_come() {
    let mut cluster = Cluster::start(3, replicated(2));
    let token = cluster.token_of(1);
    cluster.kill(1);
    cluster.wait_until_seen(0, 1, false);
    let directory = cluster.nodes[1].directory.clone();
    lose(&directory, &["data", "commitlog", "hints"]);
    let seeds = format!("<Seed>{}</Seed>", cluster.nodes[1].address);
    reconfigure(&directory, &Options::default().with("Seeds", &seeds));
    // What the first start has saved changes nothing.
    for start in 1..=2 {
        let refusal = ended(&serve(&directory));
        assert_eq!(refusal.exit_code, Some(3), "start {start}: {}", refusal.text);
        assert!(refusal.text.contains(&format!("-Dcassandra.replace_token={token}")));
    }
    for observer in [0, 2] {
        assert_eq!(token_at(&cluster, observer, 1), Some(token.clone()));
    }
}

#[test]
fn a_member_without_its_data_that_is_first_after_an_outage_of_all_ends_when_others_come() {
    let mut cluster = Cluster::start(3, replicated(2));
    let token = cluster.token_of(1);
    for number in 0..3 {
        cluster.kill(number);
    }
    let directory = cluster.nodes[1].directory.clone();
    lose(&directory, &["data", "commitlog", "hints"]);
    let seeds = format!("<Seed>{}</Seed>", cluster.nodes[1].address);
    reconfigure(&directory, &Options::default().with("Seeds", &seeds));
    let refusal = thread::scope(|scope| {
        let wiped = scope.spawn(|| ended(&serve(&directory)));
        // They know it from their saved rings only.
        cluster.launch(&[0, 2]);
        wiped.join().unwrap()
    });
    assert_eq!(refusal.exit_code, Some(3), "{}", refusal.text);
    assert!(refusal.text.contains(&format!("-Dcassandra.replace_token={token}")));
}

#[test]
fn a_removed_node_comes_back_with_an_empty_disk() {
    let mut cluster = Cluster::start(3, replicated(2));
    let token = cluster.token_of(2);
    cluster.kill(2);
    cluster.wait_until_seen(0, 2, false);
    cluster.nodetool(0, &["removetoken", &token]);
    wait_for_members(&cluster, &[0, 1], 2);
    lose(&cluster.nodes[2].directory, &["data", "commitlog", "hints"]);
    reconfigure(&cluster.nodes[2].directory, &joining());
    cluster.launch(&[2]);
    wait_for_members(&cluster, &[0, 1, 2], 3);
}

/// The token of a node, as another one knows it.
fn token_at(cluster: &Cluster, observer: usize, number: usize) -> Option<String> {
    let ring = cluster.nodes[observer].ask("ring");
    let address = cluster.nodes[number].address.to_string();
    let found = ring["endpoints"].as_array()?.iter().find(|it| it["address"] == *address)?;
    Some(found["token"].as_str()?.to_owned())
}

#[test]
fn what_cannot_be_done_is_refused() {
    let mut cluster = Cluster::start(2, replicated(1));
    let refused = |cluster: &Cluster, arguments: &[&str]| {
        let output = cluster.try_nodetool(0, arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let other = cluster.token_of(1);
    let text = refused(&cluster, &["move", &other]);
    assert!(text.contains("is already owned by another node"), "{text}");
    let text = refused(&cluster, &["removetoken", &other]);
    assert!(text.contains("is alive and owns this token"), "{text}");
    let text = refused(&cluster, &["removetoken", "0"]);
    assert!(text.contains("Cannot remove node's own token"), "{text}");
    let text = refused(&cluster, &["removetoken", "77"]);
    assert!(text.contains("no node has the token 77"), "{text}");
    let text = refused(&cluster, &["move", "x"]);
    assert!(text.contains("x is no token"), "{text}");
    // With one replica the only one who has a range is down.
    cluster.kill(1);
    cluster.wait_until_seen(0, 1, false);
    let text = refused(&cluster, &["removetoken", &other]);
    assert!(text.contains("too few live nodes have the range"), "{text}");
    assert!(text.contains("--accept-loss"), "{text}");
    let text = refused(&cluster, &["decommission"]);
    assert!(text.contains("is down, which is to take over data"), "{text}");
    // It is where it was.
    let ring = cluster.nodes[0].ask("ring");
    assert_eq!(ring["endpoints"][0]["state"], "Normal", "{ring}");
    let report = cluster.nodetool(0, &["removetoken", "--accept-loss", &other]);
    assert!(report.contains("Ranges with too few live replicas: 1;"), "{report}");
    assert_eq!(members(&cluster, 0), 1);
}

#[test]
fn a_second_change_is_refused() {
    let cluster = Cluster::start(3, replicated(2).with("StreamThroughputInMBPerSecond", "1"));
    let mut client = cluster.client(0).at(Level::All);
    // So much that it takes far longer than to be refused a few times, also on a busy machine.
    let mut chance = fastrand::Rng::with_seed(1);
    for row in 0..4000 {
        let value: Vec<u8> = std::iter::repeat_with(|| chance.u8(..)).take(12 << 10).collect();
        client.insert(&format!("row {row}"), NAME, &value, 1).unwrap();
    }
    cluster.nodetool(2, &["decommission", "--no-wait"]);
    let leaving = cluster.nodes[2].address.to_string();
    // Each learns by gossip of its own: one that has not heard would begin a change.
    for observer in [0, 1] {
        wait_until("the others have heard", || {
            let ring = cluster.nodes[observer].ask("ring");
            let endpoints = ring["endpoints"].as_array().unwrap().clone();
            endpoints.iter().any(|it| it["address"] == *leaving && it["state"] == "Leaving")
        });
    }
    let streams = cluster.nodetool(2, &["streams"]);
    assert!(streams.starts_with("Mode: Leaving: "), "{streams}");
    for (number, arguments) in [(0, &["decommission"] as &[&str]), (1, &["move", "77"])] {
        let output = cluster.try_nodetool(number, arguments);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(&format!("{leaving} is leaving")), "{text}");
    }
    let output = cluster.try_nodetool(2, &["move", "77"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("decommission is under way"), "{text}");
}

#[test]
fn a_decommissioned_node_does_not_come_back_by_accident() {
    let mut cluster = Cluster::start(2, replicated(1));
    let mut client = cluster.client(0);
    for row in 0..50 {
        client.insert(&format!("row {row}"), NAME, b"1", 1).unwrap();
    }
    cluster.nodetool(1, &["decommission"]);
    for row in 0..50 {
        let key = format!("row {row}");
        assert_eq!(read(&mut client, &key), Some(1), "{key}");
    }
    // Clients that have not heard of it go on.
    assert_eq!(read(&mut cluster.client(1), "row 7"), Some(1));
    cluster.stop(1);
    let refusal = refused(&serve(&cluster.nodes[1].directory));
    assert_eq!(refusal.exit_code, Some(3), "{refusal:?}");
    assert!(refusal.text.contains("this node was decommissioned"), "{refusal:?}");
    assert_eq!(members(&cluster, 0), 1);
}
