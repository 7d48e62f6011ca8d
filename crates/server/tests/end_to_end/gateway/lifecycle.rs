//! Starting, failing to start, and stopping.

use std::net::{TcpListener, TcpStream};

use tollgate_testing::eventually;

use super::upstream::Upstream;
use super::{everything_to, with_gateway};
use crate::http::try_get;
use crate::new_server;

#[test]
fn a_bad_file_fails_the_start_with_all_problems() {
    let file = "listen: 127.0.0.1:0\nupstreams: {app: {servers: []}}\nroutes:\n  - {name: a, match: x, upstream: ap}\n";
    let (code, log) = with_gateway(file).run_to_exit();
    assert_eq!(code, Some(1), "{log}");
    for problem in
        ["gateway.yaml:2: error: ", "gateway.yaml:4: error: ", "write a slash before it: /x", "did you mean `app`?"]
    {
        assert!(log.contains(problem), "no {problem:?} in\n{log}");
    }
    let (code, log) = new_server().args(&["--gateway", "none.yaml"]).run_to_exit();
    assert!(code == Some(1) && log.contains("none.yaml"), "{code:?} {log}");
}

#[test]
fn an_address_in_use_fails_the_start_and_the_remedy_names_the_file() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let file = everything_to(&["127.0.0.1:1"]).replace("127.0.0.1:0", &address);
    let (code, log) = with_gateway(&file).run_to_exit();
    assert_eq!(code, Some(1), "{log}");
    let expected = [
        format!("gateway can't listen on {address}"),
        "another address with `listen` of the gateway's file".to_owned(),
    ];
    for text in expected {
        assert!(log.contains(&text), "no {text:?} in\n{log}");
    }
}

#[test]
fn a_request_in_flight_ends_before_the_server_does() {
    let upstream = Upstream::start();
    let mut server = with_gateway(&everything_to(&[upstream.address()])).start();
    let url = server.url("gateway", "/held");
    let request = std::thread::spawn(move || try_get(&url));
    upstream.wait_for_held();
    server.signal("TERM");
    server.wait_for_log("stopping");
    let address = server.address("gateway").to_owned();
    let is_closed = || TcpStream::connect(&address).is_err().then_some(());
    assert!(eventually(is_closed).is_some(), "{}", server.log());
    upstream.release();
    let response = request.join().unwrap().unwrap_or_else(|| panic!("no response\n{}", server.log()));
    assert_eq!(response.status, 200, "{response:?}");
    assert_eq!(server.wait().code(), Some(0), "{}", server.log());
}
