//! What a request really cost, told by whoever serves it.

use std::sync::{Arc, Mutex, PoisonError};

use tollgate_core::EXACT;

/// A handle in the extensions of every request that passes, by which its handler reports the real cost: tokens that were
/// generated, bytes that were sent. Cheap to clone; the clones are one.
///
/// The last report before the response body has ended or was dropped takes the place of what was reserved, under rules that say
/// `settle: true`. Where the request met no such rule, a report changes nothing.
///
/// ```
/// use tollgate::tower::Spent;
///
/// fn generate(request: http::Request<String>) -> http::Response<String> {
///     let answer = request.body().to_uppercase();
///     if let Some(spent) = request.extensions().get::<Spent>() {
///         spent.report(answer.split(' ').count() as u64);
///     }
///     http::Response::new(answer)
/// }
/// # generate(http::Request::new(String::new()));
/// ```
///
/// With the feature `axum` it is an argument of handlers: `async fn generate(spent: Spent) { … }`.
#[derive(Clone, Debug, Default)]
pub struct Spent(Option<Arc<Mutex<Option<u64>>>>);

impl Spent {
    /// The most that a request can cost. What is reported above it is this.
    pub const MOST: u64 = EXACT - 1;

    /// The handle of a request that has something to settle.
    pub(super) fn counted() -> Spent {
        Spent(Some(Arc::default()))
    }

    /// Reports the cost of the request as a whole, so far. The last report counts.
    pub fn report(&self, cost: u64) {
        if let Some(last) = &self.0 {
            *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(cost.min(Self::MOST));
        }
    }

    /// What was reported last.
    pub(super) fn last(&self) -> Option<u64> {
        *self.0.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that did not come through the layer has a handle that nobody reads.
#[cfg(feature = "axum")]
impl<S: Sync> axum::extract::FromRequestParts<S> for Spent {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(head: &mut http::request::Parts, _state: &S) -> Result<Spent, Self::Rejection> {
        Ok(head.extensions.get().cloned().unwrap_or_default())
    }
}
