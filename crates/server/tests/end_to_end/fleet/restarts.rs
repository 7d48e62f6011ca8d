//! Servers that start, or start again, while Redis is unavailable: together they give out no more than the limit.

use tollgate_core::Source;
use tollgate_testing::{Redis, Server, ServerBuilder, eventually};

use crate::fleet::load::{Check, CheckResult, check_once};
use crate::http::get;
use crate::new_server;

const RULES: &str = "
domain: fleet
entity: user
rules:
  - {name: small, key: [user], match: {kind: small}, limit: 30/year, algorithm: fixed_window}
";
const LISTENERS: [&str; 2] = ["http", "admin"];

fn passed(server: &Server, user: &str) -> usize {
    let check = Check { user: user.to_owned(), kind: "small" };
    let allowed = |_: &usize| match check_once(server.address("http"), &check) {
        CheckResult::Decided { allowed, source } => {
            assert_eq!(source, Source::Local);
            allowed
        }
        other => panic!("{other:?}"),
    };
    (0..40).filter(allowed).count()
}

fn total(servers: &[Server], user: &str) -> usize {
    servers.iter().map(|server| passed(server, user)).sum()
}

fn knows_replicas(server: &Server, count: usize) -> bool {
    get(&server.url("admin", "/metrics")).body.contains(&format!("tollgate_store_replicas {count}\n"))
}

/// Restarts one after the other.
fn restart_all(servers: Vec<Server>, configure: impl Fn(ServerBuilder) -> ServerBuilder) -> Vec<Server> {
    let restart = |mut server: Server| {
        assert!(server.stop().success(), "{}", server.log());
        configure(server.restart()).start()
    };
    servers.into_iter().map(restart).collect()
}

#[test]
fn slow_rolling_restarts_without_redis_give_out_the_limit_once() {
    let mut redis = Redis::start();
    let url = redis.url();
    let configure = |builder: ServerBuilder| builder.listen(&LISTENERS).args(&["--store", &url]);
    let mut servers: Vec<Server> = (0..3).map(|_| configure(new_server().rules(RULES)).start()).collect();
    let know_each_other = || servers.iter().all(|server| knows_replicas(server, 3));
    assert!(eventually(|| know_each_other().then_some(())).is_some(), "the servers do not know each other");
    redis.kill();
    assert_eq!(total(&servers, "before"), 30);
    for _ in 0..2 {
        servers = restart_all(servers, configure);
        assert_eq!(total(&servers, "before"), 0, "a restart gives out what was given out before");
    }
    assert!(servers.iter().all(|server| knows_replicas(server, 3)));
    assert_eq!(total(&servers, "after"), 30, "a new caller gets the limit once, divided by the number of servers");
}

#[test]
fn servers_that_never_saw_redis_divide_limits_by_the_setting() {
    let mut redis = Redis::start();
    redis.kill();
    let args = ["--store", &redis.url(), "--replicas", "2"];
    let start = |_| new_server().rules(RULES).listen(&LISTENERS).args(&args).start();
    assert_eq!(total(&(0..2).map(start).collect::<Vec<_>>(), "u"), 30);
}
