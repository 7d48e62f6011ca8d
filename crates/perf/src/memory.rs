//! The bytes that a key and an idle connection take: what was allocated and is not freed.

use std::process::Command;

use allocation_counter::measure as allocations;

use crate::RUN_MEMORY;
use crate::budgets::Figure;
use crate::paths::{Iteration, decisions, gateway, wires};
use crate::server::Server;

const KEYS: usize = 200_000;
const CONNECTIONS: usize = 200;

/// The figures, from a process of its own: what other paths allocate is not part of it.
pub(crate) fn measure() -> Result<Vec<Figure>, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new(program).arg(RUN_MEMORY).output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(format!("memory: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let figure = |line: &str| {
        let (name, value) = line.split_once(" = ")?;
        Some(Figure { name: name.to_owned(), value: value.parse().ok()? })
    };
    Ok(text.lines().filter_map(figure).collect())
}

/// Prints the figures.
pub(crate) fn run() -> Result<(), String> {
    let mut check = decisions::new_keys(KEYS);
    print("bytes, a key with one limit", KEYS, || (0..KEYS).for_each(|_| check()));
    let (server, callers) = (Server::new(), ["ada".to_owned()]);
    let (grpc, http) = (server.grpc(), server.http());
    let mut open: Vec<Iteration> = Vec::with_capacity(3 * CONNECTIONS + 1);
    print("bytes, an idle gRPC connection", CONNECTIONS, || {
        (0..CONNECTIONS).for_each(|_| open.push(used(wires::grpc_on(&server, &grpc, &callers))));
    });
    print("bytes, an idle HTTP connection", CONNECTIONS, || {
        (0..CONNECTIONS).for_each(|_| open.push(used(wires::http_on(&server, &http, &callers))));
    });
    let gateway = gateway::with_rates(&server);
    // The connection to the upstream is made by the first request, and used by all.
    open.push(used(gateway::gets_on(&server, &gateway, &callers)));
    print("bytes, an idle connection to the gateway", CONNECTIONS, || {
        (0..CONNECTIONS).for_each(|_| open.push(used(gateway::gets_on(&server, &gateway, &callers))));
    });
    Ok(())
}

/// A connection after its first request.
fn used(mut connection: Iteration) -> Iteration {
    connection();
    connection
}

fn print(name: &str, count: usize, allocate: impl FnOnce()) {
    let bytes = allocations(allocate).bytes_current.max(0) as usize / count;
    println!("{name} = {bytes}");
}
