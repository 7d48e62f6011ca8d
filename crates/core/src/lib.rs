//! The part of Tollgate that decides.
//!
//! Everything is a [`Claim`] on a set of counters, and [`settle()`] is the one function that answers it: pure, in integers,
//! with `now` as an argument. Stores load states, call `settle` and write back what changed; nothing here does I/O, reads a
//! clock or knows of rules, tiers and requests' wire forms.

pub mod algorithm;
pub mod calendar;
pub mod claim;
pub mod decision;
pub mod key;
pub mod limit;
pub mod request;
pub mod settle;
pub mod time;

pub use algorithm::State;
pub use claim::{Ask, Charge, Claim, ClaimId, Mode, OnFailure, Once};
pub use decision::Verdict;
pub use key::{Key, Scope, Value};
pub use limit::{Algorithm, Limit, LimitError, Period};
pub use request::{Descriptor, ReceiptWish, Request};
pub use settle::{Reading, Replay, Settlement, Slot, Source, Vote, settle, settle_into};
pub use time::{Span, Tick, Timestamp, Wait};

/// The first integer that a Lua number (a double) can no longer tell from its neighbour. Everything that is stored or
/// multiplied stays below it, so that every store computes the same.
pub const EXACT: u64 = 1 << 53;
