//! Reporting the real cost of a request.

use std::sync::{Arc, Mutex, PoisonError};

use tollgate_core::EXACT;

/// A handle in the extensions of every request that passes, through which its handler reports the real cost: tokens
/// that were generated, bytes that were sent. Cheap to clone; clones share the report.
///
/// The last report before the response body ends or is dropped replaces the reserved amount, under rules with `settle:
/// true`. Without such a rule a report has no effect.
///
/// ```
/// use tollgate_http::tower::Spent;
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
    /// The largest cost. Higher reports are clamped to it.
    pub const MAX_COST: u64 = EXACT - 1;

    /// The handle of a request with something to settle.
    pub(super) fn counted() -> Spent {
        Spent(Some(Arc::default()))
    }

    /// Reports the cost of the whole request so far. The last report counts.
    pub fn report(&self, cost: u64) {
        if let Some(last) = &self.0 {
            *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(cost.min(Self::MAX_COST));
        }
    }

    /// The last report.
    pub(super) fn last(&self) -> Option<u64> {
        *self.0.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that did not pass through the layer gets a handle whose reports are ignored.
#[cfg(feature = "axum")]
impl<S: Sync> axum::extract::FromRequestParts<S> for Spent {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(head: &mut http::request::Parts, _state: &S) -> Result<Spent, Self::Rejection> {
        Ok(head.extensions.get().cloned().unwrap_or_default())
    }
}
