//! `tollgate demo-upstream`: an application for `make demo-gateway` that serves so many requests at once and lets others
//! wait, and that is slower from time to time.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::{Response, header};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tollgate::{Clock as _, SystemClock, Timestamp};

use super::run_to_end;

/// An upstream for the demo.
#[derive(Debug, Args)]
pub(crate) struct DemoUpstream {
    /// Where to listen
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9000")]
    listen: SocketAddr,
    /// Requests that are served at the same time; others wait
    #[arg(long, value_name = "N", default_value = "16", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    slots: u32,
    /// The mean time of a request, in milliseconds
    #[arg(long, value_name = "MS", default_value = "20", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    latency: u32,
    /// When requests begin to take three times as long, for a minute, and again every three minutes
    #[arg(long, value_name = "SECONDS", default_value = "45")]
    slow_after: u64,
}

/// Connections at the same time. Others wait for their turn.
const MAX_CONNECTIONS: usize = 1_024;
/// How much slower it is at times, how long, and how often.
const SLOWDOWN: u32 = 3;
const SLOW_LASTS: u64 = 60;
const SLOW_EVERY: u64 = 180;
/// The path of the health check, which does not wait for a slot.
const HEALTH: &str = "/healthz";

/// What all connections share.
struct Application {
    slots: Semaphore,
    latency: Duration,
    slow_after: u64,
    begun: Timestamp,
    clock: SystemClock,
}

impl DemoUpstream {
    pub(crate) fn run(&self) -> ExitCode {
        run_to_end(self.serve())
    }

    async fn serve(&self) -> Result<(), String> {
        let listener = TcpListener::bind(self.listen).await.map_err(|error| format!("{}: {error}", self.listen))?;
        let clock = SystemClock::default();
        let application = Arc::new(Application {
            slots: Semaphore::new(self.slots as usize),
            latency: Duration::from_millis(self.latency.into()),
            slow_after: self.slow_after,
            begun: clock.now(),
            clock,
        });
        let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let Ok(permit) = connections.clone().acquire_owned().await else { return Ok(()) };
            let (stream, _) = listener.accept().await.map_err(|error| error.to_string())?;
            // A response is one small write.
            let _ = stream.set_nodelay(true);
            let application = application.clone();
            tokio::spawn(async move {
                let service = service_fn(|request: http::Request<_>| {
                    let (application, path) = (application.clone(), request.uri().path().to_owned());
                    async move { Ok::<_, Infallible>(application.respond(&path).await) }
                });
                // What breaks a connection is its client's problem.
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                drop(permit);
            });
        }
    }
}

impl Application {
    async fn respond(&self, path: &str) -> Response<Full<Bytes>> {
        if path != HEALTH {
            // The semaphore is never closed.
            let _slot = self.slots.acquire().await;
            let second = self.clock.now().since(self.begun).as_micros() / 1_000_000;
            tokio::time::sleep(self.service_time(second, fastrand::f64())).await;
        }
        let mut response = Response::new(Full::new(Bytes::from_static(b"{\"ok\": true}\n")));
        response.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
        response
    }

    /// Exponential, for a uniform `chance`; at most seven times the mean.
    fn service_time(&self, second: u64, chance: f64) -> Duration {
        let is_slow = second.checked_sub(self.slow_after).is_some_and(|since| since % SLOW_EVERY < SLOW_LASTS);
        let mean = if is_slow { self.latency * SLOWDOWN } else { self.latency };
        mean.mul_f64((-(1.0 - chance).ln()).clamp(0.0, 7.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_slower_for_a_minute_every_three() {
        let clock = SystemClock::default();
        let (slots, begun) = (Semaphore::new(1), clock.now());
        let application = Application { slots, latency: Duration::from_millis(20), slow_after: 45, begun, clock };
        let mean = |second| {
            let times = (0..1_000).map(|step| application.service_time(second, f64::from(step) / 1_000.0));
            (times.sum::<Duration>() / 1_000).as_millis()
        };
        let means: Vec<_> = [0, 44, 45, 104, 105, 225].into_iter().map(mean).collect();
        assert_eq!(means, [19, 19, 59, 59, 19, 59]);
        assert_eq!(application.service_time(0, 1.0), Duration::from_millis(140));
    }
}
