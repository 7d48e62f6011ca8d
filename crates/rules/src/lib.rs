//! Rule files, and which limits a request meets.
//!
//! Two file forms, Tollgate's `rules` list and envoyproxy/ratelimit's `descriptors` tree, become the same [`model`]; the model
//! is compiled once into an immutable [`Ruleset`]. Nothing here does I/O once the files are read.

mod address;
mod applies;
mod attributes;
mod compiled;
mod difference;
mod error;
mod explain;
mod index;
mod layer;
pub mod limit_text;
pub mod load;
mod lookup;
pub mod model;
mod once;
pub mod pattern;
pub mod problem;
mod requested;
mod resolve;
mod scope;
mod selected;
mod short_form;
mod standing;
pub mod tenants;
mod tree;
pub mod yaml;

pub use compiled::{Counters, Domain, Rule, Ruleset};
pub use difference::{Changed, difference};
pub use error::{BadCost, RequestError};
pub use explain::Fate;
pub use layer::{Layer, LayerMode, LayerRule, Switch};
pub use load::{Files, LoadOptions, Loaded, Source, load_paths, load_sources};
pub use once::{Asker, claim_id, named_claim};
pub use problem::{Problem, Severity, quoted};
pub use resolve::{Applied, AppliedTerms, Known, Matched, Resolved};
pub use short_form::short_form;
pub use standing::{Looks, Ways};
pub use tenants::{ResolvedBy, Room, Tenants};
