//! How busy this process is, and what it sheds when that is too much.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tollgate_shed::{Class, RampSettings, ShedMode, WorkerShedder, WorkerStatus, WorkerVerdict};
use tollgate_store::Steady;

use crate::clock;
use crate::model::WorkerSheddingConfig;
use crate::shedding::guarded;
use crate::upstream::monotonic;

/// The shedder of this process.
#[derive(Debug)]
pub(crate) struct Worker {
    shedder: ArcSwap<WorkerShedder>,
}

/// The processor time of this process at a moment.
#[derive(Clone, Copy, Debug)]
struct ProcessorTime {
    at: Steady,
    seconds: f64,
}

/// How often the utilisation is measured.
const INTERVAL: Duration = Duration::from_secs(1);
/// The unit of times in `/proc`, whatever the kernel's own ticks are.
const TICKS_PER_SECOND: f64 = 100.0;

impl Worker {
    pub(crate) fn new(config: &WorkerSheddingConfig) -> Worker {
        Worker { shedder: ArcSwap::from_pointee(shedder(config)) }
    }

    /// Uses other settings. What was shed so far is forgotten.
    pub(crate) fn configure(&self, config: &WorkerSheddingConfig) {
        self.shedder.store(Arc::new(shedder(config)));
    }

    /// Whether a request goes on.
    pub(crate) fn admits(&self, class: Class) -> bool {
        let shedder = self.shedder.load();
        // Most gateways have none.
        shedder.mode() == ShedMode::Off
            || guarded(|| shedder.admit(class, fastrand::u32(..)), WorkerVerdict::Admitted) != WorkerVerdict::Refused
    }

    /// Changes what it does with what it decides.
    pub(crate) fn set_mode(&self, mode: ShedMode) {
        self.shedder.load().set_mode(mode);
    }

    pub(crate) fn status(&self) -> WorkerStatus {
        self.shedder.load().status()
    }

    /// Measures the utilisation, until the server stops.
    pub(crate) async fn run(&self) {
        let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let mut before = ProcessorTime::read();
        loop {
            tokio::time::sleep(INTERVAL).await;
            let now = ProcessorTime::read();
            if let (Some(before), Some(now)) = (before, now) {
                guarded(|| self.shedder.load().observe(now.utilisation(before, processors), monotonic()), ());
            }
            before = now;
        }
    }
}

fn shedder(config: &WorkerSheddingConfig) -> WorkerShedder {
    let WorkerSheddingConfig { mode, from, until, ramp, grace } = *config;
    WorkerShedder::with_ramp(mode, RampSettings { high: from, low: until, ramp, grace })
}

impl ProcessorTime {
    /// `None` where there is no `/proc`: then nothing is shed.
    fn read() -> Option<ProcessorTime> {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        Some(ProcessorTime { at: clock::now(), seconds: processor_seconds(&stat)? })
    }

    /// The part of the processors that this process used since an earlier moment.
    fn utilisation(self, before: ProcessorTime, processors: f64) -> f64 {
        let elapsed = self.at.since(before.at).as_micros() as f64 / 1e6;
        if elapsed > 0.0 { (self.seconds - before.seconds) / elapsed / processors } else { 0.0 }
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
        assert!(ProcessorTime::read().is_some());
    }

    #[test]
    fn utilisation_is_relative_to_all_processors() {
        let at = |seconds: u64, used| ProcessorTime { at: Steady::from_micros(seconds * 1_000_000), seconds: used };
        assert!((at(12, 7.0).utilisation(at(10, 4.0), 2.0) - 0.75).abs() < 1e-9);
        assert!(at(10, 4.0).utilisation(at(10, 4.0), 2.0).abs() < 1e-9);
    }

    #[test]
    fn a_shedder_that_is_off_admits_everything() {
        let config = WorkerSheddingConfig { mode: ShedMode::Off, ..WorkerSheddingConfig::default() };
        let worker = Worker::new(&config);
        assert!(Class::ALL.into_iter().all(|class| worker.admits(class)));
    }

    #[test]
    fn an_operator_switches_the_mode_and_a_change_of_the_file_does_again() {
        let config = WorkerSheddingConfig { mode: ShedMode::Enforce, ..WorkerSheddingConfig::default() };
        let worker = Worker::new(&config);
        for second in 0..200 {
            let at = tollgate_shed::Monotonic::from_nanos(second * 1_000_000_000);
            worker.shedder.load().observe(1.0, at);
            worker.admits(Class::Get);
        }
        assert!(!worker.admits(Class::Get), "everything is shed after 148 seconds");
        worker.set_mode(ShedMode::Shadow);
        assert!(worker.admits(Class::Get));
        assert!(worker.status().refused[Class::Get] > 0);
        worker.configure(&config);
        assert_eq!(worker.status().mode, ShedMode::Enforce);
    }
}
