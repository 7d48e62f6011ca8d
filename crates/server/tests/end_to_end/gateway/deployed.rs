//! The example in `deploy/gateway/`.

use super::upstream::Upstream;
use super::with_rules;
use crate::cli::tollgate;
use crate::clients::deploy::{read, replace};
use crate::http::{HttpResponse, new_agent, read as read_response};
use crate::repository_path;

#[test]
fn the_example_has_no_problems() {
    let path = repository_path("deploy/gateway/gateway.yaml").display().to_string();
    let output = tollgate(&["gateway", "check", &path], b"");
    assert_eq!(&*output.out, "3 routes, 2 upstreams, 1 listener: 0 errors, 0 warnings\n", "{}", output.err);
}

#[test]
fn the_example_limits_keys_addresses_and_tokens() {
    let upstream = Upstream::start();
    let file = replace(&read("gateway/gateway.yaml"), "127.0.0.1:8000", "127.0.0.1:0");
    let file = ["127.0.0.1:9001", "127.0.0.1:9002", "127.0.0.1:9003"]
        .into_iter()
        .fold(file, |file, address| replace(&file, address, upstream.address()));
    let file = replace(&file, &format!("[{0}, {0}]", upstream.address()), &format!("[{}]", upstream.address()));
    let server = with_rules(&file, &read("gateway/rules.yaml")).start();
    let post = |path: &str, key: Option<&str>, body: &str| -> HttpResponse {
        let request = new_agent().post(server.url("gateway", path));
        let request = key.into_iter().fold(request, |request, key| request.header("X-Api-Key", key));
        read_response(request.send(body)).unwrap()
    };
    assert_eq!(post("/v1/charges", None, "").status, 401);
    let charged = post("/v1/charges", Some("ada"), "");
    assert_eq!(charged.status, 200, "{charged:?}");
    assert!(charged.body.to_ascii_lowercase().contains("x-tollgate-priority: critical\n"), "{charged:?}");
    let statuses: Vec<u16> = (0..21).map(|_| post("/v1/things", None, "").status).collect();
    assert_eq!((statuses[19], statuses[20]), (200, 429), "{statuses:?}");

    // 60,000 tokens are reserved and 7 are used, so there is room for the same again.
    for _ in 0..2 {
        let chat = post("/v1/chat/completions", Some("ada"), r#"{"max_tokens": 60000}"#);
        assert_eq!((chat.status, &chat.json()["usage"]["total_tokens"]), (200, &7.into()), "{chat:?}");
    }
    assert_eq!(post("/v1/chat/completions", Some("ada"), r#"{"max_tokens": 100000}"#).status, 429);
}
