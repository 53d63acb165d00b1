//! `alexandra dev-cluster`: what it starts, tells, and leaves behind.

use crate::cluster::nodes::{PATIENCE, free_network, wait_until};
use crate::server::client::{Client, Value};
use crate::server::{is_free, program, refused};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;

/// The command as it runs; killed when this is dropped.
struct Running {
    process: Child,
    lines: Receiver<String>,
    first: Ipv4Addr,
}

impl Running {
    fn start(arguments: &[&str], temporary: &Path) -> Self {
        let [a, b, c] = free_network(3);
        let first = Ipv4Addr::new(a, b, c, 1);
        let mut command = Command::new(program());
        command.args(["dev-cluster", "--first-address", &first.to_string()]).args(arguments);
        command.env("TMPDIR", temporary).stdin(Stdio::null());
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        let errors = BufReader::new(process.stderr.take().unwrap()).lines();
        let output = BufReader::new(process.stdout.take().unwrap()).lines();
        let copy = |line: Result<String, _>, sender: &mpsc::Sender<String>| {
            drop(sender.send(line.unwrap()));
        };
        let to_errors = sender.clone();
        thread::spawn(move || errors.for_each(|line| copy(line, &to_errors)));
        thread::spawn(move || output.for_each(|line| copy(line, &sender)));
        Self { process, lines, first }
    }

    /// All lines up to one that contains this.
    #[track_caller]
    fn until(&self, wanted: &str) -> Vec<String> {
        let mut seen = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => seen.push(line),
                Err(error) => panic!("no {wanted:?} ({error}):\n{}", seen.join("\n")),
            }
            if seen.last().unwrap().contains(wanted) {
                return seen;
            }
        }
    }

    fn client(&self, number: u32) -> Client {
        let address = Ipv4Addr::from_bits(self.first.to_bits() + number);
        Client::connect(SocketAddr::from((address, 9160)))
    }

    /// The processes of the nodes.
    fn nodes(&self) -> Vec<Pid> {
        let pid = self.process.id();
        let mut found = Vec::new();
        for thread in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
            let children = fs::read_to_string(thread.unwrap().path().join("children")).unwrap();
            let pids = children.split_whitespace().map(|pid| pid.parse().unwrap());
            found.extend(pids.map(|pid| Pid::from_raw(pid).unwrap()));
        }
        found
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.process.try_wait().unwrap().is_none() {
            // In order, for the nodes would go on.
            self.signal(Signal::TERM);
            self.process.wait().unwrap();
        }
    }
}

#[test]
fn a_cluster_for_development_comes_goes_and_leaves_nothing_behind() {
    let temporary = tempfile::tempdir().unwrap();
    let mut cluster = Running::start(&[], temporary.path());
    let told = cluster.until("nodes are up").join("\n");
    assert!(told.contains("3 of 3 nodes are up"), "{told}");
    for number in 1..=3 {
        assert!(told.contains(&format!("\nnode{number} | ")), "{told}");
        assert!(told.contains(&format!("\nnode{number}: Thrift on ")), "{told}");
    }
    let mut client = cluster.client(2);
    let keyspace = vec![(1, Value::bytes("BloggyAppy"))];
    let Some(Value::List(ranges)) = client.call("describe_ring", keyspace).unwrap() else {
        panic!("no ring");
    };
    assert_eq!(ranges.len(), 3);
    for range in ranges {
        let Value::Struct(fields) = range else { panic!("{range:?}") };
        assert!(matches!(&fields[2], (3, Value::List(replicas)) if replicas.len() == 3));
    }

    let nodes = cluster.nodes();
    assert_eq!(nodes.len(), 3);
    kill_process(nodes[1], Signal::KILL).unwrap();
    let told = cluster.until("The others go on").pop().unwrap();
    assert!(told.contains("signal: 9"), "{told}");
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 1);
    cluster.signal(Signal::INT);
    cluster.until("all nodes have stopped");
    assert!(cluster.process.wait().unwrap().success());
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
}

#[test]
fn a_named_directory_keeps_a_cluster() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("cluster").display().to_string();
    let arguments = ["--nodes", "2", "--directory", &directory, "--replication-factor", "1"];
    for _ in 0..2 {
        let mut cluster = Running::start(&arguments, parent.path());
        cluster.until("2 of 2 nodes are up");
        cluster.signal(Signal::TERM);
        assert!(cluster.process.wait().unwrap().success());
    }
    let text = fs::read_to_string(format!("{directory}/node2/storage-conf.xml")).unwrap();
    assert!(text.contains("<ReplicationFactor>1</ReplicationFactor>"), "{text}");
    let mut command = Command::new(program());
    command.args(["dev-cluster", "--nodes", "3", "--directory", &directory]);
    let refusal = refused(command.current_dir(parent.path()));
    assert_eq!(refusal.exit_code, Some(1));
    assert!(refusal.text.contains("has the data of 2 nodes, not of 3"), "{}", refusal.text);
}

#[test]
fn nodes_end_in_order_when_the_command_is_killed() {
    let temporary = tempfile::tempdir().unwrap();
    let arguments = ["--nodes", "2", "--replication-factor", "5", "-Dno.such=1"];
    let mut cluster = Running::start(&arguments, temporary.path());
    let told = cluster.until("2 of 2 nodes are up").join("\n");
    assert!(told.contains("rows are to have 5 replicas, and there are 2 nodes"), "{told}");
    let unknown = |node| told.lines().any(|it| it.starts_with(node) && it.contains("no.such"));
    assert!(unknown("node1") && unknown("node2"), "{told}");
    cluster.signal(Signal::KILL);
    cluster.process.wait().unwrap();
    for number in 0..2 {
        let address = Ipv4Addr::from_bits(cluster.first.to_bits() + number);
        wait_until("the node to end", || is_free(SocketAddr::from((address, 9160))));
    }
}

#[test]
fn addresses_that_are_not_there_are_told_of() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(program());
    // A network for documentation: nobody has it.
    command.args(["dev-cluster", "--first-address", "192.0.2.1"]);
    let refusal = refused(command.current_dir(directory.path()));
    assert_eq!(refusal.exit_code, Some(1));
    assert!(refusal.text.contains("192.0.2.1 is not an address"), "{}", refusal.text);
    assert!(refusal.text.contains("ifconfig lo0 alias 192.0.2.1"), "{}", refusal.text);
    let mut command = Command::new(program());
    command.args(["dev-cluster", "--first-address", "0.0.0.0"]);
    let refusal = refused(command.current_dir(directory.path()));
    assert!(refusal.text.contains("0.0.0.0 is not an address"), "{}", refusal.text);
}
