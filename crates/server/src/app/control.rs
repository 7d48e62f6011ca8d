//! The control plane, as the settings ask for it.

use tokio::runtime::Runtime;
use tollgate_control::Place;

use crate::config::{ControlPlace, Settings};
use crate::control::{Loaded, Sources, load};
use crate::data_dir::DataDir;

/// The store of record in the data directory, and this server's copy of one that is elsewhere.
const FILE: &str = "control.db";
const COPY: &str = "control-copy.jsonl";

/// Loads what operators decided, from where the settings say.
///
/// # Errors
/// If the store of record can't be used.
pub(super) fn loaded(settings: &Settings, data: Option<&DataDir>, runtime: &Runtime) -> Result<Loaded, String> {
    let place = match (&settings.control.place, data) {
        (ControlPlace::Off, _) | (ControlPlace::Auto, None) => None,
        (ControlPlace::Auto, Some(data)) => Some(Place::File(data.file(FILE))),
        (ControlPlace::At(place), _) => Some(place.clone()),
    };
    // A file on this machine is as near as a copy of it would be.
    let is_far = matches!(place, Some(Place::Postgres(_)));
    let copy = data.filter(|_| is_far).map(|data| data.file(COPY));
    let sources = Sources { place, copy, snapshots: settings.control.snapshots.clone() };
    runtime.block_on(load(&sources))
}
