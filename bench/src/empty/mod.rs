//! Servers that do nothing but answer: what a protocol's own library costs. Each runs as a process of its own.

mod grpc;
mod http;
mod proxy;

use std::future::Future;

use tokio::net::TcpListener;
use tokio::runtime::Builder;

/// The argument with which this program becomes an empty server: `empty NAME`, and for HTTP the length and the headers of its answers.
pub const CHILD: &str = "empty";

/// Serves until the process is ended.
pub fn run(arguments: &[String]) {
    let (mut one_thread, mut threads) = (Builder::new_current_thread(), Builder::new_multi_thread());
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["tonic"] => serve(&mut one_thread, "grpc", |listener| grpc::tonic(listener, false)),
        ["tonic-headers"] => serve(&mut one_thread, "grpc", |listener| grpc::tonic(listener, true)),
        // As many threads as it has cores, which is one: which one is an argument.
        ["tonic-threads"] => serve(&mut threads, "grpc", |listener| grpc::tonic(listener, false)),
        ["hyper"] => serve(&mut one_thread, "grpc", grpc::hyper),
        ["proxy", upstream] => {
            let upstream = upstream.to_owned();
            serve(&mut one_thread, "proxy", move |listener| proxy::hyper(listener, upstream));
        }
        ["axum", length, headers] => {
            let (length, headers) = (length.parse().expect("the length of an answer"), http::headers(headers));
            serve(&mut one_thread, "http", move |listener| http::axum(listener, length, headers));
        }
        _ => panic!("there is no empty server {arguments:?}"),
    }
}

/// Says where it listens as `tollgate serve` does.
fn serve<F: Future<Output = ()>>(runtime: &mut Builder, wire: &str, server: impl FnOnce(TcpListener) -> F) {
    let runtime = runtime.enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        println!("{wire} {}\nready", listener.local_addr().expect("an address"));
        server(listener).await;
    });
}
