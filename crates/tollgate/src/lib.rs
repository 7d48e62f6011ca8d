//! Tollgate for Rust services: rules in, decisions out.
//!
//! A [`Limiter`] joins a ruleset and a store. [`Limiter::check`] is one straight line: resolve, settle, decide. Workers
//! that check often use a [`Session`]; callers that send limits instead of using rules, a [`Throttler`]. The in-memory
//! store needs no executor: see [`poll_once`].
//!
//! | feature | |
//! | --- | --- |
//! | `redis` | counters in Redis, shared by a fleet: the module `redis` |
//! | `control` | tiers, overrides and blocks that operators change at run time: the module `control` |
//! | `follow` | the same, synchronized from a Tollgate server: `control::Follower` |
//! | `receipts` | signed receipts, for sending to other processes |

mod adjust;
mod caller_tiers;
#[cfg(feature = "control")]
pub mod control;
mod decision;
mod delay_refusal;
mod explain;
mod ids;
mod importance;
mod in_force;
mod limiter;
mod peek;
mod receipt;
mod refusals;
mod regional;
mod session;
mod settle_receipt;
mod throttle;
mod witness;

pub use adjust::{AdjustedCounter, Adjustment, AdjustmentReport};
pub use decision::{Decision, Outcome};
pub use explain::{CounterStatus, ExplainedRule, Explanation, RegionCounter};
pub use limiter::{Limiter, RulesError, poll_once};
pub use peek::{CallerCounters, CallerTier, RuleName};
pub use receipt::Receipt;
#[cfg(feature = "receipts")]
pub use receipt::{KeyError, ReceiptError, ReceiptKeys};
pub use refusals::{RefusalCount, RefusalSum};
pub use session::Session;
pub use settle_receipt::{CounterChange, RequestOutcome, SettleError, SettledReceipt, SettledRule};
pub use throttle::{Throttle, Throttler};
pub use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, Descriptor, Key, Limit, LimitError, Mode, Reading, ReceiptWish, RegionId,
    RegionLink, RegionNames, RegionNamesError, Replay, Request, Source, Span, Timestamp, Wait,
};
#[cfg(feature = "redis")]
pub use tollgate_redis as redis;
pub use tollgate_rules::model::{RuleMode, RuleOrigin};
pub use tollgate_rules::{
    KnownRegions, Layer, LayerMode, LayerRule, LoadOptions, RegionMode, RequestError, ResolvedBy, Rule, RuleFiles,
    RuleMatch, RuleProblem, Ruleset, Severity, Switch, Tenants, TierOrigin, named_claim, tenants,
};
pub use tollgate_store::key_privacy::{KeyPrivacy, PrivacySetting, SecretError};
pub use tollgate_store::{Circuit, DenyCache, GuardConfig, GuardStatus, Guarded, Level, ShardStatus};
pub use tollgate_store::{
    Clock, Counters, ManualClock, MemoryConfig, MemoryStats, MemoryStore, Steady, Store, SystemClock,
};

pub use witness::{CheckTiming, DecisionEvent, LimitEvent, Witness};

/// Compiles the README's example.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
