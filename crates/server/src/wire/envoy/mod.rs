//! Envoy's rate limit messages and what they mean: the part that gRPC and `/json` share.

mod answer;
mod ask;
pub(crate) mod descriptor;
mod json;
mod route;

use std::sync::Arc;

use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use http::HeaderMap;
use tollgate::{Replay, RequestError, Span};

use crate::gate::Gate;
use crate::wire::instructions::ONCE;
use ask::Asked;

pub(crate) use route::{description, routes};

/// Answers rate limit requests.
#[derive(Debug)]
pub(crate) struct Envoy {
    gate: Arc<Gate>,
    extras: Extras,
}

/// What is told to Envoy beside the verdict and the readings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extras {
    /// Headers for the client.
    pub(crate) headers: Option<HeaderNames>,
    /// The `metadata` of the limits that a request met and passed.
    pub(crate) metadata: bool,
}

/// How the headers for the client are called.
#[derive(Clone, Debug)]
pub(crate) struct HeaderNames {
    pub(crate) limit: String,
    pub(crate) remaining: String,
    pub(crate) reset: String,
}

/// Why a request is no request. The caller's mistake, in words for the caller.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) String);

impl Envoy {
    pub(crate) fn new(gate: Arc<Gate>, extras: Extras) -> Envoy {
        Envoy { gate, extras }
    }

    /// What it asks.
    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Decides one request, which came with these headers, for one who waits no longer than `patience`.
    pub(crate) async fn should_rate_limit(
        &self,
        request: &RateLimitRequest,
        headers: &HeaderMap,
        patience: Option<Span>,
    ) -> Result<RateLimitResponse, Refusal> {
        let limits = ask::limits(request, &self.gate)?;
        let asked = Asked::new(request, &limits)?;
        let descriptors = asked.descriptors();
        let asked = asked.request(&descriptors);
        match self.gate.check(&asked, headers, patience).await {
            Ok(decision) if decision.replay() == Replay::Conflict => Err(Refusal(format!(
                "the idempotency key in {ONCE} has named another request; give each request a key of its own"
            ))),
            Ok(decision) => Ok(answer::respond(&asked, &decision, &self.gate, &self.extras)),
            Err(RequestError::UnknownDomain) => Ok(answer::nothing_applies(request.descriptors.len())),
            Err(error) => Err(Refusal(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests;
