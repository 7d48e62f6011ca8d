//! Counters in Redis.
