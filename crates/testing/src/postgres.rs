//! PostgreSQL, from Debian.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use tempfile::TempDir;

use crate::{Process, eventually, free_port};

/// One server, whose data survives a restart. PostgreSQL refuses to run as root: if the tests do, it runs as another user.
#[derive(Debug)]
pub struct Postgres {
    process: Process,
    port: u16,
    /// Further settings.
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

/// How many ports are tried: another process may take a free port first.
const MAX_TRIES: usize = 5;

impl Postgres {
    /// Starts a server for one test, which may kill and freeze it.
    pub fn start() -> Postgres {
        Postgres::start_with(&[], |_| ())
    }

    /// Starts a server that offers TLS, with this certificate and its key, both PEM.
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
        let output = unprivileged("initdb", directory.path())
            .arg("-D")
            .arg(&data)
            .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--no-instructions"])
            .output();
        let output = output.unwrap_or_else(|error| panic!("initdb: {error}; `make setup-tests` installs it"));
        if !output.status.success() {
            panic!("initdb: {}", String::from_utf8_lossy(&output.stderr));
        }
        let started = (0..MAX_TRIES).find_map(|_| {
            let port = free_port();
            let mut process = spawn(port, directory.path(), settings);
            is_up(&mut process, port, directory.path()).then_some((process, port))
        });
        let (process, port) = started.unwrap_or_else(|| panic!("postgres did not start: {}", log(directory.path())));
        Postgres { process, port, directory, settings: settings.to_vec() }
    }

    /// Creates a database on a server that the tests of this process share. It is started once, and ends after the process.
    pub fn database() -> Database {
        static SHARED: OnceLock<SharedPostgres> = OnceLock::new();
        let shared = SHARED.get_or_init(SharedPostgres::start);
        let mut count = shared.databases.lock().unwrap_or_else(PoisonError::into_inner);
        *count += 1;
        let name = format!("test_{count}");
        psql(shared.port, "postgres", &format!("CREATE DATABASE {name}"));
        Database { url: url(shared.port, &name), port: shared.port, name }
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of its first database.
    pub fn url(&self) -> String {
        url(self.port, "postgres")
    }

    /// The process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Kills it, as a crash would.
    pub fn kill(&mut self) {
        let children = children(self.process.id());
        self.process.kill();
        // They end by themselves unless they are frozen, and a new server can't start before they have ended.
        signal("KILL", &children);
        for child in children {
            crate::until("PostgreSQL's processes end", || !runs(child));
        }
    }

    /// Starts it again, on the same port with the same data. It is killed first if it still runs.
    pub fn restart(&mut self) {
        self.kill();
        // If another process has the id in this file by now, the server would take that one for a running server.
        let _ = std::fs::remove_file(self.directory.path().join("data/postmaster.pid"));
        self.process = spawn(self.port, self.directory.path(), &self.settings);
        if !is_up(&mut self.process, self.port, self.directory.path()) {
            panic!("postgres did not start again on port {}: {}", self.port, log(self.directory.path()));
        }
    }

    /// Suspends all its processes: its connections stay open, the system accepts new ones, and nothing is answered.
    pub fn freeze(&mut self) {
        // The parent first: it would start more processes.
        self.process.pause();
        signal("STOP", &children(self.process.id()));
    }

    /// Resumes all its processes.
    pub fn thaw(&mut self) {
        signal("CONT", &children(self.process.id()));
        self.process.resume();
    }

    /// Runs a statement: values with `|` between them, a row on each line.
    pub fn query(&self, sql: &str) -> String {
        psql(self.port, "postgres", sql)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // All its processes, and before its directory is removed.
        if self.process.is_running() {
            self.kill();
        }
    }
}

impl Database {
    /// Its URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The port that its server listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Runs a statement: values with `|` between them, a row on each line.
    pub fn query(&self, sql: &str) -> String {
        psql(self.port, &self.name, sql)
    }

    /// The same, or the error of the database.
    pub fn try_query(&self, sql: &str) -> Result<String, String> {
        try_psql(self.port, &self.name, sql)
    }
}

/// The server of a test binary. Nothing is dropped at the end of a process, so a watching process stops the server.
#[derive(Debug)]
struct SharedPostgres {
    port: u16,
    /// How many databases were created.
    databases: Mutex<u32>,
}

impl SharedPostgres {
    fn start() -> SharedPostgres {
        let server = Postgres::start();
        let port = server.port;
        let id = server.process.id();
        // It reads from a pipe that is closed when this process ends, however it ends.
        let script = r#"read -r _; kill -s QUIT "$1"
            for i in 1 2 3 4 5 6 7 8 9 10; do kill -0 "$1" 2>/dev/null || break; sleep 0.2; done; rm -rf "$2""#;
        let directory = server.directory.path().to_owned();
        let mut watch = Command::new("setsid");
        watch.args(["sh", "-c", script, "sh", &id.to_string()]).arg(&directory);
        watch.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let watcher = watch.spawn().unwrap_or_else(|error| panic!("setsid: {error}"));
        // Neither is dropped: the pipe closes when the process ends.
        std::mem::forget((server, watcher));
        SharedPostgres { port, databases: Mutex::new(0) }
    }
}

/// The user that it runs as if the tests are root: nobody, in Debian and elsewhere.
const NOBODY: u32 = 65_534;

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Makes the server's user the owner of a directory or a file.
fn hand_over(path: &Path) {
    if is_root() {
        let given = std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY));
        given.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

/// One of PostgreSQL's programs, run by a user that is not root.
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

/// Debian installs the programs by version, in directories that are not in `PATH`.
fn installed(program: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().filter_map(Result::ok);
    let programs = versions.map(|version| version.path().join("bin").join(program));
    programs.filter(|path| path.is_file()).max().unwrap_or_else(|| PathBuf::from(program))
}

fn spawn(port: u16, directory: &Path, more: &[&str]) -> Process {
    let mut command = unprivileged("postgres", directory);
    command.arg("-D").arg(directory.join("data")).arg("-k").arg(directory).args(["-p", &port.to_string()]);
    // The data need not survive the machine, and many tests share the server.
    let settings = ["listen_addresses=127.0.0.1", "fsync=off", "full_page_writes=off", "max_connections=500"];
    let log = ["logging_collector=on", "log_directory=..", "log_filename=log", "log_rotation_age=0"];
    for setting in settings.iter().chain(&log).chain(more) {
        command.args(["-c", setting]);
    }
    Process::start(&mut command)
}

/// Waits until this server answers, and not another one on its port.
fn is_up(process: &mut Process, port: u16, directory: &Path) -> bool {
    let own = format!("{}", directory.join("data").display());
    let up = eventually(|| match process.is_running() {
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
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("psql: {error}; `make setup-tests` installs it"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim_end().to_owned()),
    }
}

/// The children of a process, without their own children.
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
    // Behind its name, which is in parentheses and may contain anything.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

/// Sends a signal to processes. Some may have ended.
fn signal(name: &str, ids: &[u32]) {
    if !ids.is_empty() {
        let ids = ids.iter().map(u32::to_string);
        let _ = Command::new("kill").args(["-s", name]).args(ids).stderr(Stdio::null()).status();
    }
}
