//! Several servers on one Redis, a Redis Cluster or a primary that sentinels watch; and what becomes of their callers when those
//! fail under load.

mod calls;
mod exact;
pub(crate) mod figures;
pub(crate) mod load;
pub(crate) mod servers;

use tollgate_core::Source;
use tollgate_testing::{Redis, eventually};

use self::load::{Answer, once};
use self::servers::{callers, server_on};

#[test]
fn a_server_starts_without_its_redis_and_finds_it_later() {
    let mut redis = Redis::start();
    redis.kill();
    let server = server_on(&redis.url());
    let (address, ask) = (server.address("http").to_owned(), callers("early").remove(0).ask);
    assert_eq!(once(&address, &ask), Answer::Decided { allowed: true, source: Source::Local });
    redis.restart();
    let found = || matches!(once(&address, &ask), Answer::Decided { source: Source::Store, .. });
    assert!(eventually(|| found().then_some(())).is_some(), "it does not find Redis");
}
