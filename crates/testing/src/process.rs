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
    /// Starts a program. What it says is not kept.
    pub fn start(command: &mut Command) -> Process {
        machine::share();
        let silent = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = silent.spawn().unwrap_or_else(|error| {
            panic!("{}: {error}; `make setup-tests` installs it", command.get_program().display())
        });
        Process { child, paused: false }
    }

    /// Its id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it at once, as a crash would. This ends a paused one too.
    pub fn kill(&mut self) {
        // One that has ended already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.paused = false;
    }

    /// Stops it where it is: its connections stay open and nobody answers.
    pub fn pause(&mut self) {
        self.signal("STOP");
        self.paused = true;
    }

    /// Lets it go on.
    pub fn resume(&mut self) {
        self.signal("CONT");
        self.paused = false;
    }

    /// Whether it still runs, be it paused.
    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Whether it runs and is not paused: then it answers.
    pub fn is_awake(&mut self) -> bool {
        !self.paused && self.runs()
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

/// A port that was free a moment ago. It is below those that the system gives to connections: none takes it while the server
/// that had it is down, and none that asks there is connected to itself.
pub fn free_port() -> u16 {
    const MOST_TRIES: usize = 1_000;
    let ports = std::iter::repeat_with(|| fastrand::u16(20_000..32_000));
    let mut free = ports.take(MOST_TRIES).filter(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok());
    free.next().unwrap_or_else(|| panic!("no port is free"))
}
