//! Configurations: samples of each generation, changed by the script, and what the reader makes of
//! them. The machine has 8 GB and the address 192.0.2.99, knows two hosts, and cannot write below
//! `/proc`.

use alexandra::config::machine::Machine;
use alexandra::config::{Loader, Settings, describe};
use alexandra::model::comparator::ComparatorRegistry;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;
use std::path::Path;

#[test]
fn scripts_of_configurations() {
    super::run_all("config", |path| goldenscript::run(&mut Sample::default(), path).unwrap());
}

#[derive(goldenscript::Command)]
enum Command {
    /// Takes a sample: `0.4`, `0.5`, `0.6` or `built-in`.
    Sample(String),
    /// Replaces a text in the sample, for all that follows.
    Replace(String, String),
    /// Adds elements at the end, for all that follows.
    Add(String),
    /// Replaces texts, in pairs, for this command alone, and adds elements at the end: shows all
    /// errors in the order of evaluation, or the lines of the description that are new.
    With {
        #[arg(optional)]
        replaced: Vec<String>,
        #[arg(key, optional)]
        add: String,
        /// As `check-config` reads it.
        #[arg(key, optional)]
        check: bool,
    },
    /// The description of the sample.
    Describe,
    /// The settings as the server has them.
    Settings,
}

#[derive(Default)]
struct Sample(String);

struct FixedMachine;

impl Machine for FixedMachine {
    fn local_host_name(&self) -> io::Result<String> {
        Ok("this-machine".to_owned())
    }

    fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let addresses: &[&str] = match host {
            "seed.example" => &["192.0.2.2"],
            "localhost" => &["::1", "127.0.0.1"],
            "this-machine" => &["192.0.2.99"],
            _ => return Err(io::Error::new(io::ErrorKind::NotFound, "no such host")),
        };
        Ok(addresses.iter().map(|address| address.parse().unwrap()).collect())
    }

    fn memory_bytes(&self) -> u64 {
        8 << 30
    }

    fn check_directory(&self, path: &Path) -> io::Result<()> {
        let is_read_only = path.starts_with("/proc");
        if is_read_only { Err(io::ErrorKind::ReadOnlyFilesystem.into()) } else { Ok(()) }
    }
}

/// Settings and description, or the text of all errors.
fn read(text: &str, check: bool) -> Result<(Settings, String), String> {
    let comparators = ComparatorRegistry::default();
    let loader = if check { Loader::for_check } else { Loader::for_server }(&comparators);
    let loader = Loader { machine: &FixedMachine, ..loader };
    match loader.parse(text, "test.xml") {
        Ok(found) => Ok((found.settings.clone(), describe(&found))),
        Err(errors) => {
            let line =
                |it: &alexandra::config::ConfigError| format!("exit {}: {it}\n", it.exit_code());
            Err(errors.errors.iter().map(line).collect())
        }
    }
}

impl Sample {
    fn replaced(&self, from: &str, to: &str) -> Result<String, String> {
        let is_there = self.0.contains(from);
        is_there.then(|| self.0.replacen(from, to, 1)).ok_or(format!("{from} is not in the sample"))
    }
}

impl goldenscript::Runner for Sample {
    type Command = Command;

    fn run(
        &mut self,
        command: &Command,
        _: &goldenscript::Context,
    ) -> Result<String, Box<dyn Error>> {
        match command {
            Command::Sample(name) => {
                let sample = match name.as_str() {
                    "0.4" => include_str!("../../configs/0.4.xml"),
                    "0.5" => include_str!("../../configs/0.5.xml"),
                    "0.6" => include_str!("../../configs/0.6.xml"),
                    "built-in" => include_str!("../../../storage-conf.xml"),
                    _ => return Err("there is no such sample".into()),
                };
                sample.clone_into(&mut self.0);
            }
            Command::Replace(from, to) => self.0 = self.replaced(from, to)?,
            Command::Add(elements) => {
                self.0 = self.replaced("</Storage>", &format!("{elements}</Storage>"))?;
            }
            Command::With { replaced, add, check } => {
                let mut changed = Self(self.0.clone());
                for pair in replaced.chunks(2) {
                    let [from, to] = pair else { return Err("texts come in pairs".into()) };
                    changed.0 = changed.replaced(from, to)?;
                }
                changed.0 = changed.0.replace("</Storage>", &format!("{add}</Storage>"));
                let after = match read(&changed.0, *check) {
                    Ok((_, after)) => after,
                    Err(errors) => return Ok(errors),
                };
                let before = read(&self.0, false).map_or_else(|errors| errors, |(_, text)| text);
                let mut output = String::new();
                for line in after.lines().filter(|line| before.lines().all(|it| it != *line)) {
                    writeln!(output, "{}", line.split_whitespace().collect::<Vec<_>>().join(" "))?;
                }
                return Ok(output);
            }
            Command::Describe => return Ok(read(&self.0, false)?.1),
            Command::Settings => {
                let (settings, _) = read(&self.0, false)?;
                let text = String::new();
                let hidden = Settings { text, shown: BTreeMap::new(), ..settings };
                return Ok(format!("{hidden:#?}\n"));
            }
        }
        Ok(String::new())
    }
}
