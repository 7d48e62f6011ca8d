//! Traffic with every outcome that a dashboard shows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use tollgate_testing::resp::Connection;
use tollgate_testing::{Server, sleep};

use crate::http::new_agent;

/// Limits of every mode, some of which the traffic exceeds.
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

/// Running traffic, until this is dropped.
pub(crate) struct ServerTraffic<'s> {
    stopped: &'s AtomicBool,
    thread: Option<ScopedJoinHandle<'s, u64>>,
}

/// The pause between two rounds.
const PAUSE: Duration = Duration::from_millis(20);

impl<'s> ServerTraffic<'s> {
    pub(crate) fn start(scope: &'s Scope<'s, '_>, server: &'s Server, stopped: &'s AtomicBool) -> ServerTraffic<'s> {
        let thread = scope.spawn(|| {
            let port = server.address("resp").rsplit_once(':').unwrap().1.parse().unwrap();
            let (agent, mut resp) = (new_agent(), Connection::open(port).unwrap());
            let mut sent = 0;
            let check = |attributes: &str| {
                let body = format!("{{\"attributes\": {attributes}}}");
                let response = agent.post(server.url("http", "/v1/ratelimit/check")).send(body).unwrap();
                assert!([200, 429].contains(&response.status().as_u16()), "{response:?}");
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
        ServerTraffic { stopped, thread: Some(thread) }
    }

    /// Ends the traffic, and returns the number of requests.
    pub(crate) fn stop(mut self) -> u64 {
        self.stopped.store(true, Ordering::Relaxed);
        self.thread.take().map_or(0, |thread| thread.join().unwrap())
    }
}

impl Drop for ServerTraffic<'_> {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}
