//! Counting answers over a stretch of time, and how busy server and load were in it.

use std::time::{Duration, Instant};

use crate::server::process::cpu_time;

/// How long connections and caches have to settle before it counts.
const RUN_UP: Duration = Duration::from_millis(250);

/// A stretch of time in which answers count.
pub struct Window {
    /// The server's process, and those of others that it asks.
    server: u32,
    backends: Vec<u32>,
    begins: Instant,
    length: Duration,
    answers: u64,
    begun: Option<Mark>,
}

/// How things stood at a moment.
struct Mark {
    at: Instant,
    answers: u64,
    server: Duration,
    backends: Duration,
    load: Duration,
}

impl Window {
    /// For so long, of a server and those that it asks in turn.
    pub fn new(servers: &[u32], seconds: f64) -> Window {
        let (server, backends) = servers.split_first().expect("a server");
        let (begins, length) = (Instant::now() + RUN_UP, Duration::from_secs_f64(seconds));
        Window { server: *server, backends: backends.to_vec(), begins, length, answers: 0, begun: None }
    }

    pub fn answered(&mut self) {
        self.answers += 1;
    }

    /// Whether it goes on. When it ends it prints answers a second, and the shares of a core that the server, those
    /// that it asks and the load used.
    pub fn goes_on(&mut self) -> bool {
        let now = Instant::now();
        match &self.begun {
            None if now >= self.begins => self.begun = Some(self.mark(now)),
            Some(from) if now >= from.at + self.length => {
                let (to, seconds) = (self.mark(now), (now - from.at).as_secs_f64());
                let rate = (to.answers - from.answers) as f64 / seconds;
                let share = |from: Duration, to: Duration| (to - from).as_secs_f64() / seconds;
                let [server, backends, load] =
                    [share(from.server, to.server), share(from.backends, to.backends), share(from.load, to.load)];
                println!("{rate} {server} {backends} {load}");
                return false;
            }
            _ => {}
        }
        true
    }

    fn mark(&self, at: Instant) -> Mark {
        let backends = self.backends.iter().map(|server| cpu_time(*server)).sum();
        Mark { at, answers: self.answers, server: cpu_time(self.server), backends, load: cpu_time(std::process::id()) }
    }
}
