//! A timeout that sets no timer for futures that are ready.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// The output of a future, or `None` after the timeout. Most futures here are ready at the second poll at the latest: a
/// connection hands out a body only after the first. So the timer is set after two polls.
pub async fn timeout<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut polled = false;
    let ready = poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if polled => Poll::Ready(None),
        Poll::Pending => {
            polled = true;
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
    match ready {
        Some(output) => Some(output),
        None => tokio::time::timeout(limit, future).await.ok(),
    }
}
