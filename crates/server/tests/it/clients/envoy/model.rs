//! What stands behind Envoy here: a model that says what its answers cost, and counts how many it works on at a time.

use std::io::{self, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use crate::clients::http::{Head, read_head};

/// How long a request stays that nobody lets go: longer than any test.
const LONGEST: Duration = Duration::from_secs(300);

/// It serves until the tests end.
pub(super) struct Model {
    pub(super) address: String,
    desk: Arc<Desk>,
}

#[derive(Default)]
struct Desk {
    work: Mutex<Work>,
    opened: Condvar,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Work {
    /// Whether requests stay until they are let go.
    shut: bool,
    /// How long they stay otherwise.
    takes: Duration,
    /// How many have come.
    pub(super) came: usize,
    /// How many are being worked on, and were at most.
    inside: usize,
    pub(super) most: usize,
}

impl Model {
    pub(super) fn new() -> Model {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, desk) = (listener.local_addr().unwrap().to_string(), Arc::<Desk>::default());
        let shared = desk.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let desk = shared.clone();
                thread::spawn(move || desk.serve(stream));
            }
        });
        Model { address, desk }
    }

    /// Keeps the requests that come from now on.
    pub(super) fn shut(&self) {
        self.desk.work.lock().unwrap().shut = true;
    }

    /// Lets all go. From now on each stays for so long.
    pub(super) fn open(&self, takes: Duration) {
        let mut work = self.desk.work.lock().unwrap();
        (work.shut, work.takes) = (false, takes);
        self.desk.opened.notify_all();
    }

    pub(super) fn work(&self) -> Work {
        *self.desk.work.lock().unwrap()
    }
}

impl Desk {
    /// `x-spend` says how many tokens an answer costs; a path with `stream` is answered in pieces, the first of them at once.
    fn serve(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut stream = BufReader::new(stream);
        while let Some(head) = read_head(&mut stream)? {
            head.body(&mut stream)?;
            let spent = head.header("x-spend");
            if head.first.contains("stream") {
                stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")?;
                stream.get_mut().write_all(b"Transfer-Encoding: chunked\r\n\r\n6\r\nfirst\n\r\n")?;
                self.work();
                stream.get_mut().write_all(b"5\r\nlast\n\r\n0\r\n\r\n")?;
                continue;
            }
            self.work();
            stream.get_mut().write_all(answer(&head, spent).as_bytes())?;
        }
        Ok(())
    }

    /// Who has left is not inside any more, before its answer is on its way.
    fn work(&self) {
        let mut work = self.work.lock().unwrap();
        work.came += 1;
        work.inside += 1;
        work.most = work.most.max(work.inside);
        let takes = work.takes;
        let (mut work, _) = match work.shut {
            true => self.opened.wait_timeout_while(work, LONGEST, |work| work.shut).unwrap(),
            false => self.opened.wait_timeout(work, takes).unwrap(),
        };
        work.inside -= 1;
    }
}

fn answer(head: &Head, spent: Option<&str>) -> String {
    let usage = spent.map(|spent| format!(r#","usage":{{"total_tokens":{spent}}}"#)).unwrap_or_default();
    let body = format!(r#"{{"asked":"{}"{usage}}}"#, head.first);
    let tokens = spent.map(|spent| format!("X-Tokens: {spent}\r\n")).unwrap_or_default();
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{tokens}Content-Length: {length}\r\n\r\n{body}")
}
