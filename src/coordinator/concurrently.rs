//! Several futures at once, on one task.

use crate::base::lock::{Mutex, rank};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Which futures want to be polled. Only those are: there may be thousands, all of which wait for
/// other nodes.
struct Woken {
    numbers: Mutex<rank::Wakers, Vec<usize>>,
    /// Wakes the task.
    task: Mutex<rank::Wakers, Waker>,
}

/// Wakes one future.
struct Slot {
    number: usize,
    is_woken: AtomicBool,
    woken: Arc<Woken>,
}

impl Wake for Slot {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::AcqRel) {
            self.woken.numbers.lock().push(self.number);
            // Not under the lock: the task may be one of several as well.
            let task = self.woken.task.lock().clone();
            task.wake();
        }
    }
}

/// A future that is not done yet.
struct Running<F> {
    future: Pin<Box<F>>,
    slot: Arc<Slot>,
    waker: Waker,
}

/// Waits for all of these; the results are in their order. They are begun in that order as well.
pub(super) async fn all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let (numbers, task) = (Mutex::default(), Mutex::new(Waker::noop().clone()));
    let woken = Arc::new(Woken { numbers, task });
    let begin = |(number, future)| {
        let (is_woken, woken) = (AtomicBool::new(true), Arc::clone(&woken));
        let slot = Arc::new(Slot { number, is_woken, woken });
        Some(Running { future: Box::pin(future), waker: Waker::from(Arc::clone(&slot)), slot })
    };
    let mut running: Vec<Option<Running<F>>> = futures.enumerate().map(begin).collect();
    let mut results: Vec<Option<F::Output>> = running.iter().map(|_| None).collect();
    let mut left = running.len();
    woken.numbers.lock().extend(0..left);
    std::future::poll_fn(|context| {
        woken.task.lock().clone_from(context.waker());
        let numbers = std::mem::take(&mut *woken.numbers.lock());
        for number in numbers {
            let Some(Running { future, slot, waker }) = &mut running[number] else { continue };
            slot.is_woken.store(false, Ordering::Release);
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(waker)) {
                results[number] = Some(output);
                running[number] = None;
                left -= 1;
            }
        }
        if left == 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    results.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn only_those_that_were_woken_are_polled() {
        const COUNT: usize = 1000;
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..COUNT).map(|_| oneshot::channel()).unzip();
        let polls = Cell::new(0);
        let counted = |receiver: oneshot::Receiver<usize>| {
            let (mut receiver, polls) = (Box::pin(receiver), &polls);
            std::future::poll_fn(move |context| {
                polls.set(polls.get() + 1);
                receiver.as_mut().poll(context)
            })
        };
        let send = async {
            for (number, sender) in senders.into_iter().enumerate() {
                tokio::task::yield_now().await;
                sender.send(number).unwrap();
            }
        };
        let all = pin!(super::all(receivers.into_iter().map(counted)));
        let (results, ()) = tokio::join!(all, send);
        assert_eq!((results.len(), polls.get()), (COUNT, 2 * COUNT));
    }

    #[tokio::test]
    async fn results_stand_in_the_order_of_the_futures() {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| oneshot::channel()).unzip();
        let all = super::all(receivers.into_iter());
        let send = async {
            for (number, sender) in senders.into_iter().enumerate().rev() {
                sender.send(number).unwrap();
                tokio::task::yield_now().await;
            }
        };
        let (results, ()) = tokio::join!(all, send);
        assert_eq!(results.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [0, 1, 2]);
    }
}
