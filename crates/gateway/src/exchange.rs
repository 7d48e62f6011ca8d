//! What lasts from the admission of a request to the end of its response.

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;

use crate::charged::Charged;
use crate::metering::ResponseMeter;
use crate::upstream::RequestInFlight;

/// What a request holds while its response passes through.
pub(crate) struct Exchange {
    /// Reads what the request really cost.
    meter: Option<Box<ResponseMeter>>,
    _in_flight: RequestInFlight,
    /// Settles what was charged, when it is dropped.
    charged: Charged,
}

impl Exchange {
    pub(crate) fn new(in_flight: RequestInFlight, meter: Option<Box<ResponseMeter>>, charged: Charged) -> Exchange {
        Exchange { meter, _in_flight: in_flight, charged }
    }

    /// A part of the body passes. Returns what the client gets of it.
    pub(crate) fn frame(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        if frame.trailers_ref().is_some_and(tollgate_http::tower::is_grpc_failure) {
            self.charged.fail();
        }
        match &mut self.meter {
            Some(meter) => frame.map_data(|data| meter.frame(data)),
            None => frame,
        }
    }

    /// Whether the client gets another body than the upstream's.
    pub(crate) fn changes_body(&self) -> bool {
        self.meter.as_ref().is_some_and(|meter| meter.changes_body())
    }

    /// What the client gets at the end of the body.
    pub(crate) fn last(&mut self) -> Option<Bytes> {
        self.meter.as_mut()?.last()
    }

    /// The upstream failed.
    pub(crate) fn fail(&mut self) {
        self.charged.fail();
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if let Some(cost) = self.meter.take().and_then(|meter| meter.cost()) {
            self.charged.set_cost(cost);
        }
    }
}

/// Whether the headers of a response say that the upstream failed.
pub(crate) fn is_failure(status: http::StatusCode, headers: &HeaderMap) -> bool {
    status.is_server_error() || tollgate_http::tower::is_grpc_failure(headers)
}
