//! Processes: started on one core, ended when they are not needed any more.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{LOAD_CORE, SERVER_CORE};
use crate::{empty, load};

/// How long a server may take to get ready.
const PATIENCE: Duration = Duration::from_secs(20);
/// What the kernel counts a process's time in (`USER_HZ`), the same on every Linux.
const TICK: Duration = Duration::from_millis(10);

/// How many files a process with many connections may have open.
const MANY_FILES: usize = 16_384;

/// A server that runs, and ends with this.
pub struct Server {
    child: Child,
    addresses: HashMap<String, String>,
}

impl Server {
    /// Starts a program that says where it listens, a line for each wire (`grpc 127.0.0.1:4711`), and then `ready`.
    pub fn start(command: &mut Command) -> Server {
        let mut child = spawn(command.stdout(Stdio::piped()));
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let mut server = Server { child, addresses: HashMap::new() };
        loop {
            let line = lines.next().and_then(Result::ok).unwrap_or_else(|| panic!("it ended early: {command:?}"));
            let mut words = line.split_whitespace();
            match (words.next(), words.next()) {
                (Some("ready"), _) => break,
                (Some(wire), Some(address)) => {
                    let address = address.trim_start_matches("http://").trim_end_matches('/');
                    server.addresses.insert(wire.to_owned(), address.to_owned());
                }
                _ => {}
            }
        }
        // Whatever else it says must go somewhere, or it would wait for us to read.
        std::thread::spawn(move || lines.for_each(drop));
        server
    }

    /// Starts a program that has the address as an argument, and waits until it does.
    pub fn start_at(address: &str, command: &mut Command) -> Server {
        let child = spawn(command.stdout(Stdio::null()));
        let server = Server { child, addresses: HashMap::from([("given".to_owned(), address.to_owned())]) };
        let since = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(since.elapsed() < PATIENCE, "it does not listen: {command:?}");
            std::thread::sleep(TICK);
        }
        server
    }

    /// One of this program's empty servers.
    pub fn empty(arguments: &[&str]) -> Server {
        Server::start(on_server_core(this_program()).arg(empty::CHILD).args(arguments))
    }

    /// Where it listens: for this wire, or the address it was given.
    pub fn address(&self, wire: &str) -> &str {
        let address = self.addresses.get(wire).or_else(|| self.addresses.get("given"));
        address.unwrap_or_else(|| panic!("it has no {wire}: {:?}", self.addresses))
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program that runs on the server's core alone.
pub fn on_server_core(program: impl AsRef<OsStr>) -> Command {
    on_cores(SERVER_CORE, program)
}

/// A program that runs on the load's core alone.
pub fn on_load_core(program: impl AsRef<OsStr>) -> Command {
    on_cores(LOAD_CORE, program)
}

/// A program that runs on these cores alone.
pub fn on_cores(cores: &str, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", cores]).arg(program).stdin(Stdio::null());
    command
}

/// Runs one of this program's loads on these cores: the numbers that it prints.
pub fn load(cores: &str, arguments: &[&str]) -> Vec<f64> {
    let (output, _) = output(on_cores(cores, this_program()).arg(load::CHILD).args(arguments));
    output.split_whitespace().map(|number| number.parse().expect("numbers from the load")).collect()
}

/// Runs one of the loads of proxies, whose upstream listens on this socket: the lines that it prints.
pub fn load_proxy(upstream: &TcpListener, arguments: &[&str]) -> Vec<Vec<f64>> {
    let socket = upstream.try_clone().expect("a socket once more");
    let mut command = with_many_files(LOAD_CORE, this_program());
    let (output, _) = output(command.arg(load::CHILD).args(arguments).stdin(OwnedFd::from(socket)));
    let numbers = |line: &str| line.split_whitespace().map(|number| number.parse().expect("a number")).collect();
    output.lines().map(numbers).collect()
}

/// A program on these cores that may have many connections.
pub fn with_many_files(cores: &str, program: impl AsRef<OsStr>) -> Command {
    let mut command = on_cores(cores, "prlimit");
    command.arg(format!("--nofile={MANY_FILES}:")).arg(program);
    command
}

/// Runs a program to its end: what it printed, and the time that it had of its core.
pub fn output(command: &mut Command) -> (String, Duration) {
    let mut child = spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let (mut text, mut complaints) = (String::new(), String::new());
    let read = child.stdout.take().expect("its output").read_to_string(&mut text);
    // It has closed its output but is not waited for, so its time can still be looked up.
    let time = cpu_time(child.id());
    let _ = child.stderr.take().expect("its complaints").read_to_string(&mut complaints);
    let status = child.wait().expect("its end");
    assert!(read.is_ok() && status.success(), "it failed: {command:?}\n{complaints}");
    (text, time)
}

fn spawn(command: &mut Command) -> Child {
    command.spawn().unwrap_or_else(|error| panic!("{command:?} does not start: {error}"))
}

/// This program, to be started again as something else.
pub fn this_program() -> PathBuf {
    std::env::current_exe().expect("this program")
}

/// A port that is free now.
pub fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").to_string()
}

/// The time that all threads of a process had a core.
pub fn cpu_time(process: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("a process that runs");
    // After the name, which may contain anything, the 12th and 13th word: in the program, and in the kernel for it.
    let (_, words) = text.rsplit_once(')').expect("a name in parentheses");
    let ticks: u32 = words.split_whitespace().skip(11).take(2).map(|word| word.parse::<u32>().expect("ticks")).sum();
    TICK * ticks
}

/// The resident memory of a process, in bytes.
pub fn resident_memory(process: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).expect("a process that runs");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its resident memory");
    let kilobytes = line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number of kilobytes");
    kilobytes * 1024
}
