//! Receipt keys that are not configured: random ones, and the one that all servers with the same store share.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tollgate::ReceiptKeys;

use super::Receipts;
use tollgate_net::Closing;
use tollgate_store::SharedStore;

/// The name of the key among the values that servers agree on.
const KEY_NAME: &str = "receipt-key";
/// The timeout of the store.
const AGREE_TIMEOUT: Duration = Duration::from_secs(1);
/// The interval while the store has not answered.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// The interval after that: a flushed store gets the key again before new servers would agree on another.
const REFRESH_INTERVAL: Duration = Duration::from_secs(5);

/// A new random secret in hexadecimal digits, which can be used in settings and files.
///
/// # Errors
/// If the system has no randomness.
pub fn random_secret() -> Result<String, String> {
    let secret = ReceiptKeys::random_secret().ok_or("the system has no source of randomness, which keys need")?;
    Ok(secret.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// Keys from secrets.
///
/// # Errors
/// If they are invalid, with what to write instead.
pub fn from_secrets<K: AsRef<[u8]>>(secrets: impl IntoIterator<Item = K>) -> Result<ReceiptKeys, String> {
    ReceiptKeys::new(secrets).map_err(|error| error.to_string())
}

/// The agreement of all servers with the same store on one key. Until it is reached each server signs with its own key,
/// which continues to verify.
pub struct KeyAgreement {
    store: Arc<dyn SharedStore>,
    receipts: Arc<Receipts>,
    /// The secrets: the first signs. It is the shared one as soon as it is known.
    state: Mutex<KeyState>,
}

struct KeyState {
    secrets: Vec<Vec<u8>>,
    /// Whether the first secret is the shared one.
    agreed: bool,
}

impl KeyAgreement {
    /// Starts from the secret that receipts are signed with so far.
    pub fn new(store: Arc<dyn SharedStore>, receipts: Arc<Receipts>, own: String) -> KeyAgreement {
        let state = KeyState { secrets: vec![own.into_bytes()], agreed: false };
        KeyAgreement { store, receipts, state: Mutex::new(state) }
    }

    /// Agrees with the other servers once, within [`AGREE_TIMEOUT`].
    pub async fn agree(&self) -> Result<(), String> {
        let proposal = self.state().secrets.first().cloned().unwrap_or_default();
        let agreed = self.store.agree_on(KEY_NAME, &proposal, AGREE_TIMEOUT).await?;
        let mut state = self.state();
        if state.secrets.first() != Some(&agreed) {
            let mut secrets = vec![agreed];
            let others = state.secrets.iter().filter(|secret| **secret != secrets[0]).cloned().collect::<Vec<_>>();
            secrets.extend(others.into_iter().take(ReceiptKeys::MAX_KEYS - 1));
            self.receipts
                .install(from_secrets(&secrets).map_err(|why| format!("the shared value is not a key: {why}"))?);
            state.secrets = secrets;
        }
        if !std::mem::replace(&mut state.agreed, true) {
            tracing::warn!(
                "no receipt_keys are set: receipts are signed with a key in the store; set receipt_keys, so that readers of the \
                 store can't forge receipts, and a flushed store does not invalidate them"
            );
        }
        Ok(())
    }

    /// The first attempt, before requests are served.
    pub async fn start(&self) {
        if let Err(why) = self.agree().await {
            tracing::warn!("receipts are signed with a key of this server only, until the store is available: {why}");
        }
    }

    /// Tries until there is an agreement, and refreshes it in the store from then on, until the server stops.
    pub async fn run(self: Arc<KeyAgreement>, mut closing: Closing) {
        loop {
            let pause = if self.state().agreed { REFRESH_INTERVAL } else { RETRY_INTERVAL };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = closing.begun() => return,
            }
            // Repeated failures are not worth a warning; the health of the store is reported elsewhere.
            if let Err(why) = self.agree().await {
                tracing::debug!(%why, "can't read the receipt key from the store");
            }
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, KeyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
