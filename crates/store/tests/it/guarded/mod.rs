//! The guarded store over shards with faults.

mod breakers;
mod conform;
mod debits;
mod exhausted;
mod holds;
mod once;
mod parts;
mod policies;
mod random;
mod regions;
mod resets;
mod restarts;
mod settlements;
mod world;
