//! Several futures at once, on one task.

use std::pin::Pin;
use std::task::Poll;

/// Waits for all of these; the results are in their order. They are begun in that order as well.
pub(super) async fn all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<Pin<Box<F>>> = futures.map(Box::pin).collect();
    let mut results: Vec<Option<F::Output>> = running.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, result) in running.iter_mut().zip(&mut results) {
            if result.is_none()
                && let Poll::Ready(output) = future.as_mut().poll(context)
            {
                *result = Some(output);
            }
        }
        if results.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    results.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

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
