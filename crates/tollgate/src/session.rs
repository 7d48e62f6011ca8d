//! Sessions: repeated checks by one worker or connection.

use tollgate_core::Request;
use tollgate_rules::RequestError;
use tollgate_store::Store;

use crate::decision::{Decision, RulesRef};
use crate::limiter::{Limiter, Settling};

/// A limiter for one worker that checks often. It reuses the memory of a decision, and loads rules and tenants again only when
/// others are installed.
#[derive(Debug)]
pub struct Session<'l, S> {
    limiter: &'l Limiter<S>,
    /// How often something had been installed when the rules were loaded.
    installed: u64,
    decision: Decision,
}

impl<S: Store> Limiter<S> {
    /// A session, for workers and connections that check often.
    pub fn session(&self) -> Session<'_, S> {
        Session::new(self)
    }
}

impl<'l, S: Store> Session<'l, S> {
    fn new(limiter: &'l Limiter<S>) -> Session<'l, S> {
        // The count is read before the rules: a concurrent change costs one extra load.
        let installed = limiter.installed();
        Session { limiter, installed, decision: Decision::new(RulesRef::Shared(limiter.in_force())) }
    }

    /// Decides a request, as [`Limiter::check_request`] does. The decision is valid until the next check.
    ///
    /// # Errors
    /// As [`Limiter::check_request`].
    pub async fn check_request(&mut self, request: &Request<'_>) -> Result<&Decision, RequestError> {
        let installed = self.limiter.installed();
        if installed != self.installed {
            self.installed = installed;
            self.decision.in_force = RulesRef::Shared(self.limiter.in_force());
        }
        self.decision.clear();
        self.limiter.decide(request, Settling::InStore { timeout: None }, &mut self.decision).await?;
        Ok(&self.decision)
    }
}
