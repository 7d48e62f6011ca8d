//! Settings from all their sources.
