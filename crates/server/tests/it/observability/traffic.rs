//! Traffic in which everything happens that a dashboard shows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use tollgate_testing::resp::Connection;
use tollgate_testing::{Server, sleep};

/// Limits that some of the traffic goes past, and of every mode.
pub(crate) const RULES: &str = "
domain: shop
entity: user
tiers: {free: {paid: false}, pro: {}}
default_tier: free
rules:
  - {name: per-user, key: [user], limit: {free: 5/second, pro: 1000/second}, algorithm: fixed_window}
  - {name: tried, key: [user], limit: 1/minute, mode: shadow}
  - {name: gentle, key: [session], limit: 1/minute, mode: soft}
";

/// Goes on until it is dropped.
pub(crate) struct Traffic<'s> {
    stopped: &'s AtomicBool,
    thread: Option<ScopedJoinHandle<'s, u64>>,
}

/// What a round of it waits for the next.
const PAUSE: Duration = Duration::from_millis(20);

impl<'s> Traffic<'s> {
    pub(crate) fn start(scope: &'s Scope<'s, '_>, server: &'s Server, stopped: &'s AtomicBool) -> Traffic<'s> {
        let thread = scope.spawn(|| {
            let port = server.address("resp").rsplit_once(':').unwrap().1.parse().unwrap();
            let (agent, mut resp) = (agent(), Connection::open(port).unwrap());
            let mut sent = 0;
            let check = |attributes: &str| {
                let body = format!("{{\"attributes\": {attributes}}}");
                let answer = agent.post(server.url("http", "/v1/ratelimit/check")).send(body).unwrap();
                assert!([200, 429].contains(&answer.status().as_u16()), "{answer:?}");
            };
            while !stopped.load(Ordering::Relaxed) {
                check(r#"{"user": "ann"}"#);
                check(r#"{"session": "s1"}"#);
                check(r#"{"nobody": "knows"}"#);
                resp.command(&["CL.THROTTLE", "k", "2", "10", "1"]).unwrap();
                sent += 4;
                sleep(PAUSE);
            }
            sent
        });
        Traffic { stopped, thread: Some(thread) }
    }

    /// Ends it: how many decisions it asked for.
    pub(crate) fn stop(mut self) -> u64 {
        self.stopped.store(true, Ordering::Relaxed);
        self.thread.take().map_or(0, |thread| thread.join().unwrap())
    }
}

impl Drop for Traffic<'_> {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

/// Asks by HTTP, and takes any answer.
pub(crate) fn agent() -> ureq::Agent {
    ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(10)))
        .build()
        .into()
}
