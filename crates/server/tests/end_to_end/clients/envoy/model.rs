//! A model behind Envoy, which reports the cost of its responses and counts concurrent requests.

use std::io::{self, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use crate::clients::http::{Head, read_head};

/// The maximum time that a request is held: longer than any test.
const MAX_HOLD: Duration = Duration::from_secs(300);

/// An HTTP server that runs until the tests end.
pub(super) struct Model {
    pub(super) address: String,
    shared: Arc<SharedState>,
}

#[derive(Default)]
struct SharedState {
    state: Mutex<ModelState>,
    released: Condvar,
}

#[derive(Clone, Copy, Default)]
pub(super) struct ModelState {
    /// Whether requests are held until they are released.
    holds: bool,
    /// The duration of a request otherwise.
    duration: Duration,
    /// How many requests have arrived.
    pub(super) arrived: usize,
    /// How many requests are running, and the maximum so far.
    running: usize,
    pub(super) max_running: usize,
}

impl Model {
    pub(super) fn new() -> Model {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, shared) = (listener.local_addr().unwrap().to_string(), Arc::<SharedState>::default());
        let model = Model { address, shared: shared.clone() };
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = shared.clone();
                thread::spawn(move || shared.serve(stream));
            }
        });
        model
    }

    /// Holds the requests that arrive from now on.
    pub(super) fn hold(&self) {
        self.shared.state.lock().unwrap().holds = true;
    }

    /// Releases all requests. From now on each takes this long.
    pub(super) fn release(&self, duration: Duration) {
        let mut state = self.shared.state.lock().unwrap();
        (state.holds, state.duration) = (false, duration);
        self.shared.released.notify_all();
    }

    pub(super) fn state(&self) -> ModelState {
        *self.shared.state.lock().unwrap()
    }
}

impl SharedState {
    /// `x-spend` is the cost of the response in tokens. The response to a path with `stream` is sent in chunks, the first at once.
    fn serve(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut stream = BufReader::new(stream);
        while let Some(head) = read_head(&mut stream)? {
            head.body(&mut stream)?;
            let cost = head.header("x-spend");
            if head.first.contains("stream") {
                stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")?;
                stream.get_mut().write_all(b"Transfer-Encoding: chunked\r\n\r\n6\r\nfirst\n\r\n")?;
                self.run();
                stream.get_mut().write_all(b"5\r\nlast\n\r\n0\r\n\r\n")?;
                continue;
            }
            self.run();
            stream.get_mut().write_all(response(&head, cost).as_bytes())?;
        }
        Ok(())
    }

    /// Runs a request. It no longer counts as running before its response is sent.
    fn run(&self) {
        let mut state = self.state.lock().unwrap();
        state.arrived += 1;
        state.running += 1;
        state.max_running = state.max_running.max(state.running);
        let duration = state.duration;
        let (mut state, _) = match state.holds {
            true => self.released.wait_timeout_while(state, MAX_HOLD, |state| state.holds).unwrap(),
            false => self.released.wait_timeout(state, duration).unwrap(),
        };
        state.running -= 1;
    }
}

fn response(head: &Head, cost: Option<&str>) -> String {
    let usage = cost.map(|cost| format!(r#","usage":{{"total_tokens":{cost}}}"#)).unwrap_or_default();
    let body = format!(r#"{{"request":"{}"{usage}}}"#, head.first);
    let tokens = cost.map(|cost| format!("X-Tokens: {cost}\r\n")).unwrap_or_default();
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{tokens}Content-Length: {length}\r\n\r\n{body}")
}
