//! Rule files, and which limits a request meets.
//!
//! Two file forms, Tollgate's `rules` list and envoyproxy/ratelimit's `descriptors` tree, become the same [`model`]; the model
//! is compiled once into an immutable [`Ruleset`]. Nothing here does I/O once the files are read.

mod address;
mod compiled;
mod index;
pub mod model;
pub mod pattern;
mod resolve;
mod tree;

pub use compiled::{CompileError, Domain, Rule, Ruleset};
pub use resolve::{Applied, MOST_CHARGES, RequestError, Resolved};
