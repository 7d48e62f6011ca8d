//! The examples of the documentation: every `console` block of the README, of `docs/` and of `docs/guides/` runs, and its output is
//! compared. The form of the blocks is described in `docs/README.md`.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use tollgate_testing::machine;

/// How many pages run at the same time. Most commands need a server, so each page has one.
const MAX_PAGES: usize = 12;
/// How long a command may take.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Represents text that the page omits.
const ELLIPSIS: &str = "…";
/// Represents a time, in expected and in actual output.
const TIME_PLACEHOLDER: char = '⌚';
/// Marks the end of a command's output.
const END: &str = "@@ end of output @@";
/// The line that a server prints when it is ready. A command with this as its last line keeps running.
const READY: &str = "ready";
/// The ports in the pages, and the settings of the listeners that have them by default.
const PORTS: [(u16, &str); 4] = [(8070, "admin"), (8080, "http"), (8081, "grpc"), (6380, "resp")];

/// A step of a page.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// `<!-- file: NAME -->`, and the block after it.
    File { name: String, text: String },
    /// `<!-- server: COMMAND -->`.
    PageServer { line: usize, command: String },
    /// A command of a `console` block.
    Run { line: usize, command: String, output: Vec<String>, varies: Vec<String> },
}

#[test]
fn console_examples_have_the_documented_output() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let folders = ["docs", "docs/guides"].map(|folder| fs::read_dir(root.join(folder)).unwrap());
    let pages = folders.into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> = pages.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    pages.push(root.join("README.md"));
    pages.sort();
    let examples = |page: &Path| {
        let steps = steps(&fs::read_to_string(page).unwrap());
        let commands = steps.iter().filter(|step| matches!(step, Step::Run { .. })).count();
        let name = page.strip_prefix(&root).unwrap().display();
        (commands, run(&steps).into_iter().map(|what| format!("{name}:{what}")).collect::<Vec<_>>())
    };
    machine::share();
    let waiting = Mutex::new(pages.iter());
    let next = || waiting.lock().unwrap().next();
    let pages: Vec<(usize, Vec<String>)> = thread::scope(|scope| {
        let work = || std::iter::from_fn(next).map(|page| examples(page)).collect::<Vec<_>>();
        let running: Vec<_> = (0..MAX_PAGES).map(|_| scope.spawn(work)).collect();
        running.into_iter().flat_map(|results| results.join().unwrap()).collect()
    });
    let commands: usize = pages.iter().map(|(commands, _)| commands).sum();
    let wrong: Vec<String> = pages.into_iter().flat_map(|(_, wrong)| wrong).collect();
    assert!(commands > 120, "there are only {commands} commands: are the blocks not found?");
    assert!(wrong.is_empty(), "{} of {commands} examples are wrong:\n\n{}\n", wrong.len(), wrong.join("\n\n"));
}

#[test]
fn wrong_examples_are_found() {
    let page = "```console\n$ echo one; echo two\none\ntwo\n$ echo one; echo two\none\n```\n\n```sh\n$ false\n```\n\n\
                <!-- file: a.txt -->\n```text\nin a file\n```\n\n```console\n$ cat a.txt\nin a file\n$ cat a.txt\nelsewhere\n```\n";
    let wrong = run(&steps(page));
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    assert!(wrong[0].starts_with("5: $ echo one; echo two\n") && wrong[0].contains("two"), "{wrong:?}");
    assert!(wrong[1].starts_with("21: $ cat a.txt\n") && wrong[1].contains("in a file"), "{wrong:?}");
    let wrong = run(&steps("```console\n$ tollgate serve --rules none.yaml\nready\n```\n"));
    assert_eq!(wrong.len(), 1, "{wrong:?}");
}

#[test]
fn blocks_are_parsed() {
    let page = "<!-- server: tollgate -->\n```console\n$ a \\\n>   b\nout\n\n$ c\n```\n\n<!-- varies: 5 x -->\n```console\n$ d\n```\n";
    let run = |line, command: &str, output: &[&str], varies: &[&str]| Step::Run {
        line,
        command: command.to_owned(),
        output: output.iter().map(|&line| line.to_owned()).collect(),
        varies: varies.iter().map(|&word| word.to_owned()).collect(),
    };
    let server = Step::PageServer { line: 1, command: "tollgate".to_owned() };
    let expected = [server, run(3, "a \\\n  b", &["out"], &[]), run(7, "c", &[], &[]), run(12, "d", &[], &["5", "x"])];
    assert_eq!(steps(page), expected);
}

#[test]
fn output_is_compared() {
    let rows = [
        ("a b", "a b", true),
        ("a b", "a  b", false),
        ("a…d", "a b c d", true),
        ("a…d", "a b c", false),
        ("…c…", "a b c d", true),
        ("a\n…\nd", "a\nb\nc\nd", true),
        ("a\n…\nd", "a\nd", true),
        ("a\n…", "a\nb", true),
        ("a\n…\nd", "a\nb", false),
        ("a\nb", "a\nb\nc", false),
        ("at 2026-11-16T01:44:51.612163Z", "at 2027-01-01T00:00:00Z", true),
        ("at 2026-11-16 01:44:51Z", "at never", false),
        ("{\"reset_at\":1794793500}", "{\"reset_at\":1794881651}", true),
        ("{\"reset_at\":1794793500}", "{\"reset_at\":17}", false),
        ("took 35087 lines/s", "took 9 lines/s", true),
        ("took 35088 lines/s", "took 9 lines/s", false),
    ];
    for (expected, actual, fits) in rows {
        let [expected, actual]: [Vec<String>; 2] =
            [expected, actual].map(|text| text.lines().map(str::to_owned).collect());
        assert_eq!(lines_fit(&expected, &actual, &["35087".to_owned()]), fits, "{expected:?} {actual:?}");
    }
}

/// The steps of a page, in order.
fn steps(page: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let (mut file, mut varies) = (None, Vec::new());
    let mut lines = page.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        if let Some(comment) = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->")) {
            match comment.split_once(": ") {
                Some(("file", name)) => file = Some(name.to_owned()),
                Some(("varies", words)) => varies = words.split_whitespace().map(str::to_owned).collect(),
                Some(("server", command)) => steps.push(Step::PageServer { line: at + 1, command: command.to_owned() }),
                _ => {}
            }
        } else if let Some(kind) = line.strip_prefix("```") {
            let block: Vec<_> = lines.by_ref().take_while(|(_, line)| !line.starts_with("```")).collect();
            match (file.take(), kind) {
                (Some(name), _) => {
                    let text = block.iter().map(|(_, line)| format!("{line}\n")).collect();
                    steps.push(Step::File { name, text });
                }
                (None, "console") => steps.extend(commands(&block, &varies)),
                (None, _) => {}
            }
            varies.clear();
        }
    }
    steps
}

fn commands(block: &[(usize, &str)], varies: &[String]) -> Vec<Step> {
    let mut found: Vec<Step> = Vec::new();
    for (at, text) in block {
        if let Some(text) = text.strip_prefix("$ ") {
            let (command, varies) = (text.to_owned(), varies.to_vec());
            found.push(Step::Run { line: at + 1, command, output: Vec::new(), varies });
        } else if let Some(Step::Run { command, output, .. }) = found.last_mut() {
            match text.strip_prefix("> ").filter(|_| output.is_empty()) {
                Some(more) => command.extend(["\n", more]),
                None => output.push((*text).to_owned()),
            }
        }
    }
    for step in &mut found {
        if let Step::Run { output, .. } = step {
            trim(output);
        }
    }
    found
}

/// Runs the steps of a page, and returns the differences: `LINE: $ COMMAND`, what was expected, and the actual output.
fn run(steps: &[Step]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut place = PageEnvironment::new();
    for step in steps {
        match step {
            Step::File { name, text } => fs::write(place.work().join(name), text).unwrap(),
            Step::PageServer { line, command } => {
                let output = place.serve(command);
                if output.last().map(String::as_str) != Some(READY) {
                    wrong.push(format!("{line}: {command} does not start:\n{}", output.join("\n")));
                }
            }
            Step::Run { line, command, output, varies } => {
                let is_server = output.last().map(String::as_str) == Some(READY);
                let actual = if is_server { place.serve(command) } else { place.run(command) };
                if !lines_fit(output, &actual, varies) {
                    let (output, actual) = (output.join("\n"), actual.join("\n"));
                    wrong.push(format!("{line}: $ {command}\n-- expected:\n{output}\n-- actual:\n{actual}"));
                }
            }
        }
    }
    wrong
}

/// The environment of a page: a directory, a shell, and the last server.
struct PageEnvironment {
    folder: TempDir,
    shell: Shell,
    server: Option<PageServer>,
    /// A free port for each port of the pages.
    ports: [u16; PORTS.len()],
}

impl PageEnvironment {
    fn new() -> PageEnvironment {
        let folder = TempDir::new().unwrap();
        for name in ["bin", "home", "work"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        symlink(env!("CARGO_BIN_EXE_tollgate"), folder.path().join("bin/tollgate")).unwrap();
        fs::write(folder.path().join("home/.curlrc"), "silent\nshow-error\n").unwrap();
        let shell = Shell::start(command(&folder, "bash"));
        PageEnvironment { folder, shell, server: None, ports: free_ports() }
    }

    fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// Runs a command, and returns its output.
    fn run(&mut self, text: &str) -> Vec<String> {
        let names = self.variables().map(|(name, _)| name).join(" ");
        let set: Vec<_> = self.variables().iter().map(|(name, value)| format!("{name}={value}")).collect();
        let text = self.with_own_ports(text);
        // The output shows the origin of settings, and these are not part of the page.
        let output = if text.contains("--print-config") {
            self.shell.run(&text, "", "")
        } else {
            self.shell.run(&text, &format!("export {}", set.join(" ")), &format!("unset {names}"))
        };
        self.with_ports_of_the_page(output)
    }

    /// Starts a server instead of the last one, and returns its output until it is ready.
    fn serve(&mut self, text: &str) -> Vec<String> {
        self.server = None;
        self.ports = free_ports();
        let _ = fs::remove_dir_all(self.work().join("tollgate-data"));
        let mut command = command(&self.folder, "bash");
        command.args(["-c", &format!("exec {}", self.with_own_ports(text))]).envs(self.variables());
        let (server, mut output) = PageServer::start(command);
        if output.last().is_none_or(|line| line != READY) {
            output.push(fs::read_to_string(self.folder.path().join("log")).unwrap_or_default());
        }
        self.server = Some(server);
        self.with_ports_of_the_page(output)
    }

    /// The variables that make servers listen on free ports, and commands use the server.
    fn variables(&self) -> [(String, String); 4] {
        let variable =
            |at: usize| (format!("TOLLGATE_{}", PORTS[at].1.to_uppercase()), format!("127.0.0.1:{}", self.ports[at]));
        let server = ("TOLLGATE_SERVER".to_owned(), format!("http://127.0.0.1:{}", self.ports[0]));
        [variable(0), variable(1), variable(2), server]
    }

    fn with_own_ports(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for ((port, _), own) in PORTS.iter().zip(self.ports) {
            for before in ["127.0.0.1:", "localhost:", "-p "] {
                text = text.replace(&format!("{before}{port}"), &format!("{before}{own}"));
            }
        }
        text
    }

    fn with_ports_of_the_page(&self, mut output: Vec<String>) -> Vec<String> {
        for line in &mut output {
            for ((port, _), own) in PORTS.iter().zip(self.ports) {
                *line = line.replace(&format!("127.0.0.1:{own}"), &format!("127.0.0.1:{port}"));
            }
        }
        trim(&mut output);
        output
    }
}

/// A program without the environment of this machine, except for `PATH`.
fn command(folder: &TempDir, program: &str) -> Command {
    let folder = folder.path();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(program);
    command.current_dir(folder.join("work")).env_clear();
    command.env("PATH", format!("{}:{path}", folder.join("bin").display()));
    command.env("HOME", folder.join("home")).env("NO_COLOR", "1").env("TZ", "UTC");
    // redis-cli formats its output as for a terminal.
    command.env("FAKETTY", "1");
    command.stdout(Stdio::piped()).stderr(fs::File::create(folder.join("log")).unwrap()).stdin(Stdio::null());
    command
}

/// A running server, until this is dropped.
struct PageServer {
    process: Child,
}

impl PageServer {
    fn start(mut command: Command) -> (PageServer, Vec<String>) {
        let mut process = command.spawn().unwrap();
        let lines = lines_of(process.stdout.take().unwrap());
        let mut output = Vec::new();
        while let Ok(line) = lines.recv_timeout(TIMEOUT) {
            output.push(line);
            if output.last().is_some_and(|line| line == READY) {
                break;
            }
        }
        (PageServer { process }, output)
    }
}

impl Drop for PageServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A shell, so that variables persist between commands.
struct Shell {
    process: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Shell {
    fn start(mut command: Command) -> Shell {
        let mut process = command.args(["--norc", "--noprofile"]).stdin(Stdio::piped()).spawn().unwrap();
        let mut input = process.stdin.take().unwrap();
        writeln!(input, "exec 2>&1").unwrap();
        let lines = lines_of(process.stdout.take().unwrap());
        Shell { process, input, lines }
    }

    /// Runs a command, and returns its standard output and standard error.
    fn run(&mut self, command: &str, before: &str, after: &str) -> Vec<String> {
        write!(self.input, "{before}\n{{ {command}\n}} </dev/null\necho; echo '{END}'\n{after}\n").unwrap();
        self.input.flush().unwrap();
        let mut output = Vec::new();
        loop {
            match self.lines.recv_timeout(TIMEOUT) {
                Ok(line) if line == END => return output,
                Ok(line) => output.push(line),
                Err(_) => {
                    output.push(format!("(it did not end within {TIMEOUT:?})"));
                    return output;
                }
            }
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The lines of a stream, as they arrive.
fn lines_of(stream: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Ports with as many digits as those of the pages, so that columns stay aligned.
fn free_ports() -> [u16; PORTS.len()] {
    // Each is used once: another page could bind it before the server does.
    static USED: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    std::array::from_fn(|_| {
        loop {
            let port = fastrand::u16(2_000..10_000);
            if TcpListener::bind(("127.0.0.1", port)).is_ok() && USED.lock().unwrap().insert(port) {
                return port;
            }
        }
    })
}

/// Drops empty lines at the end.
fn trim(lines: &mut Vec<String>) {
    let is_empty = |line: &String| line.trim().is_empty();
    while lines.last().is_some_and(is_empty) {
        lines.pop();
    }
}

fn lines_fit(expected: &[String], actual: &[String], varies: &[String]) -> bool {
    let Some((first, rest)) = expected.split_first() else { return actual.is_empty() };
    if first == ELLIPSIS {
        return (0..=actual.len()).any(|skipped| lines_fit(rest, &actual[skipped..], varies));
    }
    actual.split_first().is_some_and(|(line, others)| fits(first, line, varies) && lines_fit(rest, others, varies))
}

/// Whether a line is the expected one, with any text for each ellipsis and for each word that varies.
fn fits(expected: &str, actual: &str, varies: &[String]) -> bool {
    let (mut expected, actual) = (mask_times(expected.trim_end()), mask_times(actual.trim_end()));
    for word in varies {
        expected = expected.replace(word, ELLIPSIS);
    }
    let mut parts = expected.split(ELLIPSIS);
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = actual.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, between)) = parts.split_last() else { return rest.is_empty() };
    for part in between {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// A line with a placeholder for each time: `2026-11-16T01:44:51.612163Z`, `2026-11-16 11:38:09Z`, `1794793500`.
fn mask_times(line: &str) -> String {
    let mut masked = String::new();
    let mut rest = line;
    while let Some(next) = rest.chars().next() {
        let after_digit = masked.ends_with(|c: char| c.is_ascii_digit());
        match time_length(rest).filter(|_| !after_digit) {
            Some(length) => {
                masked.push(TIME_PLACEHOLDER);
                rest = &rest[length..];
            }
            None => {
                masked.push(next);
                rest = &rest[next.len_utf8()..];
            }
        }
    }
    masked
}

/// The length of the time at the start of a text.
fn time_length(text: &str) -> Option<usize> {
    const DATE: &str = "0000-00-00?00:00:00";
    let is_digit = |byte: &u8| byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let date = bytes.iter().zip(DATE.bytes()).take_while(|(byte, form)| match form {
        b'0' => byte.is_ascii_digit(),
        b'?' => [b'T', b' '].contains(byte),
        sign => *byte == sign,
    });
    if date.count() == DATE.len() {
        let fraction = bytes[DATE.len()..].iter().take_while(|byte| is_digit(byte) || **byte == b'.').count();
        return (bytes.get(DATE.len() + fraction) == Some(&b'Z')).then_some(DATE.len() + fraction + 1);
    }
    let digits = bytes.iter().take_while(|byte| is_digit(byte)).count();
    (digits == 10 && (b"17".as_slice()..=b"19").contains(&&bytes[..2])).then_some(digits)
}
