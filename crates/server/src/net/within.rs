//! A bound on waiting that costs nothing where there is nothing to wait for.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// What a future gives within this time. Most of what is awaited here is there already, at the latest at the second poll: a
/// connection hands a body out only when it was asked for it. So a timer is set only after that.
pub(crate) async fn within<F: Future>(time: Duration, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut asked = false;
    let soon = poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if asked => Poll::Ready(None),
        Poll::Pending => {
            asked = true;
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
    match soon {
        Some(output) => Some(output),
        None => tokio::time::timeout(time, future).await.ok(),
    }
}
