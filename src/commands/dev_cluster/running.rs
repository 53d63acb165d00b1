//! A cluster from its start to its end.

use super::configuration::{Layout, Places, name};
use super::processes::{Happening, Process};
use crate::admin::ring_report::{Ring, RingEndpoint, Status};
use crate::base::clock::{Clock, SystemClock};
use crate::commands::nodetool::Client;
use crate::commands::output::FAILED;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// Interval at which serving nodes are asked whether they see each other.
const POLL: Duration = Duration::from_millis(200);

/// Number of polls after which the cluster is introduced as it is.
pub(super) const POLLS: u32 = 150;

/// Two signals within this time are one: some send theirs to a process and to its group.
const ONCE: Duration = Duration::from_millis(500);

/// Time limit for their answers.
const ASK_TIMEOUT: Duration = Duration::from_secs(2);

/// Nodes that run.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) layout: Layout,
    pub(super) processes: Vec<Process>,
    pub(super) happenings: Receiver<Happening>,
    pub(super) is_temporary: bool,
    /// Nodes that run and do not serve yet.
    pub(super) starting: BTreeSet<usize>,
    /// Further looks whether all see each other; `None` when everything was said.
    pub(super) polls_left: Option<u32>,
}

impl Cluster {
    /// Runs until a signal, or until no node is left.
    pub(super) fn run(mut self) -> ExitCode {
        while self.is_any_running() {
            let awaits_acquaintance = self.starting.is_empty() && self.polls_left.is_some();
            let patience = if awaits_acquaintance { POLL } else { Duration::MAX };
            match self.happenings.recv_timeout(patience) {
                Ok(Happening::Serves(number)) => {
                    self.starting.remove(&number);
                }
                Ok(Happening::Ends(number)) => {
                    self.starting.remove(&number);
                    let how = self.end(number);
                    complain!("{} has ended by itself: {how}. The others go on", name(number));
                }
                Ok(Happening::Stop) => return self.stop(),
                Err(RecvTimeoutError::Timeout) => self.introduce_if_acquainted(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        complain!("no node is left");
        ExitCode::from(FAILED)
    }

    /// Stops all nodes in order; a second signal kills them.
    fn stop(mut self) -> ExitCode {
        say!("stopping all nodes; once more to kill them");
        let clock = SystemClock::new();
        let began = clock.monotonic();
        let mut result = ExitCode::SUCCESS;
        for process in self.processes.iter().rev() {
            process.signal(Signal::TERM);
        }
        while self.is_any_running() {
            match self.happenings.recv() {
                Ok(Happening::Ends(number)) => {
                    let how = self.end(number);
                    if how != "exit status: 0" {
                        complain!("{}: {how}", name(number));
                        result = ExitCode::from(FAILED);
                    }
                }
                Ok(Happening::Stop) if clock.monotonic() >= began + ONCE => {
                    for process in &self.processes {
                        process.signal(Signal::KILL);
                    }
                }
                Ok(Happening::Stop | Happening::Serves(_)) => {}
                Err(_) => break,
            }
        }
        say!("all nodes have stopped");
        result
    }

    /// Exit status of a node, as text.
    fn end(&mut self, number: usize) -> String {
        match self.processes[number].wait() {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        }
    }

    fn is_any_running(&self) -> bool {
        self.processes.iter().any(Process::is_running)
    }

    fn running(&self) -> Vec<usize> {
        (0..self.processes.len()).filter(|number| self.processes[*number].is_running()).collect()
    }

    /// Says where everything is, when all see all others or have had the time to.
    fn introduce_if_acquainted(&mut self) {
        let running = self.running();
        let sees_all = |number: &usize| self.count_seen(*number) >= running.len();
        let are_acquainted = running.iter().all(sees_all);
        self.polls_left = self.polls_left.and_then(|left| left.checked_sub(1));
        if are_acquainted || self.polls_left.is_none() {
            self.polls_left = None;
            if !are_acquainted {
                complain!("the nodes do not see each other; their logs may say why");
            }
            self.introduce(&running);
        }
    }

    /// Number of nodes that one takes for alive, itself included.
    fn count_seen(&self, number: usize) -> usize {
        let host = self.layout.address(number).to_string();
        let client = Client::new(&host, self.layout.places.admin_port, None, ASK_TIMEOUT);
        let ring = client.and_then(|client| client.get::<Ring>("/api/v1/ring"));
        let is_seen = |it: &&RingEndpoint| it.status == Status::Up && it.token.is_some();
        ring.map_or(0, |ring| ring.endpoints.iter().filter(is_seen).count())
    }

    fn introduce(&self, running: &[usize]) {
        let Layout { places, directory, .. } = &self.layout;
        let Places { thrift_port, cql_port, admin_port, .. } = places;
        for &number in running {
            let (address, directory) =
                (self.layout.address(number), self.layout.directory_of(number));
            say!(
                "{}: Thrift on {address}:{thrift_port}, CQL on {address}:{cql_port}, alexandra \
                 nodetool -h {address} -p {admin_port}, files in {}",
                name(number),
                directory.display()
            );
        }
        let kept = if self.is_temporary { "removed at the end" } else { "kept" };
        say!(
            "{} of {} nodes are up. Connect to any of them; the data in {} are {kept}; Ctrl-C \
             stops all",
            running.len(),
            self.processes.len(),
            directory.display()
        );
    }
}
