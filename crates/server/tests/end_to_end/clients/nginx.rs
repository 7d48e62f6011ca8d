//! nginx in front of an application, with the configuration in `deploy/nginx/`.

use std::fs;
use std::net::TcpStream;

use tempfile::TempDir;
use tollgate_testing::{Server, programs};

use crate::clients::application::start_application;
use crate::clients::deploy;
use crate::clients::http::{self, Headers, RawResponse};
use crate::clients::process::{ClientProcess, start_on_free_ports};
use crate::new_server;

/// A running nginx.
struct Nginx {
    _process: ClientProcess,
    address: String,
    _home: TempDir,
}

fn server() -> Server {
    new_server().rules(&deploy::read("rules/web.yaml")).listen(&["http"]).start()
}

impl Nginx {
    #[track_caller]
    fn start(server: &Server) -> Nginx {
        let application = start_application();
        start_on_free_ports(|[port]| {
            let home = TempDir::new().unwrap();
            let address = format!("127.0.0.1:{port}");
            fs::write(home.path().join("nginx.conf"), config(&address, server.address("http"), &application)).unwrap();
            let directory = format!("{}/", home.path().display());
            let args = ["-p", &directory, "-c", "nginx.conf", "-e", "stderr", "-g", "daemon off; pid nginx.pid;"];
            let mut process = ClientProcess::start(&programs::system("nginx"), &args, home.path());
            process.wait_for(|| TcpStream::connect(&address).ok())?;
            Ok(Nginx { _process: process, address, _home: home })
        })
    }

    #[track_caller]
    fn get(&self, path: &str, headers: Headers<'_>) -> RawResponse {
        http::get(&self.address, path, headers)
    }
}

/// The deployed configuration, with other addresses and all files in its own directory.
fn config(address: &str, tollgate: &str, application: &str) -> String {
    let text = deploy::read("nginx/nginx.conf");
    let text = deploy::replace(&text, "listen 127.0.0.1:8088;", &format!("listen {address};"));
    let text = deploy::replace(&text, "server 127.0.0.1:8080;", &format!("server {tollgate};"));
    let text = deploy::replace(&text, "server 127.0.0.1:8000;", &format!("server {application};"));
    // A busy machine may exceed the timeouts of the deployed configuration.
    let text = deploy::replace(&text, "timeout 100ms;", "timeout 10s;");
    let text = deploy::replace(&text, "timeout 250ms;", "timeout 10s;");
    // Without root, nginx can't write to its default directories.
    let own = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|kind| format!("{kind}_temp_path {kind};"));
    deploy::replace(&text, "http {", &format!("http {{ access_log off; {}", own.join(" ")))
}

#[test]
fn requests_pass_with_their_limits_in_the_headers() {
    let server = server();
    let nginx = Nginx::start(&server);
    for remaining in [9, 8, 7] {
        let response = nginx.get("/page?a=b", &[("X-Api-Key", "one")]);
        assert_eq!(response.status, 200, "{response:?}");
        assert!(response.body.starts_with("GET /page?a=b"), "the application did not receive it: {response:?}");
        assert_eq!(response.header("x-ratelimit-limit"), Some("10"));
        assert_eq!(response.number("x-ratelimit-remaining"), remaining);
        assert_eq!(response.header("ratelimit-policy"), Some("\"by-key\";q=10;w=3600"));
        assert!(
            response.header("ratelimit").unwrap().starts_with(&format!("\"by-key\";r={remaining};t=")),
            "{response:?}"
        );
        assert!(response.header("x-ratelimit-reset").is_some());
    }
    // Another key has another counter.
    assert_eq!(nginx.get("/page", &[("X-Api-Key", "two")]).number("x-ratelimit-remaining"), 9);
}

#[test]
fn a_request_without_a_rule_passes_without_headers() {
    let rules = "domain: web\nrules: [{name: by-key, key: [api_key], limit: 1/hour}]\n";
    let server = new_server().rules(rules).listen(&["http"]).start();
    let nginx = Nginx::start(&server);
    for _ in 0..3 {
        let response = nginx.get("/", &[]);
        assert_eq!((response.status, response.header("x-ratelimit-limit")), (200, None), "{response:?}");
        assert_eq!(response.header("ratelimit"), None, "{response:?}");
    }
}

#[test]
fn a_refusal_is_a_429_with_the_time_to_retry() {
    let server = server();
    let nginx = Nginx::start(&server);
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
    // An hour; two if the window has just begun; and the jitter.
    assert!((1..=8_000).contains(&refused.number("retry-after")), "{refused:?}");
    assert_eq!(refused.header("x-ratelimit-denied-by"), Some("anonymous"));
    assert_eq!((refused.number("x-ratelimit-limit"), refused.number("x-ratelimit-remaining")), (3, 0));
    // The limit is for anonymous clients only.
    assert_eq!(nginx.get("/", &[("X-Api-Key", "one")]).status, 200);
}

#[test]
fn only_nginx_can_set_the_original_method_and_path() {
    let server = server();
    let nginx = Nginx::start(&server);
    let key = ("X-Api-Key", "one");
    // Headers of the client under the names that nginx uses are ignored.
    let spoofed_headers = [key, ("X-Original-Method", "GET"), ("X-Original-URI", "/"), ("X-Forwarded-Uri", "/")];
    let order = |headers: Headers<'_>| http::send(&nginx.address, "POST", "/orders/7", headers);
    assert_eq!([order(&[key]).status, order(&spoofed_headers).status], [200, 200]);
    for headers in [&[key][..], &spoofed_headers] {
        let refused = order(headers);
        assert_eq!((refused.status, refused.header("x-ratelimit-denied-by")), (429, Some("order-writes")));
    }
    assert_eq!(nginx.get("/orders/7", &[key]).status, 200);

    let spoofed = |address: &'static str| nginx.get("/", &[("X-Forwarded-For", address)]).status;
    assert_eq!(["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"].map(spoofed), [200, 200, 200, 429]);
}

#[test]
fn a_path_can_have_a_higher_cost() {
    let server = server();
    let nginx = Nginx::start(&server);
    let export = || nginx.get("/export", &[("X-Api-Key", "one"), ("X-RateLimit-Cost", "1")]);
    assert_eq!([export(), export()].map(|response| response.number("x-ratelimit-remaining")), [6, 2]);
    assert_eq!(export().status, 429);
    assert_eq!(nginx.get("/page", &[("X-Api-Key", "one")]).number("x-ratelimit-remaining"), 1);
}

#[test]
fn a_body_reaches_the_application() {
    let server = server();
    let nginx = Nginx::start(&server);
    let mut connection = http::Connection::open(&nginx.address).unwrap();
    let response = connection.send("POST", "/orders", &[("X-Api-Key", "one")], "{\"a\": 1}").unwrap();
    assert_eq!(response.status, 200);
    assert!(response.body.ends_with("{\"a\": 1}"), "{response:?}");
}

#[test]
fn requests_pass_without_tollgate() {
    let mut server = server();
    let nginx = Nginx::start(&server);
    for status in [200, 200, 200, 429] {
        assert_eq!(nginx.get("/", &[]).status, status);
    }
    assert!(server.stop().success());
    for _ in 0..5 {
        let passed = nginx.get("/", &[]);
        assert_eq!((passed.status, passed.header("x-ratelimit-limit")), (200, None), "{passed:?}");
    }
}

/// The application places an order for each of them.
const ORDERS: [&str; 7] =
    ["/orders", "/%6frders", "//orders", "/./orders", "/x/../orders", "/x/%2e%2e//orders", "/orders?x=1"];

#[test]
fn a_spelling_of_the_path_is_no_way_past_the_limits() {
    let server = server();
    let nginx = Nginx::start(&server);
    for (number, path) in ORDERS.into_iter().enumerate() {
        let key = number.to_string();
        let order = |path: &str| http::send(&nginx.address, "POST", path, &[("X-Api-Key", &key)]);
        let placed = order(path);
        assert_eq!((placed.status, placed.header("x-route")), (200, Some("POST /orders")), "{path}");
        assert_eq!([order("/orders").status, order(path).status, order("/orders").status], [200, 429, 429], "{path}");
    }
    // The cost is that of the path, too.
    let export = nginx.get("/%65xport", &[("X-Api-Key", "exporter")]);
    assert_eq!((export.header("x-route"), export.number("x-ratelimit-remaining")), (Some("GET /export"), 6));
    // A line break in a path is no header.
    let injected = nginx.get("/%0d%0aX-RateLimit-Cost:%201%0d%0aX:%20", &[("X-Api-Key", "injector")]);
    assert_eq!(injected.number("x-ratelimit-remaining"), 9, "{injected:?}");
}

#[test]
fn many_headers_and_long_ones_are_decided() {
    let server = server();
    let nginx = Nginx::start(&server);
    let names: Vec<String> = (0..300).map(|number| format!("X-{number}")).collect();
    let mut headers: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "x")).collect();
    let long = "y".repeat(7_000);
    headers.extend([("X-Long-1", &*long), ("X-Long-2", &*long), ("X-Api-Key", "one")]);
    let response = nginx.get("/", &headers);
    assert_eq!((response.status, response.number("x-ratelimit-remaining")), (200, 9), "{response:?}");
}
