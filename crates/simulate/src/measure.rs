//! What is counted during a run.

/// Times, counted in classes that differ by less than 3 %.
#[derive(Clone, Debug, Default)]
pub struct Times {
    counts: Vec<u64>,
    total: u64,
}

/// The classes of each doubling.
const CLASSES: u64 = 32;

impl Times {
    pub(crate) fn record(&mut self, nanos: u64) {
        let class = class(nanos);
        if class >= self.counts.len() {
            self.counts.resize(class + 1, 0);
        }
        self.counts[class] += 1;
        self.total += 1;
    }

    /// The number of recorded times.
    pub fn len(&self) -> u64 {
        self.total
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// The time in microseconds that this share of them does not exceed.
    pub fn quantile(&self, share: f64) -> f64 {
        let rank = (self.total as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (class, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return end(class as u64) as f64 / 1e3;
            }
        }
        0.0
    }
}

fn class(nanos: u64) -> usize {
    let log = nanos.max(1).ilog2() as u64;
    let class = match log {
        ..5 => nanos,
        _ => (log - 4) * CLASSES + ((nanos >> (log - 5)) & (CLASSES - 1)),
    };
    class as usize
}

/// The end of a class.
fn end(class: u64) -> u64 {
    match class / CLASSES {
        0 => class,
        doubling => ((CLASSES + class % CLASSES + 1) << (doubling - 1)) - 1,
    }
}

/// Calls to the store by what they are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Requests of keys that are not leased.
    pub exact: u64,
    /// Requests of keys that are too rare for a counter of their own here.
    pub cold: u64,
    /// Requests of leased keys for which the server had no units.
    pub misses: u64,
    /// Units taken ahead of requests.
    pub ahead: u64,
    /// Units given back.
    pub back: u64,
    /// Units that were admitted before the store counted them: those of all keys that a server sends to an instance of the
    /// store at the same time are one call.
    pub debits: u64,
}

impl Calls {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.exact + self.cold + self.misses + self.ahead + self.back + self.debits
    }
}

/// A span of time of the picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Requests.
    pub requests: u64,
    /// Admitted requests.
    pub admitted: u64,
    /// Requests that an exact fleet admits.
    pub exact: u64,
    /// Calls to the store.
    pub calls: u64,
}

/// The units admitted in one aligned period of the first limit, if all requests share its counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Units that were admitted.
    pub admitted: u64,
    /// Units that an exact fleet admits.
    pub exact: u64,
}

/// What one server did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerTally {
    /// Requests.
    pub requests: u64,
    /// Admitted requests.
    pub admitted: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_close() {
        let mut times = Times::default();
        for micros in 1..=10_000 {
            times.record(micros * 1_000);
        }
        for (share, expected) in [(0.5, 5_000.0), (0.99, 9_900.0), (0.999, 9_990.0)] {
            let measured = times.quantile(share);
            assert!((measured / expected - 1.0).abs() < 0.035, "{share}: {measured}");
        }
        assert_eq!(Times::default().quantile(0.5), 0.0);
    }
}
