//! Threads that serve connections.
//!
//! Each worker drives a single-threaded runtime of its own, and a connection stays with the worker
//! that got it. So no request ever wakes another thread on its way, and the buffers of a worker are
//! warm in its core's cache.

use super::Protocol;
use super::buffers::Pool;
use super::connection::{Connection, Shared};
use crate::base::machine::{set_thread_niceness, thread_niceness};
use crate::base::seats::Seat;
use std::io;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use tokio::net::TcpStream;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

/// Niceness of the threads for long requests, above that of the others.
const LARGE_REQUEST_NICENESS: i32 = 5;

/// Threads for requests that take long to decode and check. The connections come first.
#[derive(Debug)]
pub(super) struct LargeRequests {
    handle: Handle,
    /// There until this is dropped.
    runtime: Option<Runtime>,
}

impl LargeRequests {
    pub(super) fn start() -> io::Result<Self> {
        let niceness = thread_niceness() + LARGE_REQUEST_NICENESS;
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads((cores / 2).max(1))
            .thread_name("client-large")
            .on_thread_start(move || {
                if let Err(error) = set_thread_niceness(niceness) {
                    log::warn!("long requests compete with others for the processor: {error}");
                }
            })
            .enable_all()
            .build()?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
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

/// What a connection uses of its worker.
#[derive(Debug, Clone)]
pub(super) struct Local {
    pub(super) shared: Arc<Shared>,
    pub(super) pool: Arc<Pool>,
    /// Connections, and requests that are answered beside others.
    pub(super) tasks: TaskTracker,
}

/// A [`Protocol`] as an object: one server has ports of several.
pub(super) trait Serve: Send + Sync {
    /// Spawns the task of a connection.
    fn spawn(self: Arc<Self>, accepted: Accepted, local: Local);
}

impl<P: Protocol> Serve for P {
    fn spawn(self: Arc<Self>, accepted: Accepted, local: Local) {
        let tasks = local.tasks.clone();
        tasks.spawn(async move {
            let Accepted { stream, seat, _load, .. } = accepted;
            // A socket that the client reset already may refuse both.
            let stream = TcpStream::from_std(stream)
                .and_then(|stream| stream.set_nodelay(true).map(|()| stream));
            match stream {
                Ok(stream) => Connection::new(self, local, stream, seat).run().await,
                Err(error) => log::debug!("closing {}: {error}", seat.peer()),
            }
        });
    }
}

/// A connection on its way to a worker.
pub(super) struct Accepted {
    pub(super) stream: std::net::TcpStream,
    pub(super) protocol: Arc<dyn Serve>,
    pub(super) seat: Arc<Seat>,
    /// Counts the connection as long as it is there.
    pub(super) _load: Arc<()>,
}

/// A thread that serves connections.
#[derive(Debug)]
pub(super) struct Worker {
    /// Bounded by the seats that the connections hold.
    inbox: mpsc::UnboundedSender<Accepted>,
    /// A clone for each of its connections.
    load: Arc<()>,
    thread: JoinHandle<()>,
    ended: oneshot::Receiver<()>,
}

impl Worker {
    pub(super) fn start(index: usize, shared: Arc<Shared>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (inbox, accepted) = mpsc::unbounded_channel();
        let (end, ended) = oneshot::channel();
        let thread =
            std::thread::Builder::new().name(format!("client-{index}")).spawn(move || {
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
    pub(super) fn assign(
        &self,
        stream: std::net::TcpStream,
        protocol: Arc<dyn Serve>,
        seat: Arc<Seat>,
    ) {
        let accepted = Accepted { stream, protocol, seat, _load: Arc::clone(&self.load) };
        // A worker is gone only if the server is: the connection is closed then.
        let _ = self.inbox.send(accepted);
    }

    pub(super) async fn join(self) {
        // An error means that the thread is gone as well.
        let _ = self.ended.await;
        if self.thread.join().is_err() {
            log::error!("a worker of the server panicked");
        }
    }
}

/// Serves the connections of one worker until the server stops or is dropped.
async fn work(shared: Arc<Shared>, mut inbox: mpsc::UnboundedReceiver<Accepted>) {
    let (pool, tasks) = (Arc::default(), TaskTracker::new());
    let local = Local { shared: Arc::clone(&shared), pool, tasks: tasks.clone() };
    let receive = async {
        while let Some(accepted) = inbox.recv().await {
            Arc::clone(&accepted.protocol).spawn(accepted, local.clone());
        }
    };
    if shared.stop.run_until_cancelled(receive).await.is_none() {
        inbox.close();
    }
    shared.stopping.store(true, Ordering::Release);
    shared.stop.cancel();
    tasks.close();
    if tokio::time::timeout(shared.limits.drain, tasks.wait()).await.is_err() {
        log::warn!("cutting off {} connections whose requests did not end", tasks.len());
    }
}
