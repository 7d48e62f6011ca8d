//! Property tests: invariants over random histories of claims.

mod claims;
mod extremes;
mod naive;
mod oracle;
mod promises;
mod typed_states;
mod waits;
mod world;
