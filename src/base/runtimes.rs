//! Threads that each drive a single-threaded runtime. A task stays on the thread that it was given
//! to, so that no request wakes another thread on its way.

use crate::base::lock::{Mutex, rank};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A task of a thread.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// When the threads end, and what becomes of tasks that do not.
#[derive(Debug, Clone)]
pub struct RuntimeEnd {
    /// Cancelled when the tasks have to end, at the latest when the [`Runtimes`] are dropped.
    pub stop: CancellationToken,
    /// Longest time that they may take then.
    pub drain: Duration,
    /// Is told the number of tasks that are cut off after that.
    pub on_cut: fn(usize),
}

/// Threads with a runtime each.
#[derive(Debug)]
pub struct Runtimes {
    threads: Vec<RuntimeThread>,
    handles: Mutex<rank::State, Vec<JoinHandle<()>>>,
}

#[derive(Debug)]
struct RuntimeThread {
    /// Bounded by the connections that the tasks serve.
    inbox: mpsc::UnboundedSender<Task>,
    /// A clone for each of its tasks.
    load: Arc<()>,
    handle: Handle,
    tasks: TaskTracker,
}

impl Runtimes {
    /// Starts threads called `name` and a number from `first` on; at least one.
    pub fn start(name: &str, first: usize, count: usize, end: &RuntimeEnd) -> io::Result<Self> {
        let (mut threads, mut handles) = (Vec::new(), Vec::new());
        for index in first..first + count.max(1) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let handle = runtime.handle().clone();
            let (inbox, accepted) = mpsc::unbounded_channel();
            let (tasks, end) = (TaskTracker::new(), end.clone());
            let own = tasks.clone();
            let work = move || {
                runtime.block_on(work(accepted, own, end));
                // Blocking calls of the tasks must not delay the end.
                runtime.shutdown_background();
            };
            handles.push(Builder::new().name(format!("{name}-{index}")).spawn(work)?);
            threads.push(RuntimeThread { inbox, load: Arc::default(), handle, tasks });
        }
        Ok(Self { threads, handles: Mutex::new(handles) })
    }

    /// Calls a function in the runtime of the first thread.
    pub fn enter<T>(&self, call: impl FnOnce() -> T) -> T {
        let _guard = self.threads[0].handle.enter();
        call()
    }

    /// The tasks of each thread, by index. Tasks that are spawned there by other tasks have the
    /// same time to end.
    pub fn tasks(&self) -> impl Iterator<Item = &TaskTracker> {
        self.threads.iter().map(|thread| &thread.tasks)
    }

    /// The index of the thread with the fewest tasks.
    pub fn least_loaded(&self) -> usize {
        let load = |index: &usize| Arc::strong_count(&self.threads[*index].load);
        (0..self.threads.len()).min_by_key(load).unwrap_or_default()
    }

    /// Runs a task on a thread.
    pub fn spawn(&self, index: usize, task: impl Future<Output = ()> + Send + 'static) {
        let thread = &self.threads[index];
        let load = Arc::clone(&thread.load);
        let task = async move {
            task.await;
            drop(load);
        };
        // After the end of the thread the task is dropped here.
        let _ = thread.inbox.send(Box::pin(task));
    }

    /// Waits for the threads to end. Blocks.
    pub fn join(&self) {
        for thread in std::mem::take(&mut *self.handles.lock()) {
            let name = thread.thread().name().unwrap_or_default().to_owned();
            if thread.join().is_err() {
                log::error!("the thread {name} panicked");
            }
        }
    }
}

async fn work(mut inbox: mpsc::UnboundedReceiver<Task>, tasks: TaskTracker, end: RuntimeEnd) {
    let receive = async {
        while let Some(task) = inbox.recv().await {
            tasks.spawn(task);
        }
    };
    end.stop.run_until_cancelled(receive).await;
    end.stop.cancel();
    inbox.close();
    tasks.close();
    if tokio::time::timeout(end.drain, tasks.wait()).await.is_err() {
        (end.on_cut)(tasks.len());
    }
}
