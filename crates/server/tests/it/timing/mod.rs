//! Tests that judge how long something takes: each has the machine to itself ([`tollgate_testing::machine::alone`]).
//!
//! This module's name sorts after those of the others. Tests are run in the order of their names, so these wait for few others.

mod changes;
mod faults;
mod stalled;
mod trial;
