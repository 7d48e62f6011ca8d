//! The keys of receipts, as the settings ask for them.

use std::path::Path;
use std::sync::Arc;

use tollgate::{ReceiptKeys, SystemClock};

use super::store::read;
use crate::config::{KeysFrom, Settings};
use crate::counters::Shared;
use crate::data_dir::DataDir;
use crate::observe::metrics::ReceiptMetrics;
use crate::receipts::Receipts;
use crate::receipts::keys::{self, Agreement};

/// What signs receipts, and what it has to agree on with other servers.
pub(super) struct Signing {
    pub(super) receipts: Arc<Receipts>,
    pub(super) agreement: Option<Arc<Agreement>>,
}

impl Signing {
    /// # Errors
    /// If the keys that the settings name can't be used.
    pub(super) fn build(
        settings: &Settings,
        data: Option<&DataDir>,
        shared: Option<Arc<dyn Shared>>,
        metrics: ReceiptMetrics,
    ) -> Result<Signing, String> {
        let receipts = |keys: ReceiptKeys| Arc::new(Receipts::new(keys, Arc::new(SystemClock::default()), metrics));
        let given = match &settings.receipt_keys {
            KeysFrom::Nobody => None,
            KeysFrom::Texts(secrets) => Some(keys::of(secrets.iter().map(|secret| secret.reveal()))?),
            KeysFrom::File(path) => Some(file(path)?),
        };
        let (secret, shared) = match (given, shared, data) {
            (Some(keys), _, _) => return Ok(Signing { receipts: receipts(keys), agreement: None }),
            (None, Some(shared), _) => (keys::drawn()?, Some(shared)),
            (None, None, Some(data)) => (kept(data)?, None),
            (None, None, None) => {
                tracing::info!(
                    "receipts can be settled until this process ends: set receipt_keys, or a data directory"
                );
                (keys::drawn()?, None)
            }
        };
        let receipts = receipts(keys::of([&secret])?);
        let agreement = shared.map(|shared| Arc::new(Agreement::new(shared, receipts.clone(), secret)));
        Ok(Signing { receipts, agreement })
    }
}

/// The key in the data directory. Without it there is one all the same.
fn kept(data: &DataDir) -> Result<String, String> {
    keys::kept(data).or_else(|why| {
        tracing::warn!("{why}; receipts can be settled until this process ends");
        keys::drawn()
    })
}

/// The keys in a file, one in a line.
fn file(path: &Path) -> Result<ReceiptKeys, String> {
    let bytes = read("receipt_keys_file", path)?;
    let lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    keys::of(lines).map_err(|why| format!("receipt_keys_file: {}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn keys_are_read_line_by_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        for text in [
            "a secret of the fleet",
            "a secret of the fleet\n",
            "\r\na secret of the fleet\r\nan older secret of it\n\n",
        ] {
            fs::write(&path, text).unwrap();
            file(&path).unwrap_or_else(|why| panic!("{text:?}: {why}"));
        }
        let many = "a secret of the fleet\n".repeat(9);
        let rows = [
            ("", "there is no key; write one"),
            ("\n\n", "there is no key; write one"),
            ("short\n", "a key has at least 16 bytes; make one with `openssl rand -hex 32`"),
            (&many, "there are too many keys; at most 8"),
        ];
        for (text, why) in rows {
            fs::write(&path, text).unwrap();
            assert_eq!(file(&path).unwrap_err(), format!("receipt_keys_file: {}: {why}", path.display()), "{text:?}");
        }
        let told = file(&folder.path().join("none")).unwrap_err();
        assert!(told.starts_with("receipt_keys_file: ") && told.contains("can't be read"), "{told}");
    }
}
