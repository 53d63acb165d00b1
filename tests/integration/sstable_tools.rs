//! `alexandra sstable` on the files that a server has left, and on those of one that runs.

use crate::server::calls::{
    ALL, Entry, KEYSPACE, Path as ColumnPath, STANDARD, SUPER, first, plain_families,
};
use crate::server::client::Client;
use crate::server::{Server, program, serve};
use alexandra::base::fs::OsFileSystem;
use alexandra::model::comparator::{ComparatorRegistry, hex};
use alexandra::storage::manifest::{Manifest, TableIdentity};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::symlink;
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

#[test]
fn the_files_of_a_running_server_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path(), &plain_families());
    write_rows(&server);
    let stopped = Stopped { directory };
    let refused = |arguments: &[&str]| {
        let data = stopped.path().display().to_string();
        let said = stopped.tool(arguments);
        expect(&said, 2, &["is in use by a running server: stop it first", &data]);
    };
    fs::write(stopped.path().join("rows.json"), "{}").unwrap();
    for arguments in [
        &["verify", "--config", "."][..],
        &["scrub", "--config", "."],
        &["export", "--config", ".", KEYSPACE, STANDARD],
        &["import", "--config", ".", "-K", KEYSPACE, "-c", STANDARD, "rows.json"],
    ] {
        refused(arguments);
    }
    server.stop();
    let file = stopped.files(STANDARD).remove(0).display().to_string();
    server.restart();
    refused(&["dump", &file]);
    refused(&["verify", &file]);
    // A snapshot can be read at any time.
    let snapshot = stopped.folder().join("snapshots/1");
    fs::create_dir_all(&snapshot).unwrap();
    fs::hard_link(&file, snapshot.join(Path::new(&file).file_name().unwrap())).unwrap();
    let verified = stopped.tool(&["verify", &snapshot.display().to_string()]);
    expect(&verified, 0, &["sound, "]);
}

#[test]
fn dump_shows_what_is_in_a_file() {
    let stopped = Stopped::new();
    let files = stopped.files(SUPER);
    let dumped = stopped.tool(&["dump", "--cells", "--blocks", &files[0].display().to_string()]);
    let texts = [
        "Keyspace                    Keyspace1",
        "Column family               Super1",
        "Compare subcolumns with     org.apache.cassandra.db.marshal.BytesType",
        "Rows                        1",
        "Cells                       3",
        "Tombstones                  1",
        "Oldest tombstone            20",
        "Greatest timestamp          10",
        "super row \"super row\", token ",
        "Disk bytes per cell byte    ",
        "    7363: @5 deleted (made at 20",
        "    7363:78 @10 = \"value\" (5 bytes)",
        "row index",
        "properties",
    ];
    expect(&dumped, 0, &texts);
    let rows = stopped.tool(&["dump", "--rows", &stopped.files(STANDARD)[0].display().to_string()]);
    expect(&rows, 0, &["row \"row 7\", token ", ", deleted at 20 (made at ", "    from 61 to 62"]);
}

#[test]
fn dump_shows_the_rows_of_a_damaged_file_and_names_the_damage() {
    let stopped = Stopped::new();
    let file = stopped.damage(STANDARD, "data").display().to_string();
    let dumped = stopped.tool(&["dump", "--cells", &file]);
    let texts = ["  DAMAGED: byte ", " (data block): ", "    DAMAGED: only 0 cells can be read"];
    expect(&dumped, 1, &texts);
    assert_eq!(text(&dumped).matches("  row \"row ").count(), ROWS, "the index names all rows");
    stopped.damage(STANDARD, "summary");
    expect(&stopped.tool(&["dump", "--rows", &file]), 1, &["DAMAGED: byte ", "(summary block)"]);
}

#[test]
fn verify_says_what_is_sound_and_names_what_is_not() {
    let stopped = Stopped::new();
    let verified = stopped.tool(&["verify", "--config", "."]);
    expect(&verified, 0, &["Standard1-", "Super1-", "LocationInfo-", "sound, 300 rows, 600 cells"]);
    let file = stopped.damage(STANDARD, "data").display().to_string();
    let verified = stopped.tool(&["verify", "--config", ".", KEYSPACE]);
    expect(&verified, 1, &[&format!("{file}: DAMAGED"), "  byte ", "; rows \"row ", "Super1-"]);
    expect(&stopped.tool(&["verify", &file]), 1, &["DAMAGED"]);
    expect(&stopped.tool(&["verify", "--config", ".", KEYSPACE, SUPER]), 0, &["sound"]);
    fs::remove_file(&file).unwrap();
    let texts = [&format!("{file}: DAMAGED"), "is missing, and Keyspace1.Standard1 has"];
    expect(&stopped.tool(&["verify", "--config", "."]), 1, &texts);
    expect(&stopped.tool(&["verify", "--config", ".", "Elsewhere"]), 2, &["does not exist"]);
    expect(&stopped.tool(&["verify", "no such file"]), 2, &["cannot open no such file"]);
}

#[test]
fn without_an_option_the_environment_names_the_configuration() {
    let stopped = Stopped::new();
    let export = |configuration: &str, keyspace: &str| {
        let mut command = stopped.command(&["export", keyspace, STANDARD]);
        run(command.env("STORAGE_CONFIG", configuration))
    };
    let exported = export(".", KEYSPACE);
    assert_eq!(exported.status.code(), Some(0), "{}", text(&exported));
    assert_eq!(String::from_utf8(exported.stdout).unwrap(), stopped.export(STANDARD));
    expect(&export(".", "Elsewhere"), 2, &["Keyspace Elsewhere does not exist"]);
    // An empty value counts as none, so that the built-in configuration does.
    expect(&export("", "Elsewhere"), 2, &["there is no directory ./data/data"]);
}

#[test]
fn scrub_makes_anew_what_can_be_and_asks_before_anything_is_lost() {
    let stopped = Stopped::new();
    let before = stopped.export(STANDARD);
    let file = stopped.damage(STANDARD, "summary");
    let scrubbed = stopped.tool(&["scrub", "--config", ".", KEYSPACE, STANDARD]);
    let kept = stopped.folder().join("damaged").join(file.file_name().unwrap());
    let texts = ["DAMAGED", "  nothing is lost", "  saved as ", &kept.display().to_string()];
    expect(&scrubbed, 1, &texts);
    assert!(kept.exists() && !file.exists());
    assert_eq!(stopped.export(STANDARD), before);
    let again = stopped.tool(&["scrub", "--config", "."]);
    expect(&again, 0, &["sound, left as it is"]);

    let file = stopped.damage(STANDARD, "data");
    let bytes = fs::read(&file).unwrap();
    let refused = stopped.tool(&["scrub", "--config", ".", KEYSPACE]);
    let texts = ["  lost: row \"row ", "left as it is: --accept-loss", "may come back"];
    expect(&refused, 1, &texts);
    assert_eq!(fs::read(&file).unwrap(), bytes);
    assert_eq!(stopped.files(STANDARD), std::slice::from_ref(&file));
    let accepted = stopped.tool(&["scrub", "--accept-loss", "--config", ".", KEYSPACE]);
    expect(&accepted, 1, &["  saved as "]);
    expect(&stopped.tool(&["verify", "--config", "."]), 0, &["sound"]);
    // The server takes it for what it is.
    let server = Server::launch(stopped.path(), address(&stopped), serve(stopped.path()));
    let rows = Client::connect(server.thrift_address()).scan(STANDARD).unwrap();
    let sound = rows.iter().filter(|(_, columns)| columns.len() == 2).count();
    assert!((1..ROWS - 1).contains(&sound), "{sound}");
}

#[test]
fn small_rows_that_are_lost_are_told_by_the_rows_around_them() {
    let stopped = Stopped::new();
    let file = stopped.damage(STANDARD, "row index").display().to_string();
    let verified = stopped.tool(&["verify", &file]);
    let rows = ["(row index block)", "; small rows that stood there, ", " are lost: "];
    expect(&verified, 1, &rows);
    let refused = stopped.tool(&["scrub", "--config", ".", KEYSPACE, STANDARD]);
    expect(&refused, 1, &["; what was there of rows from \"row ", "left as it is: --accept-loss"]);
    let accepted = stopped.tool(&["scrub", "--accept-loss", "--config", ".", KEYSPACE]);
    expect(&accepted, 1, &["  saved as ", " rows and "]);
    let large = |text: &str| text.lines().filter(|line| line.len() > 1000).count();
    let saved = stopped.export(STANDARD);
    assert_eq!(large(&saved), ROWS / 2, "{saved}");
    assert!(saved.lines().count() < ROWS);
}

/// Where the server of this directory is served.
fn address(stopped: &Stopped) -> std::net::SocketAddr {
    let configuration = fs::read_to_string(stopped.path().join("storage-conf.xml")).unwrap();
    let (_, rest) = configuration.split_once("<ThriftPort>").unwrap();
    let (port, _) = rest.split_once('<').unwrap();
    std::net::SocketAddr::from(([127, 0, 0, 1], port.parse().unwrap()))
}

#[test]
fn scrub_saves_a_single_file_into_another() {
    let stopped = Stopped::new();
    let file = stopped.damage(STANDARD, "filter");
    let alone = stopped.path().join("alone.sst");
    fs::rename(&file, &alone).unwrap();
    let saved = stopped.tool(&["scrub", "alone.sst", "--output", "saved.sst"]);
    expect(&saved, 1, &["nothing is lost", "saved as saved.sst"]);
    expect(&stopped.tool(&["verify", "saved.sst"]), 0, &["sound, 300 rows"]);
    expect(&stopped.tool(&["scrub", "alone.sst"]), 2, &["--output"]);
}

/// Flips a bit so many bytes before the end of a file.
fn flip(file: &Path, before_end: usize) {
    let mut bytes = fs::read(file).unwrap();
    let at = bytes.len() - before_end;
    bytes[at] ^= 4;
    fs::write(file, bytes).unwrap();
}

#[test]
fn damaged_properties_lose_nothing_where_the_column_family_is_named() {
    let stopped = Stopped::new();
    let before = stopped.export(STANDARD);
    let file = stopped.files(STANDARD).remove(0);
    let alone = stopped.path().join("alone.sst");
    fs::copy(&file, &alone).unwrap();
    // The footer has 48 bytes, and the properties stand before it.
    flip(&alone, 60);
    expect(&stopped.tool(&["verify", "alone.sst"]), 1, &["rows and cells were not checked"]);
    let refused = stopped.tool(&["scrub", "alone.sst", "--output", "saved.sst"]);
    expect(&refused, 2, &["its properties cannot be read", "scrub --config CONF FILE KEYSPACE"]);
    let scrub = ["scrub", "--config", ".", "alone.sst", KEYSPACE, STANDARD, "--output"];
    let saved = stopped.tool(&[&scrub[..], &["saved.sst"]].concat());
    expect(&saved, 1, &["nothing is lost", "saved as saved.sst"]);
    expect(&stopped.tool(&["verify", "saved.sst"]), 0, &["sound, 300 rows, 600 cells"]);
    expect(&stopped.tool(&[&scrub[..], &["saved.sst"]].concat()), 2, &["is there already"]);
    flip(&file, 60);
    expect(&stopped.tool(&["scrub", "--config", ".", KEYSPACE]), 1, &["nothing is lost"]);
    assert_eq!(stopped.export(STANDARD), before);
}

#[test]
fn a_file_is_made_one_of_another_column_family() {
    let stopped = Stopped::new();
    let file = stopped.files(STANDARD).remove(0).display().to_string();
    let scrub = |family: &str, output: &str| {
        stopped.tool(&["scrub", "--config", ".", &file, KEYSPACE, family, "--output", output])
    };
    expect(&scrub("Standard2", "other.sst"), 0, &["saved as other.sst"]);
    expect(&stopped.tool(&["dump", "other.sst"]), 0, &["Column family               Standard2"]);
    expect(&stopped.tool(&["verify", "other.sst"]), 0, &["sound, 300 rows, 600 cells"]);
    expect(&scrub(SUPER, "super.sst"), 2, &["its rows sort otherwise"]);
}

#[test]
fn an_output_among_the_files_of_a_server_is_refused() {
    let stopped = Stopped::new();
    fs::write(stopped.path().join("rows.json"), "{}").unwrap();
    let file = stopped.files(STANDARD).remove(0).display().to_string();
    let snapshot = format!("data/{KEYSPACE}/snapshots/1");
    fs::create_dir_all(stopped.path().join(&snapshot)).unwrap();
    for output in [
        &format!("data/{KEYSPACE}/{STANDARD}-9.sst"),
        &format!("data/{KEYSPACE}/NoSuch-1.sst"),
        &format!("{snapshot}/x.sst"),
        "data/x.sst",
    ] {
        let import = ["import", "--config", ".", "-K", KEYSPACE, "-c", STANDARD, "rows.json"];
        let imported = stopped.tool(&[&import[..], &["--output", output]].concat());
        expect(&imported, 2, &[output, "among the files of a server", "write it elsewhere"]);
        let scrubbed = stopped.tool(&["scrub", &file, "--output", output]);
        expect(&scrubbed, 2, &[output, "among the files of a server", "write it elsewhere"]);
        assert!(!stopped.path().join(output).exists());
    }
}

#[test]
fn a_sound_file_gets_a_new_manifest_in_place_of_that_of_another_node() {
    let [own, other] = [(); 2].map(|()| Stopped::new());
    let manifest = Path::new("data/system/LocationInfo.manifest");
    fs::copy(other.path().join(manifest), own.path().join(manifest)).unwrap();
    let scrub = ["scrub", "--config", ".", "system", "LocationInfo"];
    expect(&own.tool(&scrub), 1, &["was written by another node", "--accept-loss"]);
    let accept = [&scrub[..], &["--accept-loss"]].concat();
    expect(&own.tool(&accept), 1, &["a new manifest names", "kept as ", "sound, left as it is"]);
    expect(&own.tool(&scrub), 0, &["sound, left as it is"]);

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
fn a_manifest_is_made_anew_when_loss_is_accepted() {
    let stopped = Stopped::new();
    let before = stopped.export(STANDARD);
    let manifest = stopped.folder().join(format!("{STANDARD}.manifest"));
    let scrub = ["scrub", "--config", ".", KEYSPACE, STANDARD];
    let accept = [&scrub[..], &["--accept-loss"]].concat();
    flip(&manifest, 30);
    let damaged = fs::read(&manifest).unwrap();
    expect(&stopped.tool(&scrub), 1, &["Standard1.manifest is damaged", "--accept-loss"]);
    assert_eq!(fs::read(&manifest).unwrap(), damaged);
    let texts = ["a new manifest names 1 SSTables", "kept as ", "sound, left as it is"];
    expect(&stopped.tool(&accept), 1, &texts);
    let kept = stopped.folder().join("damaged").join(manifest.file_name().unwrap());
    assert_eq!(fs::read(kept).unwrap(), damaged);
    assert_eq!(stopped.export(STANDARD), before);
    fs::remove_file(&manifest).unwrap();
    expect(&stopped.tool(&scrub), 1, &["the manifest is missing", "--accept-loss"]);
    expect(&stopped.tool(&accept), 1, &["a new manifest names 1 SSTables"]);
    assert_eq!(stopped.export(STANDARD), before);

    // As if the manifest were an older one.
    let unknown = stopped.folder().join(format!("{STANDARD}-9.sst"));
    fs::copy(stopped.files(STANDARD).remove(0), &unknown).unwrap();
    expect(&stopped.tool(&scrub), 1, &["Standard1-9.sst is not in ", "--accept-loss"]);
    expect(&stopped.tool(&accept), 1, &["a new manifest names 2 SSTables"]);
    assert_eq!(stopped.export(STANDARD), before);
    expect(&stopped.tool(&["verify", "--config", "."]), 0, &["Standard1-9.sst: sound"]);

    stopped.files(STANDARD).into_iter().for_each(|file| fs::remove_file(file).unwrap());
    expect(&stopped.tool(&scrub), 1, &["is missing: put it back", "--accept-loss goes on"]);
    expect(&stopped.tool(&["verify", "--config", "."]), 1, &["is missing"]);
    expect(&stopped.tool(&accept), 1, &["does not name it any more"]);
    expect(&stopped.tool(&["verify", "--config", "."]), 0, &["sound"]);
    let server = Server::launch(stopped.path(), address(&stopped), serve(stopped.path()));
    assert!(Client::connect(server.thrift_address()).scan(STANDARD).unwrap().is_empty());
}

#[test]
fn export_and_import_give_the_same_rows_again() {
    let stopped = Stopped::new();
    let [standard, sup] = [STANDARD, SUPER].map(|family| stopped.export(family));
    assert!(standard.contains("  \"row 7\": [{\"deletedAt\": 20, \"localDeletionTime\": "));
    assert!(sup.contains("{ \"7363\": {\"deletedAt\": 5, \"localDeletionTime\": "));
    let fresh = tempfile::tempdir().unwrap();
    crate::server::configure(fresh.path(), &plain_families());
    let fresh = Stopped { directory: fresh };
    for (family, rows) in [(STANDARD, &standard), (SUPER, &sup)] {
        fs::write(fresh.path().join("rows.json"), rows).unwrap();
        let arguments = ["import", "--config", ".", "-K", KEYSPACE, "-c", family, "rows.json"];
        expect(&fresh.tool(&arguments), 0, &["rows and ", "cells imported", ".sst"]);
        assert_eq!(fresh.export(family), *rows);
        // Once more makes no difference.
        expect(&fresh.tool(&arguments), 0, &["cells imported"]);
        assert_eq!(fresh.files(family).len(), 2);
        assert_eq!(fresh.export(family), *rows);
    }
    expect(&fresh.tool(&["verify", "--config", "."]), 0, &["sound, 300 rows"]);
    let server = Server::launch(fresh.path(), address(&fresh), serve(fresh.path()));
    let rows = Client::connect(server.thrift_address()).scan(STANDARD).unwrap();
    assert_eq!(rows.iter().filter(|(_, columns)| columns.len() == 2).count(), ROWS - 1);
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

#[test]
fn import_refuses_what_is_no_such_json() {
    let stopped = Stopped::new();
    let before = stopped.export(STANDARD);
    fs::write(stopped.path().join("rows.json"), "{\n\"k\": {\"73\": 1}\n}").unwrap();
    let arguments = ["import", "--config", ".", "-K", KEYSPACE, "-c", STANDARD, "rows.json"];
    let text = "Invalid JSON input, or incorrect column family. Line 2, column ";
    expect(&stopped.tool(&arguments), 2, &[text]);
    assert_eq!(stopped.export(STANDARD), before);
    let unknown = ["import", "--config", ".", "-K", KEYSPACE, "-c", "Elsewhere", "rows.json"];
    expect(&stopped.tool(&unknown), 2, &["there is no column family Elsewhere in"]);
    expect(&stopped.tool(&["import", "rows.json"]), 2, &["Usage: alexandra sstable import"]);
    let pipe = ["import", "--config", ".", "-K", KEYSPACE, "-c", STANDARD, "/dev/stdin"];
    expect(&stopped.tool(&pipe), 2, &["/dev/stdin: the text is read twice"]);
}

#[test]
fn keys_are_chosen_exactly() {
    let stopped = Stopped::new();
    let export = |arguments: &[&str]| {
        let all = ["export", "--config", ".", KEYSPACE, STANDARD].iter().chain(arguments);
        let exported = stopped.tool(&all.copied().collect::<Vec<_>>());
        assert_eq!(exported.status.code(), Some(0), "{}", text(&exported));
        String::from_utf8(exported.stdout).unwrap()
    };
    let row = "{\n  \"row 8\": [[\"61\", \"76616c75652038\", 10, false], \
               [\"62\", \"76616c75652038\", 10, false]]\n}\n";
    assert_eq!(export(&["-k", "row 8"]), row);
    assert_eq!(export(&["-k", "726f772038", "--hex-keys"]), row);
    assert_eq!(export(&["-k", "no such row"]), "{\n}\n");
    assert_eq!(export(&["-k", "row 8", "-e"]), "row 8\n");
    assert_eq!(export(&["-e", "-x", "row 8"]).lines().count(), ROWS - 1);
    export(&["-k", "row 8", "--output", "rows.json"]);
    assert_eq!(fs::read_to_string(stopped.path().join("rows.json")).unwrap(), row);
}

#[test]
fn under_their_old_names_the_tools_are_as_of_old() {
    let stopped = Stopped::new();
    let old = |name: &str| {
        let link = stopped.path().join(name);
        if !link.exists() {
            symlink(program(), &link).unwrap();
        }
        let mut command = Command::new(link);
        command.current_dir(stopped.path());
        command
    };
    let file = stopped.files(STANDARD)[0].display().to_string();
    let exported = run(old("sstable2json").args([&file, "-k", "row 7"]));
    expect(&exported, 0, &["WARNING: the shape of sstable2json has no place for 1 deletions"]);
    let shape = String::from_utf8_lossy(&exported.stdout);
    assert!(shape.starts_with("{\n  \"row 7\": [[\"61\", ") && !shape.contains("deletedAt"));
    let exported = run(old("sstable2json").args([&file, "-x", "row 7", "-f", "rows.json"]));
    expect(&exported, 0, &[]);
    expect(&run(&mut old("sstable2json")), 1, &["You must supply exactly one sstable"]);
    expect(&run(&mut old("sstablekeys")), 2, &["Usage: sstablekeys <sstable>"]);
    let keys = run(old("sstablekeys").arg(&file));
    assert_eq!(String::from_utf8_lossy(&keys.stdout).lines().count(), ROWS);
    let import = |sstable: &str| {
        let mut command = old("json2sstable");
        command.args(["-K", KEYSPACE, "-c", "Standard2", "rows.json", sstable]);
        run(command.env("STORAGE_CONFIG", stopped.path()))
    };
    expect(&import("alone.sst"), 0, &["299 rows", "alone.sst"]);
    expect(&stopped.tool(&["verify", "alone.sst"]), 0, &["sound, 299 rows"]);
    let in_store = stopped.folder().join("Standard2-77-Data.db").display().to_string();
    expect(&import(&in_store), 0, &["299 rows", "Standard2-1.sst"]);
    assert_eq!(stopped.export("Standard2").lines().count(), 299 + 2);
    let mut of_java = old("json2sstable");
    of_java.arg(format!("-Dstorage-config={}", stopped.path().display()));
    of_java.args(["-K", KEYSPACE, "-c", "NoSuch", "rows.json", "x.sst"]);
    expect(&run(&mut of_java), 2, &["there is no column family NoSuch"]);
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

#[test]
fn help_tells_of_the_exit_codes() {
    let directory = tempfile::tempdir().unwrap();
    let stopped = Stopped { directory };
    for command in ["dump", "verify", "scrub", "export", "import"] {
        expect(
            &stopped.tool(&[command, "--help"]),
            0,
            &["Usage: alexandra sstable", "Exit codes: 0"],
        );
        expect(&stopped.tool(&[command, "--no-such-option"]), 2, &["unexpected argument"]);
    }
    expect(&stopped.tool(&["verify", "--config", "."]), 2, &["storage-conf.xml"]);
}

#[test]
fn a_commit_log_that_is_lost_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path(), &plain_families());
    write_rows(&server);
    server.kill();
    let killed = Stopped { directory };
    let verify = || killed.tool(&["verify", "--config", "."]);
    expect(&verify(), 0, &["holds writes that are in no SSTable yet"]);
    fs::remove_dir_all(killed.path().join("commitlog")).unwrap();
    expect(&verify(), 0, &["the commit log is missing"]);
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
            names: vec![(of_long(-1), "-1"), (then.clone(), shown)],
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
                (composite(&["é\n".as_bytes(), &of_long(-1)]), "é\\n:-1"),
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
    assert_eq!(lines[..2], ["1:1:x @1 = \"v\" (1 bytes)", "1:2.5:x @1 = \"v\" (1 bytes)"]);
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
        ("Dates", "00", "Expected 8 or 0 byte value (1)"),
        ("Newest", "00", "A long is exactly 8 bytes"),
        ("Composites", "61", "Not enough bytes to read value size of component 0"),
    ] {
        let rows = format!("{{\n\"row\": [[\"{name}\", \"76\", 1, false]]\n}}");
        fs::write(stopped.path().join("rows.json"), rows).unwrap();
        let import = ["import", "--config", ".", "-K", KEYSPACE, "-c", family, "rows.json"];
        expect(&stopped.tool(&import), 2, &["Line 2, column ", why]);
    }
}
