//! Background work: where it runs, loops that survive panics, queues, and pools for requests that
//! may block.

use crate::base::context::RequestContext;
use crate::base::lock::{Condvar, Mutex, rank};
use crate::base::machine::{set_thread_niceness, thread_niceness};
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Pause before a loop that panicked is restarted: repeated panics must not fill the log.
const PAUSE_AFTER_PANIC: Duration = Duration::from_secs(1);

/// Queued jobs for each thread of a pool. Further callers wait for room, so that a slow disk slows
/// them down instead of filling the memory.
pub const QUEUE_LENGTH: usize = 128;

/// The job panicked, or the pool was shut down before it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the work was given up")]
pub struct Abandoned;

/// Place of work that may block.
#[derive(Debug, Clone, Copy, Default)]
pub enum Spawner {
    /// On threads of its own.
    #[default]
    Threads,
    /// On the calling thread, and loops do not run at all. For simulations, where nothing really
    /// blocks and the order of events is fixed.
    Inline,
    /// On at most this many threads more.
    #[cfg(test)]
    AtMost(&'static AtomicUsize),
}

impl Spawner {
    /// Whether work runs on the calling thread.
    pub fn is_inline(self) -> bool {
        matches!(self, Self::Inline)
    }

    /// Runs a job to its end, even if the caller stops waiting. Needs a tokio runtime.
    pub async fn run<T: Send + 'static>(
        self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Abandoned> {
        if self.is_inline() {
            return Ok(job());
        }
        tokio::task::spawn_blocking(job).await.map_err(|_| Abandoned)
    }
}

/// Threads of one owner.
#[derive(Debug, Default)]
pub struct Workers {
    threads: Mutex<rank::State, Vec<JoinHandle<()>>>,
    /// Closed when the threads are to end.
    end: Arc<Queue<()>>,
}

impl Workers {
    /// Starts a thread that runs a loop and restarts it after a panic. `niceness` is added to that
    /// of the calling thread. An inline spawner starts nothing.
    pub fn start(
        &self,
        spawner: Spawner,
        name: &str,
        niceness: i32,
        run: impl Fn() + Send + 'static,
    ) -> io::Result<()> {
        if spawner.is_inline() {
            return Ok(());
        }
        #[cfg(test)]
        if let Spawner::AtMost(left) = spawner {
            let take = |left: usize| left.checked_sub(1);
            let taken = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
            taken.map_err(|_| io::ErrorKind::WouldBlock)?;
        }
        let (end, own, name) = (Arc::clone(&self.end), thread_niceness(), name.to_owned());
        let thread = Builder::new().name(name.clone()).spawn(move || {
            if niceness != 0
                && let Err(error) = set_thread_niceness(own + niceness)
            {
                log::warn!("the priority of the thread {name} cannot be set: {error}");
            }
            run_until_done(&name, run, || rest(&end, PAUSE_AFTER_PANIC));
        })?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// Waits; false when the threads are to end.
    pub fn rest(&self, pause: Duration) -> bool {
        rest(&self.end, pause)
    }

    /// Wakes threads that rest, and joins all. Their queues must be closed before.
    pub fn join(&self) {
        self.end.close(|()| ());
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            let name = thread.thread().name().unwrap_or_default().to_owned();
            if thread.join().is_err() {
                log::error!("the thread {name} ended by a panic");
            }
        }
    }
}

fn rest(end: &Queue<()>, pause: Duration) -> bool {
    end.take_within(pause, |()| None::<()>).is_ok()
}

/// Runs a loop until it returns. After a panic it is restarted, as others depend on its work, as
/// long as `rest` returns true.
fn run_until_done(name: &str, run: impl Fn(), rest: impl Fn() -> bool) {
    while catch_unwind(AssertUnwindSafe(&run)).is_err() {
        log::error!("the thread {name} panicked, and begins anew: please report the lines above");
        if !rest() {
            return;
        }
    }
}

/// State that threads wait on until it is closed. The state decides on the order of work.
#[derive(Debug, Default)]
pub struct Queue<S> {
    state: Mutex<rank::State, State<S>>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State<S> {
    value: S,
    is_closed: bool,
}

/// The queue is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed;

impl<S> Queue<S> {
    /// Reads or changes the state. Wakes no thread.
    pub fn with<T>(&self, act: impl FnOnce(&mut S) -> T) -> T {
        act(&mut self.state.lock().value)
    }

    /// Adds to the state and wakes one thread; false if the queue is closed.
    pub fn push(&self, add: impl FnOnce(&mut S)) -> bool {
        self.change(add, || self.changed.notify_one())
    }

    /// Adds to the state and wakes all threads; false if the queue is closed.
    pub fn push_for_all(&self, add: impl FnOnce(&mut S)) -> bool {
        self.change(add, || self.changed.notify_all())
    }

    fn change(&self, add: impl FnOnce(&mut S), wake: impl FnOnce()) -> bool {
        let mut state = self.state.lock();
        if state.is_closed {
            return false;
        }
        add(&mut state.value);
        drop(state);
        wake();
        true
    }

    /// Waits until `take` returns something, which a closed queue is asked for as well; `None` if
    /// that has nothing.
    pub fn take<T>(&self, mut take: impl FnMut(&mut S) -> Option<T>) -> Option<T> {
        let (mut state, mut taken) = (self.state.lock(), None);
        self.changed.wait_while(&mut state, |state| {
            taken = take(&mut state.value);
            taken.is_none() && !state.is_closed
        });
        taken
    }

    /// As [`Queue::take`], but waits at most this long: `None` if nothing came.
    pub fn take_within<T>(
        &self,
        patience: Duration,
        mut take: impl FnMut(&mut S) -> Option<T>,
    ) -> Result<Option<T>, Closed> {
        let (mut state, mut taken) = (self.state.lock(), None);
        let wait = |state: &mut State<S>| {
            taken = take(&mut state.value);
            taken.is_none() && !state.is_closed
        };
        self.changed.wait_while_for(&mut state, wait, patience);
        if taken.is_none() && state.is_closed { Err(Closed) } else { Ok(taken) }
    }

    /// Takes nothing more, and wakes all threads. `clear` drops work that is not to be done.
    pub fn close(&self, clear: impl FnOnce(&mut S)) {
        let mut state = self.state.lock();
        state.is_closed = true;
        clear(&mut state.value);
        drop(state);
        self.changed.notify_all();
    }
}

/// Number of things that are going on.
#[derive(Debug, Default)]
pub struct Gauge(AtomicUsize);

/// Counts one thing until it is dropped.
#[derive(Debug)]
pub struct Counted<'a>(&'a AtomicUsize);

impl Gauge {
    /// Counts one more.
    pub fn count(&self) -> Counted<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Counted(&self.0)
    }

    /// The present number.
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Load of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolLoad {
    /// Threads with a job.
    pub active: usize,
    /// Jobs that wait for a thread, and callers that wait for room or for a permit.
    pub waiting: usize,
}

/// A fixed number of threads with one bounded queue of jobs. It survives panics of jobs. Dropping
/// it finishes the queued jobs and joins the threads.
#[derive(Debug)]
pub struct WorkerPool {
    workers: Workers,
    queue: Arc<Queue<Jobs>>,
    room: Arc<Semaphore>,
    /// One for each thread, held by requests whose answers are in memory.
    permits: Arc<Semaphore>,
    /// Callers without room or permit.
    waiting: Gauge,
}

#[derive(Debug, Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    active: usize,
}

#[derive(derive_more::Debug)]
#[debug("Job")]
struct Job {
    run: Box<dyn FnOnce() + Send>,
    /// Its place in the queue, free when the job begins.
    room: OwnedSemaphorePermit,
}

impl WorkerPool {
    /// Starts this many threads, called `name` and a number. With an inline spawner no job is ever
    /// done. `niceness` is added to that of the calling thread.
    pub fn start(
        spawner: Spawner,
        name: &'static str,
        threads: usize,
        niceness: i32,
    ) -> io::Result<Self> {
        let pool = Self {
            workers: Workers::default(),
            queue: Arc::default(),
            room: Arc::new(Semaphore::new(QUEUE_LENGTH * threads)),
            permits: Arc::new(Semaphore::new(threads)),
            waiting: Gauge::default(),
        };
        for number in 1..=threads {
            let queue = Arc::clone(&pool.queue);
            // If this fails, dropping the pool ends the other threads.
            let run = move || work(&queue, name);
            pool.workers.start(spawner, &format!("{name}-{number}"), niceness, run)?;
        }
        Ok(pool)
    }

    /// Queues a job as soon as there is room. It is done even if its receiver is dropped.
    pub async fn submit<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, Abandoned> {
        let (sender, receiver) = oneshot::channel();
        self.queue(Box::new(move || drop(sender.send(job())))).await?;
        Ok(receiver)
    }

    /// Queues a job that is skipped if its receiver is dropped before it begins. Waits until few
    /// requests of this pool have answers in memory; a permit of another pool is given back.
    pub async fn ask<T: Send + 'static>(
        &self,
        context: &mut RequestContext,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, Abandoned> {
        let is_ours = |permit| Arc::ptr_eq(OwnedSemaphorePermit::semaphore(permit), &self.permits);
        if !context.read_permit.as_ref().is_some_and(is_ours) {
            context.read_permit = None;
            context.read_permit = Some(self.acquire(&self.permits).await?);
        }
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
        let room = self.acquire(&self.room).await?;
        let is_queued = self.queue.push(|jobs| jobs.waiting.push_back(Job { run, room }));
        if is_queued { Ok(()) } else { Err(Abandoned) }
    }

    async fn acquire(&self, from: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Abandoned> {
        let _waiting = self.waiting.count();
        Arc::clone(from).acquire_owned().await.map_err(|_| Abandoned)
    }

    /// The present load.
    pub fn load(&self) -> PoolLoad {
        let (active, queued) = self.queue.with(|jobs| (jobs.active, jobs.waiting.len()));
        PoolLoad { active, waiting: queued + self.waiting.get() }
    }

    /// Takes no more jobs, finishes the queued ones, and joins the threads. Blocks.
    pub fn shutdown(&self) {
        self.room.close();
        self.queue.close(|_| ());
        self.workers.join();
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        self.shutdown();
    }
}

fn work(queue: &Queue<Jobs>, pool: &str) {
    let mut has_ended = false;
    while let Some(Job { run, room }) = queue.take(|jobs| {
        jobs.active -= usize::from(std::mem::take(&mut has_ended));
        let job = jobs.waiting.pop_front()?;
        jobs.active += 1;
        Some(job)
    }) {
        has_ended = true;
        drop(room);
        // A panic drops the sender of the result, so that the caller learns of it.
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            log::error!("a job of the pool {pool} panicked; its request fails");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::sync::mpsc;
    use std::time::Duration;

    fn context() -> RequestContext {
        RequestContext::new(1 << 20)
    }

    #[test]
    fn a_loop_that_panics_is_restarted_until_the_workers_end() {
        let (runs, rests) = (Cell::new(0), Cell::new(0));
        let run = || {
            runs.set(runs.get() + 1);
            assert!(runs.get() >= 3, "on purpose");
        };
        let rest = || {
            rests.set(rests.get() + 1);
            true
        };
        run_until_done("flush", run, rest);
        assert_eq!((runs.get(), rests.get()), (3, 2));
        run_until_done("flush", || panic!("on purpose"), || false);
    }

    #[tokio::test]
    async fn a_panicking_job_fails_alone() {
        let pool = WorkerPool::start(Spawner::Threads, "test", 1, 0).unwrap();
        let bad = pool.submit(|| panic!("on purpose")).await.unwrap();
        let good = pool.submit(|| 7).await.unwrap();
        assert!(bad.await.is_err());
        assert_eq!(good.await, Ok(7));
    }

    /// Gives the only thread of a pool a job that ends when the sender is used.
    async fn occupied(pool: &WorkerPool) -> (oneshot::Receiver<()>, mpsc::Sender<()>) {
        let (begun, has_begun) = oneshot::channel();
        let (go_on, gate) = mpsc::channel();
        let job = move || {
            begun.send(()).unwrap();
            gate.recv().unwrap();
        };
        let first = pool.submit(job).await.unwrap();
        has_begun.await.unwrap();
        (first, go_on)
    }

    #[tokio::test]
    async fn a_full_queue_makes_callers_wait() {
        let pool = Arc::new(WorkerPool::start(Spawner::Threads, "test", 1, 0).unwrap());
        let (first, go_on) = occupied(&pool).await;
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
        let pool = WorkerPool::start(Spawner::Threads, "test", 1, 0).unwrap();
        let (first, go_on) = occupied(&pool).await;
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
        let pool = WorkerPool::start(Spawner::Threads, "test", 1, 0).unwrap();
        let (go_on, gate) = mpsc::channel::<()>();
        let first = pool.ask(&mut context(), move || gate.recv().unwrap()).await.unwrap();
        let done = Arc::new(std::sync::Mutex::new(Vec::new()));
        let note = |name: &'static str| {
            let done = Arc::clone(&done);
            move || done.lock().unwrap().push(name)
        };
        drop(pool.ask(&mut context(), note("a read that was given up")).await.unwrap());
        drop(pool.submit(note("a write that was given up")).await.unwrap());
        let last = pool.ask(&mut context(), note("a read")).await.unwrap();
        go_on.send(()).unwrap();
        first.await.unwrap();
        last.await.unwrap();
        assert_eq!(*done.lock().unwrap(), ["a write that was given up", "a read"]);
    }

    #[tokio::test]
    async fn shutdown_finishes_what_is_queued_and_takes_no_more() {
        let pool = WorkerPool::start(Spawner::Threads, "test", 2, 0).unwrap();
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
