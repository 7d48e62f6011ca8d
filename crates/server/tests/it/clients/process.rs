//! A program that runs beside the test and ends with it.

use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use tollgate_testing::{eventually, free_port, machine};

/// A process in a session of its own. It and what it started end with this.
pub(crate) struct Process {
    child: Child,
    said: Arc<Mutex<String>>,
}

/// How often a port that somebody else took meanwhile is given up for another.
const MOST_TRIES: usize = 10;

impl Process {
    pub(crate) fn start<A: AsRef<OsStr>>(program: &Path, args: &[A], directory: &Path) -> Process {
        machine::share();
        // The second has the kernel end it too if the test is killed and can't. Both become what they start, so its id is this child's.
        let mut command = Command::new("setsid");
        command.args(["setpriv", "--pdeathsig", "TERM", "--"]).arg(program).args(args).current_dir(directory);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        listen(child.stdout.take().unwrap(), &said);
        listen(child.stderr.take().unwrap(), &said);
        Process { child, said }
    }

    /// Everything that it has written so far.
    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// Waits for something that comes with it. An error if the process ended before.
    pub(crate) fn until<T>(&mut self, mut look: impl FnMut() -> Option<T>) -> Result<T, String> {
        let found = eventually(|| match look() {
            Some(found) => Some(Ok(found)),
            None => self.child.try_wait().unwrap().map(Err),
        });
        match found {
            Some(Ok(found)) => Ok(found),
            Some(Err(status)) => Err(format!("it ended with {status}:\n{}", self.said())),
            None => Err(format!("it is not ready yet:\n{}", self.said())),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The group first: a server may have workers, which would go on without it.
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-s", "KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listen(mut from: impl Read + Send + 'static, to: &Arc<Mutex<String>>) {
    let to = Arc::clone(to);
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            to.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..length]));
        }
    });
}

/// Starts something on ports that it can't choose itself, again with others if they were taken.
#[track_caller]
pub(crate) fn on_free_ports<T, const N: usize>(mut start: impl FnMut([u16; N]) -> Result<T, String>) -> T {
    let mut last = String::new();
    for _ in 0..MOST_TRIES {
        match start([(); N].map(|()| free_port())) {
            Ok(started) => return started,
            Err(why) if why.contains("ddress already in use") => last = why,
            Err(why) => panic!("{why}"),
        }
    }
    panic!("{last}");
}
