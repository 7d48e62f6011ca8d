//! The guarded store over shards that fail when they are told to.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

mod conform;
mod shards;
