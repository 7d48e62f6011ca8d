//! nginx in front of an application, with the configuration in `deploy/nginx/`.

use std::fs;
use std::net::TcpStream;

use tempfile::TempDir;
use tollgate_testing::{Server, programs};

use crate::clients::application::application;
use crate::clients::http::{self, Answer, Headers};
use crate::clients::process::{Process, on_free_ports};
use crate::clients::tools;
use crate::new_server;

/// A running nginx.
struct Nginx {
    _process: Process,
    address: String,
    _home: TempDir,
}

fn server() -> Server {
    new_server().rules(&tools::deployed("rules/web.yaml")).listen(&["http"]).start()
}

impl Nginx {
    #[track_caller]
    fn before(server: &Server) -> Nginx {
        let application = application();
        on_free_ports(|[port]| {
            let home = TempDir::new().unwrap();
            let address = format!("127.0.0.1:{port}");
            fs::write(home.path().join("nginx.conf"), config(&address, server.address("http"), &application)).unwrap();
            let folder = format!("{}/", home.path().display());
            let args = ["-p", &folder, "-c", "nginx.conf", "-e", "stderr", "-g", "daemon off; pid nginx.pid;"];
            let mut process = Process::start(&programs::system("nginx"), &args, home.path());
            process.until(|| TcpStream::connect(&address).ok())?;
            Ok(Nginx { _process: process, address, _home: home })
        })
    }

    #[track_caller]
    fn get(&self, path: &str, headers: Headers<'_>) -> Answer {
        http::get(&self.address, path, headers)
    }
}

/// As deployed, at other addresses and with nothing outside its own folder.
fn config(address: &str, tollgate: &str, application: &str) -> String {
    let text = tools::deployed("nginx/nginx.conf");
    let text = tools::replaced(&text, "listen 127.0.0.1:8088;", &format!("listen {address};"));
    let text = tools::replaced(&text, "server 127.0.0.1:8080;", &format!("server {tollgate};"));
    let text = tools::replaced(&text, "server 127.0.0.1:8000;", &format!("server {application};"));
    // On a busy machine the times that are deployed may pass, and a request with them.
    let text = tools::replaced(&text, "timeout 100ms;", "timeout 10s;");
    let text = tools::replaced(&text, "timeout 250ms;", "timeout 10s;");
    // The tests need not know who root is, and nginx complains if it is not.
    let own = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|kind| format!("{kind}_temp_path {kind};"));
    tools::replaced(&text, "http {", &format!("http {{ access_log off; {}", own.join(" ")))
}

#[test]
fn requests_pass_with_their_limits_in_the_headers() {
    let server = server();
    let nginx = Nginx::before(&server);
    for remaining in [9, 8, 7] {
        let answer = nginx.get("/page?a=b", &[("X-Api-Key", "one")]);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(answer.body.starts_with("GET /page?a=b"), "the application did not get it: {answer:?}");
        assert_eq!(answer.header("x-ratelimit-limit"), Some("10"));
        assert_eq!(answer.number("x-ratelimit-remaining"), remaining);
        assert_eq!(answer.header("ratelimit-policy"), Some("\"by-key\";q=10;w=3600"));
        assert!(answer.header("ratelimit").unwrap().starts_with(&format!("\"by-key\";r={remaining};t=")), "{answer:?}");
        assert!(answer.header("x-ratelimit-reset").is_some());
    }
    // Another key, another counter.
    assert_eq!(nginx.get("/page", &[("X-Api-Key", "two")]).number("x-ratelimit-remaining"), 9);
}

#[test]
fn what_no_rule_speaks_of_passes_and_is_told_nothing() {
    let rules = "domain: web\nrules: [{name: by-key, key: [api_key], limit: 1/hour}]\n";
    let server = new_server().rules(rules).listen(&["http"]).start();
    let nginx = Nginx::before(&server);
    for _ in 0..3 {
        let answer = nginx.get("/", &[]);
        assert_eq!((answer.status, answer.header("x-ratelimit-limit")), (200, None), "{answer:?}");
        assert_eq!(answer.header("ratelimit"), None, "{answer:?}");
    }
}

#[test]
fn a_refusal_is_a_429_that_says_when_to_come_back() {
    let server = server();
    let nginx = Nginx::before(&server);
    for _ in 0..3 {
        assert_eq!(nginx.get("/", &[]).status, 200);
    }
    let refused = nginx.get("/", &[]);
    assert_eq!(
        (refused.status, refused.header("content-type")),
        (429, Some("application/problem+json")),
        "{refused:?}"
    );
    assert!(refused.body.contains("quota-exceeded") && refused.body.contains("\"status\":429"), "{refused:?}");
    // An hour, two where the window began just now, and the jitter.
    assert!((1..=8_000).contains(&refused.number("retry-after")), "{refused:?}");
    assert_eq!(refused.header("x-ratelimit-denied-by"), Some("anonymous"));
    assert_eq!((refused.number("x-ratelimit-limit"), refused.number("x-ratelimit-remaining")), (3, 0));
    // Who is not anonymous is not concerned.
    assert_eq!(nginx.get("/", &[("X-Api-Key", "one")]).status, 200);
}

#[test]
fn tollgate_hears_the_original_method_and_path_from_nginx_alone() {
    let server = server();
    let nginx = Nginx::before(&server);
    let key = ("X-Api-Key", "one");
    // What a client says of itself under the names that nginx uses changes nothing.
    let lies = [key, ("X-Original-Method", "GET"), ("X-Original-URI", "/"), ("X-Forwarded-Uri", "/")];
    let order = |headers: Headers<'_>| http::ask(&nginx.address, "POST", "/orders/7", headers);
    assert_eq!([order(&[key]).status, order(&lies).status], [200, 200]);
    for headers in [&[key][..], &lies] {
        let refused = order(headers);
        assert_eq!((refused.status, refused.header("x-ratelimit-denied-by")), (429, Some("order-writes")));
    }
    assert_eq!(nginx.get("/orders/7", &[key]).status, 200);

    let spoofed = |address: &'static str| nginx.get("/", &[("X-Forwarded-For", address)]).status;
    assert_eq!(["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"].map(spoofed), [200, 200, 200, 429]);
}

#[test]
fn a_path_may_cost_more() {
    let server = server();
    let nginx = Nginx::before(&server);
    let export = || nginx.get("/export", &[("X-Api-Key", "one"), ("X-RateLimit-Cost", "1")]);
    assert_eq!([export(), export()].map(|answer| answer.number("x-ratelimit-remaining")), [6, 2]);
    assert_eq!(export().status, 429);
    assert_eq!(nginx.get("/page", &[("X-Api-Key", "one")]).number("x-ratelimit-remaining"), 1);
}

#[test]
fn a_body_reaches_the_application() {
    let server = server();
    let nginx = Nginx::before(&server);
    let mut connection = http::Connection::open(&nginx.address).unwrap();
    let answer = connection.ask("POST", "/orders", &[("X-Api-Key", "one")], "{\"a\": 1}").unwrap();
    assert_eq!(answer.status, 200);
    assert!(answer.body.ends_with("{\"a\": 1}"), "{answer:?}");
}

#[test]
fn requests_pass_without_tollgate() {
    let mut server = server();
    let nginx = Nginx::before(&server);
    for status in [200, 200, 200, 429] {
        assert_eq!(nginx.get("/", &[]).status, status);
    }
    assert!(server.stop().success());
    for _ in 0..5 {
        let passed = nginx.get("/", &[]);
        assert_eq!((passed.status, passed.header("x-ratelimit-limit")), (200, None), "{passed:?}");
    }
}
