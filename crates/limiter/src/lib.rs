//! Tollgate for Rust services: rules in, decisions out.
//!
//! A [`Limiter`] joins a ruleset and a store. [`Limiter::check`] is one straight line: resolve, settle, decide. Who checks often
//! keeps a [`Session`]; who brings limits along instead of rules, a [`Throttler`]. With the in-memory store no executor is needed: see [`Session::check_now`] and [`now`].
//!
//! | feature | |
//! | --- | --- |
//! | `redis` | counters in Redis, shared by a fleet: the module `redis` |
//! | `tower` | a layer for HTTP services: the module `tower` |
//! | `axum` | the same, with the path of the route that matched and the address of the peer |
//! | `http` | decisions as HTTP headers and bodies: the module `told` |
//! | `control` | what operators decide while the service runs: the module `control` |
//! | `follow` | the same, followed from a server of Tollgate: `control::Follower` |
//! | `receipts` | receipts that travel, signed |

mod adjust;
#[cfg(feature = "control")]
pub mod control;
mod decision;
mod ending;
mod explain;
mod ids;
mod limiter;
mod receipt;
#[cfg(feature = "redis")]
pub mod redis;
mod session;
mod standing;
mod throttle;
#[cfg(feature = "http")]
pub mod told;
#[cfg(feature = "tower")]
pub mod tower;
#[cfg(feature = "tower")]
mod turned_away;
mod witness;

pub use adjust::{Adjusted, AdjustedCounter, Adjustment};
pub use decision::{Decision, Outcome};
pub use ending::{Ending, Moved, SettleError, Settled, SettledRule};
pub use explain::{Counter, ExplainedRule, Explanation};
pub use limiter::{Limiter, now};
pub use receipt::Receipt;
#[cfg(feature = "receipts")]
pub use receipt::{KeyError, ReceiptError, ReceiptKeys};
pub use session::Session;
pub use standing::{RuleName, Standing};
pub use throttle::{Throttle, Throttler};
pub use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, Descriptor, Limit, LimitError, Mode, Reading, ReceiptWish, Replay, Request,
    Source, Span, Timestamp, Wait,
};
pub use tollgate_rules::model::RuleMode;
pub use tollgate_rules::{
    Fate, Files, Layer, LayerMode, LayerRule, LoadOptions, Problem, RequestError, ResolvedBy, Rule, Ruleset, Severity,
    Switch, Tenants, named_claim, tenants,
};
#[cfg(feature = "redis")]
pub use tollgate_store::{Circuit, GuardConfig, GuardStatus, Guarded, Level, Remembered, ShardStatus};
pub use tollgate_store::{Clock, ManualClock, MemoryConfig, MemoryStats, MemoryStore, Store, SystemClock};

pub use witness::{Seen, SeenLimit, Took, Witness};

/// The example of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// So do those of the page on this library.
#[cfg(all(doctest, feature = "axum", feature = "follow", feature = "redis"))]
#[doc = include_str!("../../../docs/library.md")]
struct LibraryPage;
