//! `tollgate demo-regions`: traffic for `make demo-regions` that moves between regions, and what each mode of limits admitted of it.

mod ledger;

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use clap::Args;
use http::Request;
use http::header::{CONTENT_TYPE, HOST};
use http_body_util::{BodyExt as _, Full};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tollgate::{Clock as _, SystemClock, Timestamp};

use super::send::{self, HttpConnection};
use super::{MAX_WAITING, TICK, TICKS_PER_SECOND, run_to_end, stopped};
use crate::write_output;
use ledger::{Ledger, MODES};

/// Traffic for the demo of regions.
#[derive(Debug, Args)]
pub(crate) struct DemoRegions {
    /// A region, and the HTTP listeners of its servers
    #[arg(long = "region", value_name = "NAME=HOST:PORT,…", required = true, value_parser = parse_region)]
    regions: Vec<DemoRegion>,
    /// Checks per second, over all regions and modes
    #[arg(long, value_name = "N", default_value = "600", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
    /// How long to wait for the servers to start
    #[arg(long, value_name = "SECONDS", default_value = "20", value_parser = clap::value_parser!(u32).range(..=600))]
    wait: u32,
}

/// A region and its servers.
#[derive(Clone, Debug)]
struct DemoRegion {
    name: String,
    servers: Vec<String>,
}

/// A check that is sent.
#[derive(Clone, Copy, Debug)]
struct DemoCheck {
    /// The number of its region, and of its mode.
    region: usize,
    mode: usize,
}

/// An answer, as far as it is of interest.
#[derive(Debug, Deserialize)]
struct DemoAnswer {
    allowed: bool,
    reset_at: Option<u64>,
    regions: Option<String>,
}

/// The most regions.
const MAX_REGIONS: usize = 8;
/// Connections to each server. Some checks wait for another region.
const CONNECTIONS: usize = 24;
/// The period of the limits in demo/regions/rules.yaml, and the limits.
const PERIOD: u64 = 10;
const LIMIT: u64 = 600;
/// How long it takes until the traffic is in the first region again.
const DAY: f64 = 90.0;
/// The part of the traffic that a region has at its night, in relation to that of its noon.
const NIGHT: f64 = 0.1;
/// The time after a period until its last answers are there.
const GRACE: u64 = 1;

fn parse_region(text: &str) -> Result<DemoRegion, String> {
    let (name, servers) = text.split_once('=').ok_or("write NAME=HOST:PORT")?;
    Ok(DemoRegion { name: name.to_owned(), servers: servers.split(',').map(str::to_owned).collect() })
}

impl DemoRegions {
    pub(crate) fn run(&self) -> ExitCode {
        if self.regions.len() > MAX_REGIONS {
            return run_to_end(async { Err(format!("at most {MAX_REGIONS} regions")) });
        }
        run_to_end(self.load())
    }

    async fn load(&self) -> Result<(), String> {
        let names = self.regions.iter().map(|region| region.name.clone()).collect();
        let ledger = Arc::new(Mutex::new(Ledger::new(names, LIMIT, PERIOD)));
        let mut senders = Vec::new();
        for region in &self.regions {
            senders.push(self.connect(region, &ledger).await?);
        }
        let (clock, mut ticks) = (SystemClock::default(), tokio::time::interval(TICK));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let (mut rng, begun) = (fastrand::Rng::new(), clock.now());
        let (mut due, mut next, mut mode) = (0, vec![0; senders.len()], 0);
        let mut stopped = std::pin::pin!(stopped());
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = &mut stopped => break,
            }
            let now = clock.now();
            let shares = shares(now.since(begun).as_micros() as f64 / 1e6, senders.len());
            due += self.rate;
            for _ in 0..due / TICKS_PER_SECOND {
                let region = pick(&shares, rng.f64());
                mode = (mode + 1) % MODES.len();
                let others = &senders[region];
                next[region] = (next[region] + 1) % others.len();
                lock(&ledger).count_sent(region, second(now));
                // A slow server gets fewer checks.
                let _ = others[next[region]].try_send(DemoCheck { region, mode });
            }
            due %= TICKS_PER_SECOND;
            let over = lock(&ledger).take_over(second(now).saturating_sub(GRACE));
            for report in over {
                write_output(&report, 0);
            }
            if senders.iter().flatten().all(mpsc::Sender::is_closed) {
                return Err("no server responds any more".to_owned());
            }
        }
        write_output(&lock(&ledger).summary(), 0);
        Ok(())
    }

    /// Connects to the servers of a region.
    async fn connect(
        &self,
        region: &DemoRegion,
        ledger: &Arc<Mutex<Ledger>>,
    ) -> Result<Vec<mpsc::Sender<DemoCheck>>, String> {
        let mut senders = Vec::new();
        for _ in 0..CONNECTIONS {
            for server in &region.servers {
                let connection = send::connect(server, self.wait).await?;
                let (sender, checks) = mpsc::channel(MAX_WAITING);
                tokio::spawn(send_checks(connection, server.clone(), checks, ledger.clone()));
                senders.push(sender);
            }
        }
        Ok(senders)
    }
}

/// Sends checks until the connection breaks, and counts their answers.
async fn send_checks(
    mut connection: HttpConnection,
    server: String,
    mut checks: mpsc::Receiver<DemoCheck>,
    ledger: Arc<Mutex<Ledger>>,
) {
    let clock = SystemClock::default();
    while let Some(DemoCheck { region, mode }) = checks.recv().await {
        let body = json!({"domain": "shop", "attributes": {"api_key": "ada", "limit": MODES[mode].0}});
        let request = Request::post("/v1/ratelimit/check")
            .header(HOST, &*server)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body.to_string())));
        let (Ok(request), true) = (request, connection.ready().await.is_ok()) else { return };
        let Ok(response) = connection.send_request(request).await else { return };
        let Ok(body) = response.into_body().collect().await else { return };
        let Ok(answer) = serde_json::from_slice::<DemoAnswer>(&body.to_bytes()) else { continue };
        let mut ledger = lock(&ledger);
        if let Some(link) = answer.regions {
            ledger.note_link(region, &link, second(clock.now()));
        }
        if answer.allowed {
            // The period is the one in which the unit counts. An answer by policy is in none.
            let at = answer.reset_at.map_or_else(|| second(clock.now()), |reset| reset.saturating_sub(1));
            ledger.count_admitted(region, mode, at);
        }
    }
}

/// The part of the traffic of each region: it follows the sun.
fn shares(seconds: f64, regions: usize) -> Vec<f64> {
    let height = |region: usize| {
        let angle = (seconds / DAY - region as f64 / regions as f64) * std::f64::consts::TAU;
        NIGHT + (1.0 - NIGHT) * f64::midpoint(1.0, angle.cos())
    };
    let heights: Vec<f64> = (0..regions).map(height).collect();
    let sum: f64 = heights.iter().sum();
    heights.iter().map(|height| height / sum).collect()
}

/// A region by its share, for a uniform `chance`.
fn pick(shares: &[f64], mut chance: f64) -> usize {
    let found = shares.iter().position(|share| {
        chance -= share;
        chance < 0.0
    });
    found.unwrap_or(0)
}

fn second(at: Timestamp) -> u64 {
    at.as_micros() / 1_000_000
}

fn lock(ledger: &Mutex<Ledger>) -> std::sync::MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_moves_from_region_to_region() {
        let busiest = |seconds: f64| {
            let shares = shares(seconds, 3);
            assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9 && shares.iter().all(|share| *share > 0.03));
            (0..3).max_by(|one, other| shares[*one].total_cmp(&shares[*other])).unwrap()
        };
        assert_eq!([0.0, 30.0, 60.0, 90.0].map(busiest), [0, 1, 2, 0]);
        assert_eq!([0.0, 0.59, 0.6, 0.999].map(|chance| pick(&[0.6, 0.3, 0.1], chance)), [0, 0, 1, 2]);
    }

    #[test]
    fn regions_have_names_and_servers() {
        let region = parse_region("us-east=127.0.0.1:1,127.0.0.1:2").unwrap();
        assert_eq!((&*region.name, region.servers.len()), ("us-east", 2));
        assert!(parse_region("127.0.0.1:1").is_err());
    }
}
