//! A receiver of webhooks, whose responses the test chooses.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tollgate_testing::eventually;

/// How a receiver answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Status(u16),
    /// The connection stays open, without a response.
    Hang,
}

/// A message that was received.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) path: String,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) event: Value,
}

/// Listens on a port, until the test ends.
pub(crate) struct Receiver {
    port: u16,
    reply: Arc<Mutex<Reply>>,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Receiver {
    pub(crate) fn start(reply: Reply) -> Receiver {
        Receiver::on(0, reply)
    }

    /// A receiver on this port.
    pub(crate) fn on(port: u16, reply: Reply) -> Receiver {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let reply = Arc::new(Mutex::new(reply));
        let received: Arc<Mutex<Vec<Received>>> = Arc::default();
        let (replies, messages) = (reply.clone(), received.clone());
        std::thread::spawn(move || {
            // Connections without a response stay open as long as they are here.
            let mut hanging = Vec::new();
            for stream in listener.incoming().map_while(Result::ok) {
                let Some(message) = read(&stream) else { continue };
                messages.lock().unwrap().push(message);
                match *replies.lock().unwrap() {
                    Reply::Status(status) => {
                        let response =
                            format!("HTTP/1.1 {status} Status\r\nContent-Length: 0\r\nRetry-After: 1\r\n\r\n");
                        let _ = (&stream).write_all(response.as_bytes());
                    }
                    Reply::Hang => hanging.push(stream),
                }
            }
        });
        Receiver { port, reply, received }
    }

    /// How it answers from now on.
    pub(crate) fn reply(&self, reply: Reply) {
        *self.reply.lock().unwrap() = reply;
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// What it was sent so far, answered or not.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// Waits until there are messages for which this holds, and returns them.
    #[track_caller]
    pub(crate) fn wait_for(&self, count: usize, is: impl Fn(&Received) -> bool) -> Vec<Received> {
        let matching = || -> Vec<Received> { self.received().into_iter().filter(|message| is(message)).collect() };
        let found = eventually(|| Some(matching()).filter(|found| found.len() >= count));
        found.unwrap_or_else(|| panic!("not {count} of {:?}", self.received()))
    }
}

impl Received {
    pub(crate) fn is(&self, kind: &str) -> bool {
        self.event["type"] == format!("tollgate.{kind}")
    }

    pub(crate) fn id(&self) -> &str {
        self.event["id"].as_str().unwrap()
    }
}

/// Reads a request; `None` if the client ended before it was complete.
fn read(stream: &TcpStream) -> Option<Received> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let mut body = vec![0; headers.get("content-length")?.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    Some(Received { path, headers, event: serde_json::from_slice(&body).ok()? })
}
