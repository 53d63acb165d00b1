//! `alexandra cli`: statements on a server, typed, from a file or through a pipe. Statements and
//! their output are those of `cassandra-cli` of 0.6 where it had them.
//!
//! ```text
//!   terminal, completion    a person: history, editing, pager
//!   batch                   files and pipes
//!     session               statements: calls and results
//!       lexer, parser       text to statements
//!       families, literals  types of column families; terms to bytes and back
//!       connection          calls
//!       printer, screen     layouts, and where they go
//! ```

mod batch;
mod completion;
mod connection;
mod families;
mod help;
mod lexer;
mod literals;
mod mistake;
mod parser;
mod printer;
mod screen;
mod session;
mod statement;
mod terminal;

use super::interrupt::stop_at_interrupt;
use super::output::{self, FAILED, Failure};
use super::passwd::password_of_login;
use crate::base::tls::Trust;
use batch::Batch;
use clap::ArgAction;
use connection::{Connection, Login};
use printer::{Layout, Printer};
use screen::Screen;
use session::Session;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufReader, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Exit code for arguments that make no sense, and without a server.
pub(super) const NOT_CONNECTED: u8 = 2;

#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(super) struct Arguments {
    #[command(flatten)]
    server: Server,

    #[command(flatten)]
    user: User,

    #[command(flatten)]
    input: Input,

    #[command(flatten)]
    output: Output,

    /// Does as the original: without a host it connects to none, and a pipe sees all that a person
    /// would
    #[arg(long, hide = true)]
    of_old: bool,

    /// Does nothing: for old scripts
    #[arg(long, hide = true)]
    debug: bool,

    /// Prints help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

#[derive(Debug, clap::Args)]
struct Server {
    /// The server: ThriftAddress in its storage-conf.xml (127.0.0.1)
    #[arg(short = 'h', long, value_name = "HOST")]
    host: Option<String>,

    /// Its ThriftPort
    #[arg(short = 'p', long, default_value_t = 9160, value_name = "PORT")]
    port: u16,

    /// Its AdminPort, which tells types; 0 asks nobody
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    admin_port: u16,

    /// Frames messages; an Alexandra server takes both
    #[arg(long)]
    framed: bool,

    /// Speaks TLS, with servers whose certificates an authority of this file has signed
    #[arg(long = "tls-authority", value_name = "FILE")]
    trust: Option<Trust>,
}

#[derive(Debug, clap::Args)]
struct User {
    /// The keyspace of names without one, and of a login
    #[arg(short = 'k', long, value_name = "KEYSPACE")]
    keyspace: Option<String>,

    /// Logs in, with a password and a keyspace
    #[arg(short = 'u', long, requires = "keyspace")]
    username: Option<String>,

    /// Its password, which others on this machine can see; else in ALEXANDRA_PASSWORD, or asked for
    #[arg(long, requires = "username")]
    password: Option<String>,
}

#[derive(Debug, clap::Args)]
struct Input {
    /// Runs these statements
    #[arg(short = 'e', long, value_name = "STATEMENTS", conflicts_with = "file")]
    execute: Option<String>,

    /// Runs the statements of a file
    #[arg(short = 'f', long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Ends with the first statement that fails; else the others are run as well
    #[arg(long)]
    stop_on_error: bool,
}

#[derive(Debug, clap::Args)]
struct Output {
    /// Prints JSON, an object a line
    #[arg(long, conflicts_with = "table")]
    json: bool,

    /// Prints tables
    #[arg(long)]
    table: bool,
}

impl From<Output> for Layout {
    fn from(output: Output) -> Self {
        match output {
            Output { json: true, .. } => Self::Json,
            Output { table: true, .. } => Self::Table,
            _ => Self::Original,
        }
    }
}

pub(super) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let Arguments { server, user, input, output, of_old, .. } = arguments;
    let User { keyspace, username, password } = user;
    let login = match keyspace.clone().zip(username) {
        Some((keyspace, username)) => {
            Some(Login { keyspace, username, password: password_of_login(password)? })
        }
        None => None,
    };
    let interrupted = Arc::new(AtomicBool::new(false));
    let printer = Printer::new(output.into(), Screen::new(Arc::clone(&interrupted)));
    let connection = Connection::new(server.framed, server.trust, login, server.admin_port);
    let mut session = Session::new(connection, printer);
    session.families.keyspace = keyspace;

    let is_batch = input.execute.is_some() || input.file.is_some();
    let is_terminal = !is_batch && io::stdin().is_terminal();
    let goes_on = is_terminal || of_old;
    let host = server.host.or_else(|| (!of_old).then(|| "127.0.0.1".to_owned()));
    match host.map(|host| session.connect(&host, server.port)) {
        Some(Ok(line)) if goes_on => say!("{line}"),
        Some(Err(mistake)) => {
            mistake.tell("", "", Layout::Json);
            if !goes_on {
                return Ok(ExitCode::from(NOT_CONNECTED));
            }
        }
        _ => {}
    }
    if goes_on {
        output::text(terminal::BANNER);
    }
    if is_terminal {
        stop_at_interrupt(interrupted);
        let exit_code = terminal::run(&mut session)?;
        return Ok(output::finish_telling(exit_code, FAILED));
    }
    let prompt = if of_old && !is_batch { terminal::PROMPT } else { "" };
    let batch = Batch::new(&mut session, input.stop_on_error, prompt);
    let is_well = read(batch, &input).map_err(|error| Failure::with(NOT_CONNECTED, error))?;
    let exit_code = if is_well { ExitCode::SUCCESS } else { ExitCode::from(FAILED) };
    Ok(output::finish_telling(exit_code, FAILED))
}

/// Runs the statements of an argument, of a file or of the standard input.
fn read(batch: Batch<'_>, input: &Input) -> io::Result<bool> {
    match (&input.execute, &input.file) {
        (Some(text), _) => batch.run(text.as_bytes(), None),
        (None, Some(file)) => File::open(file)
            .and_then(|opened| batch.run(BufReader::new(opened), Some(file)))
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display()))),
        (None, None) => batch.run(io::stdin().lock(), None),
    }
}

/// The arguments as this program takes them, of a call under the name `cassandra-cli`.
pub(super) fn of_old(mut arguments: Vec<OsString>) -> Vec<OsString> {
    arguments.splice(..1, ["alexandra".into(), "cli".into(), "--of-old".into()]);
    arguments.into_iter().map(|argument| long_option(&argument).unwrap_or(argument)).collect()
}

/// The original took long options with one dash as well.
fn long_option(argument: &OsStr) -> Option<OsString> {
    let option = argument.to_str()?.strip_prefix('-')?;
    let name = option.split_once('=').map_or(option, |(name, _)| name);
    let known = ["host", "port", "framed", "debug", "username", "password", "keyspace"];
    known.contains(&name).then(|| format!("--{option}").into())
}
