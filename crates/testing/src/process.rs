//! Processes and ports.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};

use crate::machine;

/// A process that ends with the test.
#[derive(Debug)]
pub struct Process {
    child: Child,
    paused: bool,
}

impl Process {
    /// Starts a program. Its output is discarded.
    pub fn start(command: &mut Command) -> Process {
        machine::share();
        let silent = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = silent.spawn().unwrap_or_else(|error| {
            panic!("{}: {error}; `make setup-tests` installs it", command.get_program().display())
        });
        Process { child, paused: false }
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it, as a crash would, even if it is paused.
    pub fn kill(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.paused = false;
    }

    /// Suspends it: its connections stay open and nothing is answered.
    pub fn pause(&mut self) {
        self.signal("STOP");
        self.paused = true;
    }

    /// Lets a paused process continue.
    pub fn resume(&mut self) {
        self.signal("CONT");
        self.paused = false;
    }

    /// Whether it runs, paused or not.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Whether it runs and is not paused.
    pub fn is_awake(&mut self) -> bool {
        !self.paused && self.is_running()
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        if !sent.is_ok_and(|status| status.success()) {
            panic!("no SIG{name} for process {}", self.child.id());
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port that was free a moment ago. It is below the ephemeral ports: no connection takes it while its server is down, and no client
/// that tries it connects to itself.
pub fn free_port() -> u16 {
    const MAX_TRIES: usize = 1_000;
    let ports = std::iter::repeat_with(|| fastrand::u16(20_000..32_000));
    let mut free = ports.take(MAX_TRIES).filter(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok());
    free.next().unwrap_or_else(|| panic!("no port is free"))
}
