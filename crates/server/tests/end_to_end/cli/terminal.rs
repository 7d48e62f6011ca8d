//! A terminal for commands: a pty of `script`, and the contents of its screen.

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use tollgate_testing::eventually;

pub(crate) const COLUMNS: usize = 80;
pub(crate) const LINES: usize = 24;

/// A command in a terminal of its own, until this is dropped.
pub(crate) struct Terminal {
    child: Child,
    keys: ChildStdin,
    written: Arc<Mutex<Vec<u8>>>,
    home: TempDir,
}

impl Terminal {
    /// Runs `tollgate` with these arguments and variables.
    pub(crate) fn run(args: &str, variables: &[(&str, &str)]) -> Terminal {
        let home = TempDir::new().unwrap();
        let program = env!("CARGO_BIN_EXE_tollgate");
        // The settings of the terminal before and after, which must be the same.
        let line = format!(
            "stty cols {COLUMNS} rows {LINES}; stty -a > before; echo $$ > shell; {program} {args}; echo $? > code; stty -a > after"
        );
        let mut child = Command::new("script")
            .args(["--quiet", "--flush", "--return", "--command", &line, "/dev/null"])
            .current_dir(home.path())
            .env_clear()
            .envs([("PATH", "/usr/bin:/bin"), ("TERM", "xterm-256color"), ("SHELL", "/bin/sh")])
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("script, of bsdutils, is needed");
        let (keys, mut out) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let written = Arc::<Mutex<Vec<u8>>>::default();
        let into = written.clone();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(length @ 1..) = out.read(&mut piece) {
                into.lock().unwrap().extend_from_slice(&piece[..length]);
            }
        });
        Terminal { child, keys, written, home }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// All output so far.
    pub(crate) fn written(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().unwrap()).into_owned()
    }

    /// The current screen.
    pub(crate) fn screen(&self) -> String {
        render(&self.written())
    }

    /// Waits until the screen contains this text.
    #[track_caller]
    pub(crate) fn wait_for_text(&self, text: &str) {
        let found = eventually(|| self.screen().contains(text).then_some(()));
        assert!(found.is_some(), "{text:?} is not shown:\n{}", self.screen());
    }

    /// Sends a signal to the command.
    pub(crate) fn signal(&self, name: &str) {
        let shell = std::fs::read_to_string(self.home.path().join("shell")).unwrap();
        let children = format!("/proc/{0}/task/{0}/children", shell.trim());
        let child = std::fs::read_to_string(children).unwrap();
        let ended = Command::new("kill").args([name, child.trim()]).status().unwrap();
        assert!(ended.success());
    }

    /// Waits for the exit code of the command. The terminal must have its original settings.
    #[track_caller]
    pub(crate) fn wait_for_exit(&mut self) -> String {
        let ended = eventually(|| self.child.try_wait().unwrap());
        assert!(ended.is_some(), "it did not end:\n{}", self.screen());
        let read = |name: &str| std::fs::read_to_string(self.home.path().join(name)).unwrap();
        assert_eq!(read("before"), read("after"), "the terminal is not as it was");
        let written = self.written();
        let (taken, given_back) = (written.find("\u{1b}[?1049h"), written.rfind("\u{1b}[?1049l"));
        assert!(taken.is_some() && given_back > taken, "{written:?}");
        assert!(written.rfind("\u{1b}[?25h") > written.rfind("\u{1b}[?25l"), "the cursor is hidden: {written:?}");
        read("code").trim().to_owned()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The screen after this output. Only the escape sequences in the output are supported.
fn render(written: &str) -> String {
    let mut screen = vec![vec![' '; COLUMNS]; LINES];
    let (mut line, mut column) = (0, 0);
    let mut letters = written.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\u{1b}' => {
                if letters.next() != Some('[') {
                    continue;
                }
                let mut numbers = String::new();
                let order = loop {
                    match letters.next() {
                        Some(letter) if letter.is_ascii_alphabetic() => break letter,
                        Some(letter) => numbers.push(letter),
                        None => break ' ',
                    }
                };
                match order {
                    'H' => {
                        let mut at = numbers.split(';').map(|number| number.parse().unwrap_or(1_usize) - 1);
                        (line, column) = (at.next().unwrap_or(0), at.next().unwrap_or(0));
                    }
                    'J' => screen.iter_mut().for_each(|line| line.fill(' ')),
                    _ => {}
                }
            }
            '\r' => column = 0,
            '\n' => line += 1,
            letter => {
                if let Some(cell) = screen.get_mut(line).and_then(|line| line.get_mut(column)) {
                    *cell = letter;
                }
                column += 1;
            }
        }
    }
    let lines = screen.into_iter().map(|line| line.into_iter().collect::<String>().trim_end().to_owned());
    lines.collect::<Vec<_>>().join("\n")
}
