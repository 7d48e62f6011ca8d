//! The servers of others.

use super::process::{Server, free_address, on_server_core};

/// Redis that keeps nothing.
pub fn redis() -> Server {
    let address = free_address();
    let (_, port) = address.rsplit_once(':').expect("host and port");
    let mut command = on_server_core("redis-server");
    Server::start_at(
        &address,
        command.args(["--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]),
    )
}

/// throttlecrab's server with one of its wires, if it is known where it is.
pub fn throttlecrab(wire: &str) -> Option<Server> {
    let Ok(program) = std::env::var("THROTTLECRAB") else {
        println!("  without throttlecrab-server: THROTTLECRAB does not name the program (make bench does)");
        return None;
    };
    let address = free_address();
    let (host, port) = address.rsplit_once(':').expect("host and port");
    let mut command = on_server_core(program);
    command.args([&format!("--{wire}"), &format!("--{wire}-host"), host, &format!("--{wire}-port"), port]);
    Some(Server::start_at(&address, command.args(["--log-level", "error"])))
}
