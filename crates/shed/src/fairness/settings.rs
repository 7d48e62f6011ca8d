//! What an operator sets.

use std::fmt;
use std::time::Duration;

use crate::mode::ShedMode;
use crate::ramp::RampSettings;

/// What an operator sets of a fairness shedder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FairnessSettings {
    /// What the shedder does with what it decides. It can be switched later.
    pub mode: ShedMode,
    /// The latency of the upstream, in relation to the one without a queue, above which rates are lowered.
    pub latency: f64,
    /// The part of the requests that its cap refuses above which rates are lowered.
    pub refused: f64,
    /// The time at twice a threshold before rates are lowered.
    pub grace: Duration,
    /// The time from there until the rates of a tier are lowered to the fair rate.
    pub ramp: Duration,
}

/// Why settings are not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidFairness {
    /// The latency is not between 1.1 and 100.
    Latency,
    /// The part of refused requests is not between 0.001 and 1.
    Refused,
    /// The ramp is not between 1 s and an hour, or the grace longer than that.
    Times,
}

impl Default for FairnessSettings {
    fn default() -> FairnessSettings {
        FairnessSettings {
            mode: ShedMode::Enforce,
            latency: 2.0,
            refused: 0.1,
            grace: Duration::from_secs(2),
            ramp: Duration::from_secs(10),
        }
    }
}

impl FairnessSettings {
    /// Checks the settings.
    pub fn validate(&self) -> Result<(), InvalidFairness> {
        if !(1.1..=100.0).contains(&self.latency) {
            return Err(InvalidFairness::Latency);
        }
        if !(0.001..=1.0).contains(&self.refused) {
            return Err(InvalidFairness::Refused);
        }
        let most = Duration::from_secs(3_600);
        if !(Duration::from_secs(1)..=most).contains(&self.ramp) || self.grace > most {
            return Err(InvalidFairness::Times);
        }
        Ok(())
    }

    /// In halves of a pressure of 1 at the threshold: up above it, and down below half of it.
    pub(super) fn ramp(&self) -> RampSettings {
        RampSettings { high: 0.5, low: 0.25, ramp: self.ramp, grace: self.grace }
    }
}

impl fmt::Display for InvalidFairness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InvalidFairness::Latency => "write a latency from 1.1 to 100 times the idle one",
            InvalidFairness::Refused => "write a part of refused requests from 0.001 to 1",
            InvalidFairness::Times => "write a ramp from 1 s to an hour, and a grace of at most an hour",
        })
    }
}

impl std::error::Error for InvalidFairness {}
