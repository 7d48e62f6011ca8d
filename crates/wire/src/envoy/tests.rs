//! The behaviour that Envoy's users rely on.

mod instructions;
mod json;
mod repaired;
mod soft;

use std::sync::Arc;

use http::HeaderMap;
use prost::Message as _;
use prost_types::value;
use tollgate::{Limiter, LoadOptions, MemoryConfig, Ruleset, poll_once};
use tollgate_proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use tollgate_proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{Entry, RateLimitOverride};
use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus};
use tollgate_proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tollgate_rules::{RuleFile, load_sources};
use tollgate_store::guarded::Level;

use super::{Envoy, EnvoyResponse, HeaderNames, InvalidRequest, ResponseExtras};
use crate::gate::Gate;
use tollgate_http::response::{Jitter, ResponseStyle};
use tollgate_store::Counters;
use tollgate_store::conformance::gated::GatedStore;
use tollgate_telemetry::metrics::Metrics;

/// A domain with periods that do not end during a test.
const RULES: &str = "
domain: test-domain
descriptors:
  - key: key1
    value: value1
    descriptors:
      - {key: subkey1, rate_limit: {unit: hour, requests_per_unit: 5}}
      - {key: subkey1, value: subvalue1, rate_limit: {unit: day, requests_per_unit: 10}}
  - {key: key2, algorithm: sliding_log, rate_limit: {unit: minute, requests_per_unit: 20}}
  - {key: key2, value: value2, algorithm: sliding_log, rate_limit: {unit: minute, requests_per_unit: 30}}
  - {key: key2, value: value3}
  - {key: key4, rate_limit: {name: four, unit: day, requests_per_unit: 1}}
  - {key: key6, rate_limit: {unlimited: true, replaces: [{name: four}]}}
  - {key: shadow, rate_limit: {unit: day, requests_per_unit: 1}, shadow_mode: true}
  - {key: q1, rate_limit: {unit: day, requests_per_unit: 1}, quota_mode: true}
  - {key: q2, rate_limit: {unit: day, requests_per_unit: 2}, quota_mode: true}
  - {key: shared, value: 'a*', rate_limit: {unit: day, requests_per_unit: 3}, share_threshold: true}
  - {key: meta, rate_limit: {unit: day, requests_per_unit: 3}, metadata: {team: payments, page: 1}}
  - {key: none, rate_limit: {unit: day}}
---
domain: listed
rules:
  - {name: per-key, key: [api_key], limit: 5/day}
  - {name: per-user, key: [user], limit: 3/30s, algorithm: sliding_log}
  - {name: all, key: [], limit: 100/day}
  - {name: abuse, key: [address], limit: 1/day, headers: hidden}
";

pub(super) fn envoy(extras: ResponseExtras, shadow: bool) -> Envoy {
    let limiter = Limiter::new(ruleset(), MemoryConfig::default().build().into());
    envoy_on(Arc::new(limiter), extras, shadow)
}

fn ruleset() -> Ruleset {
    rules(RULES)
}

fn rules(text: &str) -> Ruleset {
    let source = RuleFile { name: "rules.yaml".to_owned(), text: text.to_owned() };
    let domains = load_sources(&[source], &LoadOptions::default()).unwrap().domains;
    Ruleset::compile(domains, 1).unwrap()
}

fn envoy_on(limiter: Arc<Limiter<Counters>>, extras: ResponseExtras, shadow: bool) -> Envoy {
    Envoy::new(Arc::new(Gate::new(limiter, shadow, 100, Metrics::new().wire("grpc"))), extras)
}

/// An instance with other rules.
fn envoy_with(text: &str, extras: ResponseExtras) -> Envoy {
    envoy_on(Arc::new(Limiter::new(rules(text), MemoryConfig::default().build().into())), extras, false)
}

fn server() -> Envoy {
    envoy(ResponseExtras::default(), false)
}

/// `a=1,b=2` is a descriptor; `×n` after it is its hits.
fn descriptor(text: &str) -> RateLimitDescriptor {
    let (entries, hits) = text.split_once('×').unwrap_or((text, ""));
    let entry = |entry: &str| {
        let (key, value) = entry.split_once('=').unwrap();
        Entry { key: key.to_owned(), value: value.to_owned().into() }
    };
    RateLimitDescriptor {
        entries: entries.split(',').filter(|entry| !entry.is_empty()).map(entry).collect(),
        hits_addend: hits.parse().ok(),
        ..RateLimitDescriptor::default()
    }
}

fn request(domain: &str, descriptors: &[&str]) -> RateLimitRequest {
    RateLimitRequest {
        domain: domain.to_owned(),
        descriptors: descriptors.iter().map(|text| descriptor(text)).collect(),
        hits_addend: 0,
    }
}

fn ask(envoy: &Envoy, request: &RateLimitRequest) -> RateLimitResponse {
    let EnvoyResponse { message, client } =
        poll_once(envoy.should_rate_limit(request, &HeaderMap::new(), None)).unwrap().unwrap();
    // As a gateway decodes it.
    RateLimitResponse::decode(&*[message.encode_to_vec(), client].concat()).unwrap()
}

fn refused(envoy: &Envoy, request: &RateLimitRequest) -> String {
    let InvalidRequest(reason) =
        poll_once(envoy.should_rate_limit(request, &HeaderMap::new(), None)).unwrap().unwrap_err();
    reason
}

/// A status as `OK 19/20 MINUTE` or, with a name, `OVER_LIMIT 0/1 DAY four`.
fn summary(status: &DescriptorStatus) -> String {
    let code = Code::try_from(status.code).unwrap().as_str_name();
    match &status.current_limit {
        None if status.limit_remaining == 0 => code.to_owned(),
        None => format!("{code} {}", status.limit_remaining),
        Some(limit) => {
            assert!(status.duration_until_reset.as_ref().unwrap().seconds >= 0);
            let unit = Unit::try_from(limit.unit).unwrap().as_str_name();
            let text = format!("{code} {}/{} {unit} {}", status.limit_remaining, limit.requests_per_unit, limit.name);
            text.trim_end().to_owned()
        }
    }
}

/// The overall code, then the statuses.
fn all(response: &RateLimitResponse) -> Vec<String> {
    let overall = Code::try_from(response.overall_code).unwrap().as_str_name().to_owned();
    [overall].into_iter().chain(response.statuses.iter().map(summary)).collect()
}

#[track_caller]
fn check(envoy: &Envoy, descriptors: &[&str], expected: &[&str]) {
    assert_eq!(all(&ask(envoy, &request("test-domain", descriptors))), expected, "{descriptors:?}");
}

#[test]
fn the_tree_is_matched_as_its_users_know_it() {
    let envoy = server();
    check(&envoy, &["key1=value1,subkey1=x"], &["OK", "OK 4/5 HOUR"]);
    check(&envoy, &["key1=value1,subkey1=subvalue1"], &["OK", "OK 9/10 DAY"]);
    check(&envoy, &["key1=value1"], &["OK", "OK"]);
    check(&envoy, &["key2=x"], &["OK", "OK 19/20 MINUTE"]);
    check(&envoy, &["key2=value2"], &["OK", "OK 29/30 MINUTE"]);
    check(&envoy, &["key2=value3"], &["OK", "OK"]);
    check(&envoy, &["key2=value2,subkey=y"], &["OK", "OK"]);
    check(&envoy, &["key6=x"], &["OK", "OK 4294967295"]);
    check(&envoy, &["none=x"], &["OVER_LIMIT", "OVER_LIMIT 0/0 DAY"]);
}

#[test]
fn a_refused_request_consumes_nothing() {
    let envoy = server();
    check(&envoy, &["key4=x", "key2=y"], &["OK", "OK 0/1 DAY four", "OK 19/20 MINUTE"]);
    check(&envoy, &["key4=x", "key2=y"], &["OVER_LIMIT", "OVER_LIMIT 0/1 DAY four", "OK 19/20 MINUTE"]);
    check(&envoy, &["key2=y"], &["OK", "OK 18/20 MINUTE"]);
}

#[test]
fn hits() {
    let envoy = server();
    check(&envoy, &["key2=x×5"], &["OK", "OK 15/20 MINUTE"]);
    check(&envoy, &["key2=x×0"], &["OK", "OK 15/20 MINUTE"]);
    let mut seven = request("test-domain", &["key2=x", "key2=z×1"]);
    seven.hits_addend = 7;
    assert_eq!(all(&ask(&envoy, &seven)), ["OK", "OK 8/20 MINUTE", "OK 19/20 MINUTE"]);
    check(&envoy, &["key2=x×9"], &["OVER_LIMIT", "OVER_LIMIT 0/20 MINUTE"]);
    check(&envoy, &["key2=x×18446744073709551615"], &["OVER_LIMIT", "OVER_LIMIT 0/20 MINUTE"]);
}

#[test]
fn a_replaced_limit_is_not_counted() {
    let envoy = server();
    for _ in 0..3 {
        check(&envoy, &["key4=x", "key6=y"], &["OK", "OK", "OK 4294967295"]);
    }
    check(&envoy, &["key4=x"], &["OK", "OK 0/1 DAY four"]);
}

#[test]
fn shadow_of_a_rule_and_of_the_server() {
    let envoy = server();
    check(&envoy, &["shadow=x"], &["OK", "OK 0/1 DAY"]);
    check(&envoy, &["shadow=x"], &["OK", "OK 0/1 DAY"]);
    let shadowed = super::tests::envoy(ResponseExtras::default(), true);
    check(&shadowed, &["key4=x"], &["OK", "OK 0/1 DAY four"]);
    check(&shadowed, &["key4=x"], &["OK", "OVER_LIMIT 0/1 DAY four"]);
}

#[test]
fn quota_mode_refuses_when_all_are_over() {
    let envoy = server();
    check(&envoy, &["q1=x", "q2=x"], &["OK", "OK 0/1 DAY", "OK 1/2 DAY"]);
    check(&envoy, &["q1=x", "q2=x"], &["OK", "OVER_LIMIT 0/1 DAY", "OK 0/2 DAY"]);
    check(&envoy, &["q1=x", "q2=x"], &["OVER_LIMIT", "OVER_LIMIT 0/1 DAY", "OVER_LIMIT 0/2 DAY"]);
    check(&envoy, &["q1=y", "key4=z"], &["OK", "OK 0/1 DAY", "OK 0/1 DAY four"]);
    // A limit of another mode refuses by itself.
    check(&envoy, &["q2=y", "key4=z"], &["OVER_LIMIT", "OK 2/2 DAY", "OVER_LIMIT 0/1 DAY four"]);
}

#[test]
fn share_threshold_counts_values_together() {
    let envoy = server();
    check(&envoy, &["shared=a1"], &["OK", "OK 2/3 DAY"]);
    check(&envoy, &["shared=a2"], &["OK", "OK 1/3 DAY"]);
    check(&envoy, &["shared=b"], &["OK", "OK"]);
}

fn with_limit(text: &str, requests_per_unit: u32, unit: i32) -> RateLimitRequest {
    let mut request = request("test-domain", &[text]);
    request.descriptors[0].limit = Some(RateLimitOverride { requests_per_unit, unit });
    request
}

#[test]
fn a_limit_in_the_request() {
    let envoy = server();
    assert_eq!(all(&ask(&envoy, &with_limit("key2=x", 2, 3))), ["OK", "OK 1/2 HOUR"]);
    assert_eq!(all(&ask(&envoy, &with_limit("key2=x", 2, 3))), ["OK", "OK 0/2 HOUR"]);
    assert_eq!(all(&ask(&envoy, &with_limit("key2=x", 2, 3))), ["OVER_LIMIT", "OVER_LIMIT 0/2 HOUR"]);
    // Another amount uses the same counter; another unit, or none, has its own.
    assert_eq!(all(&ask(&envoy, &with_limit("key2=x", 5, 3))), ["OK", "OK 2/5 HOUR"]);
    assert_eq!(all(&ask(&envoy, &with_limit("key2=x", 5, 7))), ["OK", "OK 4/5 WEEK"]);
    check(&envoy, &["key2=x"], &["OK", "OK 19/20 MINUTE"]);
    // It needs a domain, but no rule.
    assert_eq!(all(&ask(&envoy, &with_limit("unknown=x", 5, 5))), ["OK", "OK 4/5 MONTH"]);
    let mut elsewhere = with_limit("key2=x", 1, 1);
    elsewhere.domain = "elsewhere".to_owned();
    assert_eq!(all(&ask(&envoy, &elsewhere)), ["OK", "OK"]);
    assert!(refused(&envoy, &with_limit("key2=x", 5, 0)).contains("must be SECOND"));
    assert!(refused(&envoy, &with_limit("key2=x", 5, 99)).contains("is 99; it must be SECOND"));
    let large = refused(&envoy, &with_limit("key2=x", u32::MAX, 6));
    assert!(large.contains("4294967295 per YEAR is too large"), "{large}");
}

#[test]
fn what_is_no_request() {
    let envoy = server();
    assert_eq!(refused(&envoy, &request("", &["a=b"])), "rate limit domain must not be empty");
    assert_eq!(refused(&envoy, &request("test-domain", &[])), "rate limit descriptor list must not be empty");
    assert_eq!(all(&ask(&envoy, &request("elsewhere", &["a=b", "c=d"]))), ["OK", "OK", "OK"]);
    assert_eq!(envoy.gate.metrics().unknown_domain.get(), 1);
}

#[test]
fn a_status_is_the_tightest_reading_that_touches_its_descriptor() {
    let envoy = server();
    let mut both = request("listed", &["api_key=k", "user=u", "other=o"]);
    assert_eq!(all(&ask(&envoy, &both)), ["OK", "OK 4/5 DAY per-key", "OK 2/3 UNKNOWN per-user", "OK 99/100 DAY all"]);
    // The cost for such a rule is the largest of the request.
    both.descriptors[2].hits_addend = Some(3);
    assert_eq!(
        all(&ask(&envoy, &both)),
        ["OVER_LIMIT", "OK 4/5 DAY per-key", "OVER_LIMIT 0/3 UNKNOWN per-user", "OK 99/100 DAY all"]
    );
}

#[test]
fn a_hidden_limit_refuses_and_says_nothing() {
    let envoy = server();
    let request = request("listed", &["address=a"]);
    assert_eq!(all(&ask(&envoy, &request)), ["OK", "OK 99/100 DAY all"]);
    assert_eq!(all(&ask(&envoy, &request)), ["OVER_LIMIT", "OVER_LIMIT 99/100 DAY all"]);
}

#[test]
fn headers_are_those_of_the_tightest_descriptor() {
    let names = HeaderNames { limit: "L".to_owned(), remaining: "R".to_owned(), reset: "T".to_owned() };
    let envoy = envoy(ResponseExtras { client: None, headers: Some(names), metadata: false }, false);
    let headers = |descriptors: &[&str]| {
        let response = ask(&envoy, &request("test-domain", descriptors));
        let headers = response.response_headers_to_add.iter().take(2).map(|one| format!("{}={}", one.key, one.value));
        headers.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(headers(&["key2=x", "key2=value2"]), "L=20 R=19");
    assert_eq!(headers(&["key2=x×15", "key2=value2"]), "L=20 R=4");
    assert_eq!(headers(&["key2=value3"]), "");
    assert_eq!(headers(&["key4=x"]), "L=1 R=0");
    assert_eq!(headers(&["key2=x×5", "shadow=1"]), "L=20 R=0");
}

#[test]
fn clients_get_the_headers_and_the_refusals_of_http() {
    let client = Some(ResponseStyle { jitter: Jitter::Off, ..ResponseStyle::default() });
    let extras = ResponseExtras { client, headers: None, metadata: false };
    let rules = "
domain: d
descriptors:
  - {key: key, rate_limit: {name: four, unit: day, requests_per_unit: 1}}
---
domain: listed
rules: [{name: bucket, key: [b], limit: 10/hour, burst: 30, algorithm: token_bucket}]
";
    let envoy = envoy_with(rules, extras);
    let headers = |response: &RateLimitResponse| -> Vec<(String, String)> {
        response.response_headers_to_add.iter().map(|one| (one.key.clone(), one.value.clone())).collect()
    };
    let allowed = ask(&envoy, &request("d", &["key=x"]));
    let names: Vec<String> = headers(&allowed).into_iter().map(|(name, _)| name).collect();
    let always = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-used", "x-ratelimit-reset"];
    let always: Vec<&str> = always
        .into_iter()
        .chain(["x-ratelimit-policy", "x-ratelimit-bucket", "ratelimit-policy", "ratelimit"])
        .collect();
    assert_eq!((names, &allowed.raw_body[..]), (always.iter().map(ToString::to_string).collect(), &b""[..]));
    let refused = ask(&envoy, &request("d", &["key=x"]));
    let names: Vec<String> = headers(&refused).into_iter().map(|(name, _)| name).collect();
    let more = ["retry-after", "x-ratelimit-denied-by", "content-type"];
    assert_eq!(names, always.iter().chain(&more).map(ToString::to_string).collect::<Vec<_>>());
    assert!(headers(&refused).contains(&("content-type".to_owned(), "application/problem+json".to_owned())));
    let body: serde_json::Value = serde_json::from_slice(&refused.raw_body).unwrap();
    assert_eq!((&body["allowed"], &body["denied_by"], body.get("status")), (&false.into(), &"four".into(), None));
    // A unit has ten requests, and at most as many are reported as left.
    assert_eq!(all(&ask(&envoy, &request("listed", &["b=x"]))), ["OK", "OK 10/10 HOUR bucket"]);
}

#[test]
fn metadata_of_what_was_passed() {
    let extras = ResponseExtras { client: None, headers: None, metadata: true };
    let (store, memory) = (GatedStore::new(), envoy(extras.clone(), false));
    let shared = envoy_on(crate::test_support::limiter_on(&store, ruleset()), extras, false);
    let metadata_of = |envoy: &Envoy, descriptors: &[&str]| {
        let fields = ask(envoy, &request("test-domain", descriptors)).dynamic_metadata?.fields;
        let mut texts: Vec<String> = fields
            .into_iter()
            .map(|(name, value)| match value.kind {
                Some(value::Kind::StringValue(text)) => format!("{name}={text}"),
                other => format!("{name}={other:?}"),
            })
            .collect();
        texts.sort();
        Some(texts.join(" "))
    };
    let metadata = |descriptors: &[&str]| metadata_of(&memory, descriptors);
    assert_eq!(metadata(&["meta=x"]).as_deref(), Some("page=1 team=payments"));
    assert_eq!(metadata(&["key2=x"]), None);
    assert_eq!(metadata(&["meta=y×4"]), None);
    store.open();
    assert_eq!(metadata_of(&shared, &["key2=x"]), None);
    store.set_level(Level::LocalOnly);
    assert_eq!(metadata_of(&shared, &["key2=x"]).as_deref(), Some("tollgate_level=local-only"));
    let busy = Gate::new(
        Arc::new(Limiter::new(ruleset(), MemoryConfig::default().build().into())),
        false,
        0,
        Metrics::new().wire("grpc"),
    );
    let busy = Envoy::new(Arc::new(busy), ResponseExtras { client: None, headers: None, metadata: true });
    assert_eq!(metadata_of(&busy, &["key2=x"]).as_deref(), Some("tollgate_source=shed"));
}
