//! The guarded store over shards with faults.

mod breakers;
mod conform;
mod debits;
mod once;
mod parts;
mod policies;
mod random;
mod resets;
mod settlements;
mod world;
