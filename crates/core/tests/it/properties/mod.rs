//! Property tests: invariants over random histories of claims.

mod claims;
mod extremes;
mod naive;
mod oracle;
mod promises;
mod waits;
mod world;
