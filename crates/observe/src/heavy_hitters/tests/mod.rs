//! Lists against exact counts, and what decisions add to them.

mod decisions;
mod exact;
mod names;
mod properties;
