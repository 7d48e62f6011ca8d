//! The layer above the rule files, as the server has it: replaced by whoever follows the operators' records, read by whoever
//! compiles.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use tollgate::Layer;

use super::Waker;

/// The layer; every clone is the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct LayerHandle(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    layer: ArcSwap<Layer>,
    /// Who compiles, once there is somebody.
    waker: OnceLock<Waker>,
}

impl LayerHandle {
    /// A handle to this layer.
    pub(crate) fn new(layer: Layer) -> LayerHandle {
        let handle = LayerHandle::default();
        handle.0.layer.store(Arc::new(layer));
        handle
    }

    /// Puts another layer in the place of this one, and has the rules compiled under it. Says whether it is another.
    pub(crate) fn replace(&self, layer: Layer) -> bool {
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
    /// The layer as it is. Two that are the same value in memory are the same layer.
    pub(crate) fn current(&self) -> Arc<Layer> {
        self.0.layer.load_full()
    }

    /// Has this one woken from now on.
    pub(super) fn wake(&self, waker: Waker) {
        let _ = self.0.waker.set(waker);
    }
}
