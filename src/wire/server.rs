//! The listener and its worker threads.
//!
//! Each worker drives a single-threaded runtime of its own, and a connection stays with the worker
//! that got it. So no request ever wakes another thread on its way, and the buffers of a worker are
//! warm in its core's cache.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::thread::JoinHandle;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::buffers::Pool;
use super::connection::{Border, Connection, Shared};
use super::limits::Limits;
use super::report::{Reason, Reporter};
use super::service::Cassandra;
use super::{ApiVersion, Clients};
use crate::base::budget::Budget;
use crate::base::clock::Clock;

/// Connections that the kernel completes while they wait to be accepted.
const BACKLOG: u32 = 1024;

/// What a server needs to know.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// What its clients are like, where it listens first.
    pub clients: Clients,
    /// Number of worker threads; one per core is best.
    pub workers: usize,
    /// What it may take of the machine.
    pub limits: Limits,
    /// Times the log lines.
    pub clock: Arc<dyn Clock>,
}

impl ServerOptions {
    /// The defaults: 0.6, unframed where unclear, a worker per core.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clients: Clients::default(),
            workers: std::thread::available_parallelism().map_or(1, |count| count.get()),
            limits: Limits::default(),
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
        let limits = options.limits;
        let shared = Arc::new(Shared {
            received: Budget::new(limits.receive_budget_bytes),
            unsent: Budget::new(limits.unsent_budget_bytes),
            reporter: Reporter::new(options.clock),
            stopping: AtomicBool::new(false),
            stop: CancellationToken::new(),
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
        Ok(())
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// A port with what its connections are served by.
#[derive(Debug)]
struct Port<S> {
    listener: TcpListener,
    border: Arc<Border<S>>,
}

/// The next connection at any port, each of which comes first in its turn.
async fn next<S>(
    ports: &[Port<S>],
    turn: &mut usize,
) -> (Arc<Border<S>>, io::Result<(TcpStream, SocketAddr)>) {
    *turn = turn.wrapping_add(1);
    let (before, from) = ports.split_at(*turn % ports.len().max(1));
    poll_fn(|context| {
        for port in from.iter().chain(before) {
            if let Poll::Ready(accepted) = port.listener.poll_accept(context) {
                return Poll::Ready((Arc::clone(&port.border), accepted));
            }
        }
        Poll::Pending
    })
    .await
}

/// Accepts connections and hands each to the worker that has the fewest. Takes the listeners, so
/// that clients that come later are refused instead of waiting.
async fn accept<S: Cassandra>(ports: Vec<Port<S>>, shared: &Shared, workers: &[Worker<S>]) {
    let permits = Arc::new(Semaphore::new(shared.limits.max_connections));
    let mut turn = 0;
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        let (border, accepted) = next(&ports, &mut turn).await;
        let accepted = match accepted {
            Ok((stream, peer)) => stream.into_std().map(|stream| (stream, peer)),
            Err(error) => Err(error),
        };
        match accepted {
            Ok((stream, peer)) => {
                let least = workers.iter().min_by_key(|w| w.connections.load(Ordering::Relaxed));
                if let Some(worker) = least {
                    let seat = Seat::new(permit, worker.connections.clone());
                    // A worker is gone only if the server is: the connection is closed then.
                    let _ = worker.inbox.send(Accepted { stream, peer, border, seat });
                }
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                // Most likely out of file descriptors: the connection stays in the backlog, and
                // accepting at once again would only burn the processor.
                shared
                    .reporter
                    .warn(Reason::Accept, format_args!("cannot accept a connection: {error}"));
                tokio::time::sleep(shared.limits.accept_pause).await;
            }
        }
    }
}

/// A connection on its way to a worker.
#[derive(Debug)]
struct Accepted<S> {
    stream: std::net::TcpStream,
    peer: SocketAddr,
    border: Arc<Border<S>>,
    seat: Seat,
}

/// A connection's place among those of the server and of its worker, until it is dropped.
#[derive(Debug)]
struct Seat {
    /// Lets the next connection in when this one ends.
    _permit: OwnedSemaphorePermit,
    /// Connections of the worker.
    connections: Arc<AtomicUsize>,
}

impl Seat {
    fn new(permit: OwnedSemaphorePermit, connections: Arc<AtomicUsize>) -> Self {
        connections.fetch_add(1, Ordering::Relaxed);
        Self { _permit: permit, connections }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A thread that serves connections.
#[derive(Debug)]
struct Worker<S> {
    /// Bounded by the permits that the connections hold.
    inbox: mpsc::UnboundedSender<Accepted<S>>,
    connections: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
    ended: oneshot::Receiver<()>,
}

impl<S: Cassandra> Worker<S> {
    fn start(index: usize, shared: Arc<Shared>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (inbox, accepted) = mpsc::unbounded_channel();
        let (end, ended) = oneshot::channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let thread =
            std::thread::Builder::new().name(format!("thrift-{index}")).spawn(move || {
                runtime.block_on(work(shared, accepted));
                // Blocking calls that a handler may have started must not hold up the end.
                runtime.shutdown_background();
                // The server may have been dropped; then nobody waits.
                let _ = end.send(());
            })?;
        Ok(Self { inbox, connections, thread, ended })
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
async fn work<S: Cassandra>(
    shared: Arc<Shared>,
    mut accepted: mpsc::UnboundedReceiver<Accepted<S>>,
) {
    let pool = Arc::new(Pool::default());
    let tasks = TaskTracker::new();
    let receive = async {
        while let Some(accepted) = accepted.recv().await {
            tasks.spawn(serve(accepted, shared.clone(), pool.clone()));
        }
    };
    if shared.stop.run_until_cancelled(receive).await.is_none() {
        accepted.close();
    }
    shared.stopping.store(true, Ordering::Release);
    shared.stop.cancel();
    tasks.close();
    if tokio::time::timeout(shared.limits.drain, tasks.wait()).await.is_err() {
        log::warn!("cutting off {} Thrift connections whose calls did not end", tasks.len());
    }
}

async fn serve<S: Cassandra>(accepted: Accepted<S>, shared: Arc<Shared>, pool: Arc<Pool>) {
    let Accepted { stream, peer, border, seat } = accepted;
    // A socket that the client reset already may refuse both.
    match TcpStream::from_std(stream).and_then(|stream| stream.set_nodelay(true).map(|()| stream)) {
        Ok(stream) => Connection::new((shared, border), pool, stream, peer).run().await,
        Err(error) => log::debug!("closing {peer}: {error}"),
    }
    drop(seat);
}
