//! `ShouldRateLimit`, as many as one core answers, next to servers of the same method that decide nothing.

use super::process::Server;
use super::tollgate;
use super::turns::{Turn, at_least, keys, take_turns};
use crate::load::{Asking, GRPC_CONNECTIONS, GRPC_STREAMS};

pub fn run() {
    let Some(program) = tollgate::program("grpc") else { return };
    println!(
        "gRPC, one descriptor, {}, {GRPC_CONNECTIONS} connections with {GRPC_STREAMS} calls at a time each",
        keys()
    );
    let (full, _rules) = tollgate::start(&program, "grpc");
    let (status, _rules) = tollgate::start_with(&program, "grpc", &["--grpc-responses", "status"]);
    let (tonic, headers) = (Server::empty(&["tonic"]), Server::empty(&["tonic-headers"]));
    let (threads, hyper) = (Server::empty(&["tonic-threads"]), Server::empty(&["hyper"]));
    let ask = |server: &Server, seconds: f64| {
        Turn::of(&["grpc", Asking::One.name()], server.address("grpc"), server, seconds)
    };
    let turns = take_turns(&[
        ("tollgate, `grpc_responses: status`", &|seconds| ask(&status, seconds)),
        ("empty, tonic, current_thread", &|seconds| ask(&tonic, seconds)),
        ("tollgate, headers for clients", &|seconds| ask(&full, seconds)),
        ("the same headers, tonic, current_thread", &|seconds| ask(&headers, seconds)),
        ("empty, tonic, multi_thread", &|seconds| ask(&threads, seconds)),
        ("empty, hyper, message not decoded", &|seconds| ask(&hyper, seconds)),
    ]);
    at_least("tollgate to empty tonic", turns[0].to(&turns[1]), 1.1);
    at_least("with headers, tollgate to tonic", turns[2].to(&turns[3]), 1.1);
}
