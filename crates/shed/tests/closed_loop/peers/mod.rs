//! Models of other limiters, by their published code: what ours is compared with.

mod envoy;
mod gradient2;
mod vegas;

pub(crate) use envoy::Envoy;
pub(crate) use gradient2::Gradient2;
pub(crate) use vegas::Vegas;

/// A window of samples as Netflix's limiters see them: a second long, at least 10 samples, the mean of them.
#[derive(Default)]
struct MeanWindow {
    ends: Option<u64>,
    sum: f64,
    count: u64,
    peak: u32,
}

const SECOND: u64 = 1_000_000_000;

impl MeanWindow {
    /// Adds a sample; at the end of a window, its mean and the most requests in flight.
    fn add(&mut self, rtt: f64, in_flight: u32, now: u64) -> Option<(f64, u32)> {
        self.sum += rtt;
        self.count += 1;
        self.peak = self.peak.max(in_flight);
        // The first window is as long as the others, which is kinder to them than their code.
        if now < *self.ends.get_or_insert(now + SECOND) || self.count < 10 {
            return None;
        }
        let ended = (self.sum / self.count as f64, self.peak);
        *self = MeanWindow { ends: Some(now + SECOND), ..MeanWindow::default() };
        Some(ended)
    }
}
