//! Waiting for the answers of replicas.

use std::time::Duration;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::{Instant, sleep_until};

/// What happens next to who waits for answers.
#[derive(Debug)]
pub(super) enum Next<T> {
    /// One has come.
    Arrived(T),
    /// They take longer than is usual, so that one more replica should be asked.
    AreSlow,
    /// The time is over.
    IsOver,
}

/// The answers to one request, as they come.
#[derive(Debug)]
pub(super) struct Answers<T> {
    inbox: UnboundedReceiver<T>,
    /// After how long they are slow; `None`: never.
    patience: Option<Duration>,
    /// When they are slow next.
    next_slow: Option<Instant>,
    deadline: Instant,
}

impl<T> Answers<T> {
    /// None so far. They come by the sender.
    pub(super) fn new(patience: Option<Duration>, deadline: Instant) -> (UnboundedSender<T>, Self) {
        let (arrivals, inbox) = mpsc::unbounded_channel();
        let mut answers = Self { inbox, patience, next_slow: None, deadline };
        answers.begin_round();
        (arrivals, answers)
    }

    /// Waits for what happens next.
    pub(super) async fn next(&mut self) -> Next<T> {
        let until = self.next_slow.map_or(self.deadline, |at| at.min(self.deadline));
        tokio::select! {
            biased;
            Some(arrival) = self.inbox.recv() => Next::Arrived(arrival),
            () = sleep_until(until) => {
                if Instant::now() >= self.deadline {
                    return Next::IsOver;
                }
                // One after the other: if all are slow, asking all of them helps nobody.
                self.begin_round();
                Next::AreSlow
            }
        }
    }

    /// Others are asked now, who may be slow as well.
    pub(super) fn begin_round(&mut self) {
        self.next_slow = self.patience.map(|patience| Instant::now() + patience);
    }

    /// There is nobody else to ask: from now on they are never slow.
    pub(super) fn ask_no_more(&mut self) {
        self.next_slow = None;
    }

    /// They have more time.
    pub(super) fn extend(&mut self, deadline: Instant) {
        self.deadline = deadline;
        self.begin_round();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_are_slow_until_the_time_is_over() {
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        let (arrivals, mut answers) = Answers::new(Some(second), began + 4 * second);
        arrivals.send(7).unwrap();
        assert!(matches!(answers.next().await, Next::Arrived(7)));
        for number in 1..3 {
            assert!(matches!(answers.next().await, Next::AreSlow));
            assert_eq!(began.elapsed(), number * second);
        }
        answers.ask_no_more();
        assert!(matches!(answers.next().await, Next::IsOver));
        assert_eq!(began.elapsed(), 4 * second);
        answers.extend(began + 9 * second);
        assert!(matches!(answers.next().await, Next::AreSlow));
    }
}
