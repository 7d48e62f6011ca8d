//! The guarded store over shards that fail when they are told to.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

mod breakers;
mod conform;
mod debits;
mod facts;
mod once;
mod parts;
mod policies;
mod random;
mod resets;
mod shards;
mod world;
