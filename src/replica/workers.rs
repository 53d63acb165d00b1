//! Threads for work that may block.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::base::lock::{Condvar, Mutex, rank};
use crate::base::machine::{set_thread_niceness, thread_niceness};

/// Jobs that may wait for each thread of a pool. Whoever has one more waits until there is room,
/// so that a slow disk slows the callers down rather than filling the memory.
pub const QUEUE_LENGTH: usize = 128;

/// The job panicked, or the pool was shut down before its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the work was given up")]
pub struct Abandoned;

/// What a pool does at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolLoad {
    /// Threads that are at a job.
    pub active: usize,
    /// Jobs that wait for a thread, and callers that wait for room or may not ask yet.
    pub waiting: usize,
}

/// Callers that wait for something.
#[derive(Debug, Default)]
pub(super) struct Waiters(AtomicUsize);

impl Waiters {
    /// Counts the caller as long as it waits, also if it gives up.
    pub(super) async fn wait<T>(&self, what: impl Future<Output = T>) -> T {
        let _one = Waiter::new(&self.0);
        what.await
    }

    /// How many wait now.
    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

struct Waiter<'a>(&'a AtomicUsize);

impl<'a> Waiter<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A fixed number of threads that take jobs from one bounded queue. It outlives panicking jobs.
/// Dropping it finishes what is queued and joins the threads.
pub struct WorkerPool {
    name: &'static str,
    queue: Arc<Queue>,
    room: Arc<Semaphore>,
    /// Those for whose job there is no room yet.
    without_room: Waiters,
    threads: Mutex<rank::State, Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<rank::State, QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    jobs: VecDeque<Job>,
    /// Threads that are at a job.
    active: usize,
    closed: bool,
}

struct Job {
    run: Box<dyn FnOnce() + Send>,
    /// The place in the queue, free again when the job begins.
    room: OwnedSemaphorePermit,
}

impl WorkerPool {
    /// Starts this many threads, called `name` and a number. Without any, no job is ever done.
    /// `niceness` is added to that of the calling thread.
    pub fn start(name: &'static str, threads: usize, niceness: i32) -> io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let room = Arc::new(Semaphore::new(QUEUE_LENGTH * threads));
        let without_room = Waiters::default();
        let pool = Self { name, queue, room, without_room, threads: Mutex::default() };
        let own = thread_niceness() + niceness;
        for number in 1..=threads {
            let queue = Arc::clone(&pool.queue);
            let builder = Builder::new().name(format!("{name}-{number}"));
            // If this fails the drop of the pool ends the threads before.
            let thread = builder.spawn(move || {
                if niceness != 0
                    && let Err(error) = set_thread_niceness(own)
                {
                    log::warn!("the priority of the thread {name} cannot be set: {error}");
                }
                queue.work(name);
            })?;
            pool.threads.lock().push(thread);
        }
        Ok(pool)
    }

    /// Queues a job, as soon as there is room. The receiver gets its result. The job is done also
    /// if nobody listens any more.
    pub async fn submit<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, Abandoned> {
        let (sender, receiver) = oneshot::channel();
        // Nobody listens any more when the caller has given up waiting.
        self.queue(Box::new(move || drop(sender.send(job())))).await?;
        Ok(receiver)
    }

    /// Queues a job whose result is all that it is for: it is left out if nobody listens any more
    /// when its turn comes, so that what was given up holds up nobody.
    pub async fn ask<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, Abandoned> {
        let (sender, receiver) = oneshot::channel();
        let run = move || {
            if !sender.is_closed() {
                drop(sender.send(job()));
            }
        };
        self.queue(Box::new(run)).await?;
        Ok(receiver)
    }

    async fn queue(&self, run: Box<dyn FnOnce() + Send>) -> Result<(), Abandoned> {
        let room = self.without_room.wait(Arc::clone(&self.room).acquire_owned()).await;
        let room = room.map_err(|_| Abandoned)?;
        self.queue.push(Job { run, room })
    }

    /// What it does now.
    pub fn load(&self) -> PoolLoad {
        let state = self.queue.state.lock();
        let waiting = state.jobs.len() + self.without_room.count();
        PoolLoad { active: state.active, waiting }
    }

    /// Takes no more jobs, finishes those that are queued, and joins the threads. Blocks.
    pub fn shutdown(&self) {
        self.room.close();
        self.queue.close();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            if thread.join().is_err() {
                log::error!("a thread of the pool {} panicked outside of a job", self.name);
            }
        }
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl fmt::Debug for WorkerPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let room = self.room.available_permits();
        f.debug_struct("WorkerPool")
            .field("name", &self.name)
            .field("room", &room)
            .finish_non_exhaustive()
    }
}

impl Queue {
    fn push(&self, job: Job) -> Result<(), Abandoned> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(Abandoned);
        }
        state.jobs.push_back(job);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    /// The next job, for a thread that has ended one or begins; `None` when there are none and none
    /// will come.
    fn next(&self, has_ended: bool) -> Option<Job> {
        let mut state = self.state.lock();
        state.active -= usize::from(has_ended);
        loop {
            if let Some(job) = state.jobs.pop_front() {
                state.active += 1;
                return Some(job);
            }
            if state.closed {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    fn work(&self, pool: &str) {
        let mut has_ended = false;
        while let Some(Job { run, room }) = self.next(has_ended) {
            has_ended = true;
            drop(room);
            // The sender of the result is dropped in the panic, so that the caller learns of it.
            if catch_unwind(AssertUnwindSafe(run)).is_err() {
                log::error!("a job of the pool {pool} panicked; its request fails");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[tokio::test]
    async fn a_panicking_job_fails_alone() {
        let pool = WorkerPool::start("test", 1, 0).unwrap();
        let bad = pool.submit(|| panic!("on purpose")).await.unwrap();
        let good = pool.submit(|| 7).await.unwrap();
        assert!(bad.await.is_err());
        assert_eq!(good.await, Ok(7));
    }

    #[tokio::test]
    async fn a_full_queue_makes_callers_wait() {
        let pool = Arc::new(WorkerPool::start("test", 1, 0).unwrap());
        let (begun, has_begun) = oneshot::channel();
        let (go_on, gate) = mpsc::channel::<()>();
        let first = pool.submit(move || {
            begun.send(()).unwrap();
            gate.recv().unwrap();
        });
        let first = first.await.unwrap();
        has_begun.await.unwrap();
        let mut queued = Vec::new();
        for number in 0..QUEUE_LENGTH {
            queued.push(pool.submit(move || number).await.unwrap());
        }
        let one_more = tokio::time::timeout(Duration::from_millis(20), pool.submit(|| ())).await;
        assert!(one_more.is_err(), "there is no room");
        go_on.send(()).unwrap();
        first.await.unwrap();
        for (number, receiver) in queued.into_iter().enumerate() {
            assert_eq!(receiver.await, Ok(number));
        }
        assert_eq!(pool.submit(|| 1).await.unwrap().await, Ok(1), "there is room again");
    }

    #[tokio::test]
    async fn the_load_is_what_runs_and_what_waits() {
        let pool = WorkerPool::start("test", 1, 0).unwrap();
        let (begun, has_begun) = oneshot::channel();
        let (go_on, gate) = mpsc::channel::<()>();
        let first = pool.submit(move || {
            begun.send(()).unwrap();
            gate.recv().unwrap();
        });
        let first = first.await.unwrap();
        has_begun.await.unwrap();
        let mut queued = Vec::new();
        for _ in 0..QUEUE_LENGTH {
            queued.push(pool.submit(|| ()).await.unwrap());
        }
        assert_eq!(pool.load(), PoolLoad { active: 1, waiting: QUEUE_LENGTH });
        {
            let mut without_room = Box::pin(pool.submit(|| ()));
            assert!(futures_poll(&mut without_room).is_pending());
            assert_eq!(pool.load().waiting, QUEUE_LENGTH + 1);
        }
        assert_eq!(pool.load().waiting, QUEUE_LENGTH, "it has given up");
        go_on.send(()).unwrap();
        first.await.unwrap();
        for job in queued {
            job.await.unwrap();
        }
        pool.shutdown();
        assert_eq!(pool.load(), PoolLoad::default());
    }

    fn futures_poll<F: Future + Unpin>(future: &mut F) -> std::task::Poll<F::Output> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        std::pin::Pin::new(future).poll(&mut context)
    }

    #[tokio::test]
    async fn what_nobody_waits_for_is_left_out_unless_it_changes_something() {
        let pool = WorkerPool::start("test", 1, 0).unwrap();
        let (go_on, gate) = mpsc::channel::<()>();
        let first = pool.ask(move || gate.recv().unwrap()).await.unwrap();
        let done = Arc::new(std::sync::Mutex::new(Vec::new()));
        let note = |name: &'static str| {
            let done = Arc::clone(&done);
            move || done.lock().unwrap().push(name)
        };
        drop(pool.ask(note("a read that was given up")).await.unwrap());
        drop(pool.submit(note("a write that was given up")).await.unwrap());
        let last = pool.ask(note("a read")).await.unwrap();
        go_on.send(()).unwrap();
        first.await.unwrap();
        last.await.unwrap();
        assert_eq!(*done.lock().unwrap(), ["a write that was given up", "a read"]);
    }

    #[tokio::test]
    async fn shutdown_finishes_what_is_queued_and_takes_no_more() {
        let pool = WorkerPool::start("test", 2, 0).unwrap();
        let done = Arc::new(AtomicUsize::new(0));
        for _ in 0..50 {
            let done = Arc::clone(&done);
            drop(pool.submit(move || done.fetch_add(1, Ordering::SeqCst)).await.unwrap());
        }
        pool.shutdown();
        assert_eq!(done.load(Ordering::SeqCst), 50);
        assert_eq!(pool.submit(|| ()).await.unwrap_err(), Abandoned);
    }
}
