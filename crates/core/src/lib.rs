//! The decision logic of Tollgate.
//!
//! Everything is a [`Claim`] on a set of counters, and [`settle()`] is the one function that answers it. It is pure,
//! computes in integers and takes `now` as an argument. Stores load states, call `settle` and write back the states
//! that changed. Nothing in this crate does I/O, reads a clock, or depends on rules, tiers or wire formats.

pub mod algorithm;
pub mod calendar;
pub mod claim;
pub mod decision;
pub mod key;
pub mod limit;
pub mod private;
pub mod region;
pub mod request;
pub mod settle;
pub mod time;

pub use algorithm::CounterState;
pub use claim::{Ask, Charge, Claim, ClaimId, Mode, OnFailure, Once, OwnedCharge, Shortcuts};
pub use decision::Verdict;
pub use key::{Key, OwnedKey, Scope, Value};
pub use limit::{Algorithm, Limit, LimitError, Period};
pub use private::KeySecret;
pub use region::{Apart, GlobalTerms, RegionId, RegionLink, RegionNames, RegionNamesError, RegionShare};
pub use request::{Descriptor, ReceiptWish, Request};
pub use settle::{
    Reading, Replay, SettledState, Settlement, Source, StateSlot, Vote, settle, settle_charge, settle_into,
    settle_state,
};
pub use time::{Span, Tick, Timestamp, Wait};

/// 2^53, the first integer that a Lua number (a double) cannot distinguish from its neighbour. Every stored value and
/// every product stays below it, so that all stores compute the same result.
pub const EXACT: u64 = 1 << 53;
