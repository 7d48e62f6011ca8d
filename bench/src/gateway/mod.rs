//! The gateway next to other proxies: what a request costs, and what an upstream gets that has more load than it can do.
//!
//! A proxy has one core. The other core has one thread that is clients and upstream, so that nothing is scheduled between them.

mod adaptive;
mod cost;
mod envoy;
mod nginx;
mod ours;

use crate::server::peers::Folder;
use crate::server::process::Server;
use crate::server::tollgate::Rules;

pub use adaptive::run as adaptive;
pub use cost::run as cost;

/// hyper as a proxy that does nothing but forward.
fn bare(upstream: &str) -> Proxy {
    let server = Server::empty(&["proxy", upstream]);
    let address = server.address("proxy").to_owned();
    Proxy { server, limiter: None, address, _files: Vec::new() }
}

/// A proxy that runs.
struct Proxy {
    server: Server,
    /// A server that it asks about each request.
    limiter: Option<Server>,
    address: String,
    /// There as long as it runs.
    _files: Vec<File>,
}

#[expect(dead_code, reason = "dropped at the end")]
enum File {
    Folder(Folder),
    Rules(Rules),
}
