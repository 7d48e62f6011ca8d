//! Rarely used services: health and reflection, by tonic.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use http::{Request, Response};
use http_body::{Body, Frame};
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tower::Service;

use super::message::release;
use tollgate_telemetry::Health;

/// The health and reflection services.
#[derive(Clone, Debug)]
pub struct AuxiliaryServices {
    routes: Routes,
}

/// The service names that Envoy's users check, and the whole server.
const SERVICES: [&str; 3] = ["", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"];

impl AuxiliaryServices {
    /// Both services, and the reporter of the health status.
    pub fn new() -> Result<(AuxiliaryServices, HealthReporter), tonic_reflection::server::Error> {
        let (reporter, health) = tonic_health::server::health_reporter();
        let reflection = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
                .register_encoded_file_descriptor_set(tollgate_proto::FILE_DESCRIPTOR_SET)
        };
        let routes =
            Routes::new(health).add_service(reflection().build_v1()?).add_service(reflection().build_v1alpha()?);
        Ok((AuxiliaryServices { routes: routes.prepare() }, reporter))
    }

    pub(super) async fn call(&self, request: Request<RecvStream>) -> Response<tonic::body::Body> {
        let request = request.map(|body| tonic::body::Body::new(CallBody { body, has_data: true }));
        let answered: Result<_, Infallible> = self.routes.clone().call(request).await;
        match answered {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}

/// The body of a request, for tonic.
struct CallBody {
    body: RecvStream,
    /// Whether there may be more before the trailers.
    has_data: bool,
}

impl Body for CallBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if self.has_data {
            if let Some(data) = ready!(self.body.poll_data(context)) {
                return Poll::Ready(Some(data.map(|data| {
                    release(&mut self.body, data.len());
                    Frame::data(data)
                })));
            }
            self.has_data = false;
        }
        let trailers = ready!(pin!(self.body.trailers()).poll(context));
        Poll::Ready(trailers.transpose().map(|trailers| trailers.map(Frame::trailers)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

/// Reports the server's readiness to clients of `grpc.health.v1`, until the server ends.
pub async fn follow_health(health: std::sync::Arc<Health>, reporter: HealthReporter) {
    let mut ready = health.watch();
    loop {
        let status = if *ready.borrow_and_update() { ServingStatus::Serving } else { ServingStatus::NotServing };
        for service in SERVICES {
            reporter.set_service_status(service, status).await;
        }
        if ready.changed().await.is_err() {
            return;
        }
    }
}
