//! An API platform's rules in the format of envoyproxy/ratelimit, and a gateway's request, checked until they refuse.

use tollgate::{Decision, Descriptor, ManualClock, Request, Source, Span, Wait, poll_once};

use crate::support::{ManualLimiter, START, manual_limiter};

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

const ENDPOINT: &str = "api_key/endpoint=POST /api/v1/orders";

struct Platform {
    limiter: ManualLimiter,
    clock: ManualClock,
}

impl Platform {
    fn new(settings: &str) -> Platform {
        let (limiter, clock) = manual_limiter(&format!("{RULES}{settings}"));
        Platform { limiter, clock }
    }

    fn call(&self, descriptors: &[&[(&str, &str)]]) -> Decision {
        let descriptors: Vec<_> = descriptors.iter().map(|entries| Descriptor::new(entries)).collect();
        let request =
            Request { domain: Some("api_platform"), descriptors: &descriptors, cost: 1, ..Request::default() };
        poll_once(self.limiter.check_request(&request)).unwrap().unwrap()
    }
}

/// Rule, limit, remaining units and the descriptor of each outcome.
fn outcomes(decision: &Decision) -> Vec<(&str, u64, u64, u64)> {
    decision.outcomes().map(|one| (one.rule.name(), one.limit.amount(), one.reading.remaining, one.touches)).collect()
}

#[test]
fn calls_pass_until_the_endpoint_limit_refuses() {
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
fn other_calls_meet_the_limits_of_their_own_depth() {
    let platform = Platform::new("");
    assert_eq!(outcomes(&platform.call(&[READS])), []);
    assert_eq!(outcomes(&platform.call(&[&[("api_key", "abc123")]])), [("api_key", 100, 99, 1)]);
    assert_eq!(outcomes(&platform.call(&[&[("global", "aggregate")]])), [("global=aggregate", 10_000, 9_999, 1)]);
    assert_eq!(outcomes(&platform.call(&[&[("global", "other")]])), []);
    // Addresses of one network are one caller; other networks are other callers.
    assert_eq!(platform.call(&[&[("remote_address", "2001:db8::1")]]).tightest().unwrap().reading.remaining, 29);
    assert_eq!(platform.call(&[&[("remote_address", "2001:db8::2")]]).tightest().unwrap().reading.remaining, 28);
    assert_eq!(platform.call(&[&[("remote_address", "192.168.1.101")]]).tightest().unwrap().reading.remaining, 29);
}

#[test]
fn with_match_parents_the_key_limit_applies_too() {
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

#[test]
fn fixed_windows_count_like_envoyproxy_ratelimit() {
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
