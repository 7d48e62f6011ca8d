//! Where keys come from that nobody gave: the data directory, or what all servers with the same store agree on.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tollgate::ReceiptKeys;

use super::Receipts;
use crate::counters::Shared;
use crate::data_dir::{DataDir, replace};
use crate::net::Closing;

/// The key's file in the data directory.
const NAME: &str = "receipt.key";
/// The longest such file.
const MOST_BYTES: u64 = 4_096;
/// The key's name among the values that servers agree on.
const AGREED: &str = "receipt-key";
/// How long the store may take to say what was agreed on.
const WITHIN: Duration = Duration::from_secs(1);
/// How soon a store that did not say so is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How often one that did is asked again: a store that was emptied is told anew, before servers come that would agree on another.
const REMIND: Duration = Duration::from_secs(5);

/// A secret that nobody knows, in hexadecimal digits: so it can be written into settings and files as it is.
///
/// # Errors
/// If the system has no randomness.
pub(crate) fn drawn() -> Result<String, String> {
    let secret = ReceiptKeys::random_secret().ok_or("the system gives no random numbers, which keys are made of")?;
    Ok(secret.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// Keys of these secrets.
///
/// # Errors
/// If they can't be, with what to write instead.
pub(crate) fn of<K: AsRef<[u8]>>(secrets: impl IntoIterator<Item = K>) -> Result<ReceiptKeys, String> {
    ReceiptKeys::new(secrets).map_err(|error| error.to_string())
}

/// The secret in the data directory, which is made if it is not there.
///
/// # Errors
/// If it can't be read or written.
pub(crate) fn kept(data: &DataDir) -> Result<String, String> {
    let path = data.file(NAME);
    let shown = path.display();
    match read(&path).map_err(|error| format!("{shown} can't be read: {error}"))? {
        Some(secret) if of([&secret]).is_ok() => return Ok(secret),
        Some(_) => tracing::warn!("{shown} has no key in it: another is made, and receipts of before can't be settled"),
        None => {}
    }
    let secret = drawn()?;
    replace(&path, |file| writeln!(file, "{secret}")).map_err(|error| format!("{shown} can't be written: {error}"))?;
    Ok(secret)
}

/// What the file has; none if there is none.
fn read(path: &Path) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    match File::open(path).and_then(|file| file.take(MOST_BYTES).read_to_end(&mut bytes)) {
        Ok(_) => Ok(Some(String::from_utf8_lossy(&bytes).trim().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Servers with the same store on their way to one key. Until they have it each signs with its own, which stays among those that
/// verify.
pub(crate) struct Agreement {
    store: Arc<dyn Shared>,
    receipts: Arc<Receipts>,
    /// The one that signs first, which is the one that is agreed on as soon as there is one.
    known: Mutex<Known>,
}

struct Known {
    secrets: Vec<Vec<u8>>,
    /// Whether the store said so.
    agreed: bool,
}

impl Agreement {
    /// From this secret, with which the receipts are signed so far.
    pub(crate) fn new(store: Arc<dyn Shared>, receipts: Arc<Receipts>, own: String) -> Agreement {
        let known = Known { secrets: vec![own.into_bytes()], agreed: false };
        Agreement { store, receipts, known: Mutex::new(known) }
    }

    /// Asks the store once, which may take [`WITHIN`]; gives why there is no answer.
    pub(crate) async fn ask(&self) -> Result<(), String> {
        let proposal = self.known().secrets.first().cloned().unwrap_or_default();
        let agreed = self.store.agree_on(AGREED, &proposal, WITHIN).await?;
        let mut known = self.known();
        if known.secrets.first() != Some(&agreed) {
            let mut secrets = vec![agreed];
            let others = known.secrets.iter().filter(|secret| **secret != secrets[0]).cloned().collect::<Vec<_>>();
            secrets.extend(others.into_iter().take(ReceiptKeys::MOST - 1));
            self.receipts.install(of(&secrets).map_err(|why| format!("what is agreed on is no key: {why}"))?);
            known.secrets = secrets;
        }
        if !std::mem::replace(&mut known.agreed, true) {
            tracing::warn!(
                "no receipt_keys are set: receipts are signed with a key that is kept in the store; set receipt_keys, so that \
                 who can read the store can't make receipts, and a store that is emptied does not void them"
            );
        }
        Ok(())
    }

    /// The first time, before anybody is answered.
    pub(crate) async fn begin(&self) {
        if let Err(why) = self.ask().await {
            tracing::warn!(
                "receipts are signed with a key of this server alone until the store says on which all agree: {why}"
            );
        }
    }

    /// Asks until there is an answer, and reminds the store of it from then on, until the server is about to stop.
    pub(crate) async fn keep(self: Arc<Agreement>, mut closing: Closing) {
        loop {
            let pause = if self.known().agreed { REMIND } else { ASK_AGAIN };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = closing.begun() => return,
            }
            // Who asks again soon need not be told every time; health says how the store is.
            if let Err(why) = self.ask().await {
                tracing::debug!(%why, "the store does not say which key receipts are signed with");
            }
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
