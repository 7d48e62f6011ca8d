//! What a fleet needs: claims, instances of Redis, memory, connections and cores, from figures of its traffic. Each line has
//! its formula and the measured constants in it.

mod calls;

use serde_json::{Value, json};
use tollgate_core::Span;

use crate::engine::{CHARGE_COST, CLAIM_COST};
use crate::random::Zipf;

pub use calls::{LeasedAlgorithm, PERIODS, RATES};

/// The traffic of a fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetTraffic {
    /// Requests a second.
    pub requests: f64,
    /// The keys that are seen in a period.
    pub keys: u64,
    /// The exponent of Zipf's law by which requests are spread over keys. 0: all alike.
    pub exponent: f64,
    /// The servers.
    pub servers: u32,
    /// The servers that see one key.
    pub servers_of_a_key: u32,
    /// The limits of each request whose counters are those of its caller.
    pub limits: u32,
    /// The limits of each request that all callers share.
    pub global_limits: u32,
    /// The period of the limits.
    pub period: Span,
    /// How they count.
    pub algorithm: LeasedAlgorithm,
    /// Whether keys are leased.
    pub leases: bool,
    /// The replicas of each instance of Redis.
    pub replicas: u32,
    /// Requests a second with an idempotency key.
    pub idempotency_keys: f64,
    /// How long their responses are stored.
    pub idempotency_ttl: Span,
    /// The connections of a server to an instance of Redis.
    pub connections: u32,
    /// The time of Redis for a claim, in microseconds …
    pub claim_cost: f64,
    /// … and for each further limit of it.
    pub limit_cost: f64,
}

/// One figure.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeLine {
    /// Its name in JSON.
    pub id: &'static str,
    /// What it is.
    pub name: &'static str,
    /// The figure.
    pub value: f64,
    /// How it is shown.
    pub unit: SizeUnit,
    /// How it is computed.
    pub formula: &'static str,
    /// The constants in it, which were measured.
    pub constants: String,
}

/// How a figure is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeUnit {
    /// A whole number.
    Count,
    /// With one decimal.
    Decimal,
    /// Bytes.
    Bytes,
}

/// The share of a core that an instance of Redis is planned to use.
const REDIS_LOAD: f64 = 0.5;
/// The bytes of a caller in Redis, with a name of 16 characters …
const CALLER_BYTES: f64 = 83.0;
/// … and of each of its limits.
const LIMIT_BYTES: f64 = 37.0;
/// The bytes of a stored response with one limit.
const STORED_BYTES: f64 = 200.0;
/// Requests a second that a core of a server decides over gRPC without Redis …
const LOCAL_RATE: f64 = 160_000.0;
/// … and with a call to it.
const REDIS_RATE: f64 = 50_000.0;
/// Keys with so many requests a second on a server are leased.
const LEASED_RATE: f64 = 0.2;
/// Where the constants come from.
const SOURCE: &str = "docs/benchmarks.md";

impl Default for FleetTraffic {
    fn default() -> FleetTraffic {
        FleetTraffic {
            requests: 1_000.0,
            keys: 1,
            exponent: 1.0,
            servers: 2,
            servers_of_a_key: 2,
            limits: 1,
            global_limits: 0,
            period: Span::from_secs(60),
            algorithm: LeasedAlgorithm::SlidingWindow,
            leases: true,
            replicas: 1,
            idempotency_keys: 0.0,
            idempotency_ttl: Span::from_secs(24 * 3_600),
            connections: 2,
            claim_cost: CLAIM_COST as f64 / 1e3,
            limit_cost: CHARGE_COST as f64 / 1e3,
        }
    }
}

impl FleetTraffic {
    /// Calls a second for counters of callers, with leases. A request calls when one of its limits has no units.
    fn leased_calls(&self) -> f64 {
        let servers = f64::from(self.servers_of_a_key.min(self.servers).max(1));
        Zipf::sum(self.exponent, self.keys.max(1), |share| {
            let requests = self.requests * share;
            let calls = self.algorithm.calls_for_a_request(self.period, requests / servers);
            requests * (1.0 - (1.0 - calls).powi(self.limits as i32))
        })
    }

    /// The same for each limit that all callers share: one key that every server sees.
    fn global_calls(&self) -> f64 {
        let rate = self.requests / f64::from(self.servers.max(1));
        self.requests * self.algorithm.calls_for_a_request(self.period, rate)
    }

    /// The keys that a server leases.
    fn leased_keys(&self) -> f64 {
        let servers = f64::from(self.servers_of_a_key.min(self.servers).max(1));
        let seen = servers / f64::from(self.servers.max(1));
        let is_leased = |share: f64| f64::from(u8::from(self.requests * share / servers >= LEASED_RATE));
        seen * Zipf::sum(self.exponent, self.keys.max(1), is_leased)
    }

    /// What the fleet needs.
    pub fn size(&self) -> Vec<SizeLine> {
        let globals = f64::from(self.global_limits);
        let exact = self.requests * (1.0 + globals);
        // A request with an idempotency key goes to Redis whole.
        let repeatable = (self.idempotency_keys / self.requests).min(1.0);
        let claims = match self.leases {
            true => {
                let leased = self.leased_calls() + globals * self.global_calls();
                (leased * (1.0 - repeatable) + exact * repeatable).min(exact)
            }
            false => exact,
        };
        let limits = f64::from(self.limits);
        let cost = self.claim_cost + self.limit_cost * (limits - 1.0);
        let shards = (claims * cost / 1e6 / REDIS_LOAD).ceil().max(1.0);
        let copies = 1.0 + f64::from(self.replicas);
        let counters = self.keys as f64 * (CALLER_BYTES + LIMIT_BYTES * limits) * copies;
        let stored = STORED_BYTES * self.idempotency_keys * self.idempotency_ttl.as_micros() as f64 / 1e6 * copies;
        let memory = counters + stored;
        let (servers, pool) = (f64::from(self.servers), f64::from(self.connections));
        let calling = claims.min(self.requests);
        let cores = (self.requests - calling) / LOCAL_RATE + calling / REDIS_RATE;
        let measured = |text: &str| format!("{text} ({SOURCE})");
        let line = |id, name, value, unit, formula, constants| SizeLine { id, name, value, unit, formula, constants };
        let mut lines = vec![line(
            "claims_without_leases",
            "claims/s without leases",
            exact,
            SizeUnit::Count,
            "requests/s × (1 + limits that all callers share, in a cluster)",
            String::new(),
        )];
        if self.leases {
            lines.push(line(
                "claims_with_leases",
                "claims/s with leases",
                claims,
                SizeUnit::Count,
                "sum over keys: requests/s × calls for a request at the rate of the key on one server",
                "simulated at half of the limit (crates/simulate/src/size/calls.rs)".to_owned(),
            ));
            lines.push(line(
                "requests_for_a_claim",
                "requests for a claim",
                self.requests / claims,
                SizeUnit::Decimal,
                "requests/s ÷ claims/s",
                String::new(),
            ));
            lines.push(line(
                "leased_keys",
                "leased keys of a server",
                self.leased_keys(),
                SizeUnit::Count,
                "keys with at least 0.2 requests/s on one server; the setting lease_keys bounds them",
                format!("{LEASED_RATE} requests/s (crates/store/src/leased/policy.rs)"),
            ));
        }
        lines.extend([
            line(
                "redis_shards",
                "Redis instances, without replicas",
                shards,
                SizeUnit::Count,
                "claims/s × (claim + limit × (limits − 1)) ÷ (1 s × load), rounded up",
                measured(&format!(
                    "claim {} µs, limit {} µs, load {REDIS_LOAD} of a core",
                    self.claim_cost, self.limit_cost
                )),
            ),
            line(
                "redis_memory",
                "memory of all Redis instances",
                memory,
                SizeUnit::Bytes,
                "(keys × (caller + limit × limits) + stored × idempotency keys/s × TTL) × (1 + replicas)",
                measured(&format!("caller {CALLER_BYTES} B, limit {LIMIT_BYTES} B, stored {STORED_BYTES} B")),
            ),
            line(
                "redis_memory_of_an_instance",
                "memory of a Redis instance",
                memory / shards / copies,
                SizeUnit::Bytes,
                "memory ÷ (instances × (1 + replicas)), if keys are spread evenly",
                String::new(),
            ),
            line(
                "redis_connections_of_an_instance",
                "connections of a Redis instance",
                servers * pool,
                SizeUnit::Count,
                "servers × store_pool",
                String::new(),
            ),
            line(
                "redis_connections",
                "connections to Redis",
                servers * pool * shards,
                SizeUnit::Count,
                "servers × store_pool × instances",
                String::new(),
            ),
            line(
                "server_cores",
                "cores of all servers",
                cores,
                SizeUnit::Decimal,
                "requests/s decided here ÷ local + requests/s that call Redis ÷ redis",
                measured(&format!("local {LOCAL_RATE}/s, redis {REDIS_RATE}/s, gRPC, a core")),
            ),
            line(
                "cores_of_a_server",
                "cores of a server",
                cores / servers,
                SizeUnit::Decimal,
                "cores ÷ servers",
                String::new(),
            ),
        ]);
        lines
    }

    /// The figures as JSON.
    pub fn json(&self) -> Value {
        let lines = self.size().into_iter().map(|line| {
            let SizeLine { id, name, value, formula, constants, .. } = line;
            json!({ "id": id, "name": name, "value": value, "formula": formula, "constants": constants })
        });
        json!({
            "traffic": {
                "requests_per_second": self.requests,
                "keys": self.keys,
                "zipf": self.exponent,
                "servers": self.servers,
                "servers_per_key": self.servers_of_a_key,
                "limits": self.limits,
                "global_limits": self.global_limits,
                "period_seconds": self.period.as_micros() as f64 / 1e6,
                "leases": self.leases,
                "replicas": self.replicas,
                "idempotency_keys_per_second": self.idempotency_keys,
                "idempotency_ttl_seconds": self.idempotency_ttl.as_micros() as f64 / 1e6,
                "store_pool": self.connections,
            },
            "lines": lines.collect::<Vec<_>>(),
        })
    }
}

impl SizeLine {
    /// The figure with its unit: `1,000,000`, `2.3`, `600.0 MB`.
    pub fn shown(&self) -> String {
        match self.unit {
            SizeUnit::Count => grouped(self.value.round()),
            SizeUnit::Decimal => format!("{:.1}", self.value),
            SizeUnit::Bytes => bytes(self.value),
        }
    }
}

/// A whole number with a comma between groups of three digits.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn bytes(bytes: f64) -> String {
    const UNITS: [(f64, &str); 4] = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    match UNITS.into_iter().find(|(size, _)| bytes >= *size) {
        Some((size, unit)) => format!("{:.1} {unit}", bytes / size),
        None => format!("{bytes:.0} B"),
    }
}

#[cfg(test)]
mod tests;
