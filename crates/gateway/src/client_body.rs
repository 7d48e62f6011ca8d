//! The body of a client's request, before it is forwarded.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use tollgate_net::budget::{Budget, Reservation};
use tollgate_store::Steady;

use crate::answers::Answer;
use crate::clock;
use crate::forwarded_body::{ForwardedBody, UploadProgress};
use crate::hop_by_hop;
use crate::incoming_body::IncomingBody;
use crate::model::RouteConfig;

/// A body, of which a part may have been read.
pub(crate) struct ClientBody {
    ahead: Option<Bytes>,
    /// `None` if all of it was read.
    rest: Option<IncomingBody>,
    /// Those of a body of which all was read.
    trailers: Option<HeaderMap>,
    /// The most bytes that the route allows.
    max: u64,
}

impl ClientBody {
    /// # Errors
    /// If the body is larger than the route allows.
    pub(crate) fn new(route: &RouteConfig, parts: &Parts, body: IncomingBody) -> Result<ClientBody, Answer> {
        let length =
            parts.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        let came = if let IncomingBody::Whole(bytes) = &body { bytes.len() as u64 } else { 0 };
        if length.unwrap_or_default().max(came) > route.max_body {
            return Err(too_large());
        }
        Ok(ClientBody { ahead: None, rest: Some(body), trailers: None, max: route.max_body })
    }

    /// Reads the body, or a little more than `most` of a long one. Returns its part of the budget.
    ///
    /// # Errors
    /// If the body is larger than the route allows, does not arrive in time, or can't be read, or if the budget is used up.
    pub(crate) async fn read_ahead<'b>(
        &mut self,
        most: usize,
        idle: Duration,
        deadline: Option<Steady>,
        budget: &'b Budget,
    ) -> Result<Reservation<'b>, Answer> {
        let mut reservation = budget.reserve(0).ok_or_else(no_memory)?;
        let Some(mut body) = self.rest.take() else { return Ok(reservation) };
        let mut ahead = BytesMut::new();
        while ahead.len() <= most {
            let time = clock::until(deadline).map_or(idle, |left| left.min(idle));
            match tokio::time::timeout(time, body.frame()).await {
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) if (ahead.len() + data.len()) as u64 > self.max => return Err(too_large()),
                    Ok(data) if !reservation.grow(data.len()) => return Err(no_memory()),
                    Ok(data) => ahead.extend_from_slice(&data),
                    Err(frame) => {
                        self.trailers = frame.into_trailers().ok();
                        self.trailers.iter_mut().for_each(hop_by_hop::clean_trailers);
                    }
                },
                Ok(None) => {
                    self.ahead = Some(ahead.freeze());
                    return Ok(reservation);
                }
                Ok(Some(Err(_))) => return Err(Answer::bad_request("broken_body", "The body could not be read.")),
                Err(_) => {
                    let detail = "The body did not arrive in time.";
                    return Err(Answer::problem(StatusCode::REQUEST_TIMEOUT, "body_timeout", detail).closing());
                }
            }
        }
        (self.ahead, self.rest) = (Some(ahead.freeze()), Some(body));
        Ok(reservation)
    }

    /// What was read of the body, or came with the head if that is all of it.
    pub(crate) fn arrived(&self) -> Option<&[u8]> {
        match &self.rest {
            Some(IncomingBody::Whole(bytes)) if !bytes.is_empty() => Some(bytes),
            _ => self.ahead.as_deref(),
        }
    }

    /// The whole body, if it was read.
    pub(crate) fn whole(&self) -> Option<&[u8]> {
        self.ahead.as_deref().filter(|_| self.rest.is_none())
    }

    /// Sends another body.
    pub(crate) fn replace(&mut self, body: Vec<u8>) {
        (self.ahead, self.rest) = (Some(body.into()), None);
    }

    /// The body for the upstream, and how far it was sent if it is not in memory.
    pub(crate) fn into_request(self, route: &RouteConfig) -> (ForwardedBody, Option<Arc<UploadProgress>>) {
        let whole = match self.rest {
            None => ForwardedBody::read(self.ahead.unwrap_or_default(), self.trailers),
            Some(IncomingBody::Whole(bytes)) if self.ahead.is_none() => ForwardedBody::read(bytes, None),
            Some(rest) if rest.is_end_stream() && self.ahead.is_none() => ForwardedBody::Whole(None),
            Some(rest) => {
                let idle = route.timeouts.request_idle;
                let (body, progress) = ForwardedBody::streamed(self.ahead, rest, self.max, idle);
                return (body, Some(progress));
            }
        };
        (whole, None)
    }
}

fn no_memory() -> Answer {
    let detail = "Too many requests are being read at the same time.";
    let answer = Answer::problem(StatusCode::SERVICE_UNAVAILABLE, "too_many_bodies", detail);
    answer.with_header(header::RETRY_AFTER, HeaderValue::from_static("1")).closing()
}

fn too_large() -> Answer {
    let detail = "The body is larger than this route allows.";
    Answer::problem(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail).closing()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use http::Request;

    use super::*;
    use crate::model::GatewayConfig;

    const CONFIG: &str = "
listen: 127.0.0.1:8000
upstreams: {app: {servers: [127.0.0.1:9000]}}
routes: [{name: all, match: /*, upstream: app}]
";

    #[tokio::test]
    async fn bodies_that_are_read_at_the_same_time_have_a_bound() {
        let config = GatewayConfig::read("gateway.yaml", CONFIG, Path::new("")).unwrap().config;
        let parts = Request::new(()).into_parts().0;
        let budget = Budget::new(100);
        let read = async |bytes: usize| {
            let body = IncomingBody::Whole(vec![b'x'; bytes].into());
            let mut body = ClientBody::new(&config.routes[0], &parts, body).unwrap();
            let read = body.read_ahead(1_000, Duration::from_secs(1), None, &budget).await;
            read.map(|reservation| (reservation, body.arrived().map(<[u8]>::len)))
        };
        let (first, arrived) = read(60).await.unwrap();
        assert_eq!(arrived, Some(60));
        let refused = read(41).await.unwrap_err();
        assert_eq!((refused.status(), refused.retry_after()), (StatusCode::SERVICE_UNAVAILABLE, Some(1)));
        let second = read(40).await.unwrap();
        drop(first);
        assert_eq!(read(60).await.unwrap().1, Some(60));
        drop(second);
    }
}
