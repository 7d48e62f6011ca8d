//! Futures that run at the same time, on no executor but the one that polls them, and not for longer than they may.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use smallvec::SmallVec;

use crate::sharded::Failure;

/// Runs all of them to their ends. Each is polled at least once before this waits for any.
pub(super) async fn together<F: Future<Output = ()>>(futures: impl IntoIterator<Item = F>) {
    let mut running: SmallVec<[Pin<Box<F>>; 4]> = futures.into_iter().map(Box::pin).collect();
    poll_fn(|context| {
        running.retain(|future| future.as_mut().poll(context).is_pending());
        if running.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Runs a call of the store, for so long at most. One that is ready at once needs no timer.
pub(super) async fn in_time<T>(within: Duration, call: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let mut call = pin!(call);
    let first = poll_fn(|context| match call.as_mut().poll(context) {
        Poll::Ready(answer) => Poll::Ready(Some(answer)),
        Poll::Pending => Poll::Ready(None),
    });
    match first.await {
        Some(answer) => answer,
        None => tokio::time::timeout(within, call).await.unwrap_or(Err(Failure::Timeout)),
    }
}
