//! `tollgate demo-load`: traffic for `make demo` and `make demo-gateway`, at a bounded rate, until it is stopped. And what the other
//! demos need.

mod regions;
mod relay;
mod send;
mod traffic;
mod upstream;

use std::num::NonZeroU32;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tollgate::{Clock as _, SystemClock};

use super::{EXIT_FAILURE, print_error};
pub(super) use regions::DemoRegions;
pub(super) use relay::DemoRelay;
use send::Target;
use traffic::Traffic;
pub(super) use upstream::DemoUpstream;

/// Traffic for the demo.
#[derive(Debug, Args)]
pub(super) struct DemoLoad {
    /// The address of the HTTP listener
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080")]
    http: String,
    /// The address of a gateway: it gets the requests themselves, instead of checks
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "http")]
    gateway: Option<String>,
    /// Checks or requests per second
    #[arg(long, value_name = "N", default_value = "2000", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    rate: u32,
    /// How long to wait for the server to start
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = clap::value_parser!(u32).range(..=600))]
    wait: u32,
    /// When the bad deploy begins
    #[arg(long, value_name = "SECONDS", default_value = "45")]
    deploy_after: u64,
    /// How long to run [default: forever]
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
}

/// The time between batches of checks.
const TICK: Duration = Duration::from_millis(10);
/// Connections to the server. Requests through a gateway take as long as its upstream does.
const CONNECTIONS: usize = 16;
const GATEWAY_CONNECTIONS: usize = 128;
/// Checks that may wait for each connection.
const MAX_WAITING: usize = 64;

impl DemoLoad {
    pub(super) fn run(&self) -> ExitCode {
        run_to_end(self.load())
    }

    async fn load(&self) -> Result<(), String> {
        let mut senders = Vec::new();
        let (target, connections) = match &self.gateway {
            Some(address) => (Target::Gateway(address.as_str().into()), GATEWAY_CONNECTIONS),
            None => (Target::Checks(self.http.as_str().into()), CONNECTIONS),
        };
        for _ in 0..connections {
            let connection = send::connect(target.address(), self.wait).await?;
            let (out, requests) = mpsc::channel(MAX_WAITING);
            tokio::spawn(send::send(connection, target.clone(), requests));
            senders.push(out);
        }
        let (clock, mut ticks) = (SystemClock::default(), tokio::time::interval(TICK));
        // Missed ticks are not made up for.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut traffic = Traffic::new(fastrand::Rng::new(), self.deploy_after);
        let begun = clock.now();
        let (mut due, mut next) = (0_u32, 0);
        let mut stopped = std::pin::pin!(stopped());
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = &mut stopped => return Ok(()),
            }
            let second = clock.now().since(begun).as_micros() / 1_000_000;
            if self.seconds.is_some_and(|seconds| second >= seconds) {
                return Ok(());
            }
            // In fractions of a check: a tick is a fraction of a second.
            due += self.rate;
            for _ in 0..due / TICKS_PER_SECOND {
                let request = traffic.next(second);
                next = (next + 1) % senders.len();
                // A slow server gets fewer checks.
                let _ = senders[next].try_send(request);
            }
            due %= TICKS_PER_SECOND;
            if senders.iter().all(mpsc::Sender::is_closed) {
                return Err(format!("{} does not respond any more", target.address()));
            }
        }
    }
}

/// Waits for a signal to stop.
async fn stopped() -> Option<()> {
    let interrupted = tokio::signal::ctrl_c();
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).ok()?;
    tokio::select! {
        interrupted = interrupted => interrupted.ok(),
        terminated = terminated.recv() => terminated,
    }
}

/// Runs until it ends. Says why if it fails.
fn run_to_end(work: impl Future<Output = Result<(), String>>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.map_err(|error| error.to_string()).and_then(|runtime| runtime.block_on(work)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            print_error(format_args!("error: {why}"));
            ExitCode::from(EXIT_FAILURE)
        }
    }
}

/// Ticks per second.
const TICKS_PER_SECOND: NonZeroU32 = match NonZeroU32::new(1_000 / TICK.as_millis() as u32) {
    Some(ticks) => ticks,
    None => NonZeroU32::MIN,
};
