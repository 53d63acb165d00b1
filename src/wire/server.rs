//! The listener and its worker threads.
//!
//! Each worker drives a single-threaded runtime of its own, and a connection stays with the worker
//! that got it. So no request ever wakes another thread on its way, and the buffers of a worker are
//! warm in its core's cache.

use std::io;
use std::net::SocketAddr;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::accept::{Port, accept};
use super::buffers::Pool;
use super::connection::{Border, Connection, Shared};
use super::limits::Limits;
use super::report::{INTERVAL, Reporter};
use super::service::Cassandra;
use super::{ApiVersion, Clients};
use crate::base::budget::Budget;
use crate::base::clock::Clock;
use crate::base::intake::Intake;
use crate::base::machine::{set_thread_niceness, thread_niceness};
use crate::base::seats::Seat;

/// Connections that the kernel completes while they wait to be accepted.
const BACKLOG: u32 = 1024;

/// Workers for each core of the machine.
///
/// A worker that has used its share of a core waits while other threads run, and its connections
/// wait with it. With two for each core a worker uses half as much, so that it waits less, and has
/// half as many connections. More of them cost more processor time for each write.
pub const WORKERS_PER_CORE: usize = 2;

/// Niceness of the threads for long requests, above that of the others.
const LARGE_REQUEST_NICENESS: i32 = 5;

/// Memory for requests and answers where nothing else is said, in bytes.
const DEFAULT_MEMORY: usize = 1 << 30;

/// What a server needs to know.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// What its clients are like, where it listens first.
    pub clients: Clients,
    /// Number of worker threads.
    pub workers: usize,
    /// What it may take of the machine.
    pub limits: Limits,
    /// Memory for requests and answers. Others may take from it as well.
    pub memory: Arc<Budget>,
    /// Times the log lines.
    pub clock: Arc<dyn Clock>,
}

impl ServerOptions {
    /// The defaults: 0.6, unframed where unclear, [`WORKERS_PER_CORE`] workers per core.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |count| count.get());
        Self {
            clients: Clients::default(),
            workers: WORKERS_PER_CORE * cores,
            limits: Limits::default(),
            memory: Budget::new(DEFAULT_MEMORY),
            clock,
        }
    }
}

/// Ports that are bound and do not accept yet.
#[derive(Debug)]
pub struct Server {
    /// At least one.
    ports: Vec<(TcpListener, Clients)>,
    options: ServerOptions,
}

impl Server {
    /// Binds the address. Must be called within a tokio runtime with I/O and time.
    pub fn bind(address: SocketAddr, options: ServerOptions) -> io::Result<Self> {
        Ok(Self { ports: vec![(listen(address)?, options.clients)], options })
    }

    /// Binds a further address, for clients that may be of another generation. They share workers
    /// and limits with the others.
    pub fn bind_also(&mut self, address: SocketAddr, clients: Clients) -> io::Result<()> {
        self.ports.push((listen(address)?, clients));
        Ok(())
    }

    /// The further addresses, with the ports that the system chose.
    pub fn further_ports(&self) -> impl Iterator<Item = (SocketAddr, Clients)> {
        let further = self.ports.iter().skip(1);
        further.filter_map(|(listener, clients)| Some((listener.local_addr().ok()?, *clients)))
    }

    /// Where it listens first; tells the port that the system chose.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self.ports.first() {
            Some((listener, _)) => listener.local_addr(),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Serves until `stop` is cancelled. Then it accepts no more, lets calls under way end (at most
    /// [`Limits::drain`]) and closes all connections.
    pub async fn run<S: Cassandra>(
        self,
        service: Arc<S>,
        stop: CancellationToken,
    ) -> io::Result<()> {
        self.run_by(|_| Arc::clone(&service), stop).await
    }

    /// The same with a service for each generation of clients.
    pub async fn run_by<S: Cassandra>(
        self,
        service_of: impl Fn(ApiVersion) -> Arc<S>,
        stop: CancellationToken,
    ) -> io::Result<()> {
        let Self { ports, options } = self;
        let ServerOptions { limits, memory, .. } = options;
        // What has arrived has to be decoded and executed, whatever waits to be sent.
        let received = memory.part(limits.receive_budget_bytes.min(memory.limit() / 4 * 3));
        let large = LargeRequests::start()?;
        let shared = Arc::new(Shared {
            received: Intake::new(received, limits.max_message_bytes, limits.memory_wait),
            unsent: memory.part(limits.unsent_budget_bytes.min(memory.limit() / 2)),
            memory,
            reporter: Reporter::new("alexandra::wire", Arc::clone(&options.clock), INTERVAL),
            clock: options.clock,
            stopping: AtomicBool::new(false),
            stop: CancellationToken::new(),
            large: large.handle.clone(),
            limits,
        });
        let workers = (0..options.workers.max(1))
            .map(|index| Worker::start(index, shared.clone()))
            .collect::<io::Result<Vec<_>>>()?;
        let port = |(listener, clients): (_, Clients)| {
            let service = service_of(clients.version);
            Port { listener, border: Arc::new(Border { service, clients }) }
        };
        let ports: Vec<Port<S>> = ports.into_iter().map(port).collect();
        stop.run_until_cancelled(accept(ports, &shared, &workers)).await;
        shared.stopping.store(true, Ordering::Release);
        shared.stop.cancel();
        for worker in workers {
            worker.join().await;
        }
        drop(large);
        Ok(())
    }
}

/// Threads for requests that take long to decode and check. The connections come first.
#[derive(Debug)]
struct LargeRequests {
    handle: Handle,
    /// There until this is dropped.
    runtime: Option<Runtime>,
}

impl LargeRequests {
    fn start() -> io::Result<Self> {
        let niceness = thread_niceness() + LARGE_REQUEST_NICENESS;
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads((cores / 2).max(1))
            .thread_name("thrift-large")
            .on_thread_start(move || {
                if let Err(error) = set_thread_niceness(niceness) {
                    log::warn!("long requests compete with others for the processor: {error}");
                }
            })
            .enable_all()
            .build()?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }
}

impl Drop for LargeRequests {
    /// A runtime must not be dropped where nothing may block.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// A connection on its way to a worker.
#[derive(Debug)]
pub(super) struct Accepted<S> {
    pub(super) stream: std::net::TcpStream,
    pub(super) border: Arc<Border<S>>,
    pub(super) seat: Arc<Seat>,
}

/// A connection of a worker.
#[derive(Debug)]
struct Assigned<S> {
    accepted: Accepted<S>,
    /// Counts the connection as long as it is there.
    _load: Arc<()>,
}

/// A thread that serves connections.
#[derive(Debug)]
pub(super) struct Worker<S> {
    /// Bounded by the seats that the connections hold.
    inbox: mpsc::UnboundedSender<Assigned<S>>,
    /// A clone for each of its connections.
    load: Arc<()>,
    thread: JoinHandle<()>,
    ended: oneshot::Receiver<()>,
}

impl<S: Cassandra> Worker<S> {
    fn start(index: usize, shared: Arc<Shared>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (inbox, accepted) = mpsc::unbounded_channel();
        let (end, ended) = oneshot::channel();
        let thread =
            std::thread::Builder::new().name(format!("thrift-{index}")).spawn(move || {
                runtime.block_on(work(shared, accepted));
                // Blocking calls that a handler may have started must not hold up the end.
                runtime.shutdown_background();
                // The server may have been dropped; then nobody waits.
                let _ = end.send(());
            })?;
        Ok(Self { inbox, load: Arc::default(), thread, ended })
    }

    /// Connections that it has.
    pub(super) fn load(&self) -> usize {
        Arc::strong_count(&self.load) - 1
    }

    /// Gives it a connection.
    pub(super) fn assign(&self, accepted: Accepted<S>) {
        let assigned = Assigned { accepted, _load: Arc::clone(&self.load) };
        // A worker is gone only if the server is: the connection is closed then.
        let _ = self.inbox.send(assigned);
    }

    async fn join(self) {
        // An error means that the thread is gone as well.
        let _ = self.ended.await;
        if self.thread.join().is_err() {
            log::error!("a Thrift worker panicked");
        }
    }
}

/// Serves the connections of one worker until the server stops or is dropped.
async fn work<S: Cassandra>(shared: Arc<Shared>, mut inbox: mpsc::UnboundedReceiver<Assigned<S>>) {
    let pool = Arc::new(Pool::default());
    let tasks = TaskTracker::new();
    let receive = async {
        while let Some(assigned) = inbox.recv().await {
            tasks.spawn(serve(assigned, shared.clone(), pool.clone()));
        }
    };
    if shared.stop.run_until_cancelled(receive).await.is_none() {
        inbox.close();
    }
    shared.stopping.store(true, Ordering::Release);
    shared.stop.cancel();
    tasks.close();
    if tokio::time::timeout(shared.limits.drain, tasks.wait()).await.is_err() {
        log::warn!("cutting off {} Thrift connections whose calls did not end", tasks.len());
    }
}

async fn serve<S: Cassandra>(assigned: Assigned<S>, shared: Arc<Shared>, pool: Arc<Pool>) {
    let Accepted { stream, border, seat } = assigned.accepted;
    // A socket that the client reset already may refuse both.
    match TcpStream::from_std(stream).and_then(|stream| stream.set_nodelay(true).map(|()| stream)) {
        Ok(stream) => Connection::new((shared, border), pool, stream, seat).run().await,
        Err(error) => log::debug!("closing {}: {error}", seat.peer()),
    }
}
