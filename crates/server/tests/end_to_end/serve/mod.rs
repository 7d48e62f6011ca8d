//! The real server: starts, checks, reloads, stops and crashes.

mod connections;
mod decisions;
mod grpc;
mod key_privacy;
mod lifecycle;
mod overload;
mod receipts;
pub(crate) mod redis;
mod redis_access;
mod reload;
mod restart;
