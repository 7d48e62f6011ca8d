//! Servers that count concurrent requests by themselves, and admit against the sum.

mod conform;
mod counting;
mod fleet;
mod world;
