//! A small service with limits: axum, the tower layer, counters in memory or in Redis.
//!
//! ```sh
//! cargo run -p tollgate-http --example axum --features axum              # counters in memory, on 127.0.0.1:3000
//! cargo run -p tollgate-http --example axum --features axum -- --redis redis://127.0.0.1:6379 --listen 127.0.0.1:3001
//! ```
//!
//! In another terminal:
//!
//! ```sh
//! curl -i -H 'x-api-key: ada' localhost:3000/slow?ms=500                 # one of 4 at a time: the headers say how many are left
//! for i in 1 2 3 4 5; do curl -s -o /dev/null -w '%{http_code}\n' -H 'x-api-key: ada' 'localhost:3000/slow?ms=1000' & done; wait
//! curl -N -X POST -H 'x-api-key: ada' -H 'x-max-tokens: 400' 'localhost:3000/generate?words=50'    # reserves 400, uses 50
//! curl -i -X POST -H 'x-api-key: ada' 'localhost:3000/orders?fails=true'                           # 500: it does not count
//! time curl -H 'x-api-key: ada' 'localhost:3000/paced?[1-10]'            # ten a second
//! curl -i -H 'x-api-key: ada' localhost:3000/health                      # no limits
//! curl -s localhost:3000/inside                                          # how many requests are in the handlers, and the maximum so far
//! ```
//!
//! The sixth request of a minute has another header, `X-RateLimit-Signal: polite`, for a soft limit. Disconnect in the
//! middle of `/generate` (ctrl-c), and its slot is released at once.

#[path = "axum/inside.rs"]
mod inside;

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::response::Response;
use axum::routing::{get, post};
use http::{HeaderName, StatusCode};
use http_body::Frame;
use serde::Deserialize;
use tokio::time::Sleep;
use tollgate::redis::{RedisConfig, RedisCounters};
use tollgate::{GuardConfig, Limiter, LoadOptions, MemoryConfig, Ruleset, Store};
use tollgate_http::tower::{Spent, TollgateLayer, extract};

use inside::{Inside, Witness};

const RULES: &str = include_str!("axum/rules.yaml");

/// Longer than the default: this service prefers waiting for its counters to deciding without them.
const DEADLINE: Duration = Duration::from_millis(500);
/// Shorter than the default, and than a hold: a failed Redis is tried again before the slots of the requests inside
/// expire.
const COOL_DOWN: Duration = Duration::from_millis(500);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run(std::env::args().skip(1)).await
}

/// Serves until it is stopped.
pub(crate) async fn run(args: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let args = Args::read(args)?;
    let loaded = match &args.rules {
        Some(file) => Ruleset::load(&[file], &LoadOptions::default(), 1),
        None => Ruleset::from_text(RULES, 1),
    };
    let (rules, _warnings) =
        loaded.map_err(|problems| problems.iter().map(|one| format!("\n{one}")).collect::<String>())?;
    match &args.redis {
        None => serve(&args, Limiter::new(rules, MemoryConfig::default().build())).await,
        Some(address) => {
            let guard = GuardConfig { deadline: DEADLINE, cool_down: COOL_DOWN, ..GuardConfig::default() };
            let counters = RedisCounters::new(RedisConfig::new(address.parse()?), guard)?;
            // An unavailable Redis does not prevent the start.
            counters.wait_until_ready(Duration::from_secs(1)).await;
            serve(&args, Limiter::new(rules, counters)).await
        }
    }
}

async fn serve<St: Store + 'static>(args: &Args, limiter: Limiter<St>) -> Result<(), Box<dyn Error>> {
    let layer = TollgateLayer::new(Arc::new(limiter))
        .extract(extract::header(HeaderName::from_static("x-api-key")).named("api_key"))
        .extract(extract::header(HeaderName::from_static("x-max-tokens")).named("max_tokens"))
        .extract(extract::endpoint())
        .on_undecided(|undecided| eprintln!("{}, and {} more", undecided.error, undecided.others));
    let witness = Arc::new(Witness::new(args.witness));
    let router = Router::new()
        .route("/slow", get(slow))
        .route("/generate", post(generate))
        .route("/orders", post(order))
        .route("/paced", get(async || "in turn\n"))
        .layer(layer)
        // Outside the layer: without limits.
        .route("/health", get(async || "well\n"))
        .route("/inside", get(async |State(witness): State<Arc<Witness>>| witness.to_string()))
        .with_state(witness);
    let listener = tokio::net::TcpListener::bind(args.listen).await?;
    println!("listening on {}", listener.local_addr()?);
    Ok(axum::serve(listener, router.into_make_service_with_connect_info::<SocketAddr>()).await?)
}

/// The query parameters of a request.
#[derive(Deserialize)]
#[serde(default)]
struct Parameters {
    ms: u64,
    words: u64,
    fails: bool,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters { ms: 100, words: 10, fails: false }
    }
}

/// Takes its time, and holds its slot meanwhile.
async fn slow(State(witness): State<Arc<Witness>>, Query(parameters): Query<Parameters>) -> &'static str {
    let _inside = witness.enter();
    tokio::time::sleep(Duration::from_millis(parameters.ms)).await;
    "done\n"
}

/// An order, which may fail.
async fn order(Query(parameters): Query<Parameters>) -> (StatusCode, &'static str) {
    match parameters.fails {
        true => (StatusCode::INTERNAL_SERVER_ERROR, "our fault\n"),
        false => (StatusCode::CREATED, "ordered\n"),
    }
}

/// Streams words, and reports each: the unused part of what was reserved is given back at the end, and the slot
/// released.
async fn generate(State(witness): State<Arc<Witness>>, Query(parameters): Query<Parameters>, spent: Spent) -> Response {
    let pause = Duration::from_millis(parameters.ms);
    let words = Words { left: parameters.words, given: 0, pause, next: Box::pin(tokio::time::sleep(pause)), spent };
    Response::new(Body::new(Stream { words, _inside: witness.enter() }))
}

/// A body that counts as inside until it ends.
struct Stream {
    words: Words,
    _inside: Inside,
}

struct Words {
    left: u64,
    given: u64,
    pause: Duration,
    next: Pin<Box<Sleep>>,
    spent: Spent,
}

impl http_body::Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let words = &mut self.words;
        if words.left == 0 {
            return Poll::Ready(None);
        }
        ready!(words.next.as_mut().poll(context));
        words.next = Box::pin(tokio::time::sleep(words.pause));
        (words.left, words.given) = (words.left - 1, words.given + 1);
        words.spent.report(words.given);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"word ")))))
    }
}

/// The command line's options.
struct Args {
    listen: SocketAddr,
    rules: Option<String>,
    redis: Option<String>,
    /// The address at which the tests count requests inside.
    witness: Option<SocketAddr>,
}

impl Args {
    fn read(mut args: impl Iterator<Item = String>) -> Result<Args, Box<dyn Error>> {
        let mut read =
            Args { listen: SocketAddr::from(([127, 0, 0, 1], 3000)), rules: None, redis: None, witness: None };
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
            match &*name {
                "--listen" => read.listen = value.parse()?,
                "--rules" => read.rules = Some(value),
                "--redis" => read.redis = Some(value),
                "--witness" => read.witness = Some(value.parse()?),
                _ => return Err(format!("{name} is none of --listen, --rules, --redis, --witness").into()),
            }
        }
        Ok(read)
    }
}
