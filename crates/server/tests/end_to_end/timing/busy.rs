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

fn is_missed(why: &str) -> bool {
    why.starts_with("503: ") && why.contains(r#""source":"assumed""#)
}

/// Neither of the two results that there may be.
fn is_other(result: &&CheckResult) -> bool {
    match result {
        CheckResult::Decided { allowed, source } => !allowed || *source != Source::Store,
        CheckResult::Error(why) => !is_missed(why),
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
    let decided = by(&|result| matches!(result, CheckResult::Decided { allowed: true, source: Source::Store }));
    // The rule refuses a check whose own call took too long.
    let missed = by(&|result| matches!(result, CheckResult::Error(why) if is_missed(why)));
    println!("{} checks, {missed} of them missed their deadline", samples.len());
    assert_eq!(decided + missed, samples.len(), "{:?}", samples.iter().map(|sample| &sample.result).find(is_other));
    assert!(decided > samples.len() / 2, "Redis is in use");
    for server in &servers {
        assert!(!server.log().contains("the breaker of a store shard opened"), "{}", server.log());
    }
}
