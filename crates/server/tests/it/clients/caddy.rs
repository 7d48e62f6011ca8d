//! Caddy in front of an application, with the two forms of the configuration in `deploy/caddy/`.

use std::fs;
use std::net::TcpStream;

use tempfile::TempDir;
use tollgate_testing::{Server, programs};

use crate::clients::application::application;
use crate::clients::http::{self, Headers};
use crate::clients::process::{Process, on_free_ports};
use crate::clients::tools;
use crate::new_server;

/// A running Caddy.
struct Caddy {
    _process: Process,
    /// Where each form listens.
    short: String,
    long: String,
    _home: TempDir,
}

fn server() -> Server {
    new_server().rules(&tools::deployed("rules/web.yaml")).listen(&["http"]).start()
}

impl Caddy {
    #[track_caller]
    fn before(server: &Server) -> Caddy {
        let application = application();
        on_free_ports(|ports: [u16; 2]| {
            let [short, long] = ports.map(|port| format!("127.0.0.1:{port}"));
            let mut text = tools::deployed("caddy/Caddyfile");
            let others =
                [("8088", &short), ("8089", &long), ("8000", &application)].map(|(port, other)| (port, &**other));
            for (port, other) in others.into_iter().chain([("8080", server.address("http"))]) {
                text = tools::replaced(&text, &format!("127.0.0.1:{port}"), other);
            }
            // On a busy machine the times that are deployed may pass, and a request with them.
            for timeout in ["timeout 100ms", "timeout 250ms"] {
                text = tools::replaced(&text, timeout, "timeout 10s");
            }
            let home = TempDir::new().unwrap();
            fs::write(home.path().join("Caddyfile"), text).unwrap();
            let args = ["run", "--config", "Caddyfile"];
            let mut process = Process::start(&programs::system("caddy"), &args, home.path());
            process.until(|| TcpStream::connect(&short).and_then(|_| TcpStream::connect(&long)).ok())?;
            Ok(Caddy { _process: process, short, long, _home: home })
        })
    }

    fn both(&self) -> [&str; 2] {
        [&self.short, &self.long]
    }
}

#[test]
fn requests_pass_and_the_long_form_tells_their_limits() {
    let server = server();
    let caddy = Caddy::before(&server);
    for address in caddy.both() {
        let answer = http::get(address, "/page?a=b", &[("X-Api-Key", "one")]);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(answer.body.starts_with("GET /page?a=b"), "the application did not get it: {answer:?}");
        assert_eq!(answer.header("x-ratelimit-remaining").is_some(), address == caddy.long, "{answer:?}");
    }
    let answer = http::get(&caddy.long, "/", &[("X-Api-Key", "one")]);
    assert_eq!((answer.number("x-ratelimit-limit"), answer.number("x-ratelimit-remaining")), (10, 7));
    assert_eq!(answer.header("ratelimit-policy"), Some("\"by-key\";q=10;w=3600"));
    assert!(answer.header("ratelimit").unwrap().starts_with("\"by-key\";r=7;t="), "{answer:?}");
    // Another key, another counter.
    let other = http::get(&caddy.long, "/", &[("X-Api-Key", "two")]);
    assert_eq!(other.number("x-ratelimit-remaining"), 9);
}

#[test]
fn what_no_rule_speaks_of_passes_and_is_told_nothing() {
    let rules = "domain: web\nrules: [{name: by-key, key: [api_key], limit: 1/hour}]\n";
    let server = new_server().rules(rules).listen(&["http"]).start();
    let caddy = Caddy::before(&server);
    for address in caddy.both() {
        let answer = http::get(address, "/", &[]);
        assert_eq!((answer.status, answer.header("x-ratelimit-limit")), (200, None), "{answer:?}");
        assert_eq!(answer.header("ratelimit"), None, "{answer:?}");
    }
}

#[test]
fn a_refusal_is_passed_on_as_it_is() {
    let server = server();
    let caddy = Caddy::before(&server);
    for _ in 0..3 {
        assert_eq!(http::get(&caddy.long, "/", &[]).status, 200);
    }
    for address in caddy.both() {
        let refused = http::get(address, "/", &[]);
        assert_eq!((refused.status, refused.header("content-type")), (429, Some("application/problem+json")));
        assert_eq!(refused.header("x-ratelimit-denied-by"), Some("anonymous"));
        assert!(refused.number("retry-after") > 0);
        assert!(refused.body.contains("\"code\":\"RATE_LIMITED\""), "{refused:?}");
    }
}

#[test]
fn tollgate_hears_the_original_method_and_path_from_caddy_alone() {
    let server = server();
    let caddy = Caddy::before(&server);
    for (address, key) in [(&caddy.short, "one"), (&caddy.long, "two")] {
        let key = ("X-Api-Key", key);
        // What a client says of itself under the names that Caddy uses changes nothing.
        let lies = [
            key,
            ("X-Original-Method", "GET"),
            ("X-Original-Uri", "/"),
            ("X-Forwarded-Method", "GET"),
            ("X-Forwarded-Uri", "/"),
            ("X-Forwarded-For", "192.0.2.1"),
            ("X-RateLimit-Cost", "5"),
        ];
        let order = |headers: Headers<'_>| http::ask(address, "POST", "/orders/7", headers);
        assert_eq!([order(&[key]).status, order(&lies).status], [200, 200]);
        for headers in [&[key][..], &lies] {
            let refused = order(headers);
            assert_eq!((refused.status, refused.header("x-ratelimit-denied-by")), (429, Some("order-writes")));
        }
        assert_eq!(http::get(address, "/orders/7", &[key]).status, 200);
    }
    let spoofed = |address: &'static str| http::get(&caddy.long, "/", &[("X-Forwarded-For", address)]).status;
    assert_eq!(["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"].map(spoofed), [200, 200, 200, 429]);
}

#[test]
fn a_body_reaches_the_application() {
    let server = server();
    let caddy = Caddy::before(&server);
    for address in caddy.both() {
        let mut connection = http::Connection::open(address).unwrap();
        let answer = connection.ask("POST", "/notes", &[("X-Api-Key", "one")], "{\"a\": 1}").unwrap();
        assert_eq!(answer.status, 200);
        assert!(answer.body.ends_with("{\"a\": 1}"), "{answer:?}");
    }
}

#[test]
fn without_tollgate_the_long_form_lets_requests_pass() {
    let mut server = server();
    let caddy = Caddy::before(&server);
    for status in [200, 200, 200, 429] {
        assert_eq!(http::get(&caddy.long, "/", &[]).status, status);
    }
    assert!(server.stop().success());
    for _ in 0..3 {
        let passed = http::get(&caddy.long, "/page", &[]);
        assert_eq!(passed.status, 200, "{passed:?}");
        assert!(passed.body.starts_with("GET /page"), "{passed:?}");
        assert_eq!(http::get(&caddy.short, "/page", &[]).status, 502);
    }
}
