//! The simulator: promises in random worlds, what faults may change, and scenario files.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test says what it expects by failing.

mod constants;
mod faults;
mod figures;
mod files;
mod regions;
mod size;
mod thresholds;
mod worlds;
