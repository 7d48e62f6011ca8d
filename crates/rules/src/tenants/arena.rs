//! Storage for the limits of one request.

use std::cell::OnceCell;

use tollgate_core::Limit;

/// Stores the limits of one request that no rule has. A stored limit does not move.
#[derive(Debug, Default)]
pub struct LimitArena {
    first: [OnceCell<Limit>; 2],
    more: OnceCell<Box<LimitArena>>,
}

impl LimitArena {
    pub(crate) fn alloc(&self, limit: Limit) -> &Limit {
        match self.first.iter().find(|cell| cell.get().is_none()) {
            Some(free) => free.get_or_init(|| limit),
            None => self.more.get_or_init(Box::default).alloc(limit),
        }
    }
}
