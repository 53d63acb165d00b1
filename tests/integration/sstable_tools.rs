//! `alexandra sstable` where it is killed, meets a limit, or reads orders that came after 0.6. The
//! rest is in the golden scripts in tests/scripts/sstable.

use crate::server::calls::{
    ALL, Entry, KEYSPACE, Path as ColumnPath, STANDARD, SUPER, first, plain_families,
};
use crate::server::client::Client;
use crate::server::{Server, program, serve};
use alexandra::base::fs::OsFileSystem;
use alexandra::base::hex::hex;
use alexandra::model::comparator::ComparatorRegistry;
use alexandra::storage::manifest::{Manifest, TableIdentity};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Rows of [`stopped`].
const ROWS: usize = 300;

/// A server's directory, in which some rows were written before it was stopped in order.
struct Stopped {
    directory: tempfile::TempDir,
}

impl Stopped {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut server = Server::start(directory.path(), &plain_families());
        write_rows(&server);
        assert!(server.stop().success());
        Self { directory }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn tool(&self, arguments: &[&str]) -> Output {
        run(&mut self.command(arguments))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.arg("sstable").args(arguments).current_dir(self.path());
        command
    }

    /// The SSTables of a column family.
    fn files(&self, family: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder()).unwrap().map(|entry| entry.unwrap().path());
        let start = format!("{family}-");
        let is_one = |path: &PathBuf| {
            let name = path.file_stem().unwrap().to_str().unwrap();
            name.starts_with(&start) && path.extension().is_some_and(|ending| ending == "sst")
        };
        entries.filter(is_one).collect()
    }

    fn folder(&self) -> PathBuf {
        self.path().join("data").join(KEYSPACE)
    }

    /// Flips a bit in the middle one of the blocks of a kind, in the only file of a column family.
    fn damage(&self, family: &str, kind: &str) -> PathBuf {
        let files = self.files(family);
        let [file] = &files[..] else { panic!("{files:?}") };
        let dumped = self.tool(&["dump", "--blocks", &file.display().to_string()]);
        let dumped = String::from_utf8(dumped.stdout).unwrap();
        let places: Vec<[usize; 2]> = dumped
            .lines()
            .filter(|line| line.ends_with(&format!("  {kind}")))
            .map(|line| {
                let mut numbers = line.split_whitespace().map(|word| word.parse().unwrap());
                [numbers.next().unwrap(), numbers.next().unwrap()]
            })
            .collect();
        let [offset, length] = places[places.len() / 2];
        let mut bytes = fs::read(file).unwrap();
        bytes[offset + length / 2] ^= 4;
        fs::write(file, bytes).unwrap();
        file.clone()
    }

    fn export(&self, family: &str) -> String {
        let exported = self.tool(&["export", "--config", ".", KEYSPACE, family]);
        assert_eq!(exported.status.code(), Some(0), "{}", text(&exported));
        String::from_utf8(exported.stdout).unwrap()
    }
}

fn write_rows(server: &Server) {
    let mut client = Client::connect(server.thrift_address());
    for number in 0..ROWS {
        let key = format!("row {number}");
        // Every other row is too large to stand in the row index.
        let value = format!("value {number}").repeat(if number % 2 == 0 { 1 } else { 100 });
        for name in ["a", "b"] {
            let path = ColumnPath::column(STANDARD, name.as_bytes());
            client.insert(&key, path, value.as_bytes(), 10).unwrap();
        }
    }
    for name in [&b"x"[..], b"y"] {
        let path = ColumnPath { family: SUPER, super_column: Some(b"sc"), column: Some(name) };
        client.insert("super row", path, b"value", 10).unwrap();
    }
    client
        .remove("row 7", ColumnPath { family: STANDARD, super_column: None, column: None }, 20)
        .unwrap();
    let path = ColumnPath { family: SUPER, super_column: Some(b"sc"), column: None };
    client.remove("super row", path, 5).unwrap();
}

fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap()
}

/// All that a command has said.
fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{out}\n{err}")
}

#[track_caller]
fn expect(output: &Output, code: i32, texts: &[&str]) {
    let said = text(output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    for text in texts {
        assert!(said.contains(text), "{text:?} is not in:\n{said}");
    }
}

/// Where the server of this directory is served.
fn address(stopped: &Stopped) -> std::net::SocketAddr {
    let configuration = fs::read_to_string(stopped.path().join("storage-conf.xml")).unwrap();
    let (_, rest) = configuration.split_once("<ThriftPort>").unwrap();
    let (port, _) = rest.split_once('<').unwrap();
    std::net::SocketAddr::from(([127, 0, 0, 1], port.parse().unwrap()))
}

#[test]
fn a_sound_file_gets_a_new_manifest_in_place_of_one_that_means_another_file() {
    let own = Stopped::new();
    // A manifest without a number, as a snapshot has it, may mean another file as well.
    let family = ["scrub", "--config", ".", KEYSPACE, STANDARD];
    let path = own.folder().join(format!("{STANDARD}.manifest"));
    let wrong = Manifest::load(&OsFileSystem, &path).unwrap().unwrap();
    let tables = wrong.sstables.iter();
    let longer = |(generation, it): (&u64, &TableIdentity)| {
        (*generation, TableIdentity { bytes: it.bytes + 1, ..*it })
    };
    let sstables = tables.map(longer).collect();
    Manifest { node: None, sstables, ..wrong }.store(&OsFileSystem, &path).unwrap();
    expect(&own.tool(&family), 1, &["the manifest means another file", "makes a new manifest"]);
    let accept = [&family[..], &["--accept-loss"]].concat();
    expect(&own.tool(&accept), 1, &["a new manifest names 1 SSTables"]);
    expect(&own.tool(&family), 0, &["sound, left as it is"]);
}

#[test]
fn a_limit_on_the_size_of_files_is_told_and_leaves_nothing() {
    let stopped = Stopped::new();
    let before = stopped.files(STANDARD);
    fs::write(stopped.path().join("rows.json"), stopped.export(STANDARD)).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -S -f 4 && exec \"$@\"", "sh"]).arg(program());
    command.args(["sstable", "import", "--config", ".", "-K", KEYSPACE, "-c", STANDARD]);
    let output = run(command.arg("rows.json").current_dir(stopped.path()));
    expect(&output, 2, &["File too large"]);
    assert_eq!(stopped.files(STANDARD), before);
}

/// Kills a command after a pause, unless it has ended before.
fn kill_after(mut command: Command, pause: Duration) {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(pause);
    let _ = kill_process(Pid::from_child(&child), Signal::KILL);
    child.wait().unwrap();
}

#[test]
fn a_kill_in_the_midst_leaves_the_old_or_the_new() {
    let stopped = Stopped::new();
    let before = stopped.export(STANDARD);
    let rows: Vec<String> =
        (0..20_000).map(|n| format!("\"new {n}\": [[\"61\", \"76\", 1, false]]")).collect();
    fs::write(stopped.path().join("rows.json"), format!("{{{}}}", rows.join(",\n"))).unwrap();
    let import = ["import", "--config", ".", "-K", KEYSPACE, "-c", STANDARD, "rows.json"];
    for pause in [0, 5, 20, 50, 100, 200] {
        let counted = |text: &str| text.lines().count() - 2;
        let imported_before = counted(&stopped.export(STANDARD)) > ROWS;
        kill_after(stopped.command(&import), Duration::from_millis(pause));
        let now = stopped.export(STANDARD);
        let all = counted(&now);
        assert!(all == ROWS && now == before || all == ROWS + 20_000, "{all} after {pause} ms");
        assert!(!imported_before || all > ROWS);
        expect(&stopped.tool(&["verify", "--config", "."]), 0, &["sound"]);
    }
    // What was cut off is cleared away by the next start, which reads all that counts.
    let expected = stopped.export(STANDARD);
    let mut server = Server::launch(stopped.path(), address(&stopped), serve(stopped.path()));
    server.stop();
    let entries = fs::read_dir(stopped.folder()).unwrap();
    let unfinished = entries.filter(|e| e.as_ref().unwrap().path().extension().unwrap() == "tmp");
    assert_eq!(unfinished.count(), 0);
    assert_eq!(stopped.export(STANDARD), expected);
}

#[test]
fn a_kill_in_the_midst_of_a_scrub_loses_nothing() {
    let stopped = Stopped::new();
    let before = stopped.export(STANDARD);
    let damaged = stopped.damage(STANDARD, "summary");
    let name = damaged.file_name().unwrap();
    for pause in [0, 3, 10, 20, 40, 80, 1000] {
        let scrub = stopped.command(&["scrub", "--config", ".", KEYSPACE, STANDARD]);
        kill_after(scrub, Duration::from_millis(pause));
        let kept = stopped.folder().join("damaged").join(name);
        assert!(damaged.exists() || kept.exists(), "after {pause} ms");
    }
    assert_eq!(stopped.export(STANDARD), before);
    expect(&stopped.tool(&["scrub", "--config", "."]), 0, &["sound, left as it is"]);
    assert!(stopped.folder().join("damaged").join(name).exists());
}

/// A column family in an order that came after 0.6, some names in that order, and how they are
/// shown. Below super columns a name is that of the super column and its own.
struct Later {
    family: &'static str,
    class: &'static str,
    names: Vec<(Vec<u8>, &'static str)>,
}

fn composite(components: &[&[u8]]) -> Vec<u8> {
    let mut name = Vec::new();
    for component in components {
        name.extend_from_slice(&(component.len() as u16).to_be_bytes());
        name.extend_from_slice(component);
        name.push(0);
    }
    name
}

fn later() -> Vec<Later> {
    let of_long = |number: i64| number.to_be_bytes().to_vec();
    let of_double = |number: f64| number.to_be_bytes().to_vec();
    let then = of_long(1_290_241_963_120);
    let shown = "2010-11-20T08:32:43.120Z";
    let integers = vec![(vec![0xff, 0], "-256"), (vec![1], "1"), (vec![1, 0], "256")];
    vec![
        Later { family: "Integers", class: "IntegerType", names: integers },
        Later {
            family: "Dates",
            class: "DateType",
            names: vec![(of_long(-1), "1969-12-31T23:59:59.999Z"), (then.clone(), shown)],
        },
        Later {
            family: "Doubles",
            class: "DoubleType",
            names: vec![(of_double(-1.5), "-1.5"), (of_double(2.25), "2.25")],
        },
        Later {
            family: "Truths",
            class: "BooleanType",
            names: vec![(vec![0], "false"), (vec![1], "true")],
        },
        Later {
            family: "Newest",
            class: "ReversedType(LongType)",
            names: vec![(of_long(2), "2"), (of_long(1), "1"), (of_long(-3), "-3")],
        },
        Later {
            family: "Composites",
            class: "CompositeType(UTF8Type,ReversedType(DateType),BooleanType)",
            names: vec![
                (composite(&[b"a"]), "a"),
                (composite(&[b"a", &then, &[1]]), "a:2010-11-20T08:32:43.120Z:true"),
                (composite(&["é\n".as_bytes(), &of_long(-1)]), "é\\n:1969-12-31T23:59:59.999Z"),
            ],
        },
    ]
}

/// Super columns are numbers, their columns of two components.
const OF_SUPER: &str = "Supers";

fn with_later() -> crate::server::Options {
    let family =
        |it: &Later| format!("<ColumnFamily Name='{}' CompareWith='{}'/>", it.family, it.class);
    let families: String = later().iter().map(family).collect();
    let locator = "org.apache.cassandra.locator";
    let keyspace = format!(
        "<Keyspace Name='{KEYSPACE}'>{families}<ColumnFamily Name='{OF_SUPER}' ColumnType='Super' \
         CompareWith='IntegerType' CompareSubcolumnsWith='CompositeType(DoubleType,AsciiType)'/>\
         <ReplicaPlacementStrategy>{locator}.RackUnawareStrategy</ReplicaPlacementStrategy>\
         <ReplicationFactor>1</ReplicationFactor>\
         <EndPointSnitch>{locator}.EndPointSnitch</EndPointSnitch></Keyspace>"
    );
    crate::server::Options::default().with("Keyspaces", &keyspace)
}

fn write_later(server: &Server) {
    let mut client = Client::connect(server.thrift_address());
    for Later { family, names, .. } in later() {
        // Against their order.
        for (name, _) in names.iter().rev() {
            client.insert("row", ColumnPath::column(family, name), b"v", 1).unwrap();
        }
        client.remove("row", ColumnPath::column(family, &names[0].0), 2).unwrap();
    }
    let place = |name: &'static [u8], column| ColumnPath {
        family: OF_SUPER,
        super_column: Some(name),
        column: Some(column),
    };
    let [one, two] = [1.0_f64, 2.5].map(|it| composite(&[&it.to_be_bytes(), b"x"]));
    // Two names of the number 1, which are one super column, and of 5.
    for (name, column) in [(&[0, 1][..], &two), (&[1], &one), (&[5], &one)] {
        client.insert("row", place(name, column), b"v", 1).unwrap();
    }
    client.remove("row", ColumnPath { column: None, ..place(&[5], &one) }, 1).unwrap();
}

/// The lines of a dump behind its properties.
fn cells(stopped: &Stopped, file: &Path) -> Vec<String> {
    let dumped = stopped.tool(&["dump", "--cells", &file.display().to_string()]);
    expect(&dumped, 0, &[]);
    let dumped = String::from_utf8(dumped.stdout).unwrap();
    dumped.lines().filter_map(|line| line.strip_prefix("    ")).map(str::to_owned).collect()
}

#[test]
fn names_in_orders_that_came_after_0_6_are_shown_and_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path(), &with_later());
    write_later(&server);
    assert!(server.stop().success());
    let stopped = Stopped { directory };
    let fresh = tempfile::tempdir().unwrap();
    crate::server::configure(fresh.path(), &with_later());
    let fresh = Stopped { directory: fresh };
    let back = |family: &str| {
        let exported = stopped.export(family);
        fs::write(fresh.path().join("rows.json"), &exported).unwrap();
        let import = ["import", "--config", ".", "-K", KEYSPACE, "-c", family, "rows.json"];
        expect(&fresh.tool(&import), 0, &["1 rows and "]);
        assert_eq!(fresh.export(family), exported);
        exported
    };
    for Later { family, class, names } in later() {
        let file = stopped.files(family).remove(0);
        let lines = cells(&stopped, &file);
        let (deleted, rest) = lines.split_first().unwrap();
        assert!(deleted.starts_with(&format!("{} @2 deleted (made at ", names[0].1)), "{deleted}");
        let live = |(_, shown): &(_, &str)| format!("{shown} @1 = \"v\" (1 bytes)");
        assert_eq!(rest, names[1..].iter().map(live).collect::<Vec<_>>());
        let ends = format!("    from {} to {}", names[0].1, names.last().unwrap().1);
        let rows = stopped.tool(&["dump", "--rows", &file.display().to_string()]);
        expect(
            &rows,
            0,
            &[
                &ends,
                &format!(
                    "Compare with                {}",
                    ComparatorRegistry::default().resolve(class).unwrap().class_name()
                ),
            ],
        );
        // The shape of 0.6, whatever the order.
        let exported = back(family);
        for (name, _) in &names[1..] {
            assert!(exported.contains(&format!("[\"{}\", \"76\", 1, false]", hex(name))));
        }
        assert_eq!(cells(&fresh, &fresh.files(family)[0]), lines);
    }
    let lines = cells(&stopped, &stopped.files(OF_SUPER)[0]);
    assert_eq!(lines[..2], ["1:1.0:x @1 = \"v\" (1 bytes)", "1:2.5:x @1 = \"v\" (1 bytes)"]);
    assert!(lines[2].starts_with("5: @1 deleted (made at "), "{lines:?}");
    let exported = back(OF_SUPER);
    assert_eq!(exported.matches("subColumns").count(), 2, "{exported}");
    expect(&fresh.tool(&["verify", "--config", "."]), 0, &["sound, 1 rows"]);
    let server = Server::launch(fresh.path(), address(&fresh), serve(fresh.path()));
    let mut client = Client::connect(server.thrift_address());
    for Later { family, names, .. } in later() {
        let found = client.get_slice("row", family, first(ALL, false)).unwrap();
        let found: Vec<_> = Entry::columns(&found).map(|it| it.name.clone()).collect();
        let live: Vec<_> = names[1..].iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(found, live, "{family}");
    }
}

#[test]
fn names_that_their_order_does_not_accept_are_not_imported() {
    let directory = tempfile::tempdir().unwrap();
    crate::server::configure(directory.path(), &with_later());
    let stopped = Stopped { directory };
    for (family, name, why) in [
        ("Truths", "0000", "Expected 1 or 0 byte value (2)"),
        ("Dates", "00", "Expected 8 or 0 byte long for date (1)"),
        ("Newest", "00", "A long is exactly 8 bytes"),
        ("Composites", "61", "Not enough bytes to read value size of component 0"),
    ] {
        let rows = format!("{{\n\"row\": [[\"{name}\", \"76\", 1, false]]\n}}");
        fs::write(stopped.path().join("rows.json"), rows).unwrap();
        let import = ["import", "--config", ".", "-K", KEYSPACE, "-c", family, "rows.json"];
        expect(&stopped.tool(&import), 2, &["Line 2, column ", why]);
    }
}
