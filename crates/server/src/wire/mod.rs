//! The protocols. A wire turns bytes into a request, asks the gate, and turns the decision into bytes; no wire knows another.

pub(crate) mod envoy;
pub(crate) mod grpc;
pub(crate) mod http;
pub(crate) mod instructions;
mod object;
pub(crate) mod resp;
