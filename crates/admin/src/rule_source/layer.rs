//! The layer above the rule files: written by the follower of the store of record, read by the compiler of rules.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use tollgate::Layer;

use super::Waker;

/// A shared handle to the layer.
#[derive(Clone, Debug, Default)]
pub struct LayerHandle(Arc<LayerCell>);

#[derive(Debug, Default)]
struct LayerCell {
    layer: ArcSwap<Layer>,
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
        if **self.0.layer.load() == layer {
            return false;
        }
        self.0.layer.store(Arc::new(layer));
        if let Some(waker) = self.0.waker.get() {
            waker.changed();
        }
        true
    }
}

impl LayerHandle {
    /// The current layer. Two handles to the same allocation are the same layer.
    pub fn current(&self) -> Arc<Layer> {
        self.0.layer.load_full()
    }

    /// Registers the waker of the compiler.
    pub(super) fn set_waker(&self, waker: Waker) {
        let _ = self.0.waker.set(waker);
    }
}
