//! A server: its ports, its workers, and the end of both.

use super::accept::accept;
use super::connection::Shared;
use super::limits::{LOG_INTERVAL, Limits, Reporter};
use super::worker::{LargeRequests, Local, Serve};
use super::{Protocol, Room, Traffic};
use crate::base::budget::Budget;
use crate::base::clock::Clock;
use crate::base::intake::Intake;
use crate::base::latest::Latest;
use crate::base::runtimes::{RuntimeEnd, Runtimes};
use crate::base::tls::{self, Guard};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::net::{TcpListener, TcpSocket};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Connections that the kernel completes while they wait to be accepted.
const BACKLOG: u32 = 1024;

/// Workers for each core of the machine.
///
/// A worker that has used its share of a core waits while other threads run, and its connections
/// wait with it. With two for each core a worker uses half as much, so that it waits less, and has
/// half as many connections. More of them cost more processor time for each write.
const WORKERS_PER_CORE: usize = 2;

/// Memory for requests and replies where nothing else is said, in bytes.
const DEFAULT_MEMORY: usize = 1 << 30;

/// Settings and resources of a server.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Number of worker threads.
    pub workers: usize,
    /// Limits of its connections.
    pub limits: Limits,
    /// Memory for requests and replies. Others may take from it as well.
    pub memory: Arc<Budget>,
    /// Times idle connections and log lines.
    pub clock: Arc<dyn Clock>,
    /// Counts connections and their bytes.
    pub traffic: Arc<Traffic>,
}

impl ServerOptions {
    /// The defaults: two workers per core.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |count| count.get());
        Self {
            workers: WORKERS_PER_CORE * cores,
            limits: Limits::default(),
            memory: Budget::new(DEFAULT_MEMORY),
            clock,
            traffic: Arc::default(),
        }
    }
}

/// Binds an address. Connections wait until a server serves it. Must be called within a tokio
/// runtime with I/O and time.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// A listener, and what decides which of its connections are by TLS.
#[derive(Debug)]
pub struct Listening {
    /// The listener.
    pub listener: TcpListener,
    /// The guard of its connections.
    pub guard: Guard,
}

/// A listener for plain text alone.
impl From<TcpListener> for Listening {
    fn from(listener: TcpListener) -> Self {
        Self { listener, guard: Guard::off(tls::Port::Thrift) }
    }
}

/// A listener and the protocol of its connections.
pub(super) struct Port {
    pub(super) at: Listening,
    pub(super) protocol: Arc<dyn Serve>,
}

/// Ports that share workers, limits and memory.
pub struct Server {
    ports: Vec<Port>,
    options: ServerOptions,
    limits: Arc<Latest<Limits>>,
}

impl Server {
    /// A server without ports.
    pub fn new(options: ServerOptions) -> Self {
        let limits = Arc::new(Latest::new(options.limits.clone()));
        Self::with_limits(options, limits)
    }

    /// The same with limits that may change, but for those of memory and of the longest request.
    pub fn with_limits(options: ServerOptions, limits: Arc<Latest<Limits>>) -> Self {
        Self { ports: Vec::new(), options, limits }
    }

    /// Adds a port, whose connections speak this protocol.
    pub fn add(&mut self, at: Listening, protocol: Arc<impl Protocol>) {
        self.ports.push(Port { at, protocol });
    }

    /// Serves until `stop` is cancelled. Then it accepts no more, lets requests under way end (at
    /// most [`Limits::drain`]) and closes all connections.
    pub async fn run(self, stop: CancellationToken) -> io::Result<()> {
        let Self { ports, options, limits } = self;
        let memory = options.memory;
        // Received requests must be decoded and executed, whatever waits to be sent.
        let received = memory.part(limits.receive_budget_bytes.min(memory.limit() / 4 * 3));
        let large = LargeRequests::start()?;
        let shared = Arc::new(Shared {
            received: Intake::new(received, limits.max_message_bytes, limits.memory_wait),
            unsent: memory.part(limits.unsent_budget_bytes.min(memory.limit() / 2)),
            room: Room { memory, longest: limits.max_message_bytes, settings: limits.settings },
            reporter: Reporter::new("alexandra::server", Arc::clone(&options.clock), LOG_INTERVAL),
            clock: options.clock,
            traffic: options.traffic,
            stopping: AtomicBool::new(false),
            stop: CancellationToken::new(),
            large: large.handle.clone(),
            limits,
        });
        let end = RuntimeEnd {
            stop: shared.stop.clone(),
            drain: shared.limits.drain,
            on_cut: |left| {
                log::warn!("cutting off {left} connections whose requests did not end");
            },
        };
        let threads = Runtimes::start("client", 0, options.workers, &end)?;
        let local = |tasks: &TaskTracker| Local {
            shared: Arc::clone(&shared),
            pool: Arc::default(),
            call: Arc::default(),
            tasks: tasks.clone(),
        };
        let locals: Vec<Local> = threads.tasks().map(local).collect();
        let stopping = StopOnDrop(&shared);
        stop.run_until_cancelled(accept(ports, &shared, &threads, &locals)).await;
        drop(stopping);
        // An error would mean that the runtime of the caller ends.
        let _ = tokio::task::spawn_blocking(move || threads.join()).await;
        drop(large);
        Ok(())
    }
}

/// Ends all connections when the server ends or is dropped.
struct StopOnDrop<'a>(&'a Shared);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stopping.store(true, Ordering::Release);
        self.0.stop.cancel();
    }
}
