//! The foundation of all components, and the tasks that they add to the server.
//!
//! A component has a `build` that takes the [`Foundation`] and the components it depends on. It registers its metrics, adds its
//! background work to [`Tasks`] and returns what others use of it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tollgate_admin::data_dir::DataDir;
use tollgate_net::Closing;
use tollgate_net::workers::BusyTimes;
use tollgate_telemetry::Health;
use tollgate_telemetry::metrics::Metrics;

use crate::config::ServerSettings;

/// The foundation of all components.
pub(super) struct Foundation<'s> {
    pub(super) settings: &'s ServerSettings,
    pub(super) metrics: Arc<Metrics>,
    pub(super) health: Arc<Health>,
    /// Of the workers, once they run.
    pub(super) busy: BusyTimes,
    /// Locked for this process, if there is one.
    pub(super) data: Option<Arc<DataDir>>,
}

/// Background tasks, which end at shutdown.
#[derive(Default)]
pub(super) struct Tasks(Vec<Task>);

type Task = Box<dyn FnOnce(Closing) -> Pin<Box<dyn Future<Output = ()> + Send>>>;

impl Tasks {
    /// Adds a task, which has to end when `Closing` begins.
    pub(super) fn add<F>(&mut self, task: impl FnOnce(Closing) -> F + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.0.push(Box::new(move |closing| Box::pin(task(closing))));
    }

    /// Starts all tasks on the current runtime.
    pub(super) fn spawn(self, closing: &Closing) {
        for task in self.0 {
            tokio::spawn(task(closing.clone()));
        }
    }
}
