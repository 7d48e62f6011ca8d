//! What a request cost, charged when it has ended: `deploy/envoy/streams.yaml`.

use tollgate_testing::{Redis, Server, eventually};

use super::model::Model;
use super::{Config, Envoy};
use crate::clients::http::{self, Connection};
use crate::clients::tools;
use crate::new_server;

/// Envoy between clients and a model, and the server that it asks.
pub(super) struct World {
    pub(super) server: Server,
    pub(super) model: Model,
    pub(super) envoy: Envoy,
    // Ended after the server.
    _redis: Option<Redis>,
}

impl World {
    pub(super) fn new() -> World {
        World::with(|config| config)
    }

    /// One with counters in memory, and one with counters in Redis.
    pub(super) fn each() -> impl Iterator<Item = World> {
        [None, Some(Redis::start())].into_iter().map(|redis| World::on(redis, |config| config))
    }

    /// With a changed configuration of Envoy.
    pub(super) fn with(change: impl FnOnce(Config) -> Config) -> World {
        World::on(None, change)
    }

    fn on(redis: Option<Redis>, change: impl FnOnce(Config) -> Config) -> World {
        let mut builder = new_server().rules(&tools::deployed("rules/streams.yaml")).listen(&["grpc", "http"]);
        if let Some(redis) = &redis {
            // On a busy machine the time that is usual may pass, and nobody would count.
            builder = builder.args(&["--store", &redis.url(), "--store-deadline", "1s"]);
        }
        let server = builder.start();
        let look = r#"{"cost": 0, "attributes": {"api_key": "nobody", "route": "summary"}}"#;
        let counted = eventually(|| {
            let mut connection = Connection::open(server.address("http")).unwrap();
            let answer = connection.ask("POST", "/v1/ratelimit/check", &[], look).unwrap();
            answer.body.contains(r#""source":"store""#).then_some(())
        });
        assert!(counted.is_some(), "the server does not find its store:\n{}", server.log());
        let model = Model::new();
        // A question that fails is seen, and lets nobody in.
        let config = Config::of("streams.yaml", server.address("grpc"), &model.address).fail_closed();
        let envoy = change(config).start();
        World { server, model, envoy, _redis: redis }
    }

    /// What a rule has left for this key.
    pub(super) fn left(&self, key: &str, rule: &str) -> u64 {
        let status = http::get(self.server.address("http"), &format!("/v1/ratelimit/status/{key}"), &[]);
        let body: serde_json::Value = serde_json::from_str(&status.body).unwrap();
        let limits = body["limits"].as_array().unwrap();
        let found = limits.iter().find(|limit| limit["name"] == rule);
        found.and_then(|limit| limit["remaining"].as_u64()).unwrap_or_else(|| panic!("no {rule}: {}", status.body))
    }

    /// Waits until it has so much left: the call at the end of a request comes after its answer.
    #[track_caller]
    pub(super) fn comes_to(&self, key: &str, rule: &str, left: u64) {
        let is_so = eventually(|| (self.left(key, rule) == left).then_some(()));
        assert!(is_so.is_some(), "{rule} has {} left, not {left}", self.left(key, rule));
    }

    /// The status of a request whose answer costs so much.
    fn spend(&self, path: &str, key: &str, tokens: &str) -> u16 {
        self.envoy.get(path, &[("x-api-key", key), ("x-spend", tokens)]).status
    }
}

#[test]
fn tokens_in_the_body_are_charged_when_the_answer_is_there() {
    World::each().for_each(|world| tokens_in_the_body(&world));
}

fn tokens_in_the_body(world: &World) {
    for left in [70, 40, 10] {
        assert_eq!(world.spend("/chat", "a", "30"), 200);
        world.comes_to("a", "tokens", left);
    }
    // There is something left, so one more may begin; what it costs counts, past the limit too.
    assert_eq!(world.spend("/chat", "a", "30"), 200);
    world.comes_to("a", "tokens", 0);
    assert_eq!(world.spend("/chat", "a", "30"), 429);
    assert_eq!(world.model.work().came, 4);
    // A request is one request, and one slot that is free again.
    assert_eq!(world.left("a", "calls"), 996);
    world.comes_to("a", "in-flight", 20);
    // Each key for itself.
    assert_eq!(world.spend("/chat", "b", "5000"), 200);
    world.comes_to("b", "tokens", 0);
    assert_eq!(world.spend("/chat", "b", "1"), 429);
    assert_eq!(world.spend("/chat", "c", "1"), 200);
}

#[test]
fn tokens_as_hits_are_charged_when_the_answer_is_there() {
    // Out of a header, and out of the body.
    for format in ["%RESP(x-tokens)%", "%DYNAMIC_METADATA(usage:tokens)%"] {
        let world = World::with(|config| config.with("%RESP(x-tokens)%", format));
        for left in [60, 20] {
            assert_eq!(world.spend("/summary", "a", "40"), 200);
            world.comes_to("a", "summary-tokens", left);
        }
        assert_eq!(world.spend("/summary", "a", "40"), 200);
        world.comes_to("a", "summary-tokens", 0);
        assert_eq!(world.spend("/summary", "a", "40"), 429);
        assert_eq!(world.left("a", "tokens"), 100);
    }
}

#[test]
fn an_answer_that_says_nothing_costs_nothing() {
    let world = World::new();
    for path in ["/chat", "/chat/stream", "/summary", "/summary/stream"] {
        assert_eq!(world.envoy.get(path, &[("x-api-key", "a")]).status, 200);
    }
    world.comes_to("a", "in-flight", 20);
    // Both questions of /chat, and of /summary the first alone: Envoy makes no descriptor of a missing header.
    assert_eq!(world.envoy.stat("upstream_rq_total"), 6);
    assert_eq!((world.left("a", "tokens"), world.left("a", "summary-tokens")), (100, 100));
}
