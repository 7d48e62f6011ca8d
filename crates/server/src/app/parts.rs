//! Builds a server from its settings. Everything that can fail does so before the server runs.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::runtime::Runtime;
use tollgate::{Clock as _, Limiter, Span, SystemClock};
use tollgate_admin::data_dir::{DataDir, OpenError};
use tollgate_admin::decisions::Decisions;
use tollgate_admin::observe::history_file::HistoryFile;
use tollgate_admin::observe::{Observability, fleet};
use tollgate_admin::rule_source::LayerHandle;
use tollgate_admin::{Admin, AdminParts, metrics};
use tollgate_net::workers::{BusyTimes, Endpoint};
use tollgate_store::{Counters, SharedStore, Store as _};
use tollgate_telemetry::Health;
use tollgate_telemetry::metrics::Metrics;
use tollgate_telemetry::trace::TraceGuard;
use tollgate_wire::receipts::KeyAgreement;

use super::access::AccessGuards;
use super::component::{Foundation, Tasks};
use super::data_plane::{DataPlane, DataPlaneDeps};
use super::endpoints::EndpointBuilder;
use super::gateway::GatewayListeners;
use super::receipts::Signing;
use super::rules::{LoadedRules, RulesFollower};
use super::store::CounterStore;
use super::{control, events, key_privacy, observability};
use crate::config::{DataSettings, ServerSettings};
use crate::outage_state::OutageState;
use crate::snapshots::Snapshots;

/// The components of a server.
pub(super) struct Components {
    /// Served by the workers.
    pub(super) endpoints: Vec<Endpoint>,
    /// Served by the main thread.
    pub(super) admin: Option<Endpoint>,
    /// The addresses of the listeners, in the order of the banner.
    pub(super) addresses: Vec<(&'static str, String)>,
    pub(super) rules: RulesFollower,
    pub(super) health: Arc<Health>,
    /// How long the workers have been busy.
    pub(super) busy: BusyTimes,
    pub(super) tasks: Tasks,
    /// Removes this server from the list of servers, at the end.
    pub(super) deregistration: Pin<Box<dyn Future<Output = ()> + Send>>,
    pub(super) saved: SavedCounters,
    /// The store, if it is shared with other servers.
    pub(super) shared: Option<Arc<dyn SharedStore>>,
    /// The agreement on the key of receipts with servers that share the counters.
    pub(super) agreement: Option<Arc<KeyAgreement>>,
    /// The decision log. Its last entries are written when all connections have ended.
    pub(super) decisions: Arc<Decisions>,
    /// Spans are exported as long as this guard lives.
    pub(super) traces: Option<TraceGuard>,
}

/// Counters in memory, or the state for an outage of a shared store, which are saved when the server has stopped.
#[derive(Clone)]
pub(super) struct SavedCounters {
    limiter: Arc<Limiter<Counters>>,
    snapshots: Option<Snapshots>,
    outage: Option<OutageState>,
    history: Option<HistoryFile>,
    observability: Arc<Observability>,
    /// Locked until all is written.
    _data: Option<Arc<DataDir>>,
}

impl Components {
    /// Builds every component and binds all listeners.
    ///
    /// # Errors
    /// All errors, each with a remedy.
    pub(super) fn build(
        settings: &ServerSettings,
        registry: Arc<Metrics>,
        runtime: &Runtime,
    ) -> Result<Components, Vec<String>> {
        let one = |reason: String| vec![reason];
        let data = data_dir(&settings.data).map_err(one)?.map(Arc::new);
        let (health, busy) = (Arc::default(), BusyTimes::default());
        let foundation = Foundation { settings, metrics: registry, health, busy, data };
        let mut tasks = Tasks::default();

        let loaded = control::load(&foundation, runtime).map_err(one)?;
        let layer = LayerHandle::new(loaded.controls.layer(SystemClock::default().now()));
        let (ruleset, rules) = LoadedRules::build(&foundation, layer)?;
        let privacy = key_privacy::build(&foundation, &mut tasks).map_err(one)?;
        let CounterStore { counters, snapshots, outage, shared } =
            CounterStore::build(&foundation, &privacy, &mut tasks).map_err(one)?;
        if let (None, Some(db)) = (&shared, &loaded.db) {
            runtime.block_on(fleet::share_key_secret(&privacy, db));
        }
        let waits = !counters.never_waits();
        let observability = observability::build(&foundation, loaded.db.as_ref(), privacy, waits).map_err(one)?;
        if let Some(db) = &loaded.db {
            runtime.block_on(fleet::agree_early(&observability, db));
        }
        let keep_once = Span::from_micros(u64::try_from(settings.idempotency.ttl.as_micros()).unwrap_or(u64::MAX));
        let limiter =
            Limiter::new(ruleset, counters).with_once_retention(keep_once).with_witness(observability.observer.clone());
        let limiter = Arc::new(limiter);

        let Signing { receipts, agreement } = Signing::build(&foundation, shared.clone(), &mut tasks).map_err(one)?;
        let scraped = metrics::ScrapeSources::new(
            limiter.clone(),
            foundation.health.clone(),
            receipts.clone(),
            observability.clone(),
        );
        metrics::register(&foundation.metrics, scraped);
        let control = control::build(&foundation, loaded, &limiter, &rules, &mut tasks);
        let sinks = events::build(&foundation, &observability, &control, runtime, &mut tasks)?;
        let deregistration = observability::run(&foundation, &observability, &control, &mut tasks);
        control::run_bans(&foundation, &control, &observability, &mut tasks);
        super::store::watch_memory(&foundation, limiter.clone(), &mut tasks);
        if let Some(snapshots) = snapshots.clone() {
            super::store::save_snapshots(&foundation, snapshots, limiter.clone(), &mut tasks);
        }
        let AccessGuards { keys, auth } = AccessGuards::build(&foundation, &control, &mut tasks).map_err(one)?;
        let deps = DataPlaneDeps { limiter: &limiter, observability: &observability, receipts, keys: &keys };
        let DataPlane { grpc, http, resp, gateway, traces } = DataPlane::build(&foundation, deps, &mut tasks)?;
        let served = gateway.as_ref().map(GatewayListeners::gateway);
        if let Some(served) = &served {
            runtime.block_on(served.plan().load_keys());
        }
        metrics::register_gateway(&foundation.metrics, served.clone());
        let guardrails = control::guardrails(&foundation, &control, &observability);
        let admin = Admin::new(AdminParts {
            metrics: foundation.metrics.clone(),
            health: foundation.health.clone(),
            control,
            auth,
            observability: Arc::clone(&observability),
            gateway: served,
            sinks,
            guardrails: guardrails.clone(),
        });

        let history = observability::history_file(&foundation);
        let mut endpoints =
            EndpointBuilder::new(&foundation, gateway.as_ref().map_or(0, GatewayListeners::max_connections));
        let grpc = endpoints.bind("grpc", &settings.grpc.listen, grpc);
        let http = endpoints.bind("http", &settings.http.listen, http);
        let admin = endpoints.bind("admin", &settings.admin.listen, admin);
        let resp = endpoints.bind("resp", &settings.resp.listen, resp);
        let gateway = gateway.map(|gateway| gateway.bind(&mut endpoints)).unwrap_or_default();
        let addresses = endpoints.finish(&mut tasks)?;

        Ok(Components {
            endpoints: [grpc, http, resp].into_iter().flatten().chain(gateway).collect(),
            admin,
            addresses,
            rules: rules.follow(&foundation, limiter.clone(), guardrails),
            health: foundation.health,
            busy: foundation.busy,
            tasks,
            deregistration,
            saved: SavedCounters {
                limiter,
                snapshots,
                outage,
                history,
                observability: Arc::clone(&observability),
                _data: foundation.data,
            },
            shared,
            agreement,
            decisions: observability.decisions.clone(),
            traces,
        })
    }
}

impl SavedCounters {
    /// Writes the history and the last snapshot of the counters, or the last state for an outage.
    pub(super) fn save(&self) {
        if let Some(history) = &self.history
            && let Err(error) = history.save(&self.observability)
        {
            tracing::error!(%error, "saving the history failed");
        }
        if let (Some(outage), Some(store)) = (&self.outage, self.limiter.store().shared())
            && let Err(error) = outage.save(store)
        {
            tracing::error!(%error, "saving the state for an outage of the store failed");
        }
        let Some(snapshots) = &self.snapshots else { return };
        if let Err(error) = snapshots.save_counters(&*self.limiter) {
            let path = snapshots.path();
            tracing::error!(path = %path.display(), %error, "saving the counters failed");
        }
    }
}

fn data_dir(data: &DataSettings) -> Result<Option<DataDir>, String> {
    let DataSettings::Directory { path, is_explicit } = data else { return Ok(None) };
    match DataDir::open(path) {
        Ok(data) => Ok(Some(data)),
        Err(OpenError::InUse(reason)) => Err(reason),
        Err(OpenError::Unusable(reason)) if *is_explicit => Err(reason),
        Err(OpenError::Unusable(reason)) => {
            tracing::warn!("{reason}; counters and rules will not survive a restart");
            Ok(None)
        }
    }
}
