//! A server as a process of its own: the program runs once more, in the process group of the first
//! until it is ready. Its standard input is a pipe on which it reports that.

use super::super::output::Failure;
use super::super::serve::START_FAILED;
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, ExitStatus};

/// Starts the server of a command line and waits until it is ready, or has ended. Its messages go
/// to the terminal meanwhile.
pub(super) fn start(command_line: &[OsString]) -> Result<ExitCode, Failure> {
    let failed =
        |error| Failure::with(START_FAILED, format_args!("the server cannot be started: {error}"));
    let Some(status) = wait_for(command_line).map_err(failed)? else {
        return Ok(ExitCode::SUCCESS);
    };
    if let Some(code @ 1..) = status.code().and_then(|code| u8::try_from(code).ok()) {
        return Ok(ExitCode::from(code));
    }
    let text = format!("the server ended before it was ready: {status}");
    Err(Failure::with(START_FAILED, text))
}

/// Returns the exit status of a server that has ended before it was ready.
fn wait_for(command_line: &[OsString]) -> io::Result<Option<ExitStatus>> {
    let (mut readiness, report) = io::pipe()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg0(&command_line[0]).arg("--detached").args(&command_line[1..]);
    let mut server = command.stdin(report).spawn()?;
    // With our end of the pipe, so that the pipe ends with the server.
    drop(command);
    match readiness.read(&mut [0])? {
        0 => server.wait().map(Some),
        _ => Ok(None),
    }
}

/// Leaves the session and the standard streams of the starting process, and reports readiness.
pub(super) fn leave_terminal() {
    let report = io::stdin().as_fd().try_clone_to_owned();
    if let Err(error) = close_terminal() {
        log::warn!("the server cannot leave its terminal: {error}");
    }
    // The starting process may have been killed.
    let _ = report.and_then(|report| File::from(report).write_all(b"\n"));
}

fn close_terminal() -> io::Result<()> {
    rustix::process::setsid()?;
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    Ok(dup2_stderr(&null)?)
}
