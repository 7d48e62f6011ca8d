//! Counting answers over a stretch of time, and how busy server and load were in it.

use std::time::{Duration, Instant};

use crate::server::process::cpu_time;

/// How long connections and caches have to settle before it counts.
const RUN_UP: Duration = Duration::from_millis(250);

/// A stretch of time in which answers count.
pub struct Window {
    /// The server's process, and those of others that it asks.
    servers: Vec<u32>,
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
    load: Duration,
}

impl Window {
    pub fn new(servers: Vec<u32>, seconds: f64) -> Window {
        let (begins, length) = (Instant::now() + RUN_UP, Duration::from_secs_f64(seconds));
        Window { servers, begins, length, answers: 0, begun: None }
    }

    pub fn answered(&mut self) {
        self.answers += 1;
    }

    /// Whether it goes on. When it ends it prints answers a second, and the shares of their cores that server and load used.
    pub fn goes_on(&mut self) -> bool {
        let now = Instant::now();
        match &self.begun {
            None if now >= self.begins => self.begun = Some(self.mark(now)),
            Some(from) if now >= from.at + self.length => {
                let (to, seconds) = (self.mark(now), (now - from.at).as_secs_f64());
                let rate = (to.answers - from.answers) as f64 / seconds;
                let share = |from: Duration, to: Duration| (to - from).as_secs_f64() / seconds;
                println!("{rate} {} {}", share(from.server, to.server), share(from.load, to.load));
                return false;
            }
            _ => {}
        }
        true
    }

    fn mark(&self, at: Instant) -> Mark {
        let server = self.servers.iter().map(|server| cpu_time(*server)).sum();
        Mark { at, answers: self.answers, server, load: cpu_time(std::process::id()) }
    }
}
