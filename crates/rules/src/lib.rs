//! Rule files, and the limits that apply to a request.
//!
//! There are two file forms: Tollgate's `rules` list and envoyproxy/ratelimit's `descriptors` tree. Both become the
//! same [`model`], which is compiled once into an immutable [`Ruleset`]. Nothing here does I/O after the files are
//! read.

mod address;
mod applied;
mod applies;
pub mod attribute_text;
mod attributes;
mod ban;
mod describe;
mod difference;
mod error;
mod explain;
mod extensions;
mod index;
mod layer;
mod lease;
pub mod limit_text;
pub mod load;
mod lookup;
pub mod model;
mod once;
mod overrides;
mod owners;
pub mod pattern;
mod peek;
mod plan;
pub mod private;
pub mod problem;
mod regions;
mod requested;
mod resolve;
mod rows;
mod rule;
mod ruleset;
mod scope;
mod shares;
mod short_form;
mod signal;
pub mod tenants;
mod tiers;
mod tree;
pub mod yaml;

pub use address::{is_address, parse_address, resembles_address};
pub use applied::{AppliedRule, AppliedTerms, MatchedRules};
pub use ban::{Ban, Banned};
pub use describe::Condition;
pub use difference::{ValueChange, difference};
pub use error::RequestError;
pub use explain::RuleMatch;
pub use layer::{Layer, LayerMode, LayerRule, LayerShares, Switch};
pub use lease::NotLeased;
pub use load::{LoadOptions, LoadedRules, RuleFile, RuleFiles, load_paths, load_sources};
pub use once::{CallerDigest, claim_id, named_claim};
pub use peek::{Peek, TierOrigin, TreePaths};
pub use problem::{RuleProblem, Severity, quoted};
pub use regions::{HomeOf, KnownRegions, MovingOrigin, RegionMode, Shares, Split};
pub use resolve::{ResolvedRequest, TenantContext};
pub use rule::Rule;
pub use ruleset::{Domain, RuleCounters, Ruleset};
pub use shares::{MovingShare, MovingShares, RegionDemand};
pub use short_form::short_form;
pub use signal::{Signal, SignalHit};
pub use tenants::{LimitArena, ResolvedBy, Tenants};
