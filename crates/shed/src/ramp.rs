//! How much is shed, by how long the load has been high.

use std::time::Duration;

use crate::time::Monotonic;

/// When and how fast a shedder acts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RampSettings {
    /// The utilisation from which the amount rises, below 1.
    pub high: f64,
    /// The utilisation below which it falls: at most `high`.
    pub low: f64,
    /// The time from nothing to everything at a utilisation of 1, and back at 0.
    pub ramp: Duration,
    /// The time at a utilisation of 1 before anything is shed. Also the most that one observation counts.
    pub grace: Duration,
}

/// How much is shed.
#[derive(Debug)]
pub(crate) struct Ramp {
    settings: RampSettings,
    /// From [`Ramp::at_rest`] to the most.
    level: f64,
    observed: Option<Monotonic>,
}

/// The shortest ramp, in seconds.
const MIN_RAMP_SECONDS: f64 = 1.0;
/// The least that an observation may count, where there is no grace, in seconds.
const MIN_STEP_SECONDS: f64 = 10.0;

impl Default for RampSettings {
    fn default() -> RampSettings {
        RampSettings { high: 0.8, low: 0.7, ramp: Duration::from_secs(120), grace: Duration::from_secs(28) }
    }
}

impl RampSettings {
    fn ramp_seconds(&self) -> f64 {
        self.ramp.as_secs_f64().max(MIN_RAMP_SECONDS)
    }

    /// How fast the level moves, from −1 to 1.
    fn slope(&self, utilisation: f64) -> f64 {
        let slope = match utilisation {
            low if low < self.low => low / self.low - 1.0,
            high if high >= self.high => (high - self.high) / (1.0 - self.high).max(f64::EPSILON),
            _ => 0.0,
        };
        slope.clamp(-1.0, 1.0)
    }
}

impl Ramp {
    pub(crate) fn new(settings: RampSettings) -> Ramp {
        let mut ramp = Ramp { settings, level: 0.0, observed: None };
        ramp.level = ramp.at_rest();
        ramp
    }

    /// The level at rest: below zero, by the time of grace.
    fn at_rest(&self) -> f64 {
        -self.settings.grace.as_secs_f64() / self.settings.ramp_seconds()
    }

    /// Whether the load was not high for as long as the grace.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.level <= self.at_rest()
    }

    /// How much is shed, from 0 to the most.
    pub(crate) fn amount(&self) -> f64 {
        self.level.max(0.0)
    }

    /// Moves the level by a utilisation that lasted since the last observation, to at most `most`. The seconds since then, as
    /// far as they count.
    pub(crate) fn observe(&mut self, utilisation: f64, most: f64, now: Monotonic) -> f64 {
        let before = self.observed.map_or(now, |observed| observed.max(now));
        let elapsed = now.nanos_since(self.observed.unwrap_or(now)) as f64 / 1e9;
        // A clock that steps back counts from where it was: no time passes until it is there again.
        self.observed = Some(before);
        let seconds = elapsed.min(self.settings.grace.as_secs_f64().max(MIN_STEP_SECONDS));
        let moved = self.level + self.settings.slope(utilisation) * seconds / self.settings.ramp_seconds();
        self.level = moved.clamp(self.at_rest(), most.max(0.0));
        seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_is_linear_outside_of_a_dead_zone() {
        let rows = [(0.0, -1.0), (0.35, -0.5), (0.7, 0.0), (0.75, 0.0), (0.8, 0.0), (0.9, 0.5), (1.0, 1.0), (1.5, 1.0)];
        for (utilisation, expected) in rows {
            assert!(
                (RampSettings::default().slope(utilisation) - expected).abs() < 1e-9,
                "{utilisation}: {}",
                RampSettings::default().slope(utilisation)
            );
        }
    }

    #[test]
    fn amounts_after_a_time_at_a_utilisation() {
        // Utilisation, seconds, amount after them; one row after the other.
        let rows = [
            (1.0, 28, 0.0),
            (1.0, 12, 0.1),
            (0.75, 600, 0.1),
            (0.9, 24, 0.2),
            (1.0, 96, 1.0),
            (1.0, 600, 1.0),
            (0.35, 60, 0.75),
            (0.0, 90, 0.0),
            (0.0, 600, 0.0),
            (1.0, 27, 0.0),
            (1.0, 13, 0.1),
        ];
        let (mut ramp, mut now) = (Ramp::new(RampSettings::default()), 0);
        ramp.observe(0.0, 1.0, Monotonic::from_nanos(0));
        for (utilisation, seconds, expected) in rows {
            for _ in 0..seconds {
                now += 1_000_000_000;
                ramp.observe(utilisation, 1.0, Monotonic::from_nanos(now));
            }
            assert!((ramp.amount() - expected).abs() < 1e-9, "{utilisation} for {seconds} s: {}", ramp.amount());
        }
    }

    #[test]
    fn a_long_pause_counts_as_the_grace() {
        let mut ramp = Ramp::new(RampSettings::default());
        let at = |seconds: u64| Monotonic::from_nanos(seconds * 1_000_000_000);
        ramp.observe(1.0, 1.0, at(0));
        assert_eq!(ramp.observe(1.0, 1.0, at(86_400)), RampSettings::default().grace.as_secs_f64());
        assert_eq!(ramp.amount(), 0.0);
        ramp.observe(1.0, 1.0, at(86_412));
        assert!((ramp.amount() - 0.1).abs() < 1e-9);
    }

    #[test]
    fn a_clock_that_steps_back_counts_no_time() {
        let mut ramp = Ramp::new(RampSettings::default());
        let at = |seconds: u64| Monotonic::from_nanos(seconds * 1_000_000_000);
        ramp.observe(1.0, 1.0, at(100));
        ramp.observe(1.0, 1.0, at(128));
        assert_eq!(ramp.observe(1.0, 1.0, at(50)), 0.0);
        assert_eq!(ramp.observe(1.0, 1.0, at(128)), 0.0);
        ramp.observe(1.0, 1.0, at(140));
        assert!((ramp.amount() - 0.1).abs() < 1e-9);
    }
}
