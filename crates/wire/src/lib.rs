//! The protocols of the data plane: Envoy's rate limit service over gRPC and JSON, HTTP, RESP.
//!
//! A wire turns bytes into a request, passes it to the [`Gate`], and turns the decision into bytes. Wires do not depend
//! on each other, on a store, or on a rule.

#![allow(missing_docs, reason = "internal to the server")]

// The annotations of handlers and bodies describe them in the OpenAPI document, which only tests generate.
#[cfg(not(test))]
extern crate tollgate_openapi_stub as utoipa;

pub mod access;
mod attributes;
mod body;
pub mod envoy;
mod gate;
pub mod grpc;
pub mod health;
pub mod http;
mod instructions;
mod json_text;
mod object;
pub mod origin;
pub mod receipts;
pub mod resp;
#[cfg(test)]
mod test_support;
mod unknown_domains;

pub use access::AccessControl;
pub use gate::{Gate, SettleFailure, ShedRequest};
pub use receipts::Receipts;
pub use unknown_domains::UnknownDomains;
