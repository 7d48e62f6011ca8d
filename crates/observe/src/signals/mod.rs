//! Signals: many distinct values of one attribute behind one value of another, such as accounts that are tried from one address.
//!
//! Requests are counted where they are decided, in a table for each signal. [`SignalBoard::evaluate`] must be called about once a
//! second: it adds what other servers counted, and says which signals were raised and which ended.
//!
//! A server reports the sketches of its fullest keys. Sketches can be merged because all servers of a fleet hash with one secret.

mod board;
mod distinct;
mod table;
#[cfg(test)]
mod tests;

pub use board::{MAX_RAISED, MAX_REPORTED, RaisedSignal, SignalBoard, SignalChange, SignalReport, SignalStatus};
pub use distinct::{DistinctSketch, MAX_FEW};
pub use table::{MAX_EXAMPLES, MAX_SIGNAL_KEYS, MAX_TABLE_BYTES};
