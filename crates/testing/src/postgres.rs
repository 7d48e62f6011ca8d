//! PostgreSQL 15, from Debian.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use tempfile::TempDir;

use crate::{Process, eventually, free_port};

/// One server, which keeps what it has when it is started again. It does not run as root, which it refuses to: tests that do give
/// it another user.
#[derive(Debug)]
pub struct Postgres {
    process: Process,
    port: u16,
    /// What it was started with, besides.
    settings: Vec<&'static str>,
    /// Removed when the server has ended.
    directory: TempDir,
}

/// A database of its own, on the server that all tests of the binary share.
#[derive(Clone, Debug)]
pub struct Database {
    url: String,
    port: u16,
    name: String,
}

/// How often a port that somebody else took meanwhile is replaced by another.
const TRIES: usize = 5;

impl Postgres {
    /// A server of the test's own, to be killed and frozen.
    pub fn start() -> Postgres {
        Postgres::start_with(&[], |_| ())
    }

    /// A server that speaks TLS to those who ask for it, with this certificate and its key, both PEM.
    pub fn start_tls(certificate: &str, key: &str) -> Postgres {
        let settings = ["ssl=on", "ssl_cert_file=../cert.pem", "ssl_key_file=../key.pem"];
        Postgres::start_with(&settings, |directory| {
            for (file, text) in [("cert.pem", certificate), ("key.pem", key)] {
                let file = directory.join(file);
                let written = std::fs::write(&file, text);
                let closed = written.and_then(|()| std::fs::set_permissions(&file, Permissions::from_mode(0o600)));
                closed.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
                hand_over(&file);
            }
        })
    }

    fn start_with(settings: &[&'static str], prepare: impl FnOnce(&Path)) -> Postgres {
        let directory = TempDir::new().unwrap_or_else(|error| panic!("no directory for PostgreSQL: {error}"));
        hand_over(directory.path());
        prepare(directory.path());
        let data = directory.path().join("data");
        let made = unprivileged("initdb", directory.path())
            .arg("-D")
            .arg(&data)
            .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--no-instructions"])
            .output();
        let made = made.unwrap_or_else(|error| panic!("initdb: {error}; `make setup-tests` installs it"));
        if !made.status.success() {
            panic!("initdb: {}", String::from_utf8_lossy(&made.stderr));
        }
        let started = (0..TRIES).find_map(|_| {
            let port = free_port();
            let mut process = spawn(port, directory.path(), settings);
            is_up(&mut process, port, directory.path()).then_some((process, port))
        });
        let (process, port) = started.unwrap_or_else(|| panic!("postgres did not start: {}", log(directory.path())));
        Postgres { process, port, directory, settings: settings.to_vec() }
    }

    /// A fresh database on a server that this process shares: it is started once, and ends after the process.
    pub fn database() -> Database {
        static SHARED: OnceLock<Shared> = OnceLock::new();
        let shared = SHARED.get_or_init(Shared::start);
        let mut made = shared.made.lock().unwrap_or_else(PoisonError::into_inner);
        *made += 1;
        let name = format!("test_{made}");
        psql(shared.port, "postgres", &format!("CREATE DATABASE {name}"));
        Database { url: url(shared.port, &name), port: shared.port, name }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// As a setting names it: its first database.
    pub fn url(&self) -> String {
        url(self.port, "postgres")
    }

    /// The process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Ends it at once, as a crash would.
    pub fn kill(&mut self) {
        let children = children(self.process.id());
        self.process.kill();
        // They would notice by themselves, unless they are frozen, and a new server can't start before they have.
        signal("KILL", &children);
        for child in children {
            crate::until("PostgreSQL's processes end", || !runs(child));
        }
    }

    /// Starts it again, on the same port with the same data. It is killed first if it still runs.
    pub fn restart(&mut self) {
        self.kill();
        // It would take it for the lock of a server that still runs if another process has its id by now.
        let _ = std::fs::remove_file(self.directory.path().join("data/postmaster.pid"));
        self.process = spawn(self.port, self.directory.path(), &self.settings);
        if !is_up(&mut self.process, self.port, self.directory.path()) {
            panic!("postgres did not start again on port {}: {}", self.port, log(self.directory.path()));
        }
    }

    /// Stops all of it where it is: its connections stay open, new ones are taken by the system, and nobody answers.
    pub fn freeze(&mut self) {
        // First the one that would start more.
        self.process.pause();
        signal("STOP", &children(self.process.id()));
    }

    /// Lets it go on.
    pub fn thaw(&mut self) {
        signal("CONT", &children(self.process.id()));
        self.process.resume();
    }

    /// What a statement answers: values with `|` between them, a row on each line.
    pub fn ask(&self, sql: &str) -> String {
        psql(self.port, "postgres", sql)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // All of it, and before its directory.
        if self.process.runs() {
            self.kill();
        }
    }
}

impl Database {
    /// As a setting names it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where its server listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What a statement answers: values with `|` between them, a row on each line.
    pub fn ask(&self, sql: &str) -> String {
        psql(self.port, &self.name, sql)
    }

    /// The same, or what the database says against it.
    pub fn try_ask(&self, sql: &str) -> Result<String, String> {
        try_psql(self.port, &self.name, sql)
    }
}

/// The server of a test binary. Nothing is dropped at the end of a process, so another process sees to its end.
#[derive(Debug)]
struct Shared {
    port: u16,
    made: Mutex<u32>,
}

impl Shared {
    fn start() -> Shared {
        let server = Postgres::start();
        let port = server.port;
        let id = server.process.id();
        // It holds the reading end of a pipe whose other end ends with this process, however it ends.
        let script = r#"read -r _; kill -s QUIT "$1"
            for i in 1 2 3 4 5 6 7 8 9 10; do kill -0 "$1" 2>/dev/null || break; sleep 0.2; done; rm -rf "$2""#;
        let directory = server.directory.path().to_owned();
        let mut watch = Command::new("setsid");
        watch.args(["sh", "-c", script, "sh", &id.to_string()]).arg(&directory);
        watch.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let watcher = watch.spawn().unwrap_or_else(|error| panic!("setsid: {error}"));
        // Neither is dropped: the pipe closes when the process ends.
        std::mem::forget((server, watcher));
        Shared { port, made: Mutex::new(0) }
    }
}

/// Whom it runs as where the tests are root: nobody, in Debian and elsewhere.
const NOBODY: u32 = 65_534;

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Gives a directory or a file to whom the server runs as.
fn hand_over(path: &Path) {
    if is_root() {
        let given = std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY));
        given.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

/// One of its programs, run by a user that is not root.
fn unprivileged(program: &str, directory: &Path) -> Command {
    let program = installed(program);
    let mut command = match is_root() {
        true => {
            let mut command = Command::new("setpriv");
            let nobody = NOBODY.to_string();
            command.args(["--reuid", &nobody, "--regid", &nobody, "--clear-groups"]).arg(program);
            command
        }
        false => Command::new(program),
    };
    command.current_dir(directory).env("LC_ALL", "C");
    command
}

/// Debian keeps its programs by version, and not where a shell looks.
fn installed(program: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().filter_map(Result::ok);
    let programs = versions.map(|version| version.path().join("bin").join(program));
    programs.filter(|path| path.is_file()).max().unwrap_or_else(|| PathBuf::from(program))
}

fn spawn(port: u16, directory: &Path, more: &[&str]) -> Process {
    let mut command = unprivileged("postgres", directory);
    command.arg("-D").arg(directory.join("data")).arg("-k").arg(directory).args(["-p", &port.to_string()]);
    // Nothing of it need survive the machine, and many tests share it.
    let settings = ["listen_addresses=127.0.0.1", "fsync=off", "full_page_writes=off", "max_connections=500"];
    let log = ["logging_collector=on", "log_directory=..", "log_filename=log", "log_rotation_age=0"];
    for setting in settings.iter().chain(&log).chain(more) {
        command.args(["-c", setting]);
    }
    Process::start(&mut command)
}

/// Waits until it answers, itself and not another that has the port.
fn is_up(process: &mut Process, port: u16, directory: &Path) -> bool {
    let own = format!("{}", directory.join("data").display());
    let up = eventually(|| match process.runs() {
        true => try_psql(port, "postgres", "SHOW data_directory").is_ok_and(|data| data == own).then_some(true),
        false => Some(false),
    });
    up == Some(true)
}

fn log(directory: &Path) -> String {
    std::fs::read_to_string(directory.join("log")).unwrap_or_default()
}

fn url(port: u16, database: &str) -> String {
    format!("postgres://postgres@127.0.0.1:{port}/{database}")
}

fn psql(port: u16, database: &str, sql: &str) -> String {
    try_psql(port, database, sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

fn try_psql(port: u16, database: &str, sql: &str) -> Result<String, String> {
    let mut command = Command::new(installed("psql"));
    command.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-c", sql, &url(port, database)]);
    let asked = command.stdin(Stdio::null()).output();
    let asked = asked.map_err(|error| format!("psql: {error}; `make setup-tests` installs it"))?;
    match asked.status.success() {
        true => Ok(String::from_utf8_lossy(&asked.stdout).trim_end().to_owned()),
        false => Err(String::from_utf8_lossy(&asked.stderr).trim_end().to_owned()),
    }
}

/// The processes that a process has started, and not those that these have.
fn children(parent: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let ids = processes.filter_map(|process| process.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| stat(*id).is_some_and(|(_, of)| of == parent)).collect()
}

fn runs(id: u32) -> bool {
    stat(id).is_some_and(|(state, _)| state != "Z")
}

/// A process's state and its parent.
fn stat(id: u32) -> Option<(String, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // After its name, which is in brackets and may have anything in it.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

/// Tells processes something. Some may have ended.
fn signal(name: &str, ids: &[u32]) {
    if !ids.is_empty() {
        let ids = ids.iter().map(u32::to_string);
        let _ = Command::new("kill").args(["-s", name]).args(ids).stderr(Stdio::null()).status();
    }
}
