//! Builds the control plane from the settings.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;

use tokio::runtime::Runtime;
use tollgate::{Limiter, SystemClock};
use tollgate_admin::bans::Bans;
use tollgate_admin::guardrails::{GuardrailConfig, Guardrails};
use tollgate_admin::observe::Observability;
use tollgate_admin::store_of_record::{self, ControlPlane, Loaded, Sources};
use tollgate_control::DbLocation;
use tollgate_store::Counters;

use super::component::{Foundation, Tasks};
use super::rules::LoadedRules;
use crate::config::{ControlPlace, GuardrailSettings};

/// The store of record in the data directory, and this server's copy of it.
const FILE: &str = "control.db";
const COPY: &str = "control-copy.jsonl";

/// Servers of the same group share snapshots.
const SHARED_DIRECTORY: u32 = 0o750;

/// Loads the records from the store of record that the settings name.
///
/// # Errors
/// If the store of record can't be used.
pub(super) fn load(foundation: &Foundation<'_>, runtime: &Runtime) -> Result<Loaded, String> {
    let (settings, data) = (foundation.settings, foundation.data.as_deref());
    let place = match (&settings.control.place, data) {
        (ControlPlace::Off, _) | (ControlPlace::Auto, None) => None,
        (ControlPlace::Auto, Some(data)) => Some(DbLocation::File(data.file(FILE))),
        (ControlPlace::At(place), _) => Some(place.clone()),
    };
    // Also of a local file: a database on a full disk can't be opened, and the copy can be read.
    let copy = data.filter(|_| place.is_some()).map(|data| data.file(COPY));
    let snapshots = settings.control.snapshots.clone();
    if let (Some(directory), Some(_)) = (&snapshots, &place) {
        create_directory(directory)?;
    }
    let sources = Sources { place, copy, snapshots };
    let loaded = runtime.block_on(store_of_record::load(&sources))?;
    if settings.control.required && !loaded.is_known {
        tracing::warn!("control_required: this server is not ready until it has read the store of record");
        foundation.health.hold(store_of_record::COMPONENT);
    }
    Ok(loaded)
}

/// Builds the guardrails of the admin API.
pub(super) fn guardrails(
    foundation: &Foundation<'_>,
    control: &Arc<ControlPlane>,
    observability: &Arc<Observability>,
) -> Arc<Guardrails> {
    let GuardrailSettings { on, confirm, paid, approve, requests, files } = foundation.settings.control.guardrails;
    let config = GuardrailConfig {
        on,
        confirm_bps: confirm.bps,
        paid_bps: paid.bps,
        approve_bps: approve.bps,
        min_requests: requests,
        files,
    };
    Guardrails::new(config, control.clone(), observability.clone(), foundation.metrics.guardrails().clone())
}

/// Creates the directory of shared snapshots, if it is missing.
fn create_directory(path: &Path) -> Result<(), String> {
    std::fs::DirBuilder::new().recursive(true).mode(SHARED_DIRECTORY).create(path).map_err(|error| {
        let remedy = "name a directory that this server can write to";
        format!("control_snapshots: {} is not a directory and can't be created: {error}; {remedy}", path.display())
    })
}

/// Puts the records in force and follows the store of record.
pub(super) fn build(
    foundation: &Foundation<'_>,
    loaded: Loaded,
    limiter: &Arc<Limiter<Counters>>,
    rules: &LoadedRules,
    tasks: &mut Tasks,
) -> Arc<ControlPlane> {
    let parts = store_of_record::ControlPlaneParts {
        limiter: limiter.clone(),
        rules: rules.source.clone(),
        layer: rules.layer.clone(),
        health: foundation.health.clone(),
        metrics: foundation.metrics.control().clone(),
        changes: foundation.metrics.changes().clone(),
        clock: Box::new(SystemClock::default()),
    };
    let control = ControlPlane::new(loaded, parts);
    let (follower, copier, publisher) = (control.clone(), control.clone(), control.clone());
    let snapshots = foundation.settings.control.snapshots.clone();
    tasks.add(move |closing| follower.follow(closing));
    tasks.add(move |closing| async move { copier.run_copy(closing).await });
    tasks.add(move |closing| async move { publisher.run_maintenance(snapshots, closing).await });
    control
}

/// Adds the task that bans those whose requests are refused too often.
pub(super) fn run_bans(
    foundation: &Foundation<'_>,
    control: &Arc<ControlPlane>,
    observability: &Arc<Observability>,
    tasks: &mut Tasks,
) {
    let bans = Bans::new(control.clone(), observability.clone(), foundation.health.clone());
    tasks.add(move |closing| bans.run(closing));
}
