//! Tollgate for Rust services: rules in, decisions out.
//!
//! A [`Limiter`] joins a ruleset and a store. [`Limiter::check`] is one straight line: resolve, settle, decide. Who checks often
//! keeps a [`Session`]; who brings limits along instead of rules, a [`Throttler`]. With the in-memory store no executor is needed: see [`Session::check_now`] and [`now`].

mod decision;
mod explain;
mod ids;
mod limiter;
mod session;
mod standing;
mod throttle;

pub use decision::{Decision, Outcome};
pub use explain::{Counter, ExplainedRule, Explanation};
pub use limiter::{Limiter, now};
pub use session::Session;
pub use standing::{RuleName, Standing};
pub use throttle::{Throttle, Throttler};
pub use tollgate_core::{
    Algorithm, ClaimId, Descriptor, Limit, LimitError, Mode, Reading, Request, Source, Span, Timestamp, Wait,
};
pub use tollgate_rules::{Fate, LoadOptions, Problem, RequestError, Rule, Ruleset, Severity};
#[cfg(feature = "redis")]
pub use tollgate_store::{Circuit, GuardConfig, GuardStatus, Guarded, Level, Remembered, ShardStatus};
pub use tollgate_store::{Clock, ManualClock, MemoryConfig, MemoryStats, MemoryStore, Store, SystemClock};

/// The example of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
