//! A machine that is too busy: checks miss their deadlines, but a healthy Redis stays in use.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tollgate_core::Source;
use tollgate_testing::{Redis, machine, sleep};

use crate::fleet::load::{Check, CheckResult, Load, Plan};
use crate::new_server;

const RULES: &str = "
domain: fleet
rules:
  - {name: login, key: [user], limit: 1000000/hour, policy: security}
";

/// Threads that do nothing but use a processor.
const BUSY_THREADS: usize = 8;
const RATE: u64 = 290;
const TIME: Duration = Duration::from_secs(40);

/// Ends its threads when dropped.
struct BusyThreads(Arc<AtomicBool>);

impl BusyThreads {
    fn start() -> BusyThreads {
        let stop = Arc::new(AtomicBool::new(false));
        for _ in 0..BUSY_THREADS {
            let stop = stop.clone();
            std::thread::spawn(move || while !stop.load(Ordering::Relaxed) {});
        }
        BusyThreads(stop)
    }
}

impl Drop for BusyThreads {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
#[ignore = "keeps all processors busy for 40 seconds: make test-long"]
fn slow_a_busy_machine_does_not_take_redis_out_of_use() {
    machine::alone();
    let redis = Redis::start();
    let start = |_| new_server().rules(RULES).listen(&["http"]).args(&["--store", &redis.url()]).start();
    let servers: Vec<_> = (0..2).map(start).collect();
    let addresses: Vec<String> = servers.iter().map(|server| server.address("http").to_owned()).collect();
    let checks = (0..50).map(|number| Check { user: format!("u{number}"), kind: "login" }).collect();
    let busy = BusyThreads::start();
    let load = Load::start(Plan { servers: addresses, checks, rate: RATE });
    sleep(TIME);
    let samples = load.stop();
    drop(busy);
    let by = |is: &dyn Fn(&CheckResult) -> bool| samples.iter().filter(|sample| is(&sample.result)).count();
    let errors = by(&|result| matches!(result, CheckResult::Error(_)));
    let assumed = by(&|result| matches!(result, CheckResult::Decided { source: Source::Assumed, .. }));
    println!("{} checks, {assumed} of them missed their deadline, {errors} errors", samples.len());
    assert_eq!(errors, 0);
    for server in &servers {
        assert!(!server.log().contains("the breaker of a store shard opened"), "{}", server.log());
    }
}
