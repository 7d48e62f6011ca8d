//! A bound on waiting that costs nothing where there is nothing to wait for.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// What a future gives within this time. Most of what is awaited here is there already: a timer is set only if it is not.
pub(crate) async fn within<F: Future>(time: Duration, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    match poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await {
        Poll::Ready(output) => Some(output),
        Poll::Pending => tokio::time::timeout(time, future).await.ok(),
    }
}
