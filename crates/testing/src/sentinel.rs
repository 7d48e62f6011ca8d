//! A primary, its replica, and three sentinels that watch them.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

use crate::redis::{is_up, send_command};
use crate::{Process, Redis, free_port, until};

/// All five processes. Dropping it kills them.
#[derive(Debug)]
pub struct Sentinel {
    /// The two servers: first the one that is the primary at the start.
    pub servers: [Redis; 2],
    sentinels: Vec<SentinelProcess>,
}

/// One sentinel.
#[derive(Debug)]
struct SentinelProcess {
    /// Killed when this is dropped.
    _process: Process,
    port: u16,
    /// Removed when it has ended.
    _directory: TempDir,
}

/// The name of the primary and its replica, in the sentinels.
pub const NAME: &str = "tollgate";

/// How many sentinels there are.
const SENTINELS: usize = 3;

/// How many sentinels must agree.
const QUORUM: usize = 2;

impl Sentinel {
    /// Starts all processes and waits until the sentinels know each other and the servers.
    pub fn start() -> Sentinel {
        let primary = Redis::start_with(&["--repl-diskless-sync-delay", "0"]);
        let replica = Redis::start_with(&["--replicaof", "127.0.0.1", &primary.port().to_string()]);
        until("a replica that follows", || primary.inline("INFO replication").contains("state=online"));
        let sentinels: Vec<SentinelProcess> = (0..SENTINELS).map(|_| SentinelProcess::start(primary.port())).collect();
        let knows_all = |sentinel: &SentinelProcess| {
            // Names and values in turn.
            let known = sentinel.command(&["SENTINEL", "MASTER", NAME]);
            let counts = |field: &str, count: usize| known.contains(&format!("\n{field}\n{count}\n"));
            counts("num-slaves", 1) && counts("num-other-sentinels", SENTINELS - 1)
        };
        until("sentinels that know each other", || sentinels.iter().all(knows_all));
        Sentinel { servers: [primary, replica], sentinels }
    }

    /// The URL for the setting `redis`.
    pub fn url(&self) -> String {
        let addresses: Vec<String> =
            self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port)).collect();
        format!("redis+sentinel://{}/{NAME}", addresses.join(","))
    }

    /// Which of the servers the sentinels say is the primary, once they agree.
    pub fn primary(&self) -> Option<usize> {
        let query = |sentinel: &SentinelProcess| sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]);
        let addresses: Vec<String> = self.sentinels.iter().map(query).collect();
        let is_primary =
            |server: &Redis| addresses.iter().all(|address| address.ends_with(&format!("\n{}", server.port())));
        self.servers.iter().position(is_primary)
    }
}

impl SentinelProcess {
    fn start(primary: u16) -> SentinelProcess {
        const MAX_TRIES: usize = 5;
        (0..MAX_TRIES)
            .find_map(|_| SentinelProcess::try_start(primary))
            .unwrap_or_else(|| panic!("a sentinel did not start"))
    }

    fn try_start(primary: u16) -> Option<SentinelProcess> {
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
        let sentinel = SentinelProcess { _process: process, port, _directory: directory };
        // They find each other by what they publish, every two seconds by default.
        sentinel.command(&["SENTINEL", "DEBUG", "publish-period", "100", "info-period", "500"]);
        Some(sentinel)
    }

    fn command(&self, command: &[&str]) -> String {
        let reply = send_command(self.port, command).unwrap_or_else(|error| panic!("{}: {error}", command.join(" ")));
        reply.text()
    }
}
