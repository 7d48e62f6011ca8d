//! The layer above the rule files: written by the follower of the store of record, read by the compiler of rules.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use tollgate::Layer;
use tollgate_telemetry::metrics::WrittenChange;

use super::Waker;
use super::measure::MAX_WRITTEN;

/// A shared handle to the layer.
#[derive(Clone, Debug, Default)]
pub struct LayerHandle(Arc<LayerCell>);

#[derive(Debug, Default)]
struct LayerCell {
    layer: ArcSwap<Layer>,
    /// Changes that the compiler has not taken yet.
    written: Mutex<Vec<WrittenChange>>,
    /// Wakes the compiler, once it runs.
    waker: OnceLock<Waker>,
}

impl LayerHandle {
    /// A handle to this layer.
    pub fn new(layer: Layer) -> LayerHandle {
        let handle = LayerHandle::default();
        handle.0.layer.store(Arc::new(layer));
        handle
    }

    /// Replaces the layer and has the rules recompiled. Returns whether it differs.
    pub fn replace(&self, layer: Layer) -> bool {
        self.replace_written(layer, Vec::new())
    }

    /// The same, with the changes that made the layer what it is.
    pub fn replace_written(&self, layer: Layer, written: Vec<WrittenChange>) -> bool {
        let is_new = **self.0.layer.load() != layer;
        if is_new {
            self.0.layer.store(Arc::new(layer));
        }
        let is_written = !written.is_empty();
        if is_written {
            // After the layer: whoever takes the changes finds them in the layer.
            let mut waiting = self.written();
            waiting.extend(written);
            waiting.truncate(MAX_WRITTEN);
        }
        if let Some(waker) = self.0.waker.get().filter(|_| is_new || is_written) {
            waker.changed();
        }
        is_new
    }
}

impl LayerHandle {
    /// The current layer. Two handles to the same allocation are the same layer.
    pub fn current(&self) -> Arc<Layer> {
        self.0.layer.load_full()
    }

    /// Takes the changes that were written so far. The layer that is read next has them.
    pub(super) fn take_written(&self) -> Vec<WrittenChange> {
        std::mem::take(&mut *self.written())
    }

    fn written(&self) -> MutexGuard<'_, Vec<WrittenChange>> {
        self.0.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers the waker of the compiler.
    pub(super) fn set_waker(&self, waker: Waker) {
        let _ = self.0.waker.set(waker);
    }
}
