//! A running `tollgate serve`, on ports that the system chose, ended with its process id.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use tempfile::TempDir;

/// How long a server may take for anything that a test waits for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Its rules, in its home.
const RULES: &str = "rules/rules.yaml";

/// A server process. It ends with this.
pub(crate) struct Server {
    child: Child,
    /// Where it listens, by listener.
    addresses: HashMap<String, String>,
    /// What it printed until it was ready.
    printed: String,
    log: Arc<Mutex<String>>,
    /// Ends when the server has said its last word.
    logging: Option<JoinHandle<()>>,
    /// What it was given for itself alone.
    home: TempDir,
}

/// What to start.
pub(crate) struct Start {
    args: Vec<String>,
    env: Vec<(String, String)>,
    listeners: Vec<String>,
    /// Listeners of which nothing is said.
    unsaid: Vec<String>,
    home: TempDir,
}

const LISTENERS: [&str; 4] = ["grpc", "http", "admin", "resp"];

impl Start {
    /// The server with a data directory of its own and nothing listening but what is asked for.
    pub(crate) fn new() -> Start {
        Start {
            args: Vec::new(),
            env: Vec::new(),
            listeners: Vec::new(),
            unsaid: Vec::new(),
            home: TempDir::new().unwrap(),
        }
    }

    /// With these rules, in a file that can be written to: see [`Server::write_rules`].
    pub(crate) fn rules(self, text: &str) -> Start {
        write_rules(self.home.path(), text);
        let path = self.home.path().join(RULES).display().to_string();
        self.args(&["--rules", &path])
    }

    /// With these listeners (`grpc`, `http`, …) on free ports.
    pub(crate) fn listen(mut self, listeners: &[&str]) -> Start {
        self.listeners.extend(listeners.iter().map(|listener| (*listener).to_owned()));
        self
    }

    /// With a listener that neither listens nor is off by a flag: something else says where it is.
    #[allow(dead_code, reason = "not every binary with this file has such a listener")]
    pub(crate) fn without(mut self, listener: &str) -> Start {
        self.unsaid.push(listener.to_owned());
        self
    }

    pub(crate) fn args(mut self, args: &[&str]) -> Start {
        self.args.extend(args.iter().map(|arg| (*arg).to_owned()));
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Start {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.arg("serve").args(&self.args).current_dir(self.home.path()).env_clear().envs(self.env.clone());
        let said = |listener: &&&str| {
            self.args.iter().any(|arg| *arg == format!("--{listener}"))
                || self.unsaid.iter().any(|one| one == **listener)
        };
        for listener in LISTENERS.iter().filter(|listener| !said(listener)) {
            let on = self.listeners.iter().any(|wanted| wanted == listener);
            command.arg(format!("--{listener}={}", if on { "127.0.0.1:0" } else { "off" }));
        }
        if !self.args.iter().any(|arg| arg == "--data") {
            command.arg("--data").arg(self.home.path().join("data"));
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
        command
    }

    /// Where it will live.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Starts it and waits until it is ready.
    #[track_caller]
    pub(crate) fn ready(self) -> Server {
        let (mut server, lines) = self.spawn();
        loop {
            match lines.recv_timeout(PATIENCE) {
                Ok(line) if line.trim() == "ready" => return server,
                Ok(line) => server.note(&line),
                Err(_) => {
                    let _ = server.child.kill();
                    panic!("the server did not become ready:\n{}", server.log());
                }
            }
        }
    }

    /// Starts it and waits until it ends by itself: its exit code and what it said.
    pub(crate) fn fails(self) -> (Option<i32>, String) {
        let (mut server, _lines) = self.spawn();
        let status = server.wait();
        (status.code(), server.log())
    }

    /// Starts it and gives all that it prints until it ends.
    pub(crate) fn prints(self) -> String {
        let output = self.command().output().unwrap();
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }

    fn spawn(self) -> (Server, Receiver<String>) {
        let mut child = self.command().spawn().unwrap();
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let log = Arc::new(Mutex::new(String::new()));
        let (mut stderr, kept) = (child.stderr.take().unwrap(), log.clone());
        let logging = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = stderr.read(&mut buffer) {
                kept.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..length]));
            }
        });
        let addresses = HashMap::new();
        let logging = Some(logging);
        (Server { child, addresses, printed: String::new(), log, logging, home: self.home }, lines)
    }
}

impl Server {
    /// Where a listener listens: `127.0.0.1:4711`.
    #[track_caller]
    pub(crate) fn address(&self, listener: &str) -> &str {
        self.addresses.get(listener).unwrap_or_else(|| panic!("{listener} is off"))
    }

    pub(crate) fn url(&self, listener: &str, path: &str) -> String {
        format!("http://{}{path}", self.address(listener))
    }

    /// Everything that it logged so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// What it printed until it was ready.
    pub(crate) fn printed(&self) -> &str {
        &self.printed
    }

    /// Waits until it has logged this: a log line may come later than what it is about.
    #[track_caller]
    pub(crate) fn wait_for_log(&self, text: &str) {
        assert!(eventually(|| self.log().contains(text).then_some(())).is_some(), "no {text:?} in\n{}", self.log());
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal, by name.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Tells it to stop, and waits until it has.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.wait()
    }

    /// Ends it without a word of warning.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts another in the same place, with what this one kept. It is killed first if it still runs.
    pub(crate) fn again(mut self) -> Start {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let home = std::mem::replace(&mut self.home, TempDir::new().unwrap());
        let rules = home.path().join(RULES);
        let start = Start { home, ..Start::new() };
        match rules.exists() {
            true => start.args(&["--rules", &rules.display().to_string()]),
            false => start,
        }
    }

    /// Writes other rules where it finds them.
    pub(crate) fn write_rules(&self, text: &str) {
        write_rules(self.home.path(), text);
    }

    /// Waits until it ends by itself.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let ended = eventually(|| self.child.try_wait().unwrap());
        // What it said last may still be on its way.
        let _ = self.logging.take_if(|_| ended.is_some()).map(JoinHandle::join);
        ended.unwrap_or_else(|| panic!("the server did not end:\n{}", self.log()))
    }

    /// A line of what it prints at the start: `grpc  127.0.0.1:4711  …`.
    fn note(&mut self, line: &str) {
        self.printed.push_str(line);
        self.printed.push('\n');
        let mut words = line.split_whitespace();
        if let (Some(name), Some(address)) = (words.next(), words.next())
            && LISTENERS.contains(&name)
        {
            self.addresses.insert(name.to_owned(), address.to_owned());
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The file of rules in a server's home, replaced as editors do: never half of one.
fn write_rules(home: &Path, text: &str) {
    let path = home.join(RULES);
    let new = path.with_extension("new");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&new, text).unwrap();
    std::fs::rename(&new, &path).unwrap();
}

/// What becomes true while another process works; `None` if it did not in time.
pub(crate) fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    // Another process has its own clock, so there is nothing to move here but to look again.
    let (_keep, pause) = channel::<()>();
    const STEP: Duration = Duration::from_millis(20);
    for _ in 0..PATIENCE.as_millis() / STEP.as_millis() {
        if let Some(found) = look() {
            return Some(found);
        }
        let _ = pause.recv_timeout(STEP);
    }
    None
}
