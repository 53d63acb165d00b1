//! The processes of the nodes, and what is heard of them.

use super::configuration::name;
use crate::config::FILE_NAME;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::thread;

/// By this a node says that it serves clients.
const ANNOUNCEMENT: &str = "listening for Thrift clients on";

/// Longest piece of a line that is shown at a time.
const MOST_LINE: u64 = 64 << 10;

/// Events while nodes run.
#[derive(Debug)]
pub(super) enum Happening {
    /// A node serves clients.
    Serves(usize),
    /// The process of a node has closed its output, and so ends.
    Ends(usize),
    /// Somebody wants all to end.
    Stop,
}

/// A node that was started.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    /// Its exit status, once that is known.
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts a node on the configuration in its directory. It does not hear of the Ctrl-C at our
    /// terminal, so that nodes end on a signal; or when this process is gone, however it
    /// went, as then their input ends.
    pub(super) fn start(
        number: usize,
        directory: &Path,
        properties: &[String],
        happenings: &Sender<Happening>,
    ) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("serve").arg("--config").arg(directory.join(FILE_NAME));
        command.args(properties).arg("--until-input-ends").stdin(Stdio::piped());
        command.current_dir(directory).process_group(0);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        if let Some(errors) = child.stderr.take() {
            thread::spawn(move || show(number, errors, |line| complain!("{line}")));
        }
        if let Some(output) = child.stdout.take() {
            let happenings = happenings.clone();
            thread::spawn(move || {
                // Nobody hears it any more when all are ending.
                let tell = |happening| drop(happenings.send(happening));
                show(number, output, |line| {
                    say!("{line}");
                    if line.contains(ANNOUNCEMENT) {
                        tell(Happening::Serves(number));
                    }
                });
                tell(Happening::Ends(number));
            });
        }
        Ok(Self { child, ended: None })
    }

    /// Whether it still runs, as far as is known.
    pub(super) fn is_running(&self) -> bool {
        self.ended.is_none()
    }

    /// Waits until it has ended.
    pub(super) fn wait(&mut self) -> io::Result<ExitStatus> {
        let ended = self.child.wait()?;
        self.ended = Some(ended);
        Ok(ended)
    }

    /// Asks it to end in order, or not in order. One that has ended is asked nothing: its number
    /// may be that of another process.
    pub(super) fn signal(&self, signal: Signal) {
        if self.is_running() {
            // It may be ending by itself.
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.is_running() {
            self.signal(Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// Prints the output of a node to its end, each line after the name of the node.
fn show(number: usize, output: impl Read, print: impl Fn(&str)) {
    let name = name(number);
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut output).take(MOST_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                print(&format!("{name} | {}", String::from_utf8_lossy(&line).trim_end()));
            }
        }
    }
}
