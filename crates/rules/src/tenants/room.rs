//! Where limits live that were made for one request.

use std::cell::OnceCell;

use tollgate_core::Limit;

/// Room for the limits of one request that no rule has. What was put in stays where it is as long as the room.
#[derive(Debug, Default)]
pub struct Room {
    first: [OnceCell<Limit>; 2],
    more: OnceCell<Box<Room>>,
}

impl Room {
    pub(crate) fn hold(&self, limit: Limit) -> &Limit {
        match self.first.iter().find(|cell| cell.get().is_none()) {
            Some(free) => free.get_or_init(|| limit),
            None => self.more.get_or_init(Box::default).hold(limit),
        }
    }
}
