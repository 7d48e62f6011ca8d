//! The algorithms and the parts that they are made of.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test reports a failure by panicking")]

mod accuracy;
mod parts;
mod properties;
