//! The running server beside its peers: each a process on one core, with the load on another.

mod grpc;
mod http;
mod latency;
mod peers;
pub mod process;
mod resp;
mod tollgate;
mod turns;

pub use grpc::run as grpc;
pub use http::run as http;
pub use latency::run as latency;
pub use resp::run as resp;

/// The core of the server, and that of the load.
const SERVER_CORE: &str = "0";
const LOAD_CORE: &str = "1";
