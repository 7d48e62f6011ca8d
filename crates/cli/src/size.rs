//! `tollgate size`: what a fleet needs, from figures of its traffic.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use tollgate::Span;
use tollgate_rules::limit_text;
use tollgate_simulate::size::{FleetTraffic, LeasedAlgorithm, SizeLine};

use super::{EXIT_USAGE, print_error, write_output};

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, allow_negative_numbers = true)]
pub(super) struct Size {
    /// Requests a second, of all servers: 1000, 50k, 1.5M
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rps: f64,
    /// Callers (keys) that are seen in a period
    #[arg(long, value_name = "COUNT", value_parser = keys)]
    keys: u64,
    /// The exponent of Zipf's law by which requests are spread over keys; 0: all keys alike
    #[arg(long, value_name = "EXPONENT", default_value = "1", value_parser = exponent)]
    zipf: f64,
    /// Servers that decide, or processes that embed the limiter
    #[arg(long, value_name = "COUNT", default_value = "2", value_parser = servers)]
    servers: u32,
    /// Servers that see one key, if a load balancer sends a caller to few of them [default: all]
    #[arg(long, value_name = "COUNT", value_parser = servers)]
    servers_per_key: Option<u32>,
    /// Limits of each request whose counters are its caller's
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = limits)]
    limits: u32,
    /// Limits of each request that all callers share (`key: []`), each a further call in a cluster
    #[arg(long, value_name = "COUNT", default_value = "0", value_parser = global_limits)]
    global_limits: u32,
    /// The period of the limits: 1s, 1m, 1h
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = time)]
    period: Span,
    /// How the limits count
    #[arg(long, value_enum, default_value = "sliding_window")]
    algorithm: CountedBy,
    /// Whether servers lease units of busy keys
    #[arg(long, value_enum, default_value = "on")]
    leases: Leasing,
    /// Replicas of each Redis instance
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = replicas)]
    replicas: u32,
    /// Requests a second with an idempotency key
    #[arg(long, value_name = "RATE", default_value = "0", value_parser = rate_or_zero)]
    idempotency_keys: f64,
    /// How long their responses are stored, as in the setting of this name
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = time)]
    idempotency_ttl: Span,
    /// Connections of a server to a Redis instance, as in the setting of this name
    #[arg(long, value_name = "COUNT", default_value = "2", value_parser = connections)]
    store_pool: u32,
    /// Microseconds that Redis works on a claim, if you have measured it [default: 5.5]
    #[arg(long, value_name = "MICROSECONDS", value_parser = cost)]
    claim_cost: Option<f64>,
    /// Microseconds that Redis works on each further limit of a claim [default: 1.1]
    #[arg(long, value_name = "MICROSECONDS", value_parser = cost)]
    limit_cost: Option<f64>,
    /// Write a JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
enum CountedBy {
    FixedWindow,
    SlidingWindow,
    TokenBucket,
    Gcra,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Leasing {
    On,
    Off,
}

const AFTER_HELP: &str = "\
Examples:
  tollgate size --rps 1M --keys 5M --servers 500
  tollgate size --rps 1M --keys 5M --servers 500 --leases off --replicas 0
  tollgate size --rps 20k --keys 100k --servers 4 --limits 4 --algorithm token_bucket
  tollgate size --rps 50k --keys 1M --servers 8 --servers-per-key 2 --json

The constants are medians of docs/benchmarks.md. Machines differ: measure on yours with `make bench-redis`, and pass
--claim-cost and --limit-cost.";

impl Size {
    pub(super) fn run(&self) -> ExitCode {
        let traffic = match self.traffic() {
            Ok(traffic) => traffic,
            Err(message) => {
                print_error(format_args!("error: {message}"));
                return ExitCode::from(EXIT_USAGE);
            }
        };
        let text = match self.json {
            true => format!("{:#}\n", traffic.json()),
            false => table(&traffic.size()),
        };
        write_output(&text, 0)
    }

    fn traffic(&self) -> Result<FleetTraffic, String> {
        let servers_of_a_key = self.servers_per_key.unwrap_or(self.servers);
        if servers_of_a_key > self.servers {
            return Err(format!(
                "--servers-per-key {servers_of_a_key} is more than --servers {}; write at most {}",
                self.servers, self.servers
            ));
        }
        if self.idempotency_keys > self.rps {
            return Err(format!(
                "--idempotency-keys {} is more than --rps {}; write the requests a second with such a key, at most {}",
                self.idempotency_keys, self.rps, self.rps
            ));
        }
        let usual = FleetTraffic::default();
        Ok(FleetTraffic {
            requests: self.rps,
            keys: self.keys,
            exponent: self.zipf,
            servers: self.servers,
            servers_of_a_key,
            limits: self.limits,
            global_limits: self.global_limits,
            period: self.period,
            algorithm: match self.algorithm {
                CountedBy::FixedWindow => LeasedAlgorithm::FixedWindow,
                CountedBy::SlidingWindow => LeasedAlgorithm::SlidingWindow,
                CountedBy::TokenBucket | CountedBy::Gcra => LeasedAlgorithm::Bucket,
            },
            leases: self.leases == Leasing::On,
            replicas: self.replicas,
            idempotency_keys: self.idempotency_keys,
            idempotency_ttl: self.idempotency_ttl,
            connections: self.store_pool,
            claim_cost: self.claim_cost.unwrap_or(usual.claim_cost),
            limit_cost: self.limit_cost.unwrap_or(usual.limit_cost),
        })
    }
}

/// A figure on each line, with its formula; the constants below.
fn table(lines: &[SizeLine]) -> String {
    let names = lines.iter().map(|line| line.name.chars().count()).max().unwrap_or(0);
    let values = lines.iter().map(|line| line.shown().chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for line in lines {
        text += &format!("{:names$}  {:>values$}  = {}\n", line.name, line.shown(), line.formula);
        if !line.constants.is_empty() {
            text += &format!("{:names$}  {:values$}    {}\n", "", "", line.constants);
        }
    }
    text
}

// === values ===

/// The most requests a second.
const MAX_RATE: u64 = 1_000_000_000;
/// The most keys.
const MAX_KEYS: u64 = 1_000_000_000_000;
/// The most servers.
const MAX_SERVERS: u64 = 100_000;
/// The most limits of a request.
const MAX_LIMITS: u64 = 512;
/// The most of them that all callers share.
const MAX_GLOBAL_LIMITS: u64 = 16;
/// The most replicas.
const MAX_REPLICAS: u64 = 16;
/// The most connections of a server to an instance of Redis.
const MAX_CONNECTIONS: u64 = 1_024;
/// The longest time.
const MAX_TIME: Span = Span::from_secs(366 * 24 * 3_600);

/// A number, with `_` between digits and `k`, `M` or `G` after them.
fn number(text: &str, least: f64, most: f64) -> Result<f64, String> {
    let (digits, factor) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 1e3),
        Some((at, 'M')) => (&text[..at], 1e6),
        Some((at, 'G')) => (&text[..at], 1e9),
        _ => (text, 1.0),
    };
    match digits.replace('_', "").parse::<f64>().map(|number| number * factor) {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!("write a number from {least} to {most}, such as 1000, 50k or 1.5M")),
    }
}

fn whole(text: &str, least: u64, most: u64) -> Result<u64, String> {
    match number(text, least as f64, most as f64) {
        Ok(number) if number.fract() == 0.0 => Ok(number as u64),
        _ => Err(format!("write a whole number from {least} to {most}")),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    number(text, 0.001, MAX_RATE as f64)
}

fn rate_or_zero(text: &str) -> Result<f64, String> {
    number(text, 0.0, MAX_RATE as f64)
}

fn keys(text: &str) -> Result<u64, String> {
    whole(text, 1, MAX_KEYS)
}

fn exponent(text: &str) -> Result<f64, String> {
    number(text, 0.0, 10.0).map_err(|_| "write a number from 0 to 10, such as 0.9".to_owned())
}

fn servers(text: &str) -> Result<u32, String> {
    whole(text, 1, MAX_SERVERS).map(|number| number as u32)
}

fn limits(text: &str) -> Result<u32, String> {
    whole(text, 1, MAX_LIMITS).map(|number| number as u32)
}

fn global_limits(text: &str) -> Result<u32, String> {
    whole(text, 0, MAX_GLOBAL_LIMITS).map(|number| number as u32)
}

fn replicas(text: &str) -> Result<u32, String> {
    whole(text, 0, MAX_REPLICAS).map(|number| number as u32)
}

fn connections(text: &str) -> Result<u32, String> {
    whole(text, 1, MAX_CONNECTIONS).map(|number| number as u32)
}

fn cost(text: &str) -> Result<f64, String> {
    number(text, 0.1, 10_000.0).map_err(|_| "write microseconds from 0.1 to 10000".to_owned())
}

fn time(text: &str) -> Result<Span, String> {
    match limit_text::duration(text) {
        Ok(time) if time > Span::ZERO && time <= MAX_TIME => Ok(time),
        Ok(_) => Err("write a time from 1ms to 366d".to_owned()),
        Err(fault) => Err(format!("{}; {}", fault.message, fault.remedy)),
    }
}
