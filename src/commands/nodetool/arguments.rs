//! The arguments of commands: from rows to clap, and from what was given to requests.

use super::commands::{COMMANDS, Row};
use clap::{Arg, ArgAction, ArgMatches, FromArgMatches, Subcommand, value_parser};
use serde_json::{Map, Value, json};
use std::net::IpAddr;

/// An argument of a command.
#[derive(Debug, Clone, Copy)]
pub(super) struct Argument {
    /// Also that of the parameter of the request.
    pub(super) name: &'static str,
    help: &'static str,
    kind: Kind,
    is_required: bool,
    /// What usage calls it, if not its name.
    value_name: Option<&'static str>,
    /// Whether only the command itself wants to know it.
    is_local: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Number,
    Address,
    /// Any number of texts.
    Many,
    /// `--name TEXT`.
    Option,
    /// `--name`.
    Flag,
}

/// An argument that may be left out.
pub(super) const fn optional(kind: Kind, name: &'static str, help: &'static str) -> Argument {
    Argument { name, help, kind, is_required: false, value_name: None, is_local: false }
}

/// An argument that has to be given.
pub(super) const fn required(kind: Kind, name: &'static str, help: &'static str) -> Argument {
    Argument { is_required: true, ..optional(kind, name, help) }
}

impl Argument {
    /// The same under another name in usage.
    pub(super) const fn named(self, value_name: &'static str) -> Self {
        Self { value_name: Some(value_name), ..self }
    }

    /// The same, not sent to the server.
    pub(super) const fn local(self) -> Self {
        Self { is_local: true, ..self }
    }

    fn clap(self) -> Arg {
        let value_name = self.value_name.map_or_else(|| self.name.to_uppercase(), str::to_owned);
        let long = self.name.replace('_', "-");
        let argument = Arg::new(self.name).help(self.help).required(self.is_required);
        let valued = argument.clone().value_name(value_name);
        match self.kind {
            Kind::Text => valued,
            Kind::Number => valued.value_parser(value_parser!(u64)),
            Kind::Address => valued.value_parser(value_parser!(IpAddr)),
            Kind::Many => valued.num_args(1..).action(ArgAction::Append),
            Kind::Option => valued.long(long),
            Kind::Flag => argument.long(long).action(ArgAction::SetTrue),
        }
    }
}

#[cfg(test)]
impl Argument {
    /// Form in the document.
    pub(super) fn usage(&self) -> String {
        let name = self.value_name.map_or_else(|| self.name.to_uppercase(), str::to_owned);
        let long = self.name.replace('_', "-");
        match self.kind {
            Kind::Flag => format!("[--{long}]"),
            Kind::Option => format!("[--{long} {name}]"),
            Kind::Many if self.value_name.is_none() => format!("[{name}…]"),
            _ if self.is_required || name.contains(' ') => name,
            _ => format!("[{name}]"),
        }
    }
}

/// A command with its arguments.
#[derive(Debug, Clone)]
pub(super) struct Given {
    pub(super) row: &'static Row,
    matches: ArgMatches,
}

impl Given {
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.matches.get_one::<String>(name).map(String::as_str)
    }

    pub(super) fn texts(&self, name: &str) -> Vec<&str> {
        self.matches.get_many::<String>(name).into_iter().flatten().map(String::as_str).collect()
    }

    pub(super) fn address(&self, name: &str) -> Option<IpAddr> {
        self.matches.get_one(name).copied()
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.matches.get_flag(name)
    }

    /// The arguments as parameters of the request.
    pub(super) fn parameters(&self) -> Map<String, Value> {
        let sent = self.row.arguments.iter().filter(|argument| !argument.is_local);
        let values = sent.filter_map(|argument| {
            let name = argument.name;
            let value = match argument.kind {
                Kind::Flag => json!(self.flag(name)),
                Kind::Many => json!(self.texts(name)),
                Kind::Number => json!(self.matches.get_one::<u64>(name)?),
                Kind::Address => json!(self.address(name)?),
                Kind::Text | Kind::Option => json!(self.text(name)?),
            };
            Some((name.to_owned(), value))
        });
        values.collect()
    }

    /// The same for work that is waited for unless `--no-wait` says otherwise.
    pub(super) fn work(&self) -> Map<String, Value> {
        let mut parameters = self.parameters();
        parameters.insert("wait".to_owned(), json!(!self.flag("no_wait")));
        parameters
    }
}

impl FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = matches.subcommand().and_then(|(name, matches)| {
            let row = COMMANDS.iter().find(|row| row.name == name)?;
            Some(Self { row, matches: matches.clone() })
        });
        given.ok_or_else(|| clap::Error::new(clap::error::ErrorKind::MissingSubcommand))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for Given {
    fn augment_subcommands(command: clap::Command) -> clap::Command {
        let commands = COMMANDS.iter().map(|row| {
            let arguments = row.arguments.iter().map(|argument| argument.clap());
            let command = clap::Command::new(row.name).about(row.help).args(arguments);
            command.aliases(row.alias)
        });
        command.subcommand_required(true).arg_required_else_help(true).subcommands(commands)
    }

    fn augment_subcommands_for_update(command: clap::Command) -> clap::Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        COMMANDS.iter().any(|row| row.name == name)
    }
}
