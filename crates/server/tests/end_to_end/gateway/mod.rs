//! The gateway of the real server: upstreams that a test controls, clients that count failures.

mod deployed;
mod faults;
mod forwarding;
mod grpc;
mod http2_floods;
mod lifecycle;
mod memory;
mod reload;
mod same_decisions;
mod shedding;
mod tls;
mod upstream;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use tollgate_testing::{Server, ServerBuilder, eventually};

use crate::http::new_agent;
use crate::new_server;

const FILE: &str = "gateway.yaml";

/// Limits that no request of a test meets by accident.
const RULES: &str = "domain: api\nrules:\n  - {name: by-key, key: [api_key], limit: 2/hour}\n";

/// A server with this file of a gateway in its home.
fn with_gateway(file: &str) -> ServerBuilder {
    with_rules(file, RULES)
}

fn with_rules(file: &str, rules: &str) -> ServerBuilder {
    let server = new_server();
    write_file(server.home(), file);
    let path = server.home().join(FILE).display().to_string();
    server.rules(rules).args(&["--gateway", &path])
}

/// Replaces the file of a gateway in one step.
fn write_file(home: &Path, text: &str) {
    let new = home.join("gateway.new");
    fs::write(&new, text).unwrap();
    fs::rename(&new, home.join(FILE)).unwrap();
}

/// A file that forwards everything to these servers.
fn everything_to(servers: &[&str]) -> String {
    format!(
        "listen: 127.0.0.1:0\n\
         domain: api\n\
         attributes: {{api_key: {{header: X-Api-Key}}}}\n\
         upstreams: {{app: {{servers: [{}], eject: {{failures: 3, for: 30s, most: 50%}}}}}}\n\
         routes:\n  - {{name: all, match: \"/*\", upstream: app}}\n",
        servers.iter().map(|server| format!("\"{server}\"")).collect::<Vec<_>>().join(", ")
    )
}

/// Clients that send GETs without a pause, each on its own connection.
struct Load {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    sent: AtomicUsize,
    failures: std::sync::Mutex<Vec<String>>,
}

impl Load {
    fn start(url: &str) -> Load {
        let shared = Arc::<Shared>::default();
        let clients = (0..4).map(|_| {
            let (shared, url) = (shared.clone(), url.to_owned());
            std::thread::spawn(move || {
                let agent = new_agent();
                while !shared.is_over.load(Ordering::Relaxed) {
                    let failure = match agent.get(&url).call() {
                        Ok(response) if response.status() == 200 => None,
                        Ok(mut response) => {
                            Some(format!("{}: {:?}", response.status(), response.body_mut().read_to_string()))
                        }
                        Err(error) => Some(error.to_string()),
                    };
                    shared.sent.fetch_add(1, Ordering::Relaxed);
                    shared.failures.lock().unwrap().extend(failure);
                }
            })
        });
        Load { clients: clients.collect(), shared }
    }

    /// Waits until so many further requests were answered.
    #[track_caller]
    fn wait_for(&self, requests: usize) {
        let until = self.shared.sent.load(Ordering::Relaxed) + requests;
        let reached = eventually(|| (self.shared.sent.load(Ordering::Relaxed) >= until).then_some(()));
        assert!(reached.is_some(), "fewer than {requests} further requests were answered");
    }

    /// Ends it, and returns the failures.
    fn stop(self) -> Vec<String> {
        self.shared.is_over.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().unwrap();
        }
        std::mem::take(&mut self.shared.failures.lock().unwrap())
    }
}

/// What a server says of its health.
#[track_caller]
fn degraded(server: &Server) -> Vec<serde_json::Value> {
    let ready = crate::http::get(&server.url("admin", "/readyz")).json();
    ready["degraded"].as_array().cloned().unwrap_or_default()
}
