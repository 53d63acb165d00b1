//! The built program: servers, and the tools on their directories. Each prefix of a command has a
//! directory of its own below `ROOT`, in which its commands run.
//!
//! In arguments `ROOT` stands for that as well. Of what is printed, times are `TIME`, the ports
//! `PORT`, and sizes and large numbers `N`.

use crate::admin::admin_address;
use crate::server::calls::{
    Entry, KEYSPACE, Path as ColumnPath, STANDARD, SUPER, first, plain_families,
};
use crate::server::client::Client;
use crate::server::{Options, Server, configure, program, reconfigure, refused, serve};
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::time::Duration;

#[test]
fn scripts_of_servers() {
    super::run_all("server", |path| goldenscript::run(&mut World::new(), path).unwrap());
}

#[test]
fn scripts_of_sstable_tools() {
    super::run_all("sstable", |path| goldenscript::run(&mut World::new(), path).unwrap());
}

type Said = Result<String, Box<dyn Error>>;

#[derive(goldenscript::Command)]
enum Command {
    /// Writes a configuration with plain column families and these elements, or changes it.
    Configure(#[arg(optional)] Vec<(String, String)>),
    /// Replaces a text of the configuration.
    Edit(String, String),
    /// Starts the server, after the first time on the same ports.
    Start(#[arg(optional)] Vec<String>),
    Stop,
    Kill,
    /// A start that ends by itself.
    Refused {
        #[arg(optional)]
        options: Vec<String>,
        /// Shows only lines with this text.
        #[arg(key)]
        only: Option<String>,
    },
    /// Runs the program, or a `link` to it: exit code and all that it prints.
    Run {
        /// Words, some of them in single quotes.
        line: String,
        #[arg(key)]
        only: Option<String>,
        #[arg(key)]
        link: Option<String>,
        /// `STORAGE_CONFIG`.
        #[arg(key)]
        config: Option<String>,
    },
    /// Runs nodetool against the server: exit code and all that it prints.
    Nodetool(String),
    /// Sends the server a signal to read its configuration again, and waits until it has.
    Hangup,
    /// Lines of the server's log with this text.
    Log(String),

    /// Writes so many rows, from `row 0` on, of one column.
    Insert(usize),
    /// Rows for all tools: small and large ones, super columns and deletions.
    #[command(name = "insert-sample")]
    InsertSample,
    /// Number of rows that a client finds, and of their columns.
    Rows,
    /// Whether a client finds a row.
    Row(String),

    /// Directories of Apache Cassandra 0.6.13 as recorded in a cluster, and what its tools printed.
    Original(String),
    /// Flips a bit in the middle one of the blocks of a kind.
    Damage {
        file: String,
        kind: String,
    },
    /// Flips a bit so many bytes before the end of a file.
    Flip {
        file: String,
        before_end: usize,
    },
    /// Overwrites a key in the commit log, and as many bytes as it takes.
    Overwrite {
        key: String,
        text: String,
    },
    /// Exports a column family, and compares it with the export before.
    Export(String),
    Write {
        file: String,
        text: String,
    },
    Remove(String),
    Rename(String, String),
    Copy(String, String),
    Mkdir(String),
    Files(String),
    /// Whether two files are equal.
    Same(String, String),
    /// Remembers all files with their content.
    Remember,
    /// Whether all files are as remembered.
    Compare,
}

/// One directory, with its server.
#[derive(Default)]
struct Place {
    directory: PathBuf,
    thrift: Option<SocketAddr>,
    server: Option<Server>,
    exported: BTreeMap<String, String>,
    remembered: BTreeMap<PathBuf, Vec<u8>>,
}

struct World {
    root: tempfile::TempDir,
    places: BTreeMap<String, Place>,
}

impl World {
    fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap(), places: BTreeMap::new() }
    }

    /// The text without what differs from run to run.
    fn normalize(&self, text: &str) -> String {
        let mut text = text.replace(&self.root.path().display().to_string(), "ROOT");
        for address in self.places.values().filter_map(|place| place.thrift) {
            text = text.replace(&format!(":{}", address.port()), ":PORT");
        }
        let mut shown = String::new();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let mut rest = line.trim_end();
            while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
                let (before, number) = rest.split_at(start);
                let of_time = |c: char| c.is_ascii_digit() || "-:.TZ".contains(c);
                let time = number.find(|c| !of_time(c)).unwrap_or(number.len());
                let word = number.find(|c: char| !c.is_alphanumeric()).unwrap_or(number.len());
                let is_time = number[..time].contains('T') && number[..time].contains('Z');
                let is_size = before.ends_with("byte ") || number[word..].starts_with(" bytes");
                let is_number = number[..word].chars().all(|c| c.is_ascii_digit());
                let (end, text) = match word {
                    _ if is_time => (number[..time].rfind('Z').unwrap_or(time) + 1, "TIME"),
                    _ if is_number && (is_size || word > 3) => (word, "N"),
                    _ => (word, &number[..word]),
                };
                shown.extend([before, text]);
                rest = &number[end..];
            }
            shown.extend([rest, "\n"]);
        }
        shown
    }

    fn run(&mut self, place: &str, command: &Command) -> Said {
        let place = if place.is_empty() { "main" } else { place };
        let directory = self.root.path().join(place);
        let mut it = self.places.remove(place).unwrap_or_default();
        if it.directory != directory {
            fs::create_dir(&directory)?;
            it.directory = directory;
        }
        let said = it.run(command);
        self.places.insert(place.to_owned(), it);
        Ok(self.normalize(&said?))
    }
}

impl goldenscript::Runner for World {
    type Command = Command;

    fn run(&mut self, command: &Command, context: &goldenscript::Context) -> Said {
        World::run(self, context.prefix.as_deref().unwrap_or_default(), command)
    }
}

impl Place {
    fn run(&mut self, command: &Command) -> Said {
        let mut said = String::new();
        match command {
            Command::Configure(elements) => self.configure(elements),
            Command::Edit(from, to) => {
                let file = self.directory.join("storage-conf.xml");
                let text = fs::read_to_string(&file)?;
                if !text.contains(from) {
                    return Err(format!("{from} is not in the configuration").into());
                }
                fs::write(file, text.replace(from, to))?;
            }
            Command::Start(options) => self.start(options),
            Command::Stop => {
                let server = self.server.as_mut().ok_or("there is no server")?;
                assert!(server.stop().success(), "{}", server.log_end());
            }
            Command::Kill => self.server.as_mut().ok_or("there is no server")?.kill(),
            Command::Refused { options, only } => {
                let mut command = serve(&self.directory);
                let refusal =
                    refused(command.args(options.iter().map(|option| self.expand(option))));
                let lines = refusal.text.lines().map(without_time);
                let only = only.as_deref().unwrap_or_default();
                for line in lines.filter(|line| line.contains(only) && !line.starts_with("INFO")) {
                    writeln!(said, "{line}")?;
                }
                writeln!(said, "exit code {}", refusal.exit_code.unwrap_or_default())?;
            }
            Command::Run { line, only, link, config } => {
                let mut command = self.program(link.as_deref());
                let words = words(line).into_iter().map(|word| self.expand(word));
                command.args(words).envs(config.iter().map(|it| ("STORAGE_CONFIG", it)));
                let output = command.stdin(Stdio::null()).output()?;
                let [out, err] =
                    [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
                let only = only.as_deref().unwrap_or_default();
                let lines = out.lines().chain(err.lines());
                for line in lines.filter(|line| line.contains(only)) {
                    writeln!(said, "{line}")?;
                }
                if let Some(code) = output.status.code().filter(|code| *code != 0) {
                    writeln!(said, "exit code {code}")?;
                }
            }
            Command::Nodetool(line) => {
                let admin = admin_address(&self.directory).port();
                let line = format!("nodetool -p {admin} {line}");
                let run = Command::Run { line, only: None, link: None, config: None };
                return self.run(&run);
            }
            Command::Hangup => {
                let server = self.server.as_ref().ok_or("there is no server")?;
                let reads = || server.log().matches("reload by SIGHUP: ").count();
                let before = reads();
                server.hang_up();
                for _ in 0..1500 {
                    if reads() > before {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
            Command::Log(text) => {
                let log = self.server.as_ref().ok_or("there is no server")?.log();
                for line in log.lines().filter(|line| line.contains(text)) {
                    writeln!(said, "{}", without_time(line))?;
                }
            }
            Command::Insert(count) => {
                let mut client = self.client()?;
                for number in 0..*count {
                    let path = ColumnPath::column(STANDARD, b"column");
                    client.insert(&format!("row {number}"), path, &[b'v'; 300], 1).unwrap();
                }
            }
            Command::InsertSample => insert_sample(&mut self.client()?),
            Command::Rows => {
                let rows = self.client()?.scan(STANDARD).unwrap();
                let columns: usize = rows.iter().map(|(_, row)| Entry::columns(row).count()).sum();
                writeln!(said, "{} rows, {columns} columns", rows.len())?;
            }
            Command::Row(key) => {
                let found = self.client()?.get_slice(key, STANDARD, first(1, false)).unwrap();
                writeln!(said, "{}", if found.is_empty() { "not there" } else { "there" })?;
            }
            other => return self.change_files(other),
        }
        Ok(said)
    }

    fn change_files(&mut self, command: &Command) -> Said {
        let path = |name: &str| self.directory.join(name);
        let mut said = String::new();
        match command {
            Command::Original(cluster) => self.put_original(cluster)?,
            Command::Damage { file, kind } => self.damage(file, kind)?,
            Command::Flip { file, before_end } => {
                let mut bytes = fs::read(path(file))?;
                let at = bytes.len() - before_end;
                bytes[at] ^= 4;
                fs::write(path(file), bytes)?;
            }
            Command::Overwrite { key, text } => {
                let (file, mut bytes, at) = files(&path("commitlog"))
                    .into_iter()
                    .find_map(|(file, bytes)| {
                        let at = bytes.windows(key.len()).position(|it| it == key.as_bytes())?;
                        Some((file, bytes, at))
                    })
                    .ok_or("the commit log does not hold it")?;
                bytes[at..at + text.len()].copy_from_slice(text.as_bytes());
                fs::write(file, bytes)?;
            }
            Command::Export(family) => {
                let words = ["sstable", "export", "--config", ".", KEYSPACE, family];
                let output = self.program(None).args(words).output()?;
                assert!(output.status.success(), "{output:?}");
                let now = String::from_utf8(output.stdout)?;
                let before = self.exported.insert(family.clone(), now.clone());
                let rows = now.lines().count() - 2;
                let is_same = before.is_none_or(|before| before == now);
                writeln!(said, "{rows} rows{}", if is_same { "" } else { ", other than before" })?;
            }
            Command::Write { file, text } => {
                fs::create_dir_all(path(file).parent().ok_or("no folder")?)?;
                fs::write(path(file), text)?;
            }
            Command::Remove(file) if path(file).is_dir() => fs::remove_dir_all(path(file))?,
            Command::Remove(file) => fs::remove_file(path(file))?,
            Command::Rename(from, to) => fs::rename(path(from), path(to))?,
            Command::Copy(from, to) => drop(fs::copy(path(from), path(to))?),
            Command::Mkdir(folder) => fs::create_dir_all(path(folder))?,
            Command::Files(folder) => {
                for file in files(&path(folder)).keys() {
                    writeln!(said, "{}", file.strip_prefix(&self.directory)?.display())?;
                }
            }
            Command::Same(one, other) => {
                let are_equal = fs::read(path(one))? == fs::read(path(other))?;
                writeln!(said, "{}", if are_equal { "the same" } else { "they differ" })?;
            }
            Command::Remember => self.remembered = files(&self.directory),
            Command::Compare => {
                let now = files(&self.directory);
                let all = now.keys().chain(self.remembered.keys());
                let differ = |file: &&PathBuf| now.get(*file) != self.remembered.get(*file);
                let changed: std::collections::BTreeSet<_> = all.filter(differ).collect();
                for file in changed {
                    writeln!(said, "changed: {}", file.strip_prefix(&self.directory)?.display())?;
                }
            }
            _ => return Err("this is no command on files".into()),
        }
        Ok(said)
    }

    fn configure(&mut self, elements: &[(String, String)]) {
        let empty = if self.thrift.is_some() { Options::default() } else { plain_families() };
        let options =
            elements.iter().fold(empty, |all, (name, text)| all.with(name, &self.expand(text)));
        if self.thrift.is_some() {
            reconfigure(&self.directory, &options);
        } else {
            self.thrift = Some(configure(&self.directory, &options));
        }
    }

    fn start(&mut self, options: &[String]) {
        if self.thrift.is_none() {
            self.configure(&[]);
        }
        self.server.take().iter_mut().for_each(Server::kill);
        let mut command = serve(&self.directory);
        command.args(options.iter().map(|option| self.expand(option)));
        let thrift = self.thrift.expect("it is configured");
        self.server = Some(Server::launch(&self.directory, thrift, command));
    }

    fn expand(&self, text: &str) -> String {
        let root = self.directory.parent().expect("it is below the root");
        text.replace("ROOT", &root.display().to_string())
    }

    fn client(&self) -> Result<Client, Box<dyn Error>> {
        let server = self.server.as_ref().ok_or("there is no server")?;
        Ok(Client::connect(server.thrift_address()))
    }

    fn program(&self, link: Option<&str>) -> Process {
        let path = link.map_or_else(|| program().to_owned(), |link| self.directory.join(link));
        if link.is_some() && !path.exists() {
            symlink(program(), &path).unwrap();
        }
        let mut command = Process::new(path);
        command.current_dir(&self.directory);
        command
    }

    fn put_original(&self, cluster: &str) -> Result<(), Box<dyn Error>> {
        for (file, bytes) in crate::takeover::recorded(cluster) {
            let is_table = file.extension().is_some_and(|it| it == "db");
            let path = self.directory.join(if is_table { "data" } else { "json" }).join(file);
            fs::create_dir_all(path.parent().ok_or("no folder")?)?;
            fs::write(path, bytes)?;
        }
        let log = self.directory.join("commitlog");
        fs::create_dir_all(&log)?;
        if cluster == "rp" {
            let segment = crate::takeover::recorded_segment();
            fs::write(log.join("CommitLog-1795146483633.log"), segment)?;
        }
        Ok(())
    }

    fn damage(&self, file: &str, kind: &str) -> Result<(), Box<dyn Error>> {
        let dump = self.program(None).args(["sstable", "dump", "--blocks", file]).output()?;
        let dump = String::from_utf8(dump.stdout)?;
        let lines = dump.lines().filter(|line| line.ends_with(&format!("  {kind}")));
        let blocks: Vec<&str> = lines.collect();
        let mut words = blocks[blocks.len() / 2].split_whitespace();
        let mut number = || words.next().and_then(|word| word.parse::<usize>().ok()).unwrap();
        let (offset, length) = (number(), number());
        let path = self.directory.join(file);
        let mut bytes = fs::read(&path)?;
        bytes[offset + length / 2] ^= 4;
        Ok(fs::write(path, bytes)?)
    }
}

/// Words of a line, as a shell takes them apart.
fn words(line: &str) -> Vec<&str> {
    let parts = line.split('\'').enumerate();
    let words = parts.flat_map(|(number, part)| match number % 2 {
        0 => part.split_whitespace().collect(),
        _ => vec![part],
    });
    words.collect()
}

/// Level and text of a log line.
fn without_time(line: &str) -> String {
    let timed = line.strip_prefix("[20").and_then(|line| line.split_once("Z "));
    let parts = timed.and_then(|(_, rest)| rest.split_once("] "));
    parts.map_or_else(
        || line.to_owned(),
        |(place, text)| format!("{} {text}", place.split(' ').next().unwrap_or_default()),
    )
}

/// Files and folders below a folder, with the content of files.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut pending = vec![folder.to_owned()];
    while let Some(folder) = pending.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pending.push(path.clone());
            }
            found.insert(path.clone(), fs::read(&path).unwrap_or_default());
        }
    }
    found
}

fn insert_sample(client: &mut Client) {
    for number in 0..300 {
        // Every other row is too large to stand in the row index.
        let value = format!("value {number}").repeat(if number % 2 == 0 { 1 } else { 100 });
        for name in ["a", "b"] {
            let path = ColumnPath::column(STANDARD, name.as_bytes());
            client.insert(&format!("row {number}"), path, value.as_bytes(), 10).unwrap();
        }
    }
    let path = |super_column, column| ColumnPath { family: SUPER, super_column, column };
    for name in [&b"x"[..], b"y"] {
        client.insert("super row", path(Some(b"sc"), Some(name)), b"value", 10).unwrap();
    }
    let row = ColumnPath { family: STANDARD, super_column: None, column: None };
    client.remove("row 7", row, 20).unwrap();
    client.remove("super row", path(Some(b"sc"), None), 5).unwrap();
}
