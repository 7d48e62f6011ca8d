//! A steady load on several servers, and what came of every request.

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

/// What is asked: who asks, and for what kind of thing, which decides the rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) user: String,
    pub(crate) kind: &'static str,
}

/// What to do. The requests are spread evenly over time, servers and asks, whatever becomes of those before.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Where the servers are: `127.0.0.1:4711`.
    pub(crate) servers: Vec<String>,
    pub(crate) asks: Vec<Ask>,
    /// Requests a second, over all.
    pub(crate) rate: u64,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// By their numbers in the plan.
    pub(crate) server: usize,
    pub(crate) ask: usize,
    /// When it was due, in microseconds, and when its answer was there.
    pub(crate) begun: u64,
    pub(crate) ended: u64,
    pub(crate) answer: Answer,
}

/// What its caller saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Decided {
        allowed: bool,
        source: Source,
    },
    /// Anything else, in words: what no caller may see.
    Error(String),
}

/// A load that goes on until it is stopped.
pub(crate) struct Load {
    samples: Arc<Mutex<Vec<Sample>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Connections to each server. Each has one request at a time, so more of them than requests that may be slow at once.
const CONNECTIONS: u64 = 8;

/// How long a caller waits: far longer than any answer may take, so that what is late is a time and not an error.
const PATIENCE: Duration = Duration::from_secs(10);

/// The most requests of one load: it ends by itself then.
const MOST: u64 = 1_000_000;

impl Load {
    pub(crate) fn start(plan: Plan) -> Load {
        let (samples, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (kept, told) = (samples.clone(), stop.clone());
        let thread = std::thread::spawn(move || runtime().block_on(drive(plan, kept, told)));
        Load { samples, stop, thread: Some(thread) }
    }

    /// What was answered so far.
    pub(crate) fn so_far(&self) -> Vec<Sample> {
        self.samples.lock().unwrap().clone()
    }

    /// Waits until so many more were answered: the way in which time passes here.
    #[track_caller]
    pub(crate) fn until_more(&self, count: u64) {
        let goal = self.samples.lock().unwrap().len() + count as usize;
        let mut more = None;
        // A long load takes longer than one look does.
        for _ in 0..100 {
            more = eventually(|| (self.samples.lock().unwrap().len() >= goal).then_some(()));
            if more.is_some() {
                break;
            }
        }
        assert!(more.is_some(), "the load stands still");
    }

    /// Ends it: all that was asked, and answered or not.
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

impl Ask {
    fn body(&self) -> String {
        let Ask { user, kind } = self;
        format!(r#"{{"domain":"fleet","attributes":{{"user":"{user}","kind":"{kind}"}}}}"#)
    }
}

/// Asks once.
pub(crate) fn once(server: &str, ask: &Ask) -> Answer {
    runtime().block_on(Connection::to(server).ask(ask))
}

/// All on the thread that asks: a load must not take the machine from those that it measures.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Asks until the store refuses, `most` times at most, on one connection to each server in turn: the answers before that.
pub(crate) fn until_refused(servers: &[String], ask: &Ask, most: usize) -> Vec<Answer> {
    runtime().block_on(async {
        let mut connections: Vec<Connection> = servers.iter().map(|server| Connection::to(server)).collect();
        let mut answers = Vec::new();
        while answers.len() < most {
            let turn = answers.len() % connections.len();
            match connections[turn].ask(ask).await {
                Answer::Decided { allowed: false, source: Source::Store | Source::Cache } => break,
                answer => answers.push(answer),
            }
        }
        answers
    })
}

/// Asks as fast as the servers answer, over several connections to each, so often in all.
pub(crate) fn hammer(servers: &[String], ask: &Ask, times: usize) -> Vec<Answer> {
    runtime().block_on(async {
        let workers = servers.len() * CONNECTIONS as usize;
        let mut tasks = tokio::task::JoinSet::new();
        for worker in 0..workers {
            let (mut connection, ask) = (Connection::to(&servers[worker % servers.len()]), ask.clone());
            tasks.spawn(async move {
                let mut answers = Vec::new();
                for _ in 0..times / workers {
                    answers.push(connection.ask(&ask).await);
                }
                answers
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
        let numbers = (worker..MOST).step_by(workers as usize);
        tasks.spawn(work(plan.clone(), worker, numbers, clock.clone(), start, samples.clone(), stop.clone()));
    }
    tasks.join_all().await;
}

/// One connection's share of the plan: the requests of these numbers.
async fn work(
    plan: Arc<Plan>,
    worker: u64,
    numbers: impl Iterator<Item = u64>,
    clock: Arc<SystemClock>,
    start: u64,
    samples: Arc<Mutex<Vec<Sample>>>,
    stop: Arc<AtomicBool>,
) {
    let server = (worker % plan.servers.len() as u64) as usize;
    let mut connection = Connection::to(&plan.servers[server]);
    for (round, number) in numbers.enumerate() {
        let due = start + number * 1_000_000 / plan.rate;
        let early = due.saturating_sub(clock.now().as_micros());
        if early > 0 {
            tokio::time::sleep(Duration::from_micros(early)).await;
        }
        if stop.load(Ordering::Relaxed) {
            return;
        }
        // A timer that rings late is this test's own doing. That a request had to wait for the one before it is not.
        let begun = if early > 0 { clock.now().as_micros() } else { due };
        let ask = (round + worker as usize) % plan.asks.len();
        let answer = connection.ask(&plan.asks[ask]).await;
        let ended = clock.now().as_micros();
        samples.lock().unwrap().push(Sample { server, ask, begun, ended, answer });
    }
}

/// A connection to a server, made when it is needed.
struct Connection {
    address: String,
    sender: Option<SendRequest<Full<Bytes>>>,
}

impl Connection {
    fn to(address: &str) -> Connection {
        Connection { address: address.to_owned(), sender: None }
    }

    /// One request, never sent twice: whatever goes wrong is what the caller sees.
    async fn ask(&mut self, ask: &Ask) -> Answer {
        let answered = tokio::time::timeout(PATIENCE, self.try_ask(ask)).await;
        let answered = answered.unwrap_or_else(|_| Err("no answer".into()));
        answered.unwrap_or_else(|error| {
            self.sender = None;
            Answer::Error(error.to_string())
        })
    }

    async fn try_ask(&mut self, ask: &Ask) -> Result<Answer, Box<dyn std::error::Error>> {
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
            .body(Full::from(ask.body()))?;
        let response = sender.send_request(request).await?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await?.to_bytes();
        Ok(read(status, &String::from_utf8_lossy(&body)))
    }
}

fn read(status: u16, body: &str) -> Answer {
    const SOURCES: [Source; 5] = [Source::Store, Source::Cache, Source::Local, Source::Assumed, Source::Shed];
    let source = SOURCES.into_iter().find(|source| body.contains(&format!(r#""source":"{}""#, source.name())));
    match (status, source) {
        (200, Some(source)) => Answer::Decided { allowed: true, source },
        (429, Some(source)) => Answer::Decided { allowed: false, source },
        _ => Answer::Error(format!("{status}: {body}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::figures::{Figures, admitted};
    use crate::fleet::servers::{Fleet, KINDS, MEMORY, callers};

    /// Enough that every kind is used up.
    const REQUESTS: u64 = 1_200;

    #[test]
    fn every_request_is_recorded_and_counted() {
        let fleet = Fleet::start(MEMORY, 2);
        let asks: Vec<Ask> = callers("u").into_iter().map(|caller| caller.ask).collect();
        let load = Load::start(Plan { servers: fleet.addresses(), asks: asks.clone(), rate: 2_000 });
        load.until_more(REQUESTS);
        let samples = load.stop();
        assert!(samples.len() >= REQUESTS as usize);
        let figures = Figures::of(&samples);
        assert_eq!((figures.errors, figures.without_store), (vec![], 0));
        for (number, ask) in asks.iter().enumerate() {
            let of = |server| samples.iter().filter(move |sample| (sample.ask, sample.server) == (number, server));
            let (one, other) = (of(0).count(), of(1).count());
            assert!(one.abs_diff(other) < 50, "{ask:?}: {one} to one server, {other} to the other");
            let kind = &KINDS[number];
            if kind.period.is_none() && kind.limit < 100 {
                // Each server counts for itself here.
                assert_eq!([0, 1].map(|server| admitted(of(server))), [kind.limit; 2], "{ask:?}");
            }
        }
    }

    #[test]
    fn a_server_that_is_gone_is_an_error() {
        let server = format!("127.0.0.1:{}", tollgate_testing::free_port());
        let asks = callers("u").into_iter().map(|caller| caller.ask).collect();
        let load = Load::start(Plan { servers: vec![server], asks, rate: 1_000 });
        load.until_more(10);
        assert!(load.stop().iter().all(|sample| matches!(sample.answer, Answer::Error(_))));
    }

    #[test]
    fn answers_that_are_no_decisions_are_errors() {
        let decided = |allowed| Answer::Decided { allowed, source: Source::Local };
        assert_eq!(read(200, r#"{"allowed":true,"source":"local"}"#), decided(true));
        assert_eq!(read(429, r#"{"allowed":false,"source":"local"}"#), decided(false));
        for (status, body) in [(503, r#"{"source":"assumed"}"#), (200, "{}"), (404, "")] {
            assert!(matches!(read(status, body), Answer::Error(_)));
        }
    }

    #[test]
    fn asking_stops_at_a_refusal_or_the_bound() {
        let fleet = Fleet::start(MEMORY, 1);
        let ask = &callers("u")[0].ask;
        assert_eq!(until_refused(&fleet.addresses(), ask, 7).len(), 7);
        assert_eq!(until_refused(&fleet.addresses(), ask, 100).len(), KINDS[0].limit - 7);
        let answers = hammer(&fleet.addresses(), ask, 80);
        assert_eq!(answers.len(), 80);
    }
}
