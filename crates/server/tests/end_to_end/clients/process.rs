//! A program that runs during a test, with its output.

use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use tollgate_testing::{eventually, free_port, machine};

/// A process in a session of its own. It is killed with its children when this is dropped.
pub(crate) struct ClientProcess {
    child: Child,
    output: Arc<Mutex<String>>,
}

/// How often other ports are tried if another process took one.
const MAX_ATTEMPTS: usize = 10;

impl ClientProcess {
    pub(crate) fn start<A: AsRef<OsStr>>(program: &Path, args: &[A], directory: &Path) -> ClientProcess {
        machine::share();
        // With setpriv the kernel ends the process if the test is killed. Both programs replace themselves, so the id stays the same.
        let mut command = Command::new("setsid");
        command.args(["setpriv", "--pdeathsig", "TERM", "--"]).arg(program).args(args).current_dir(directory);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = Arc::new(Mutex::new(String::new()));
        collect(child.stdout.take().unwrap(), &output);
        collect(child.stderr.take().unwrap(), &output);
        ClientProcess { child, output }
    }

    /// The output so far.
    pub(crate) fn output(&self) -> String {
        self.output.lock().unwrap().clone()
    }

    /// Polls until there is a value. An error if the process ends before.
    pub(crate) fn wait_for<T>(&mut self, mut poll: impl FnMut() -> Option<T>) -> Result<T, String> {
        let found = eventually(|| match poll() {
            Some(found) => Some(Ok(found)),
            None => self.child.try_wait().unwrap().map(Err),
        });
        match found {
            Some(Ok(found)) => Ok(found),
            Some(Err(status)) => Err(format!("the process ended with {status}:\n{}", self.output())),
            None => Err(format!("the process is not ready:\n{}", self.output())),
        }
    }
}

impl Drop for ClientProcess {
    fn drop(&mut self) {
        // The group first: the process may have workers, which would outlive it.
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-s", "KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(mut stream: impl Read + Send + 'static, output: &Arc<Mutex<String>>) {
    let output = Arc::clone(output);
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            output.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..length]));
        }
    });
}

/// Starts a program that can't choose ports itself on free ones, and again if another process took them.
#[track_caller]
pub(crate) fn start_on_free_ports<T, const N: usize>(mut start: impl FnMut([u16; N]) -> Result<T, String>) -> T {
    let mut last = String::new();
    for _ in 0..MAX_ATTEMPTS {
        match start([(); N].map(|()| free_port())) {
            Ok(started) => return started,
            Err(why) if why.contains("ddress already in use") => last = why,
            Err(why) => panic!("{why}"),
        }
    }
    panic!("{last}");
}
