//! The keys of one source, for all verifiers that trust it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};

use super::key_set::KeySet;
use super::token::TokenFault;

/// The keys of a source, which are swapped whole. A configuration that reads other claims of its tokens has them at once.
#[derive(Debug, Default)]
pub struct SharedKeys {
    keys: ArcSwap<KeySet>,
    /// Whether a token named a key that is not among them.
    is_one_missing: AtomicBool,
    /// Tokens that were not accepted, by the number of the fault.
    refused: [AtomicU64; TokenFault::ALL.len()],
}

impl SharedKeys {
    pub fn set(&self, keys: KeySet) {
        self.keys.store(Arc::new(keys));
    }

    pub fn len(&self) -> usize {
        self.keys.load().len()
    }

    pub fn is_empty(&self) -> bool {
        self.keys.load().is_empty()
    }

    /// Tokens that were not accepted, by fault.
    pub fn refused(&self) -> impl Iterator<Item = (TokenFault, u64)> {
        TokenFault::ALL.into_iter().zip(&self.refused).map(|(fault, count)| (fault, count.load(Ordering::Relaxed)))
    }

    /// Whether a token named a key that is not known, since the last call: the issuer may have a new one.
    pub(crate) fn take_missing(&self) -> bool {
        self.is_one_missing.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn is_one_missing(&self) -> bool {
        self.is_one_missing.load(Ordering::Relaxed)
    }

    pub(super) fn current(&self) -> Guard<Arc<KeySet>> {
        self.keys.load()
    }

    pub(super) fn miss_one(&self) {
        self.is_one_missing.store(true, Ordering::Relaxed);
    }

    pub(super) fn refuse(&self, fault: TokenFault) {
        self.refused[fault as usize].fetch_add(1, Ordering::Relaxed);
    }
}
