//! The real server: started, asked, changed, stopped, killed.

mod decisions;
mod grpc;
mod lifecycle;
mod overload;
mod receipts;
mod redis;
mod redis_access;
mod reload;
mod restart;
