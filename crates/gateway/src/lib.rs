//! A reverse proxy that enforces limits: it finds the route and the caller of a request, checks the limits, forwards the
//! request, and settles what it really cost.

#![allow(missing_docs, reason = "internal to the server")]

mod activity;
mod admission;
mod agreement;
mod answers;
mod charged;
pub mod check;
mod client;
mod client_body;
mod clock;
pub mod config;
mod connection;
pub mod costs;
mod exchange;
pub mod explain;
pub mod field_marks;
mod field_names;
mod file;
mod forward;
pub mod forwarded;
mod forwarded_body;
mod gateway;
pub mod hop_by_hop;
mod http1;
pub mod identity;
mod idle_timer;
mod incoming_body;
mod interim;
pub mod jwt;
mod keys;
mod metering;
pub mod model;
mod own_limits;
mod plan;
mod query;
mod questions;
mod refusal;
mod response_body;
pub mod routes;
mod shedding;
mod single;
mod standing;
mod status;
mod strict_json;
pub mod target;
mod tier_status;
mod tunnel;
mod upstream;
mod worker;

pub use agreement::Disagreement;
pub use file::GatewayFile;
pub use gateway::{Gateway, GatewayParts};
pub use plan::GatewayPlan;
pub use status::{GatewayStatus, KeysStatus, UpstreamStatus, WorkerSheddingStatus};
pub use tier_status::{FairnessStatusOf, ReserveStatusOf, TierStatusOf};
