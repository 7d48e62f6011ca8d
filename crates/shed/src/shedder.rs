//! Names of the shedders, for headers, metrics and logs.

use std::fmt;
use std::str::FromStr;

/// The shedder that refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shedder {
    /// The [adaptive cap](crate::AdaptiveCap) of an upstream.
    Adaptive,
    /// The [fairness shedder](crate::FairnessShedder) of an upstream.
    Fairness,
    /// The [worker shedder](crate::WorkerShedder) of this process.
    Worker,
    /// A limit on the concurrent requests of the whole fleet.
    Fleet,
}

/// A text that names no shedder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownShedder;

impl Shedder {
    /// All shedders.
    pub const ALL: [Shedder; 4] = [Shedder::Adaptive, Shedder::Fairness, Shedder::Worker, Shedder::Fleet];

    /// The name in headers, metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Shedder::Adaptive => "adaptive",
            Shedder::Fairness => "fairness",
            Shedder::Worker => "worker",
            Shedder::Fleet => "fleet",
        }
    }
}

impl fmt::Display for Shedder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Shedder {
    type Err = UnknownShedder;

    fn from_str(text: &str) -> Result<Shedder, UnknownShedder> {
        Shedder::ALL.into_iter().find(|shedder| shedder.name() == text).ok_or(UnknownShedder)
    }
}

impl fmt::Display for UnknownShedder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a shedder is one of adaptive, fairness, worker, fleet")
    }
}

impl std::error::Error for UnknownShedder {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shedders_have_names() {
        for shedder in Shedder::ALL {
            assert_eq!(shedder.to_string().parse(), Ok(shedder));
        }
        assert_eq!("cpu".parse::<Shedder>(), Err(UnknownShedder));
    }
}
