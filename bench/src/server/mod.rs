//! The running server next to its peers: each a process on one core, with the load on another.

mod control;
mod fleet;
mod grpc;
mod http;
mod latency;
mod leases;
pub mod peers;
pub mod process;
mod receipts;
mod resp;
pub mod tollgate;
pub mod turns;

pub use control::run as control;
pub use fleet::run as fleet;
pub use grpc::run as grpc;
pub use http::run as http;
pub use latency::run as latency;
pub use leases::run as leases;
pub use receipts::run as receipts;
pub use resp::run as resp;

/// The core of the server, and that of the load.
pub const SERVER_CORE: &str = "0";
pub const LOAD_CORE: &str = "1";
/// Both, for servers that share them with the load.
const BOTH_CORES: &str = "0,1";
