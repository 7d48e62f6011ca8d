//! The parts that the algorithms stand on: time, calendars, keys, limits, the vote.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says what is wrong by panicking")]

mod calendar;
mod key;
mod limit;
mod time;
mod verdict;
