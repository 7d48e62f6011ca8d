//! Envoy's rate limit protocol as Rust types: messages, and with the features `client` and `server` tonic's services.
//!
//! The modules follow the packages: `envoy.service.ratelimit.v3` is [`envoy::service::ratelimit::v3`]. Google's well-known
//! types are those of `prost_types`; a `google.protobuf.UInt64Value` is an `Option<u64>`, and so on.
//!
//! All of it is generated from `proto/` and checked in. `README.md` says how to add a message.

mod decode;
#[allow(missing_docs)] // The `.proto` files have no comments.
mod generated;

pub use decode::decode;
pub use generated::*;

/// An encoded `google.protobuf.FileDescriptorSet` with all files of `proto/`, for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/descriptors.binpb");
