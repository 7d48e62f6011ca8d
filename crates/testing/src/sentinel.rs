//! A primary, its replica, and three sentinels that watch them.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

use crate::redis::{ask, is_up};
use crate::{Process, Redis, free_port, until};

/// All five. They end with it.
#[derive(Debug)]
pub struct Sentinel {
    /// The two servers: first the one that was the primary at the start.
    pub servers: [Redis; 2],
    sentinels: Vec<Watcher>,
}

/// One sentinel.
#[derive(Debug)]
struct Watcher {
    /// Ends with this.
    _process: Process,
    port: u16,
    /// Removed when it has ended.
    _directory: TempDir,
}

/// What the sentinels call what they watch.
pub const NAME: &str = "tollgate";

/// How many sentinels there are.
const SENTINELS: usize = 3;

/// How many must agree.
const QUORUM: usize = 2;

impl Sentinel {
    /// Starts all and waits until the sentinels know everybody.
    pub fn start() -> Sentinel {
        let primary = Redis::start_with(&["--repl-diskless-sync-delay", "0"]);
        let replica = Redis::start_with(&["--replicaof", "127.0.0.1", &primary.port().to_string()]);
        until("a replica that follows", || primary.say("INFO replication").contains("state=online"));
        let sentinels: Vec<Watcher> = (0..SENTINELS).map(|_| Watcher::start(primary.port())).collect();
        let knows_all = |watcher: &Watcher| {
            // Names and values in turn.
            let known = watcher.ask(&["SENTINEL", "MASTER", NAME]);
            let counts = |field: &str, count: usize| known.contains(&format!("\n{field}\n{count}\n"));
            counts("num-slaves", 1) && counts("num-other-sentinels", SENTINELS - 1)
        };
        until("sentinels that know each other", || sentinels.iter().all(knows_all));
        Sentinel { servers: [primary, replica], sentinels }
    }

    /// As a setting names it.
    pub fn url(&self) -> String {
        let addresses: Vec<String> =
            self.sentinels.iter().map(|watcher| format!("127.0.0.1:{}", watcher.port)).collect();
        format!("redis+sentinel://{}/{NAME}", addresses.join(","))
    }

    /// Which of the servers the sentinels say is the primary, once they agree.
    pub fn primary(&self) -> Option<usize> {
        let ask = |watcher: &Watcher| watcher.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]);
        let told: Vec<String> = self.sentinels.iter().map(ask).collect();
        let is_told = |server: &Redis| told.iter().all(|told| told.ends_with(&format!("\n{}", server.port())));
        self.servers.iter().position(is_told)
    }
}

impl Watcher {
    fn start(primary: u16) -> Watcher {
        const TRIES: usize = 5;
        (0..TRIES).find_map(|_| Watcher::try_start(primary)).unwrap_or_else(|| panic!("a sentinel did not start"))
    }

    fn try_start(primary: u16) -> Option<Watcher> {
        let directory = TempDir::new().unwrap_or_else(|error| panic!("no directory for a sentinel: {error}"));
        let port = free_port();
        let lines = [
            format!("port {port}"),
            "bind 127.0.0.1".to_owned(),
            format!("dir {}", directory.path().display()),
            format!("sentinel monitor {NAME} 127.0.0.1 {primary} {QUORUM}"),
            format!("sentinel down-after-milliseconds {NAME} 1000"),
            format!("sentinel failover-timeout {NAME} 5000"),
        ];
        let file = directory.path().join("sentinel.conf");
        fs::write(&file, lines.join("\n")).unwrap_or_else(|error| panic!("a sentinel's configuration: {error}"));
        let mut process = Process::start(Command::new("redis-server").arg(&file).arg("--sentinel"));
        if !is_up(&mut process, port) {
            return None;
        }
        let watcher = Watcher { _process: process, port, _directory: directory };
        // They hear of each other by what they publish, every two seconds unless told otherwise.
        watcher.ask(&["SENTINEL", "DEBUG", "publish-period", "100", "info-period", "500"]);
        Some(watcher)
    }

    fn ask(&self, command: &[&str]) -> String {
        let reply = ask(self.port, command).unwrap_or_else(|error| panic!("{}: {error}", command.join(" ")));
        reply.text()
    }
}
