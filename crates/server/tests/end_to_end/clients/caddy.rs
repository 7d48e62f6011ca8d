//! Caddy in front of an application, with both variants of the configuration in `deploy/caddy/`.

use std::fs;
use std::net::TcpStream;

use tempfile::TempDir;
use tollgate_testing::{Server, programs};

use crate::clients::application::start_application;
use crate::clients::deploy;
use crate::clients::http::{self, Headers};
use crate::clients::process::{ClientProcess, start_on_free_ports};
use crate::new_server;

/// A running Caddy.
struct Caddy {
    _process: ClientProcess,
    /// The address of each variant.
    short: String,
    long: String,
    _home: TempDir,
}

fn server() -> Server {
    new_server().rules(&deploy::read("rules/web.yaml")).listen(&["http"]).start()
}

impl Caddy {
    #[track_caller]
    fn start(server: &Server) -> Caddy {
        let application = start_application();
        start_on_free_ports(|ports: [u16; 2]| {
            let [short, long] = ports.map(|port| format!("127.0.0.1:{port}"));
            let mut text = deploy::read("caddy/Caddyfile");
            let others =
                [("8088", &short), ("8089", &long), ("8000", &application)].map(|(port, other)| (port, &**other));
            for (port, other) in others.into_iter().chain([("8080", server.address("http"))]) {
                text = deploy::replace(&text, &format!("127.0.0.1:{port}"), other);
            }
            // A busy machine may exceed the timeouts of the deployed configuration.
            for timeout in ["timeout 100ms", "timeout 250ms"] {
                text = deploy::replace(&text, timeout, "timeout 10s");
            }
            let home = TempDir::new().unwrap();
            fs::write(home.path().join("Caddyfile"), text).unwrap();
            let args = ["run", "--config", "Caddyfile"];
            let mut process = ClientProcess::start(&programs::system("caddy"), &args, home.path());
            process.wait_for(|| TcpStream::connect(&short).and_then(|_| TcpStream::connect(&long)).ok())?;
            Ok(Caddy { _process: process, short, long, _home: home })
        })
    }

    fn addresses(&self) -> [&str; 2] {
        [&self.short, &self.long]
    }
}

#[test]
fn requests_pass_and_the_long_form_adds_limit_headers() {
    let server = server();
    let caddy = Caddy::start(&server);
    for address in caddy.addresses() {
        let response = http::get(address, "/page?a=b", &[("X-Api-Key", "one")]);
        assert_eq!(response.status, 200, "{response:?}");
        assert!(response.body.starts_with("GET /page?a=b"), "the application did not receive it: {response:?}");
        assert_eq!(response.header("x-ratelimit-remaining").is_some(), address == caddy.long, "{response:?}");
    }
    let response = http::get(&caddy.long, "/", &[("X-Api-Key", "one")]);
    assert_eq!((response.number("x-ratelimit-limit"), response.number("x-ratelimit-remaining")), (10, 7));
    assert_eq!(response.header("ratelimit-policy"), Some("\"by-key\";q=10;w=3600"));
    assert!(response.header("ratelimit").unwrap().starts_with("\"by-key\";r=7;t="), "{response:?}");
    // Another key has another counter.
    let other = http::get(&caddy.long, "/", &[("X-Api-Key", "two")]);
    assert_eq!(other.number("x-ratelimit-remaining"), 9);
}

#[test]
fn a_request_without_a_rule_passes_without_headers() {
    let rules = "domain: web\nrules: [{name: by-key, key: [api_key], limit: 1/hour}]\n";
    let server = new_server().rules(rules).listen(&["http"]).start();
    let caddy = Caddy::start(&server);
    for address in caddy.addresses() {
        let response = http::get(address, "/", &[]);
        assert_eq!((response.status, response.header("x-ratelimit-limit")), (200, None), "{response:?}");
        assert_eq!(response.header("ratelimit"), None, "{response:?}");
    }
}

#[test]
fn a_refusal_is_forwarded_unchanged() {
    let server = server();
    let caddy = Caddy::start(&server);
    for _ in 0..3 {
        assert_eq!(http::get(&caddy.long, "/", &[]).status, 200);
    }
    for address in caddy.addresses() {
        let refused = http::get(address, "/", &[]);
        assert_eq!((refused.status, refused.header("content-type")), (429, Some("application/problem+json")));
        assert_eq!(refused.header("x-ratelimit-denied-by"), Some("anonymous"));
        assert!(refused.number("retry-after") > 0);
        assert!(refused.body.contains("\"code\":\"RATE_LIMITED\""), "{refused:?}");
    }
}

#[test]
fn only_caddy_can_set_the_original_method_and_path() {
    let server = server();
    let caddy = Caddy::start(&server);
    for (address, key) in [(&caddy.short, "one"), (&caddy.long, "two")] {
        let key = ("X-Api-Key", key);
        // Headers of the client under the names that Caddy uses are ignored.
        let spoofed_headers = [
            key,
            ("X-Original-Method", "GET"),
            ("X-Original-Uri", "/"),
            ("X-Forwarded-Method", "GET"),
            ("X-Forwarded-Uri", "/"),
            ("X-Forwarded-For", "192.0.2.1"),
            ("X-RateLimit-Cost", "5"),
        ];
        let order = |headers: Headers<'_>| http::send(address, "POST", "/orders/7", headers);
        assert_eq!([order(&[key]).status, order(&spoofed_headers).status], [200, 200]);
        for headers in [&[key][..], &spoofed_headers] {
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
    let caddy = Caddy::start(&server);
    for address in caddy.addresses() {
        let mut connection = http::Connection::open(address).unwrap();
        let response = connection.send("POST", "/notes", &[("X-Api-Key", "one")], "{\"a\": 1}").unwrap();
        assert_eq!(response.status, 200);
        assert!(response.body.ends_with("{\"a\": 1}"), "{response:?}");
    }
}

#[test]
fn without_tollgate_the_long_form_lets_requests_pass() {
    let mut server = server();
    let caddy = Caddy::start(&server);
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

#[test]
fn a_spelling_of_the_path_is_no_way_past_the_limits() {
    let server = server();
    let caddy = Caddy::start(&server);
    for (number, address) in caddy.addresses().into_iter().enumerate() {
        for path in ["/%6frders", "//orders", "/./orders", "/x/../orders", "/orders?x=1"] {
            let key = format!("{number}{path}");
            let order = |path: &str| http::send(address, "POST", path, &[("X-Api-Key", &key)]);
            let placed = order(path);
            assert_eq!((placed.status, placed.header("x-route")), (200, Some("POST /orders")), "{path}");
            assert_eq!([order("/orders").status, order(path).status], [200, 429], "{path}");
        }
    }
}
