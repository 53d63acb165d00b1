//! Resources of the threads with connections, and the threads for long requests.

use super::Protocol;
use super::beside::SpareCall;
use super::buffers::Pool;
use super::connection::{Connection, Shared};
use crate::base::machine::{set_thread_niceness, thread_niceness};
use crate::base::runtimes::Task;
use crate::base::seats::Seat;
use crate::base::tls::Guard;
use std::io;
use std::num::NonZero;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::runtime::{Handle, Runtime};
use tokio_util::task::TaskTracker;

/// Niceness of the threads for long requests, above that of the others.
const LARGE_REQUEST_NICENESS: i32 = 5;

/// Threads for requests that take long to decode and check. The connections come first.
#[derive(Debug)]
pub(super) struct LargeRequests {
    pub(super) handle: Handle,
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
}

impl Drop for LargeRequests {
    /// A runtime must not be dropped where nothing may block.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The thread's resources that a connection uses.
#[derive(Debug, Clone)]
pub(super) struct Local {
    pub(super) shared: Arc<Shared>,
    pub(super) pool: Arc<Pool>,
    /// For the answers of requests beside others.
    pub(super) call: Arc<SpareCall>,
    /// Connections, and requests that are answered beside others.
    pub(super) tasks: TaskTracker,
}

/// A [`Protocol`] as an object: one server has ports of several.
pub(super) trait Serve: Send + Sync {
    /// The task of a connection.
    fn serve(
        self: Arc<Self>,
        stream: std::net::TcpStream,
        guard: Guard,
        seat: Arc<Seat>,
        local: Local,
    ) -> Task;
}

impl<P: Protocol> Serve for P {
    fn serve(
        self: Arc<Self>,
        stream: std::net::TcpStream,
        guard: Guard,
        seat: Arc<Seat>,
        local: Local,
    ) -> Task {
        Box::pin(async move {
            // A socket that the client reset already may refuse both.
            let stream = TcpStream::from_std(stream)
                .and_then(|stream| stream.set_nodelay(true).map(|()| stream));
            match stream {
                Ok(stream) => Connection::new(self, local, stream, seat).run(guard).await,
                Err(error) => log::debug!("closing {}: {error}", seat.peer()),
            }
        })
    }
}
