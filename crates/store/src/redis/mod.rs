//! Counters in Redis.

#[allow(dead_code, unused_imports)]
mod codec;
#[allow(dead_code)]
mod names;
