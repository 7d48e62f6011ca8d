//! A running `tollgate serve`, on ports that the system chose, ended by its process id.

use std::collections::HashMap;
use std::fmt;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tempfile::TempDir;

use crate::{TIMEOUT, eventually, machine};

/// The rule file, in the server's home.
const RULES: &str = "rules/rules.yaml";

/// The listeners that a flag turns on.
const LISTENERS: [&str; 4] = ["grpc", "http", "admin", "resp"];

/// The listener of a gateway, which its file turns on. Of several, the first one counts.
const GATEWAY: &str = "gateway";

/// A server process. It ends when this is dropped.
pub struct Server {
    child: Child,
    program: PathBuf,
    /// Where it listens, by listener.
    addresses: HashMap<String, String>,
    startup_output: String,
    log: Arc<Mutex<String>>,
    /// Ends when the server has closed its standard error.
    log_reader: Option<JoinHandle<()>>,
    /// Its working directory. Removed when the server has ended.
    home: TempDir,
}

/// A server to be started.
pub struct ServerBuilder {
    program: PathBuf,
    args: Vec<String>,
    env: Vec<(String, String)>,
    listeners: Vec<String>,
    /// Listeners that get no flag.
    unset: Vec<String>,
    home: TempDir,
}

impl ServerBuilder {
    fn new(program: PathBuf, home: TempDir) -> ServerBuilder {
        let (args, env, listeners, unset) = Default::default();
        ServerBuilder { program, args, env, listeners, unset, home }
    }

    /// Writes these rules to a file in the home, and passes the file. [`Server::write_rules`] replaces it.
    pub fn rules(self, text: &str) -> ServerBuilder {
        write_rules(self.home.path(), text);
        let path = self.home.path().join(RULES).display().to_string();
        self.args(&["--rules", &path])
    }

    /// Has these listeners (`grpc`, `http`, `admin`, `resp`) on free ports. The others are off.
    pub fn listen(mut self, listeners: &[&str]) -> ServerBuilder {
        self.listeners.extend(listeners.iter().map(|listener| (*listener).to_owned()));
        self
    }

    /// Passes no flag for a listener: an environment variable or a file sets it.
    pub fn without_flag(mut self, listener: &str) -> ServerBuilder {
        self.unset.push(listener.to_owned());
        self
    }

    /// Adds arguments.
    pub fn args(mut self, args: &[&str]) -> ServerBuilder {
        self.args.extend(args.iter().map(|arg| (*arg).to_owned()));
        self
    }

    /// Adds an environment variable. The test's own variables are not passed.
    pub fn env(mut self, name: &str, value: &str) -> ServerBuilder {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The server's working directory.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Starts it and waits until it is ready.
    #[track_caller]
    pub fn start(self) -> Server {
        let (mut server, lines) = self.spawn();
        loop {
            match lines.recv_timeout(TIMEOUT) {
                Ok(line) if line.trim() == "ready" => return server,
                Ok(line) => server.read_startup(&line),
                Err(_) => {
                    let _ = server.child.kill();
                    panic!("the server did not become ready:\n{}", server.log());
                }
            }
        }
    }

    /// Starts it and waits until it ends by itself: its exit code and its log.
    #[track_caller]
    pub fn run_to_exit(self) -> (Option<i32>, String) {
        let (mut server, _lines) = self.spawn();
        let status = server.wait();
        (status.code(), server.log())
    }

    /// Runs it to its end: its standard output and standard error.
    #[track_caller]
    pub fn output(self) -> String {
        let output = self.command().output().unwrap();
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("serve").args(&self.args).current_dir(self.home.path()).env_clear().envs(self.env.clone());
        let is_set = |listener: &str| self.args.iter().any(|arg| *arg == format!("--{listener}"));
        for listener in LISTENERS {
            if is_set(listener) || self.unset.iter().any(|unset| unset == listener) {
                continue;
            }
            let is_on = self.listeners.iter().any(|on| on == listener);
            command.arg(format!("--{listener}={}", if is_on { "127.0.0.1:0" } else { "off" }));
        }
        if !self.args.iter().any(|arg| arg == "--data") {
            command.arg("--data").arg(self.home.path().join("data"));
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
        command
    }

    #[track_caller]
    fn spawn(self) -> (Server, Receiver<String>) {
        machine::share();
        let mut command = self.command();
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", self.program.display()));
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let log = Arc::new(Mutex::new(String::new()));
        let (mut stderr, copy) = (child.stderr.take().unwrap(), log.clone());
        let log_reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = stderr.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..length]);
                copy.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
            }
        });
        let server = Server {
            child,
            program: self.program,
            addresses: HashMap::new(),
            startup_output: String::new(),
            log,
            log_reader: Some(log_reader),
            home: self.home,
        };
        (server, lines)
    }
}

impl Server {
    /// Prepares this program with a data directory of its own, and without listeners. Integration tests of the server name the
    /// program by `env!("CARGO_BIN_EXE_tollgate")`.
    pub fn builder(program: impl Into<PathBuf>) -> ServerBuilder {
        ServerBuilder::new(program.into(), TempDir::new().unwrap())
    }

    /// The address of a listener: `127.0.0.1:4711`.
    #[track_caller]
    pub fn address(&self, listener: &str) -> &str {
        self.addresses.get(listener).unwrap_or_else(|| panic!("{listener} is off"))
    }

    /// The URL of a path on a listener.
    #[track_caller]
    pub fn url(&self, listener: &str, path: &str) -> String {
        format!("http://{}{path}", self.address(listener))
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What it printed until it was ready.
    pub fn startup_output(&self) -> &str {
        &self.startup_output
    }

    /// Waits until the log has this text. A log line may be later than the event.
    #[track_caller]
    pub fn wait_for_log(&self, text: &str) {
        assert!(eventually(|| self.log().contains(text).then_some(())).is_some(), "no {text:?} in\n{}", self.log());
    }

    /// Its working directory.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal, by name: `TERM`.
    #[track_caller]
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success(), "no SIG{name} for process {}", self.child.id());
    }

    /// Ends it by SIGTERM and waits for its end.
    #[track_caller]
    pub fn stop(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.wait()
    }

    /// Ends it at once, as a crash would.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Prepares another run in the same home, with the same data and rules. The server is killed first if it still runs. Listeners,
    /// arguments and variables are set again.
    pub fn restart(mut self) -> ServerBuilder {
        self.kill();
        let home = std::mem::replace(&mut self.home, TempDir::new().unwrap());
        let rules = home.path().join(RULES);
        let builder = ServerBuilder::new(self.program.clone(), home);
        match rules.exists() {
            true => builder.args(&["--rules", &rules.display().to_string()]),
            false => builder,
        }
    }

    /// Replaces its rule file.
    pub fn write_rules(&self, text: &str) {
        write_rules(self.home.path(), text);
    }

    /// Waits until it ends by itself.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let status = eventually(|| self.child.try_wait().unwrap());
        // The end of the log may still be in the pipe.
        let _ = self.log_reader.take_if(|_| status.is_some()).map(JoinHandle::join);
        status.unwrap_or_else(|| panic!("the server did not end:\n{}", self.log()))
    }

    /// Reads a line of what it prints at the start: `grpc  127.0.0.1:4711  …`, `admin  http://127.0.0.1:4712/  …`.
    fn read_startup(&mut self, line: &str) {
        self.startup_output.push_str(line);
        self.startup_output.push('\n');
        let mut words = line.split_whitespace();
        if let (Some(name), Some(address)) = (words.next(), words.next())
            && (LISTENERS.contains(&name) || name == GATEWAY)
        {
            let url = address.strip_prefix("http://").or_else(|| address.strip_prefix("https://"));
            let address = url.and_then(|url| url.strip_suffix('/')).unwrap_or(address);
            self.addresses.entry(name.to_owned()).or_insert_with(|| address.to_owned());
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("id", &self.id()).field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl fmt::Debug for ServerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServerBuilder").field(&self.command()).finish()
    }
}

/// Replaces the rule file of a home in one step, as editors do: a server never reads half of it.
fn write_rules(home: &Path, text: &str) {
    let path = home.join(RULES);
    let new = path.with_extension("new");
    std::fs::create_dir_all(home.join("rules")).unwrap();
    std::fs::write(&new, text).unwrap();
    std::fs::rename(&new, &path).unwrap();
}
