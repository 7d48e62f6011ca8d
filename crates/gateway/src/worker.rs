//! How busy this process is, and what it sheds when that is too much.

mod quota;
mod utilisation;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tollgate_net::workers::BusyTimes;
use tollgate_shed::{Class, RampSettings, ShedMode, WorkerShedder, WorkerStatus, WorkerVerdict, guarded};

use crate::model::WorkerSheddingConfig;
use crate::upstream::monotonic;
use utilisation::UtilisationMeter;

/// The shedder of this process.
#[derive(Debug)]
pub(crate) struct Worker {
    shedder: ArcSwap<WorkerShedder>,
    threads: BusyTimes,
}

/// How often the utilisation is measured.
const INTERVAL: Duration = Duration::from_secs(1);

impl Worker {
    pub(crate) fn new(config: &WorkerSheddingConfig, threads: BusyTimes) -> Worker {
        Worker { shedder: ArcSwap::from_pointee(shedder(config)), threads }
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

    /// Measures the utilisation, until the server stops. `load`: the checks in flight, as a part of their bound.
    pub(crate) async fn run(&self, load: impl Fn() -> f64) {
        let mut meter = UtilisationMeter::new(self.threads.clone());
        loop {
            tokio::time::sleep(INTERVAL).await;
            let utilisation = meter.measure(load());
            guarded(|| self.shedder.load().observe(utilisation, monotonic()), ());
        }
    }
}

fn shedder(config: &WorkerSheddingConfig) -> WorkerShedder {
    let WorkerSheddingConfig { mode, from, until, ramp, grace } = *config;
    WorkerShedder::with_ramp(mode, RampSettings { high: from, low: until, ramp, grace })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shedder_that_is_off_admits_everything() {
        let config = WorkerSheddingConfig { mode: ShedMode::Off, ..WorkerSheddingConfig::default() };
        let worker = Worker::new(&config, BusyTimes::default());
        assert!(Class::ALL.into_iter().all(|class| worker.admits(class)));
    }

    #[test]
    fn an_operator_switches_the_mode_and_a_change_of_the_file_does_again() {
        let config = WorkerSheddingConfig { mode: ShedMode::Enforce, ..WorkerSheddingConfig::default() };
        let worker = Worker::new(&config, BusyTimes::default());
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
