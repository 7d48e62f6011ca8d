//! Several servers on one Redis, a Redis Cluster or a primary with sentinels, and the load of tests with faults.

mod exact;
mod exhausted;
mod lease_changes;
mod lease_faults;
mod leases;
pub(crate) mod load;
mod redis_calls;
mod restarts;
pub(crate) mod servers;
mod shared_limit;
pub(crate) mod statistics;
mod summed;

use tollgate_core::Source;
use tollgate_testing::{Redis, eventually};

use self::load::{CheckResult, check_once};
use self::servers::{callers, server_on};

#[test]
fn a_server_starts_without_redis_and_connects_later() {
    let mut redis = Redis::start();
    redis.kill();
    let server = server_on(&redis.url());
    let (address, check) = (server.address("http").to_owned(), callers("early").remove(0).check);
    assert_eq!(check_once(&address, &check), CheckResult::Decided { allowed: true, source: Source::Local });
    redis.restart();
    let is_connected = || matches!(check_once(&address, &check), CheckResult::Decided { source: Source::Store, .. });
    assert!(eventually(|| is_connected().then_some(())).is_some(), "the server is not connected to Redis");
}
