//! The guarded store over shards that fail when they are told to.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

mod breakers;
mod conform;
mod parts;
mod policies;
mod shards;
mod world;
