//! What lasts from the admission of a request to the end of its response.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;

use crate::charged::Charged;
use crate::forwarded_body::{UploadProgress, UploadState};
use crate::metering::ResponseMeter;
use crate::upstream::{Lease, RequestInFlight};

/// What a request holds while its response passes through.
pub(crate) struct Exchange {
    /// Goes back to the pool at the end, and is closed otherwise.
    lease: Option<Lease>,
    upload: Arc<UploadProgress>,
    /// Reads what the request really cost.
    meter: Option<Box<ResponseMeter>>,
    _in_flight: Option<RequestInFlight>,
    /// Settles what was charged, when it is dropped.
    charged: Charged,
}

impl Exchange {
    pub(crate) fn new(
        lease: Lease,
        in_flight: RequestInFlight,
        upload: Arc<UploadProgress>,
        meter: Option<Box<ResponseMeter>>,
        charged: Charged,
    ) -> Exchange {
        Exchange { lease: Some(lease), upload, meter, _in_flight: Some(in_flight), charged }
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

    /// What the client gets at the end of the body.
    pub(crate) fn last(&mut self) -> Option<Bytes> {
        self.meter.as_mut()?.last()
    }

    /// The body has ended. If the server answered before it had the request's body, its connection is not used again: the
    /// next request would wait for what this client still sends.
    pub(crate) fn end(&mut self) {
        if let Some(lease) = self.lease.take().filter(|_| self.upload.get() == UploadState::Done) {
            lease.release();
        }
    }

    /// The upstream failed.
    pub(crate) fn fail(&mut self) {
        self.lease = None;
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
