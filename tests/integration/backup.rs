//! Backup and restore with the built program, by the commands of `docs/backup.md`.

use crate::cql::{CqlClient, with_cql};
use crate::server::calls::{Path, STANDARD, first, plain_families};
use crate::server::client::Client;
use crate::server::{Options, Server, configure, program};
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::chown;
use std::path::Path as FilePath;
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DOCUMENT: &str = include_str!("../../docs/backup.md");

/// Twice as long as the log needs to note another time.
const PAUSE: Duration = Duration::from_millis(250);

/// Output of a command, and whether it succeeded.
#[derive(Debug)]
struct Ended {
    success: bool,
    text: String,
}

/// Runs a command that the document has as it stands here, with its words in capitals replaced.
fn run(directory: &FilePath, command: &str, replacements: &[(&str, &str)]) -> Ended {
    let is_documented = DOCUMENT.lines().any(|line| line == command);
    assert!(is_documented, "docs/backup.md lacks: {command}");
    run_any(directory, command, replacements)
}

/// [`run`] for a command that is put together from what the document has.
fn run_any(directory: &FilePath, command: &str, replacements: &[(&str, &str)]) -> Ended {
    let mut words = command.split(' ');
    assert_eq!(words.next(), Some("alexandra"));
    let words = words.map(|word| match word {
        "CONF" => directory.display().to_string(),
        "ARCHIVE" => directory.join("archive").display().to_string(),
        word => {
            let found = replacements.iter().find(|(name, _)| *name == word);
            found.map_or(word, |(_, value)| value).to_owned()
        }
    });
    let mut command = Command::new(program());
    let output = command.args(words).current_dir(directory).output().unwrap();
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Ended { success: output.status.success(), text }
}

#[track_caller]
fn succeeds(directory: &FilePath, command: &str, replacements: &[(&str, &str)]) -> String {
    let Ended { success, text } = run(directory, command, replacements);
    assert!(success, "{command}: {text}");
    text
}

fn insert(server: &Server, key: &str) {
    let mut client = Client::connect(server.thrift_address());
    client.insert(key, Path::column(STANDARD, b"name"), b"value", 1).unwrap();
}

fn remove(server: &Server, key: &str) {
    let mut client = Client::connect(server.thrift_address());
    client.remove(key, Path::column(STANDARD, b"name"), 2).unwrap();
}

#[track_caller]
fn check(server: &Server, there: &[&str], gone: &[&str]) {
    let mut client = Client::connect(server.thrift_address());
    let mut is_there =
        |key: &str| !client.get_slice(key, STANDARD, first(1, false)).unwrap().is_empty();
    for key in there {
        assert!(is_there(key), "{key} is not there");
    }
    for key in gone {
        assert!(!is_there(key), "{key} is there");
    }
}

#[allow(clippy::disallowed_methods, reason = "the time of the server is that of the machine")]
fn now_millis() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()
}

#[test]
fn a_dry_run_creates_nothing_where_no_server_has_run() {
    let [from, to] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let dry_run = "alexandra restore --config CONF --snapshot nightly --dry-run";
    configure(to.path(), &plain_families());
    let refused = run(to.path(), dry_run, &[]);
    assert!(!refused.success && refused.text.contains("no snapshot nightly"), "{}", refused.text);
    let names = |directory: &FilePath| -> Vec<_> {
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    assert_eq!(names(to.path()), ["storage-conf.xml"]);

    let mut server = Server::start(from.path(), &plain_families());
    insert(&server, "old");
    assert!(server.stop().success());
    succeeds(from.path(), "alexandra snapshot take --config CONF nightly", &[]);
    let [from, copy] = [&from, &to].map(|it| it.path().join("data/Keyspace1/snapshots"));
    fs::create_dir_all(copy.parent().unwrap()).unwrap();
    fs::rename(from, copy).unwrap();
    let told = succeeds(to.path(), dry_run, &[]);
    assert!(told.contains("Would restore keyspace Keyspace1"), "{told}");
    assert_eq!(names(&to.path().join("data")), ["Keyspace1"]);
    assert_eq!(names(&to.path().join("data/Keyspace1")), ["snapshots"]);
    assert_eq!(names(to.path()).len(), 2);
}

#[test]
fn root_makes_no_files_that_the_user_of_the_server_could_not_read() {
    let directory = tempfile::tempdir().unwrap();
    assert!(Server::start(directory.path(), &plain_families()).stop().success());
    let take = "alexandra snapshot take --config CONF nightly";
    succeeds(directory.path(), take, &[]);
    let place = |name: &str| directory.path().join(name);
    // Only root can give files away.
    let refuses = |name: &str| {
        let is_given = chown(place(name), Some(12345), Some(54321)).is_ok();
        if is_given {
            let Ended { success, text } = run(directory.path(), take, &[]);
            let way_out = "Run: setpriv --reuid 12345 --regid 54321 --clear-groups ";
            assert!(!success && text.contains(way_out), "{text}");
            chown(place(name), Some(0), Some(0)).unwrap();
        }
        is_given
    };
    if refuses("data") {
        assert!(refuses("commitlog"));
        // A directory that is not there would be made.
        fs::rename(place("data"), place("elsewhere")).unwrap();
        assert!(refuses("."));
    }
}

/// A snapshot has the definitions of its tables. The same command brings them to another server.
#[test]
fn tables_that_were_dropped_or_emptied_come_back_with_their_rows() {
    let [from, to] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let plain = "alexandra restore --config CONF --snapshot nightly";
    let count = |address: SocketAddr, table: &str| {
        let (mut client, _) = CqlClient::begin(address);
        let answer = client.query(&format!("SELECT count(v) FROM k.{table}"));
        i64::from_be_bytes(*answer.body.last_chunk().unwrap())
    };
    let (address, _) = with_cql();
    let options = plain_families().with("CqlPort", &address.port().to_string());
    let mut server = Server::start(from.path(), &options);
    let (mut client, _) = CqlClient::begin(address);
    let strategy = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
    client.query(&format!("CREATE KEYSPACE k WITH replication = {strategy}"));
    client.query("CREATE TYPE k.u (a int)");
    for table in ["dropped", "emptied", "kept"] {
        client.query(&format!("CREATE TABLE k.{table} (n int PRIMARY KEY, v frozen<u>)"));
        client.query(&format!("INSERT INTO k.{table} (n, v) VALUES (-1, {{a: 1}})"));
    }
    assert!(server.stop().success());
    succeeds(from.path(), "alexandra snapshot take --config CONF nightly", &[]);
    let export = "alexandra sstable export --config CONF --format 0.6 --to exported";
    let Ended { success, text } = run_any(from.path(), export, &[]);
    let lacks = "NOT EXPORTED: k.kept-";
    assert!(!success && text.contains(lacks) && text.contains("has no tables made over CQL"));

    let mut server = Server::start(from.path(), &options);
    let (mut client, _) = CqlClient::begin(address);
    client.query("DROP TABLE k.dropped");
    client.query("TRUNCATE k.emptied");
    client.query("INSERT INTO k.kept (n, v) VALUES (2, {a: 2})");
    client.query("ALTER TABLE k.kept DROP v");
    assert!(server.stop().success());
    let dry_run = "alexandra restore --config CONF --snapshot nightly --dry-run";
    let told = succeeds(from.path(), dry_run, &[]);
    assert!(!told.contains("Left out"), "{told}");
    let told = succeeds(from.path(), plain, &[]);
    assert!(!told.contains("Left out"), "{told}");
    for _ in 0..2 {
        let mut server = Server::start(from.path(), &options);
        for table in ["dropped", "emptied", "kept"] {
            assert_eq!(count(address, table), 1, "{table}");
        }
        CqlClient::begin(address).0.query("ALTER TABLE k.dropped ADD w int");
        CqlClient::begin(address).0.query("ALTER TABLE k.dropped DROP w");
        assert!(server.stop().success());
    }

    configure(to.path(), &options);
    for keyspace in ["k", "system"] {
        let [source, copy] = [&from, &to].map(|it| it.path().join("data").join(keyspace));
        fs::create_dir_all(&copy).unwrap();
        fs::rename(source.join("snapshots"), copy.join("snapshots")).unwrap();
    }
    succeeds(to.path(), plain, &[]);
    let _server = Server::start(to.path(), &options);
    assert_eq!(count(address, "emptied"), 1);
}

/// A table that was made or emptied since has new rows in the log, under a definition that the log
/// has as well.
#[test]
fn tables_of_the_time_after_the_snapshot_are_replayed() {
    let [from, lost] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (address, _) = with_cql();
    let options = |directory: &FilePath| -> Options {
        let archive = directory.join("archive").display().to_string();
        plain_families()
            .with("CqlPort", &address.port().to_string())
            .with("CommitLogArchiveDirectory", &archive)
    };
    let query = |statement: &str| CqlClient::begin(address).0.query(statement);
    let count = |rows: &str| {
        let answer = query(&format!("SELECT count(*) FROM {rows}"));
        i64::from_be_bytes(*answer.body.last_chunk().unwrap())
    };
    let mut server = Server::start(from.path(), &options(from.path()));
    let strategy = "WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
    query(&format!("CREATE KEYSPACE k {strategy}"));
    for table in ["emptied", "altered"] {
        query(&format!("CREATE TABLE k.{table} (n int PRIMARY KEY, v int)"));
        query(&format!("INSERT INTO k.{table} (n, v) VALUES (1, 1)"));
    }
    assert!(server.stop().success());
    succeeds(from.path(), "alexandra snapshot take --config CONF nightly", &[]);

    server.restart();
    query("CREATE TABLE k.later (n int PRIMARY KEY)");
    query("INSERT INTO k.later (n) VALUES (1)");
    query("TRUNCATE k.emptied");
    query("INSERT INTO k.emptied (n) VALUES (10)");
    query("ALTER TABLE k.altered ADD x int");
    query("UPDATE k.altered SET x = 5 WHERE n = 1");
    query(&format!("CREATE KEYSPACE young {strategy}"));
    query("CREATE TABLE young.t (n int PRIMARY KEY)");
    query("INSERT INTO young.t (n) VALUES (1)");
    thread::sleep(PAUSE);
    let time = now_millis().to_string();
    thread::sleep(PAUSE);
    for table in ["later", "altered"] {
        query(&format!("DROP TABLE k.{table}"));
    }
    assert!(server.stop().success());

    // Of this machine there are only its snapshots and the archive.
    configure(lost.path(), &options(lost.path()));
    let copy = |part: &str| {
        let to = lost.path().join(part);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        let copied = Command::new("cp").arg("-a").arg(from.path().join(part)).arg(to).status();
        assert!(copied.unwrap().success(), "{part}");
    };
    ["archive", "data/k/snapshots", "data/system/snapshots"].into_iter().for_each(copy);
    let plain = "alexandra restore --config CONF --snapshot nightly";
    let told = succeeds(lost.path(), &format!("{plain} --archive ARCHIVE"), &[]);
    let left_out: Vec<&str> = told.lines().filter(|line| line.contains("Left out")).collect();
    assert!(matches!(left_out[..], [line] if line.contains("k.emptied-")), "{told}");
    let mut restored = Server::start(lost.path(), &options(lost.path()));
    for _ in 0..2 {
        let rows = ["k.emptied", "k.emptied WHERE n = 10", "young.t"].map(count);
        // A table of the snapshot that was dropped is there again, one that came later is not.
        let altered = count("k.altered WHERE n = 1 AND x = 5 ALLOW FILTERING");
        let tables = count("system_schema.tables WHERE keyspace_name = 'k'");
        assert_eq!((rows, altered, tables), ([1; 3], 1, 2));
        query("ALTER TABLE k.altered WITH comment = 'there again'");
        restored.restart();
    }
    assert!(restored.stop().success());

    succeeds(from.path(), &format!("{plain} --until TIME"), &[("TIME", &time)]);
    server.restart();
    for rows in ["k.later", "k.emptied", "k.emptied WHERE n = 10", "young.t"] {
        assert_eq!(count(rows), 1, "{rows}");
    }
    assert_eq!(count("k.altered WHERE n = 1 AND x = 5 ALLOW FILTERING"), 1);
}

#[test]
fn a_server_is_restored_by_the_commands_of_the_document() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let archive = path.join("archive").display().to_string();
    let options: Options = plain_families()
        .with("CommitLogArchiveDirectory", &archive)
        .with("CommitLogRotationThresholdInMB", "1");
    let mut server = Server::start(path, &options);
    insert(&server, "old");
    let plain = "alexandra restore --config CONF --snapshot nightly";
    let until = "alexandra restore --config CONF --snapshot nightly --until TIME";
    for command in [plain, "alexandra snapshot take --config CONF nightly"] {
        let refused = run(path, command, &[]);
        assert!(!refused.success && refused.text.contains("another server"), "{}", refused.text);
    }
    assert!(server.stop().success());
    let listed = succeeds(path, "alexandra snapshot list --config CONF", &[]);
    assert!(listed.contains("-archive-"), "the archive begins with a snapshot: {listed}");
    let unknown = run_any(path, "alexandra snapshot list --config CONF --keyspace Nix", &[]);
    let why = "Keyspace Nix does not exist in the configuration";
    assert!(!unknown.success && unknown.text.contains(why), "{}", unknown.text);
    let taken = succeeds(path, "alexandra snapshot take --config CONF nightly", &[]);
    assert!(taken.contains("-nightly") && taken.contains("system"), "{taken}");

    server.restart();
    insert(&server, "a");
    thread::sleep(PAUSE);
    let time = now_millis().to_string();
    thread::sleep(PAUSE);
    insert(&server, "b");
    remove(&server, "a");
    check(&server, &["old", "b"], &["a"]);
    server.kill();

    let dry = succeeds(path, &format!("{plain} --dry-run"), &[]);
    assert!(dry.contains("nothing was changed") && dry.contains("Keyspace1"), "{dry}");
    let done = succeeds(path, until, &[("TIME", &time)]);
    assert!(done.contains("Replayed ") && done.contains("The server can be started"), "{done}");
    server.restart();
    check(&server, &["old", "a"], &["b"]);

    // A new history goes on from there, over a kill and an end in order.
    insert(&server, "c");
    server.restart();
    insert(&server, "d");
    assert!(server.stop().success());
    let refused = run(path, &format!("{plain} --archive ARCHIVE"), &[]);
    assert!(refused.text.contains("before the last restore"), "{}", refused.text);
    let folders = folders(path);
    let tag = format!("archive-{}", folders[1]);
    let again = "alexandra restore --config CONF --snapshot archive-FOLDER --archive ARCHIVE";
    let command = again.replace("archive-FOLDER", &tag);
    assert!(DOCUMENT.lines().any(|line| line == again), "{again}");
    let done = run_any(path, &command, &[]);
    assert!(done.success, "{}", done.text);
    server.restart();
    check(&server, &["old", "a", "c", "d"], &["b"]);

    // Only what is asked for goes back; the node is the same as before.
    server.kill();
    succeeds(path, &format!("{plain} --keyspace Keyspace1"), &[]);
    server.restart();
    check(&server, &["old"], &["a", "b", "c", "d"]);
    insert(&server, "e");
    assert!(server.log().contains("Saved Token found"), "{}", server.log_end());
    server.kill();
    succeeds(path, plain, &[]);
    server.restart();
    check(&server, &["old"], &["a", "e"]);

    let cleared = succeeds(path, "alexandra snapshot clear --config CONF --name nightly", &[]);
    assert!(cleared.contains("-nightly"), "{cleared}");
    assert!(server.stop().success());
    let refused = run(path, plain, &[]);
    assert!(refused.text.contains("no snapshot nightly"), "{}", refused.text);
    let refused = run_any(path, &format!("{plain} --keyspace Elsewhere"), &[]);
    assert!(refused.text.contains("Keyspace Elsewhere does not exist"), "{}", refused.text);
}

/// Names of the folders of the archive, oldest first.
fn folders(directory: &FilePath) -> Vec<String> {
    let entries = fs::read_dir(directory.join("archive")).unwrap().map(|entry| entry.unwrap());
    let names = entries.filter(|entry| entry.path().is_dir()).map(|entry| entry.file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

/// A keyspace goes back further than was wanted, and then to the right time after all: the folder
/// of the archive from before the first restore has it.
#[test]
fn what_a_restore_has_undone_comes_back_from_the_older_folder() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let archive = path.join("archive").display().to_string();
    let options: Options = plain_families().with("CommitLogArchiveDirectory", &archive);
    let mut server = Server::start(path, &options);
    insert(&server, "old");
    assert!(server.stop().success());
    succeeds(path, "alexandra snapshot take --config CONF nightly", &[]);
    server.restart();
    let time = || {
        thread::sleep(PAUSE);
        let time = now_millis().to_string();
        thread::sleep(PAUSE);
        time
    };
    insert(&server, "good");
    let first = time();
    insert(&server, "undone");
    let second = time();
    insert(&server, "late");
    assert!(server.stop().success());

    let plain = "alexandra restore --config CONF --snapshot nightly";
    let one = format!("{plain} --keyspace Keyspace1 --until TIME");
    let done = run_any(path, &one, &[("TIME", &first)]);
    assert!(done.success, "{}", done.text);
    server.restart();
    check(&server, &["old", "good"], &["undone", "late"]);
    insert(&server, "x");
    assert!(server.stop().success());

    let folders = folders(path);
    let until = format!("{plain} --archive ARCHIVE/FOLDER --until TIME");
    let words = [("TIME", &*second), ("ARCHIVE/FOLDER", &*format!("{archive}/{}", folders[0]))];
    let dry = run_any(path, &format!("{until} --dry-run"), &words);
    assert!(dry.success && dry.text.contains(&folders[0]), "{}", dry.text);
    let done = succeeds(path, &until, &words);
    assert!(done.contains("up to the time that was asked for"), "{done}");
    server.restart();
    check(&server, &["old", "good", "undone"], &["late", "x"]);
}
