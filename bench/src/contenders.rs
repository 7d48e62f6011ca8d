//! The limiters, each with the same rule: 1,000 a day for each key, so that every counter stays live while it is measured.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use limitador::limit::{Context, Expression, Namespace};
use tollgate::{Descriptor, Limiter, MemoryConfig, MemoryStore, Request, Ruleset, poll_once};
use tollgate_rules::{LoadOptions, RuleFile, load_sources};

/// One limit, by a bucket, as governor's.
pub const ONE: &str = "
domain: api
entity: api_key
rules:
  - {name: a, key: [api_key], limit: 1000/day, algorithm: gcra}
";

/// Four limits of one caller.
pub const FOUR: &str = "
domain: api
entity: api_key
rules:
  - {name: a, key: [api_key], limit: 1000/day, algorithm: gcra}
  - {name: b, key: [api_key], limit: 1000/hour, algorithm: gcra}
  - {name: c, key: [api_key], limit: 5000/week, algorithm: gcra}
  - {name: d, key: [api_key], limit: 200/hour, algorithm: gcra}
";

pub fn tollgate(rules: &str) -> Limiter<MemoryStore> {
    let source = RuleFile { name: "bench".to_owned(), text: rules.to_owned() };
    let loaded = load_sources(&[source], &LoadOptions::default()).expect("rules that load");
    let rules = Ruleset::compile(loaded.domains, 1).expect("rules that compile");
    // The bound is shared out among shards, which chance does not fill evenly: room for all ten million of the memory bench.
    let config = MemoryConfig { max_keys: 11_000_000, ..MemoryConfig::default() };
    Limiter::new(rules, config.build())
}

/// One whole decision: a request as a service has it, matched by the rules, settled, decided: what the server calls for every check.
pub fn check(limiter: &Limiter<MemoryStore>, entries: &[(&str, &str)]) -> bool {
    let descriptors = [Descriptor::new(entries)];
    let request = Request { domain: None, descriptors: &descriptors, cost: 1, ..Request::default() };
    let mut decision = limiter.decision();
    poll_once(limiter.check_into(&request, None, &mut decision)).unwrap().is_ok() && decision.allowed()
}

pub fn governor() -> DefaultKeyedRateLimiter<String> {
    let quota = Quota::with_period(Duration::from_secs(86_400) / 1_000).expect("not zero");
    RateLimiter::keyed(quota.allow_burst(NonZeroU32::new(1_000).expect("not zero")))
}

pub struct Limitador {
    limiter: limitador::RateLimiter,
    namespace: Namespace,
}

impl Limitador {
    pub fn new(keys: u64) -> Limitador {
        let namespace: Namespace = "api".into();
        let limiter = limitador::RateLimiter::new(keys);
        let key = Expression::parse("api_key").expect("an expression");
        limiter.add_limit(limitador::limit::Limit::new(namespace.clone(), 1_000, 86_400, vec![], vec![key]));
        Limitador { limiter, namespace }
    }

    pub fn check(&self, key: &str) -> bool {
        let context = Context::from(HashMap::from([("api_key".to_owned(), key.to_owned())]));
        !self.limiter.check_rate_limited_and_update(&self.namespace, &context, 1).expect("memory").limited
    }
}
