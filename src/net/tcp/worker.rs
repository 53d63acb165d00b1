//! The threads that carry connections.

use crate::base::lock::{Mutex, rank};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// All threads. A connection stays with the one that it was given to.
#[derive(Debug, Clone)]
pub(super) struct Workers {
    workers: Arc<[Worker]>,
    threads: Arc<Mutex<rank::State, Vec<JoinHandle<()>>>>,
}

#[derive(Debug)]
struct Worker {
    /// Bounded by the numbers of peers and of connections.
    inbox: mpsc::UnboundedSender<Task>,
    /// Tasks that it has.
    load: Arc<AtomicUsize>,
    handle: Handle,
}

/// A task's place among those of its worker, until it is dropped.
struct Seat(Arc<AtomicUsize>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Workers {
    /// Starts the threads. When `stop` is cancelled their tasks have to end, and after twice
    /// `drain` those that did not are cut off.
    pub(super) fn start(
        count: usize,
        stop: &CancellationToken,
        drain: Duration,
    ) -> io::Result<Self> {
        let (mut workers, mut threads) = (Vec::new(), Vec::new());
        for index in 1..=count.max(1) {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let handle = runtime.handle().clone();
            let (inbox, tasks) = mpsc::unbounded_channel();
            let stop = stop.clone();
            let work = move || {
                runtime.block_on(work(tasks, stop, drain));
                runtime.shutdown_background();
            };
            threads.push(std::thread::Builder::new().name(format!("net-{index}")).spawn(work)?);
            workers.push(Worker { inbox, load: Arc::default(), handle });
        }
        Ok(Self { workers: workers.into(), threads: Arc::new(Mutex::new(threads)) })
    }

    /// Calls a function in the runtime of the first thread.
    pub(super) fn enter<T>(&self, call: impl FnOnce() -> T) -> T {
        let _guard = self.workers[0].handle.enter();
        call()
    }

    /// Runs a task on the first thread.
    pub(super) fn spawn_first(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.workers[0].spawn(task);
    }

    /// Runs a task on the thread that has the fewest.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let least = self.workers.iter().min_by_key(|w| w.load.load(Ordering::Relaxed));
        least.expect("there is at least one worker").spawn(task);
    }

    /// Waits for the threads to end.
    pub(super) fn join(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            if thread.join().is_err() {
                log::error!("a thread for connections to other nodes panicked");
            }
        }
    }
}

impl Worker {
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.load.fetch_add(1, Ordering::Relaxed);
        let seat = Seat(Arc::clone(&self.load));
        let task = async move {
            task.await;
            drop(seat);
        };
        // After the end of the thread the task is dropped here.
        let _ = self.inbox.send(Box::pin(task));
    }
}

async fn work(mut inbox: mpsc::UnboundedReceiver<Task>, stop: CancellationToken, drain: Duration) {
    let tasks = TaskTracker::new();
    let receive = async {
        while let Some(task) = inbox.recv().await {
            tasks.spawn(task);
        }
    };
    stop.run_until_cancelled(receive).await;
    inbox.close();
    tasks.close();
    // Whether or not they end in time, the runtime drops them with their connections.
    let _ = tokio::time::timeout(drain * 2, tasks.wait()).await;
}
