//! The real server: started, asked, changed, stopped, killed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test says what it expects by failing.

mod decisions;
mod grpc;
mod http;
mod lifecycle;
mod overload;
mod receipts;
mod redis;
mod redis_access;
mod reload;
mod restart;
mod server;
