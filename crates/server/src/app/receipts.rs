//! Builds the signing of receipts from the settings.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use tollgate::{ReceiptKeys, SystemClock};

use super::component::{Foundation, Tasks};
use super::store::read;
use crate::config::ReceiptKeySource;
use tollgate_admin::data_dir::{DataDir, replace, write_problem};
use tollgate_store::SharedStore;
use tollgate_wire::receipts::{KeyAgreement, Receipts, keys};

/// The file of the key in the data directory.
const KEY_FILE: &str = "receipt.key";
/// The longest key file, in bytes.
const MAX_KEY_FILE_BYTES: u64 = 4_096;

/// The signer of receipts, and the agreement on its key with other servers.
pub(super) struct Signing {
    pub(super) receipts: Arc<Receipts>,
    pub(super) agreement: Option<Arc<KeyAgreement>>,
}

impl Signing {
    /// # Errors
    /// If the keys that the settings name can't be used.
    pub(super) fn build(
        foundation: &Foundation<'_>,
        shared: Option<Arc<dyn SharedStore>>,
        tasks: &mut Tasks,
    ) -> Result<Signing, String> {
        let (settings, data) = (foundation.settings, foundation.data.as_deref());
        let metrics = foundation.metrics.receipts().clone();
        let receipts = |keys: ReceiptKeys| Arc::new(Receipts::new(keys, Arc::new(SystemClock::default()), metrics));
        let configured = match &settings.receipt_keys {
            ReceiptKeySource::Generated => None,
            ReceiptKeySource::Texts(secrets) => Some(keys::from_secrets(secrets.iter().map(|secret| secret.reveal()))?),
            ReceiptKeySource::File(path) => Some(keys_from_file(path)?),
        };
        let (secret, shared) = match (configured, shared, data) {
            (Some(keys), _, _) => return Ok(Signing { receipts: receipts(keys), agreement: None }),
            (None, Some(shared), _) => (keys::random_secret()?, Some(shared)),
            (None, None, Some(data)) => (stored_or_generated(data)?, None),
            (None, None, None) => {
                tracing::info!(
                    "receipts can be settled only until this process ends: set receipt_keys or a data directory to change that"
                );
                (keys::random_secret()?, None)
            }
        };
        let receipts = receipts(keys::from_secrets([&secret])?);
        let agreement = shared.map(|shared| Arc::new(KeyAgreement::new(shared, receipts.clone(), secret)));
        if let Some(agreement) = agreement.clone() {
            tasks.add(move |closing| agreement.run(closing));
        }
        Ok(Signing { receipts, agreement })
    }
}

/// The secret in the data directory, or a temporary one if it can't be used.
fn stored_or_generated(data: &DataDir) -> Result<String, String> {
    stored_secret(data).or_else(|why| {
        tracing::warn!("{why}; receipts can be settled only until this process ends");
        keys::random_secret()
    })
}

/// The secret in the data directory; it is generated if there is none.
///
/// # Errors
/// If it can't be read or written.
fn stored_secret(data: &DataDir) -> Result<String, String> {
    let path = data.file(KEY_FILE);
    let shown = path.display();
    match read_secret(&path).map_err(|error| format!("{shown} can't be read: {error}"))? {
        Some(secret) if keys::from_secrets([&secret]).is_ok() => return Ok(secret),
        Some(_) => {
            tracing::warn!("{shown} contains no key: generating a new one; receipts issued before can't be settled")
        }
        None => {}
    }
    let secret = keys::random_secret()?;
    replace(&path, |file| writeln!(file, "{secret}")).map_err(|error| write_problem(&path, &error))?;
    Ok(secret)
}

/// The contents of the file; `None` if it does not exist.
fn read_secret(path: &Path) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    match File::open(path).and_then(|file| file.take(MAX_KEY_FILE_BYTES).read_to_end(&mut bytes)) {
        Ok(_) => Ok(Some(String::from_utf8_lossy(&bytes).trim().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The keys in a file, one per line.
fn keys_from_file(path: &Path) -> Result<ReceiptKeys, String> {
    let bytes = read("receipt_keys_file", path)?;
    let lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    keys::from_secrets(lines).map_err(|why| format!("receipt_keys_file: {}: {why}", path.display()))
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
            keys_from_file(&path).unwrap_or_else(|why| panic!("{text:?}: {why}"));
        }
        let many = "a secret of the fleet\n".repeat(9);
        let rows = [
            ("", "there is no key; configure at least one"),
            ("\n\n", "there is no key; configure at least one"),
            ("short\n", "a key needs at least 16 bytes; generate one with `openssl rand -hex 32`"),
            (&many, "there are too many keys; the maximum is 8"),
        ];
        for (text, why) in rows {
            fs::write(&path, text).unwrap();
            assert_eq!(
                keys_from_file(&path).unwrap_err(),
                format!("receipt_keys_file: {}: {why}", path.display()),
                "{text:?}"
            );
        }
        let error = keys_from_file(&folder.path().join("none")).unwrap_err();
        assert!(error.starts_with("receipt_keys_file: ") && error.contains("can't be read"), "{error}");
    }

    #[test]
    fn the_key_of_a_data_directory_is_generated_once_and_private() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let data = DataDir::open(folder.path()).unwrap();
        let secret = stored_secret(&data).unwrap();
        assert_eq!(secret.len(), 64);
        assert_eq!(stored_secret(&data).unwrap(), secret);
        let path = folder.path().join("receipt.key");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        for damaged in ["", "short\n"] {
            std::fs::write(&path, damaged).unwrap();
            let other = stored_secret(&data).unwrap();
            assert!(other.len() == 64 && other != secret);
            assert_eq!(stored_secret(&data).unwrap(), other);
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(stored_secret(&data).unwrap_err().contains("receipt.key can't be read"));
    }
}
