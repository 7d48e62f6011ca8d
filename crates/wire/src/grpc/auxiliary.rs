//! Rarely used services: health and reflection, by tonic.

use std::convert::Infallible;

use http::{Request, Response};
use hyper::body::Incoming;
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tower::Service;

use super::body::GrpcBody;
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

    pub(super) async fn call(&self, request: Request<Incoming>) -> Response<GrpcBody> {
        let answered: Result<_, Infallible> = self.routes.clone().call(request.map(tonic::body::Body::new)).await;
        match answered {
            Ok(response) => response.map(GrpcBody::Tonic),
            Err(never) => match never {},
        }
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
