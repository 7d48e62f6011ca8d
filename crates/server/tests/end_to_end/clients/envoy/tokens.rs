//! Costs that are charged when a request has ended: `deploy/envoy/streams.yaml`.

use tollgate_testing::{Redis, Server, eventually};

use super::model::Model;
use super::{Envoy, EnvoyConfig};
use crate::clients::deploy;
use crate::clients::http::{self, Connection};
use crate::new_server;

/// Envoy in front of a model, with a server as its rate limit service.
pub(super) struct StreamsFixture {
    pub(super) server: Server,
    pub(super) model: Model,
    pub(super) envoy: Envoy,
    // Dropped after the server.
    _redis: Option<Redis>,
}

impl StreamsFixture {
    pub(super) fn new() -> StreamsFixture {
        StreamsFixture::with_config(|config| config)
    }

    /// One fixture with counters in memory, and one with counters in Redis.
    pub(super) fn each() -> impl Iterator<Item = StreamsFixture> {
        [None, Some(Redis::start())].into_iter().map(|redis| StreamsFixture::with_store(redis, |config| config))
    }

    /// With a changed configuration of Envoy.
    pub(super) fn with_config(change: impl FnOnce(EnvoyConfig) -> EnvoyConfig) -> StreamsFixture {
        StreamsFixture::with_store(None, change)
    }

    fn with_store(redis: Option<Redis>, change: impl FnOnce(EnvoyConfig) -> EnvoyConfig) -> StreamsFixture {
        let mut builder = new_server().rules(&deploy::read("rules/streams.yaml")).listen(&["grpc", "http"]);
        if let Some(redis) = &redis {
            // A busy machine may exceed the default deadline.
            builder = builder.args(&["--store", &redis.url(), "--store-deadline", "1s"]);
        }
        let server = builder.start();
        let peek = r#"{"cost": 0, "attributes": {"api_key": "nobody", "route": "summary"}}"#;
        let is_connected = eventually(|| {
            let mut connection = Connection::open(server.address("http")).unwrap();
            let response = connection.send("POST", "/v1/ratelimit/check", &[], peek).unwrap();
            response.body.contains(r#""source":"store""#).then_some(())
        });
        assert!(is_connected.is_some(), "the server is not connected to its store:\n{}", server.log());
        let model = Model::new();
        // A failed check refuses the request, so that it shows.
        let config = EnvoyConfig::from_file("streams.yaml", server.address("grpc"), &model.address).fail_closed();
        let envoy = change(config).start();
        StreamsFixture { server, model, envoy, _redis: redis }
    }

    /// The remaining units of a rule for this key.
    pub(super) fn remaining(&self, key: &str, rule: &str) -> u64 {
        let status = http::get(self.server.address("http"), &format!("/v1/ratelimit/status/{key}"), &[]);
        let body: serde_json::Value = serde_json::from_str(&status.body).unwrap();
        let limits = body["limits"].as_array().unwrap();
        let found = limits.iter().find(|limit| limit["name"] == rule);
        found.and_then(|limit| limit["remaining"].as_u64()).unwrap_or_else(|| panic!("no {rule}: {}", status.body))
    }

    /// Waits until a rule has this many units left: the check at the end of a request comes after its response.
    #[track_caller]
    pub(super) fn wait_for_remaining(&self, key: &str, rule: &str, expected: u64) {
        let reached = eventually(|| (self.remaining(key, rule) == expected).then_some(()));
        assert!(reached.is_some(), "{rule} has {} left, not {expected}", self.remaining(key, rule));
    }

    /// The status of a request whose response has this cost.
    fn spend(&self, path: &str, key: &str, tokens: &str) -> u16 {
        self.envoy.get(path, &[("x-api-key", key), ("x-spend", tokens)]).status
    }
}

#[test]
fn tokens_in_the_body_are_charged_after_the_response() {
    StreamsFixture::each().for_each(|fixture| check_tokens_in_the_body(&fixture));
}

fn check_tokens_in_the_body(fixture: &StreamsFixture) {
    for left in [70, 40, 10] {
        assert_eq!(fixture.spend("/chat", "a", "30"), 200);
        fixture.wait_for_remaining("a", "tokens", left);
    }
    // Units remain, so one more request is admitted; its cost is counted past the limit too.
    assert_eq!(fixture.spend("/chat", "a", "30"), 200);
    fixture.wait_for_remaining("a", "tokens", 0);
    assert_eq!(fixture.spend("/chat", "a", "30"), 429);
    assert_eq!(fixture.model.state().arrived, 4);
    // Each request is one call, and its slot is free again.
    assert_eq!(fixture.remaining("a", "calls"), 996);
    fixture.wait_for_remaining("a", "in-flight", 20);
    // Each key has its own counters.
    assert_eq!(fixture.spend("/chat", "b", "5000"), 200);
    fixture.wait_for_remaining("b", "tokens", 0);
    assert_eq!(fixture.spend("/chat", "b", "1"), 429);
    assert_eq!(fixture.spend("/chat", "c", "1"), 200);
}

#[test]
fn tokens_as_hits_are_charged_after_the_response() {
    // From a header, and from the body.
    for format in ["%RESP(x-tokens)%", "%DYNAMIC_METADATA(usage:tokens)%"] {
        let fixture = StreamsFixture::with_config(|config| config.with("%RESP(x-tokens)%", format));
        for left in [60, 20] {
            assert_eq!(fixture.spend("/summary", "a", "40"), 200);
            fixture.wait_for_remaining("a", "summary-tokens", left);
        }
        assert_eq!(fixture.spend("/summary", "a", "40"), 200);
        fixture.wait_for_remaining("a", "summary-tokens", 0);
        assert_eq!(fixture.spend("/summary", "a", "40"), 429);
        assert_eq!(fixture.remaining("a", "tokens"), 100);
    }
}

#[test]
fn a_response_without_a_cost_is_free() {
    let fixture = StreamsFixture::new();
    for path in ["/chat", "/chat/stream", "/summary", "/summary/stream"] {
        assert_eq!(fixture.envoy.get(path, &[("x-api-key", "a")]).status, 200);
    }
    fixture.wait_for_remaining("a", "in-flight", 20);
    // Two checks for /chat, and one for /summary: Envoy sends no descriptor for a missing header.
    assert_eq!(fixture.envoy.stat("upstream_rq_total"), 6);
    assert_eq!((fixture.remaining("a", "tokens"), fixture.remaining("a", "summary-tokens")), (100, 100));
}
