//! An API platform's rules in the format of envoyproxy/ratelimit, and a gateway's request, checked until they refuse.

use tollgate::{
    Decision, Descriptor, Limiter, LoadOptions, ManualClock, MemoryConfig, MemoryStore, Request, Ruleset, Source, Span,
    Timestamp, Wait, poll_once,
};
use tollgate_rules::{RuleFile as File, load_sources};

const RULES: &str = r#"
# Rate limit configuration
# Domain groups related rules; descriptors match request attributes

domain: api_platform
descriptors:
  # Per-API-key rate limit (tiered)
  - key: api_key
    rate_limit:
      unit: minute
      requests_per_unit: 100  # Default (free tier)
    descriptors:
      # Per-endpoint within API key
      - key: endpoint
        value: "POST /api/v1/orders"
        rate_limit:
          unit: minute
          requests_per_unit: 20  # Write-heavy endpoint, lower limit

  # Per-IP rate limit (unauthenticated)
  - key: remote_address
    rate_limit:
      unit: minute
      requests_per_unit: 30

  # Global aggregate limit (protect backend)
  - key: global
    value: "aggregate"
    rate_limit:
      unit: second
      requests_per_unit: 10000
"#;

const ORDERS: &[(&str, &str)] = &[("api_key", "abc123"), ("endpoint", "POST /api/v1/orders")];
const READS: &[(&str, &str)] = &[("api_key", "abc123"), ("endpoint", "GET /api/v1/orders")];
const ADDRESS: &[(&str, &str)] = &[("remote_address", "192.168.1.100")];

const START: Timestamp = Timestamp::from_secs(1_767_225_600);
const ENDPOINT: &str = "api_key/endpoint=POST /api/v1/orders";

struct Platform {
    limiter: Limiter<MemoryStore<ManualClock>>,
    clock: ManualClock,
}

impl Platform {
    fn new(settings: &str) -> Platform {
        let file = File { name: "rules.yaml".to_owned(), text: format!("{RULES}{settings}") };
        let loaded = load_sources(&[file], &LoadOptions::default()).unwrap();
        let clock = ManualClock::at(START);
        let store = MemoryConfig::default().build_with(clock.clone());
        Platform { limiter: Limiter::new(Ruleset::compile(loaded.domains, 1).unwrap(), store), clock }
    }

    fn call(&self, descriptors: &[&[(&str, &str)]]) -> Decision {
        let descriptors: Vec<_> = descriptors.iter().map(|entries| Descriptor::new(entries)).collect();
        let request =
            Request { domain: Some("api_platform"), descriptors: &descriptors, cost: 1, ..Request::default() };
        poll_once(self.limiter.check_request(&request)).unwrap().unwrap()
    }
}

/// Rule, limit, what is left and the descriptor that led to it.
fn outcomes(decision: &Decision) -> Vec<(&str, u64, u64, u64)> {
    decision.outcomes().map(|one| (one.rule.name(), one.limit.amount(), one.reading.remaining, one.touches)).collect()
}

#[test]
fn the_call_until_it_is_refused() {
    let platform = Platform::new("");
    for call in 1..=20 {
        let decision = platform.call(&[ORDERS, ADDRESS]);
        assert!(decision.allowed(), "call {call}");
        assert_eq!(
            outcomes(&decision),
            [(ENDPOINT, 20, 20 - call, 1), ("remote_address", 30, 30 - call, 2)],
            "call {call}"
        );
        assert_eq!(decision.tightest().unwrap().rule.name(), ENDPOINT);
        assert_eq!((decision.source(), decision.at()), (Source::Store, START));
    }
    for _ in 0..3 {
        let decision = platform.call(&[ORDERS, ADDRESS]);
        assert!(!decision.allowed());
        assert_eq!(decision.denied_by().unwrap().rule.name(), ENDPOINT);
        // A refused request costs nothing.
        assert_eq!(outcomes(&decision), [(ENDPOINT, 20, 0, 1), ("remote_address", 30, 10, 2)]);
        // The window slides: one unit is free when the first instant of the next minute has passed.
        assert_eq!(decision.wait(), Wait::For(Span::from_micros(60_000_001)));
    }
    platform.clock.set(START.after(Span::from_micros(60_000_000)));
    assert!(!platform.call(&[ORDERS, ADDRESS]).allowed());
    platform.clock.set(START.after(Span::from_micros(60_000_001)));
    assert!(platform.call(&[ORDERS, ADDRESS]).allowed());
}

/// A limit counts at the request's own depth: without `match_parents` the key's limit does not apply to a deeper
/// request.
#[test]
fn what_the_other_calls_meet() {
    let platform = Platform::new("");
    assert_eq!(outcomes(&platform.call(&[READS])), []);
    assert_eq!(outcomes(&platform.call(&[&[("api_key", "abc123")]])), [("api_key", 100, 99, 1)]);
    assert_eq!(outcomes(&platform.call(&[&[("global", "aggregate")]])), [("global=aggregate", 10_000, 9_999, 1)]);
    assert_eq!(outcomes(&platform.call(&[&[("global", "other")]])), []);
    // Addresses of one network are one caller, other callers are others.
    assert_eq!(platform.call(&[&[("remote_address", "2001:db8::1")]]).tightest().unwrap().reading.remaining, 29);
    assert_eq!(platform.call(&[&[("remote_address", "2001:db8::2")]]).tightest().unwrap().reading.remaining, 28);
    assert_eq!(platform.call(&[&[("remote_address", "192.168.1.101")]]).tightest().unwrap().reading.remaining, 29);
}

#[test]
fn the_call_with_match_parents_until_it_is_refused() {
    let platform = Platform::new("match_parents: true\n");
    for call in 1..=20 {
        let decision = platform.call(&[ORDERS, ADDRESS]);
        assert!(decision.allowed(), "call {call}");
        assert_eq!(
            outcomes(&decision),
            [("api_key", 100, 100 - call, 1), (ENDPOINT, 20, 20 - call, 1), ("remote_address", 30, 30 - call, 2)],
            "call {call}"
        );
    }
    let refused = platform.call(&[ORDERS, ADDRESS]);
    assert!(!refused.allowed());
    assert_eq!(refused.denied_by().unwrap().rule.name(), ENDPOINT);
    assert_eq!(outcomes(&refused), [("api_key", 100, 80, 1), (ENDPOINT, 20, 0, 1), ("remote_address", 30, 10, 2)]);
    // The key has more for other endpoints, until its own limit refuses.
    for call in 1..=80 {
        let decision = platform.call(&[READS]);
        assert!(decision.allowed(), "read {call}");
        assert_eq!(outcomes(&decision), [("api_key", 100, 80 - call, 1)]);
    }
    let refused = platform.call(&[READS]);
    assert_eq!(refused.denied_by().unwrap().rule.name(), "api_key");
    // Another key is another caller.
    assert!(platform.call(&[&[("api_key", "other"), ("endpoint", "POST /api/v1/orders")]]).allowed());
}

/// Counts as envoyproxy/ratelimit does.
#[test]
fn the_call_with_fixed_windows() {
    let platform = Platform::new("default_algorithm: fixed_window\n");
    platform.clock.set(START.after(Span::from_secs(18)));
    for _ in 0..20 {
        assert!(platform.call(&[ORDERS, ADDRESS]).allowed());
    }
    let refused = platform.call(&[ORDERS, ADDRESS]);
    assert_eq!(refused.wait(), Wait::For(Span::from_secs(42)));
    assert_eq!(refused.denied_by().unwrap().reading.reset_after, Span::from_secs(42));
    platform.clock.set(START.after(Span::from_secs(60)));
    assert_eq!(outcomes(&platform.call(&[ORDERS, ADDRESS])), [(ENDPOINT, 20, 19, 1), ("remote_address", 30, 29, 2)]);
}
