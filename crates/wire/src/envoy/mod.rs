//! Envoy's rate limit messages: shared by gRPC and `/json`.

mod json;
mod request;
mod response;
mod route;
mod value;

use std::sync::Arc;

use http::HeaderMap;
use tollgate::{Replay, RequestError, Span};
use tollgate_proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

use crate::gate::Gate;
use crate::instructions::ONCE;
use request::{EnvoyRequest, EscapedValues};

#[cfg(test)]
pub(crate) use route::description;
pub use route::routes;

/// Answers rate limit requests.
#[derive(Debug)]
pub struct Envoy {
    gate: Arc<Gate>,
    extras: ResponseExtras,
}

/// What responses contain besides the verdict and the readings.
#[derive(Clone, Debug, Default)]
pub struct ResponseExtras {
    /// Headers for the client.
    pub headers: Option<HeaderNames>,
    /// The `metadata` of the limits that a request passed.
    pub metadata: bool,
}

/// The names of the headers for the client.
#[derive(Clone, Debug)]
pub struct HeaderNames {
    pub limit: String,
    pub remaining: String,
    pub reset: String,
}

/// Why a request is invalid, for the caller.
#[derive(Debug, PartialEq, Eq)]
pub struct InvalidRequest(pub String);

impl Envoy {
    pub fn new(gate: Arc<Gate>, extras: ResponseExtras) -> Envoy {
        Envoy { gate, extras }
    }

    /// The gate to the limiter.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Decides one request with these headers, within `timeout`.
    pub async fn should_rate_limit(
        &self,
        request: &RateLimitRequest,
        headers: &HeaderMap,
        timeout: Option<Span>,
    ) -> Result<RateLimitResponse, InvalidRequest> {
        let limits = request::limits(request, &self.gate)?;
        let escaped = EscapedValues::new();
        let parsed = EnvoyRequest::new(request, &limits, &escaped)?;
        let descriptors = parsed.descriptors();
        let check = parsed.request(&descriptors);
        match self.gate.check(&check, headers, timeout).await {
            Ok(decision) if decision.replay() == Replay::Conflict => Err(InvalidRequest(format!(
                "the idempotency key in {ONCE} was used for another request; use a new key for every request"
            ))),
            Ok(decision) => Ok(response::respond(&check, &decision, &self.gate, &self.extras)),
            Err(RequestError::UnknownDomain) => Ok(response::nothing_applies(request.descriptors.len())),
            Err(error) => Err(InvalidRequest(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests;
