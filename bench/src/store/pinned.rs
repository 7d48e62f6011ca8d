//! Redis on the server's core, and what it used of it.

use std::process::Command;
use std::time::Instant;

use tollgate_testing::Redis;

use crate::server::SERVER_CORE;
use crate::server::process::cpu_time;
use crate::server::turns::Turn;

/// One server, with a core of its own.
pub fn redis() -> Redis {
    let mut redis = Redis::start();
    pin(&mut redis);
    redis
}

/// Gives a server, which was started on this process's core, the other one.
pub fn pin(redis: &mut Redis) {
    let id = redis.process().id().to_string();
    let moved = Command::new("taskset").args(["-a", "-c", "-p", SERVER_CORE, &id]).output();
    assert!(moved.is_ok_and(|moved| moved.status.success()), "taskset can't give redis-server its core");
}

/// Has something decided, and says how fast, and what these servers used for it.
pub fn turn(servers: &[&Redis], decide: impl FnOnce() -> u64) -> Turn {
    let used = || servers.iter().map(|redis| redis.cpu_seconds()).sum::<f64>();
    let (servers, own, start) = (used(), cpu_time(std::process::id()), Instant::now());
    let decisions = decide();
    let took = start.elapsed().as_secs_f64();
    let load = (cpu_time(std::process::id()) - own).as_secs_f64();
    Turn { rate: decisions as f64 / took, server: (used() - servers) / took, backends: 0.0, load: load / took }
}
