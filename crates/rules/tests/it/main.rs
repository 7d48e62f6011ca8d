//! Rule files: what they match, and what the loader does with any bytes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test reports a failure by panicking")]

mod fuzz;
mod matching;
