//! An upstream in this process: it answers with what it received, and can hold requests back.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

/// A server of HTTP/1.1 that answers every request with its head. It ends with the test.
pub(super) struct Upstream {
    address: String,
    held: Arc<Held>,
}

/// The response of an LLM.
const USAGE: &str =
    r#"{"object":"chat.completion","usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}"#;

/// Requests for `/held`, which wait for their answer.
#[derive(Default)]
struct Held {
    state: Mutex<HeldState>,
    changed: Condvar,
}

#[derive(Default)]
struct HeldState {
    waiting: usize,
    is_released: bool,
}

impl Upstream {
    pub(super) fn start() -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let held = Arc::<Held>::default();
        let shared = held.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let held = shared.clone();
                std::thread::spawn(move || serve(stream, &held));
            }
        });
        Upstream { address, held }
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Waits until a request for `/held` has arrived.
    pub(super) fn wait_for_held(&self) {
        let state = self.held.state.lock().unwrap();
        drop(self.held.changed.wait_while(state, |state| state.waiting == 0).unwrap());
    }

    /// Answers the requests for `/held`.
    pub(super) fn release(&self) {
        self.held.state.lock().unwrap().is_released = true;
        self.held.changed.notify_all();
    }
}

/// Serves a connection. Of bodies, only those with a length are read.
fn serve(stream: TcpStream, held: &Held) -> Option<()> {
    let mut writer = stream.try_clone().ok()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok().filter(|length| *length > 0)?;
            match line.trim_end() {
                "" => break,
                line => head.extend([line, "\n"]),
            }
        }
        let length =
            head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        reader.read_exact(&mut vec![0; length.unwrap_or(0)]).ok()?;
        if head.starts_with("GET /held ") {
            held.wait();
        }
        if head.starts_with("POST /v1/chat/completions ") {
            let usage = USAGE;
            write!(
                writer,
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{usage}",
                usage.len()
            )
            .ok()?;
            continue;
        }
        write!(writer, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{head}", head.len()).ok()?;
    }
}

impl Held {
    fn wait(&self) {
        let mut state = self.state.lock().unwrap();
        state.waiting += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| !state.is_released).unwrap());
    }
}
