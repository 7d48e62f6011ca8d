//! Tests of how long something takes: each has the machine to itself ([`tollgate_testing::machine::alone`]).
//!
//! The name of this module sorts last. Tests run in the order of their names, so these wait for few others.

mod bans;
mod busy;
mod changes;
mod faults;
mod stalled;
mod trial;
