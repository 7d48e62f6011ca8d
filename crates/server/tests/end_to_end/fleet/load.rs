//! A steady load on several servers, with the result of every request.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tollgate_core::Source;
use tollgate_store::{Clock as _, SystemClock};
use tollgate_testing::eventually;

/// The attributes of a check: a user, and the kind of rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    pub(crate) user: String,
    pub(crate) kind: &'static str,
}

/// The plan of a load. Requests are spread evenly over time, servers and checks, whatever the results are.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The addresses of the servers: `127.0.0.1:4711`.
    pub(crate) servers: Vec<String>,
    pub(crate) checks: Vec<Check>,
    /// Requests a second, to all servers together.
    pub(crate) rate: u64,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// The indexes in the plan.
    pub(crate) server: usize,
    pub(crate) check: usize,
    /// When the request was due and when the response arrived, in microseconds.
    pub(crate) started: u64,
    pub(crate) ended: u64,
    pub(crate) result: CheckResult,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CheckResult {
    Decided {
        allowed: bool,
        source: Source,
    },
    /// Anything but a decision.
    Error(String),
}

/// A running load, until it is stopped.
pub(crate) struct Load {
    samples: Arc<Mutex<Vec<Sample>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Connections to each server. Each has one request at a time, so there are more than requests that may be slow at once.
const CONNECTIONS: u64 = 8;

/// The timeout of a request: far longer than any response may take, so that a late one is a latency and not an error.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum number of requests of a load.
const MAX_REQUESTS: u64 = 1_000_000;

impl Load {
    pub(crate) fn start(plan: Plan) -> Load {
        let (samples, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let load = drive(plan, samples.clone(), stop.clone());
        let thread = std::thread::spawn(move || runtime().block_on(load));
        Load { samples, stop, thread: Some(thread) }
    }

    /// The samples so far.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        self.samples.lock().unwrap().clone()
    }

    /// Waits for this many more samples.
    #[track_caller]
    pub(crate) fn wait_for_more(&self, count: u64) {
        let goal = self.samples.lock().unwrap().len() + count as usize;
        let mut more = None;
        // A long load takes longer than one call of `eventually`.
        for _ in 0..100 {
            more = eventually(|| (self.samples.lock().unwrap().len() >= goal).then_some(()));
            if more.is_some() {
                break;
            }
        }
        assert!(more.is_some(), "the load has stalled");
    }

    /// Ends the load, and returns all samples.
    pub(crate) fn stop(mut self) -> Vec<Sample> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
        std::mem::take(&mut *self.samples.lock().unwrap())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Check {
    fn body(&self) -> String {
        let Check { user, kind } = self;
        format!(r#"{{"domain":"fleet","attributes":{{"user":"{user}","kind":"{kind}"}}}}"#)
    }
}

/// Sends one check.
pub(crate) fn check_once(server: &str, check: &Check) -> CheckResult {
    runtime().block_on(Connection::new(server).send(check))
}

/// A runtime on the calling thread only, so that the load takes little from the servers that it measures.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Sends up to `max` checks, on one connection to each server in turn, until the store refuses. Returns the results before that.
pub(crate) fn check_until_refused(servers: &[String], check: &Check, max: usize) -> Vec<CheckResult> {
    runtime().block_on(async {
        let mut connections: Vec<Connection> = servers.iter().map(|server| Connection::new(server)).collect();
        let mut results = Vec::new();
        while results.len() < max {
            let turn = results.len() % connections.len();
            match connections[turn].send(check).await {
                CheckResult::Decided { allowed: false, source: Source::Store | Source::Cache } => break,
                result => results.push(result),
            }
        }
        results
    })
}

/// Sends this many checks as fast as the servers respond, over several connections to each.
pub(crate) fn check_concurrently(servers: &[String], check: &Check, times: usize) -> Vec<CheckResult> {
    runtime().block_on(async {
        let workers = servers.len() * CONNECTIONS as usize;
        let mut tasks = tokio::task::JoinSet::new();
        for worker in 0..workers {
            let (mut connection, check) = (Connection::new(&servers[worker % servers.len()]), check.clone());
            tasks.spawn(async move {
                let mut results = Vec::new();
                for _ in 0..times / workers {
                    results.push(connection.send(&check).await);
                }
                results
            });
        }
        tasks.join_all().await.concat()
    })
}

async fn drive(plan: Plan, samples: Arc<Mutex<Vec<Sample>>>, stop: Arc<AtomicBool>) {
    let clock = Arc::new(SystemClock::default());
    let start = clock.now().as_micros();
    let workers = plan.servers.len() as u64 * CONNECTIONS;
    let plan = Arc::new(plan);
    let mut tasks = tokio::task::JoinSet::new();
    for worker in 0..workers {
        let numbers = (worker..MAX_REQUESTS).step_by(workers as usize);
        tasks.spawn(send_requests(plan.clone(), worker, numbers, clock.clone(), start, samples.clone(), stop.clone()));
    }
    tasks.join_all().await;
}

/// Sends the requests of one connection, by their numbers.
async fn send_requests(
    plan: Arc<Plan>,
    worker: u64,
    numbers: impl Iterator<Item = u64>,
    clock: Arc<SystemClock>,
    start: u64,
    samples: Arc<Mutex<Vec<Sample>>>,
    stop: Arc<AtomicBool>,
) {
    let server = (worker % plan.servers.len() as u64) as usize;
    let mut connection = Connection::new(&plan.servers[server]);
    for (round, number) in numbers.enumerate() {
        let due = start + number * 1_000_000 / plan.rate;
        let early = due.saturating_sub(clock.now().as_micros());
        if early > 0 {
            tokio::time::sleep(Duration::from_micros(early)).await;
        }
        if stop.load(Ordering::Relaxed) {
            return;
        }
        // A late timer is the test's own delay. The wait for the previous request is not.
        let started = if early > 0 { clock.now().as_micros() } else { due };
        let check = (round + worker as usize) % plan.checks.len();
        let result = connection.send(&plan.checks[check]).await;
        let ended = clock.now().as_micros();
        samples.lock().unwrap().push(Sample { server, check, started, ended, result });
    }
}

/// A connection to a server, opened when it is needed.
struct Connection {
    address: String,
    sender: Option<SendRequest<Full<Bytes>>>,
}

impl Connection {
    fn new(address: &str) -> Connection {
        Connection { address: address.to_owned(), sender: None }
    }

    /// Sends one request, without retries: a failure is a result too.
    async fn send(&mut self, check: &Check) -> CheckResult {
        let result = tokio::time::timeout(REQUEST_TIMEOUT, self.try_send(check)).await;
        let result = result.unwrap_or_else(|_| Err("no response".into()));
        result.unwrap_or_else(|error| {
            self.sender = None;
            CheckResult::Error(error.to_string())
        })
    }

    async fn try_send(&mut self, check: &Check) -> Result<CheckResult, Box<dyn std::error::Error>> {
        if self.sender.is_none() {
            let stream = TcpStream::connect(&self.address).await?;
            stream.set_nodelay(true)?;
            let (sender, connection) = handshake(TokioIo::new(stream)).await?;
            tokio::spawn(connection);
            self.sender = Some(sender);
        }
        let sender = self.sender.as_mut().ok_or("no connection")?;
        sender.ready().await?;
        let request = hyper::Request::post("/v1/ratelimit/check")
            .header("host", &self.address)
            .header("content-type", "application/json")
            .body(Full::from(check.body()))?;
        let response = sender.send_request(request).await?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await?.to_bytes();
        Ok(read(status, &String::from_utf8_lossy(&body)))
    }
}

fn read(status: u16, body: &str) -> CheckResult {
    const SOURCES: [Source; 6] =
        [Source::Store, Source::Lease, Source::Cache, Source::Local, Source::Assumed, Source::Shed];
    let source = SOURCES.into_iter().find(|source| body.contains(&format!(r#""source":"{}""#, source.name())));
    match (status, source) {
        (200, Some(source)) => CheckResult::Decided { allowed: true, source },
        (429, Some(source)) => CheckResult::Decided { allowed: false, source },
        _ => CheckResult::Error(format!("{status}: {body}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::servers::{Fleet, KINDS, MEMORY, callers};
    use crate::fleet::statistics::{LoadStatistics, admitted};

    /// Enough to exhaust every limit.
    const REQUESTS: u64 = 1_200;

    #[test]
    fn every_request_is_recorded_and_counted() {
        let fleet = Fleet::start(MEMORY, 2);
        let checks: Vec<Check> = callers("u").into_iter().map(|caller| caller.check).collect();
        let load = Load::start(Plan { servers: fleet.addresses(), checks: checks.clone(), rate: 2_000 });
        load.wait_for_more(REQUESTS);
        let samples = load.stop();
        assert!(samples.len() >= REQUESTS as usize);
        let statistics = LoadStatistics::from_samples(&samples);
        assert_eq!((statistics.errors, statistics.without_store), (vec![], 0));
        for (number, check) in checks.iter().enumerate() {
            let of = |server| samples.iter().filter(move |sample| (sample.check, sample.server) == (number, server));
            let (one, other) = (of(0).count(), of(1).count());
            // Not equal: a busy machine may run one of the servers less.
            assert!(one.min(other) * 2 > one.max(other), "{check:?}: {one} to one server, {other} to the other");
            let kind = &KINDS[number];
            if kind.period.is_none() && kind.limit < 100 {
                // Each server has its own counters.
                assert_eq!([0, 1].map(|server| admitted(of(server))), [kind.limit; 2], "{check:?}");
            }
        }
    }

    #[test]
    fn an_unavailable_server_is_an_error() {
        let server = format!("127.0.0.1:{}", tollgate_testing::free_port());
        let checks = callers("u").into_iter().map(|caller| caller.check).collect();
        let load = Load::start(Plan { servers: vec![server], checks, rate: 1_000 });
        load.wait_for_more(10);
        assert!(load.stop().iter().all(|sample| matches!(sample.result, CheckResult::Error(_))));
    }

    #[test]
    fn responses_without_a_decision_are_errors() {
        let decided = |allowed| CheckResult::Decided { allowed, source: Source::Local };
        assert_eq!(read(200, r#"{"allowed":true,"source":"local"}"#), decided(true));
        assert_eq!(read(429, r#"{"allowed":false,"source":"local"}"#), decided(false));
        for (status, body) in [(503, r#"{"source":"assumed"}"#), (200, "{}"), (404, "")] {
            assert!(matches!(read(status, body), CheckResult::Error(_)));
        }
    }

    #[test]
    fn checks_end_at_a_refusal_or_the_bound() {
        let fleet = Fleet::start(MEMORY, 1);
        let check = &callers("u")[0].check;
        assert_eq!(check_until_refused(&fleet.addresses(), check, 7).len(), 7);
        assert_eq!(check_until_refused(&fleet.addresses(), check, 100).len(), KINDS[0].limit - 7);
        let results = check_concurrently(&fleet.addresses(), check, 80);
        assert_eq!(results.len(), 80);
    }
}
