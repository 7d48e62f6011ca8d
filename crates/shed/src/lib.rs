//! Load shedding: what is refused with 503 so that the system survives. (429 is a caller over its limit.)
//!
//! - [`AdaptiveCap`] limits the requests in flight to one upstream. Its limit follows the upstream's latency, and each
//!   priority [`Class`] may use a share of it.
//! - [`FairnessShedder`] lowers the rates of the busiest callers of an upstream while it is overloaded, those of the lowest
//!   tier first.
//! - [`WorkerShedder`] is the last resort: while this process has been overloaded for half a minute, it drops a growing
//!   part of the requests, the least important first.
//! - [`RetryAfter`] spreads the return of those that were refused.
//!
//! The crate does no I/O and reads no clock; time and randomness are arguments. Requests wait for no lock and allocate
//! nothing.

mod adaptive;
mod class;
mod fairness;
mod guard;
mod mode;
mod padded;
mod ramp;
mod reserves;
mod retry_after;
mod shares;
mod shedder;
mod time;
mod worker;

pub use adaptive::{
    AdaptiveCap, Admission, Begun, CapPolicy, CapSettings, CapStatus, InvalidSettings, RequestEnd, ReserveRule,
    ReserveStatus,
};
pub use class::{ByClass, Class, UnknownClass};
pub use fairness::{
    FairnessSettings, FairnessShedder, FairnessStatus, FairnessVerdict, InvalidFairness, MAX_CALLERS, MAX_TIERS,
    Pressure, TierStatus,
};
pub use guard::guarded;
pub use mode::{ShedMode, UnknownMode};
pub use ramp::RampSettings;
pub use reserves::{InvalidReserves, MAX_RESERVES, TierReserves};
pub use retry_after::RetryAfter;
pub use shares::{ClassShares, InvalidShares};
pub use shedder::{Shedder, UnknownShedder};
pub use time::Monotonic;
pub use worker::{WorkerShedder, WorkerStatus, WorkerVerdict};
