//! redis-server, from Debian.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::{Process, eventually, free_port};

/// One server, without a disk.
#[derive(Debug)]
pub struct Redis {
    process: Process,
    port: u16,
    /// Removed when the server has ended.
    directory: TempDir,
}

/// How often a port that somebody else took meanwhile is replaced by another.
const TRIES: usize = 5;

impl Redis {
    /// A server with the defaults.
    pub fn start() -> Redis {
        Redis::start_with(&[])
    }

    /// A server with these arguments besides.
    pub fn start_with(arguments: &[&str]) -> Redis {
        (0..TRIES).find_map(|_| Redis::try_start(arguments)).unwrap_or_else(|| panic!("redis-server did not start"))
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// As a setting names it.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Its own directory.
    pub fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }

    /// Sends an inline command over a connection of its own and gives back the first 64 KiB of the answer as they are.
    pub fn say(&self, command: &str) -> String {
        say(self.port, command).unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    fn try_start(arguments: &[&str]) -> Option<Redis> {
        let directory = TempDir::new().unwrap_or_else(|error| panic!("no directory for Redis: {error}"));
        let port = free_port();
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(["--daemonize", "no", "--dir"])
            .arg(directory.path())
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = child.unwrap_or_else(|error| panic!("redis-server: {error}; `make setup-tests` installs it"));
        let mut process = Process(child);
        let ready = |answer: String| answer.starts_with("+PONG") || answer.starts_with("-NOAUTH");
        let up = eventually(|| {
            if !process.runs() {
                return Some(false);
            }
            say(port, "PING").is_ok_and(ready).then_some(true)
        });
        (up == Some(true)).then_some(Redis { process, port, directory })
    }
}

fn say(port: u16, command: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(format!("{command}\r\nQUIT\r\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.take(64 * 1024).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
