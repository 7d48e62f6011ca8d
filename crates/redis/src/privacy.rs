//! The form of private values in names: agreed on in Redis with everybody who counts there, before the first claim on such
//! a value is sent, and restored there when Redis has lost it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tollgate_core::Claim;
use tollgate_store::key_privacy::{Agreement, OlderServers};
use tollgate_store::sharded::{Failure, HEARTBEAT};

use super::lane_task::{Backoff, jitter};
use super::{Shared, liveness};

/// The name of the agreement among the agreed values.
const AGREEMENT: &str = "key-privacy";
/// A value that servers of earlier versions agree on, and this version only after this agreement.
const RECEIPT_KEY: &str = "receipt-key";
/// The timeout of the heartbeats, which another node may have.
const HEARTBEATS_TIMEOUT: Duration = Duration::from_millis(300);
/// The timeout of an attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);

/// Agrees with the other processes, and again with every heartbeat. Never returns.
pub(super) async fn keep_agreed(shared: &Shared) {
    let mut backoff = Backoff::default();
    loop {
        let agreed = timeout(ATTEMPT_TIMEOUT, agree(shared)).await.unwrap_or(Err(Failure::Timeout));
        match agreed {
            Ok(()) => {
                backoff = Backoff::default();
                sleep(jitter(HEARTBEAT)).await;
            }
            Err(failure) => {
                // The state of Redis is reported elsewhere.
                tracing::debug!(%failure, "the form of names can't be agreed on");
                sleep(backoff.next()).await;
            }
        }
    }
}

async fn agree(shared: &Shared) -> Result<(), Failure> {
    let stored = shared.read_agreed(AGREEMENT).await?;
    let before = stored.as_deref().map(parse).transpose()?;
    let older = timeout(HEARTBEATS_TIMEOUT, liveness::has_older_servers(shared)).await.unwrap_or(Err(Failure::Timeout));
    let (may_run, left_values) = match (&older, before) {
        (Ok(are_running), Some(_)) => (*are_running, false),
        (Ok(are_running), None) => (*are_running, shared.read_agreed(RECEIPT_KEY).await?.is_some()),
        // Without the heartbeats nothing is changed.
        (Err(_), Some(_)) => (true, false),
        (Err(failure), None) => return Err(failure.clone()),
    };
    let proposal = shared.privacy.propose(before, OlderServers { are_running: may_run, left_values });
    let agreed = if before == Some(proposal) {
        proposal
    } else {
        let (old, new) = (stored.unwrap_or_default(), proposal.to_string());
        // Another process may have been faster: its value is taken, and ours is proposed again by the next heartbeat.
        parse(&shared.replace_agreed(AGREEMENT, &old, new.as_bytes()).await?)?
    };
    shared.privacy.adopt(agreed, before, OlderServers { are_running: older.unwrap_or(false), left_values });
    shared.apply_form();
    Ok(())
}

fn parse(value: &[u8]) -> Result<Agreement, Failure> {
    let text = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    text.ok_or_else(|| {
        Failure::Refused(format!("the agreed value {AGREEMENT} in Redis can't be read: delete it there"))
    })
}

impl Shared {
    /// Names values in the agreed form from now on.
    fn apply_form(&self) {
        let Some(form) = self.privacy.name_form() else { return };
        let names = self.names();
        if names.form() != Some(form) {
            self.names.store(Arc::new(names.with_form(form)));
        }
        self.is_agreed.send_replace(true);
    }

    /// Waits until this process has agreed with the others.
    pub(super) async fn agreed(&self) {
        // The sender is a part of self.
        let _ = self.is_agreed.subscribe().wait_for(|is_agreed| *is_agreed).await;
    }

    /// Whether the names for a claim are known. A process that saved the form knows them from the start.
    pub(super) fn has_names_for(&self, claim: &Claim<'_>) -> bool {
        self.names().form().is_some() || !has_private(claim)
    }

    /// Waits for them.
    #[cold]
    pub(super) async fn wait_for_names(&self, at_most: Duration) -> Result<(), Failure> {
        if self.topology.is_cluster() {
            // The slot of the claim was chosen by its names.
            return Err(Failure::Unreachable("the form of names is not agreed on yet".to_owned()));
        }
        timeout(at_most, self.agreed()).await.map_err(|_| Failure::Timeout)
    }
}

fn has_private(claim: &Claim<'_>) -> bool {
    let keys = claim.charges.iter().map(|charge| &charge.key).chain(claim.once.as_ref().map(|once| &once.key));
    keys.into_iter().any(|key| !key.scope().private().is_empty())
}
