//! Runs futures concurrently in one task.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use smallvec::SmallVec;

/// Runs all futures to completion. Each one is polled at least once before any of them is awaited.
pub async fn join_all<F: Future<Output = ()>>(futures: impl IntoIterator<Item = F>) {
    let mut running: SmallVec<[Pin<Box<F>>; 4]> = futures.into_iter().map(Box::pin).collect();
    poll_fn(|context| {
        running.retain(|future| future.as_mut().poll(context).is_pending());
        if running.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
