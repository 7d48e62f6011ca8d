//! A timer for bodies that stop in the middle.

use std::future::Future as _;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use tokio::time::Sleep;
use tollgate_store::Steady;

use crate::clock;

/// Fires if nothing comes for too long. It is started only when there is something to wait for.
pub(crate) struct IdleTimer {
    pub(crate) time: Duration,
    /// Fires at this moment as well.
    deadline: Option<Steady>,
    sleep: Option<Pin<Box<Sleep>>>,
    is_waiting: bool,
}

impl IdleTimer {
    pub(crate) fn new(time: Duration, deadline: Option<Steady>) -> IdleTimer {
        IdleTimer { time, deadline, sleep: None, is_waiting: false }
    }

    /// Something came.
    pub(crate) fn stop(&mut self) {
        self.is_waiting = false;
    }

    /// The moment at which it fires whatever comes.
    pub(crate) fn deadline(&self) -> Option<Steady> {
        self.deadline
    }

    /// Whether the moment has passed at which it fires whatever comes.
    pub(crate) fn is_over(&self) -> bool {
        clock::until(self.deadline).is_some_and(|left| left.is_zero())
    }

    /// Whether nothing came for too long.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> bool {
        let is_waiting = std::mem::replace(&mut self.is_waiting, true);
        let left = if is_waiting { None } else { clock::until(self.deadline) };
        let time = left.map_or(self.time, |left| left.min(self.time));
        let sleep = match &mut self.sleep {
            Some(sleep) => {
                if !is_waiting {
                    sleep.set(tokio::time::sleep(time));
                }
                sleep
            }
            none => none.insert(Box::pin(tokio::time::sleep(time))),
        };
        sleep.as_mut().poll(context).is_ready()
    }
}
