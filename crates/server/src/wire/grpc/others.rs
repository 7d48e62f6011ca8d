//! What is not asked often: health and reflection, by tonic.

use std::convert::Infallible;

use http::{Request, Response};
use hyper::body::Incoming;
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tower::Service;

use super::body::Body;
use crate::health::Health;
use crate::wire::envoy::descriptor;

/// The other services.
#[derive(Clone, Debug)]
pub(crate) struct Others {
    routes: Routes,
}

/// What Envoy's users ask the health of; and of everything.
const SERVICES: [&str; 3] = ["", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"];

impl Others {
    /// Both services, and who tells the health.
    pub(crate) fn new() -> Result<(Others, HealthReporter), tonic_reflection::server::Error> {
        let (reporter, health) = tonic_health::server::health_reporter();
        let ours = descriptor::file_descriptor_set();
        let reflection = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
                .register_encoded_file_descriptor_set(&ours)
        };
        let routes =
            Routes::new(health).add_service(reflection().build_v1()?).add_service(reflection().build_v1alpha()?);
        Ok((Others { routes: routes.prepare() }, reporter))
    }

    pub(super) async fn call(&self, request: Request<Incoming>) -> Response<Body> {
        let answered: Result<_, Infallible> = self.routes.clone().call(request.map(tonic::body::Body::new)).await;
        match answered {
            Ok(response) => response.map(Body::Tonic),
            Err(never) => match never {},
        }
    }
}

/// Tells clients of `grpc.health.v1` whether the server is ready, until it ends.
pub(crate) async fn follow_health(health: std::sync::Arc<Health>, reporter: HealthReporter) {
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
