//! Envoy's rate limit messages: shared by gRPC and `/json`.

mod client;
mod json;
mod repair;
mod request;
mod response;
mod route;

use std::sync::Arc;

use http::HeaderMap;
use tollgate::{RequestError, Span};
use tollgate_http::response::ResponseStyle;
use tollgate_proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

use crate::attributes::Undecided;
use crate::gate::Gate;
use request::EnvoyRequest;

pub use client::EnvoyResponse;
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
    /// The headers for the client, and the body of refusals, in the same form as over HTTP.
    pub client: Option<ResponseStyle>,
    /// Headers for the client by envoyproxy/ratelimit's names.
    pub headers: Option<HeaderNames>,
    /// The `metadata` of the limits that a request passed.
    pub metadata: bool,
}

/// The names of envoyproxy/ratelimit's headers for the client.
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
    ///
    /// # Errors
    /// If the gateway's configuration is wrong. Whatever its clients send is decided.
    pub async fn should_rate_limit(
        &self,
        request: &RateLimitRequest,
        headers: &HeaderMap,
        timeout: Option<Span>,
    ) -> Result<EnvoyResponse, InvalidRequest> {
        let limits = request::limits(request, &self.gate)?;
        let repaired;
        let parsed = match EnvoyRequest::new(request, &limits)? {
            Some(parsed) => parsed,
            None => match repair::repair(request, &self.gate) {
                Ok(request) => {
                    repaired = request;
                    EnvoyRequest::repaired(&repaired, &limits)?
                }
                Err(Undecided) => return Ok(self.undecided(Some(&request.domain), request.descriptors.len()).into()),
            },
        };
        parsed.count_ignored(self.gate.metrics());
        let descriptors = parsed.descriptors();
        let check = parsed.request(&descriptors);
        let mut decision = self.gate.limiter().decision();
        match self.gate.check(&check, headers, timeout, &mut decision).await {
            Ok(()) => Ok(response::respond(&check, &decision, &self.gate, &self.extras)),
            Err(RequestError::UnknownDomain) => Ok(response::nothing_applies(request.descriptors.len()).into()),
            Err(RequestError::TooMany { .. } | RequestError::TooLong | RequestError::BadOnce) => {
                Ok(self.undecided(Some(&request.domain), request.descriptors.len()).into())
            }
            Err(error) => Err(InvalidRequest(error.to_string())),
        }
    }

    /// The response to a request that can't be decided, with so many descriptors, by the policies of the rules.
    #[cold]
    pub(crate) fn undecided(&self, domain: Option<&str>, descriptors: usize) -> RateLimitResponse {
        response::without_limits(self.gate.pass_undecided(domain), descriptors)
    }
}

#[cfg(test)]
mod tests;
