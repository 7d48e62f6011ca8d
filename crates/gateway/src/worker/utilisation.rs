//! How busy this process is.

use std::time::Duration;

use tollgate_net::workers::BusyTimes;
use tollgate_store::Steady;

use super::quota::processors;
use crate::clock;

/// Measures the utilisation of this process from one moment to the next.
#[derive(Debug)]
pub(super) struct UtilisationMeter {
    workers: BusyTimes,
    /// How many processors this process may use.
    processors: f64,
    before: Used,
}

/// What was used up to a moment.
#[derive(Clone, Debug, PartialEq)]
struct Used {
    at: Steady,
    /// The processor time of this process. `None` where there is no `/proc`.
    seconds: Option<f64>,
    /// How long each worker was busy.
    workers: Vec<Duration>,
}

/// The unit of times in `/proc`, whatever the kernel's own ticks are.
const TICKS_PER_SECOND: f64 = 100.0;

impl UtilisationMeter {
    pub(super) fn new(workers: BusyTimes) -> UtilisationMeter {
        let before = Used::read(&workers);
        UtilisationMeter { workers, processors: processors(), before }
    }

    /// The utilisation since the last call, from 0 to 1: that of the part of the process that is used most. `load` is that of
    /// the checks.
    pub(super) fn measure(&mut self, load: f64) -> f64 {
        let now = Used::read(&self.workers);
        let utilisation = now.since(&self.before, self.processors);
        self.before = now;
        utilisation.max(load).min(1.0)
    }
}

impl Used {
    fn read(workers: &BusyTimes) -> Used {
        let stat = std::fs::read_to_string("/proc/self/stat").ok();
        let seconds = stat.and_then(|stat| processor_seconds(&stat));
        Used { at: clock::now(), seconds, workers: workers.read() }
    }

    /// The processors' part, or the busiest worker's, whichever is larger: one worker may have all the work, the workers may be
    /// fewer than the processors, and a process that waits for a processor is busy without using one.
    fn since(&self, before: &Used, processors: f64) -> f64 {
        let elapsed = self.at.since(before.at).as_micros() as f64 / 1e6;
        if elapsed <= 0.0 {
            return 0.0;
        }
        let used = self.seconds.zip(before.seconds).map_or(0.0, |(now, before)| (now - before) / processors);
        let busy =
            self.workers.iter().zip(&before.workers).map(|(now, before)| now.saturating_sub(*before).as_secs_f64());
        busy.fold(used, f64::max) / elapsed
    }
}

/// Fields 14 and 15 of proc(5). The second, the name of the program, may contain any character.
fn processor_seconds(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let (user, system) = (fields.next()?.parse::<f64>().ok()?, fields.next()?.parse::<f64>().ok()?);
    Some((user + system) / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_time_is_read_whatever_the_program_is_called() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 250 50 13 14";
        assert_eq!(processor_seconds(stat), Some(3.0));
        assert_eq!(processor_seconds("7 (a) S 1"), None);
        assert!(Used::read(&BusyTimes::default()).seconds.is_some());
    }

    #[test]
    fn the_part_that_is_used_most_counts() {
        let used = |at: u64, seconds: f64, workers: &[u64]| Used {
            at: Steady::from_micros(at * 1_000_000),
            seconds: Some(seconds),
            workers: workers.iter().map(|millis| Duration::from_millis(*millis)).collect(),
        };
        let before = used(10, 4.0, &[500, 100]);
        let rows = [
            // Two of two processors for 1.5 of 2 s each.
            (used(12, 7.0, &[500, 100]), 2.0, 0.75),
            // One worker on a machine with many processors.
            (used(12, 5.9, &[2_400, 100]), 64.0, 0.95),
            // A quota of half a processor is nearly used, which no worker shows.
            (used(12, 4.9, &[1_000, 1_000]), 0.5, 0.9),
            // Time that went backwards.
            (used(10, 7.0, &[500, 100]), 2.0, 0.0),
        ];
        for (now, processors, expected) in rows {
            let measured = now.since(&before, processors);
            assert!((measured - expected).abs() < 1e-9, "{now:?} of {processors}: {measured}");
        }
        let without = Used { seconds: None, ..used(12, 0.0, &[1_500, 100]) };
        assert!((without.since(&before, 2.0) - 0.5).abs() < 1e-9, "without /proc the workers tell");
    }

    #[test]
    fn checks_in_flight_are_a_part_of_it() {
        let mut meter = UtilisationMeter::new(BusyTimes::default());
        assert!((meter.measure(7.0) - 1.0).abs() < 1e-9);
    }
}
