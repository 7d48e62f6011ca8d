//! The token in a file: for bootstrapping, and for recovery when all other tokens are lost.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::tokens::{Digest, MAX_SECRET_BYTES, constant_time_eq, hash};
use tollgate_net::Closing;
use tollgate_telemetry::Health;

/// A file with one token, reloaded while the server runs. Only its hash is retained.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    current: ArcSwap<Digest>,
    /// The result of the last read.
    last_read: Mutex<Result<Digest, String>>,
}

/// The setting, and the principal of this token.
pub(super) const NAME: &str = "admin_token_file";
/// The minimal length of the token, in bytes.
const MIN_TOKEN_BYTES: usize = 16;
/// How often the file is read.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(3);
/// Permission bits of others than the owner.
const GROUP_AND_OTHERS: u32 = 0o077;

impl TokenFile {
    /// # Errors
    /// If it contains no valid token.
    pub fn load(path: &Path) -> Result<TokenFile, String> {
        let found = read(path)?;
        if File::open(path)
            .and_then(|file| file.metadata())
            .is_ok_and(|about| about.permissions().mode() & GROUP_AND_OTHERS != 0)
        {
            tracing::warn!("{NAME}: {} can be read by others than its owner: `chmod 600` it", path.display());
        }
        Ok(TokenFile { path: path.to_owned(), current: ArcSwap::from_pointee(found), last_read: Mutex::new(Ok(found)) })
    }

    /// Whether a secret is the one in the file.
    pub(super) fn matches(&self, secret: &[u8]) -> bool {
        secret.len() <= MAX_SECRET_BYTES && constant_time_eq(&self.current.load(), &hash(secret))
    }

    /// Reads the file. `Some` if it changed: whether its content is in force now.
    pub(super) fn reload(&self) -> Option<Result<(), String>> {
        let found = read(&self.path);
        let mut last_read = self.last_read.lock().unwrap_or_else(PoisonError::into_inner);
        if *last_read == found {
            return None;
        }
        last_read.clone_from(&found);
        Some(found.map(|found| self.current.store(Arc::new(found))))
    }

    /// Watches the file until the server is about to stop.
    pub async fn follow(self: Arc<Self>, health: Arc<Health>, mut closing: Closing) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                () = closing.begun() => return,
            }
            let file = Arc::clone(&self);
            match tokio::task::spawn_blocking(move || file.reload()).await.ok().flatten() {
                None => {}
                Some(Ok(())) => {
                    tracing::info!("{NAME}: the token was replaced");
                    health.restore(NAME);
                }
                Some(Err(why)) => {
                    tracing::warn!("{why}; the previous token stays in force");
                    health.degrade(NAME, format!("the previous token is in force: {why}"));
                }
            }
        }
    }
}

/// The hash of the token in a file. Errors never contain the token.
fn read(path: &Path) -> Result<Digest, String> {
    let wrong = |why: &str| format!("{NAME}: {}: {why}", path.display());
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_SECRET_BYTES as u64 + 2).read_to_end(&mut bytes));
    read.map_err(|error| wrong(&format!("it can't be read: {error}; choose a readable file")))?;
    let token = bytes.trim_ascii();
    let make = "create one with `openssl rand -hex 32`";
    if token.len() < MIN_TOKEN_BYTES {
        return Err(wrong(&format!("the token has fewer than {MIN_TOKEN_BYTES} bytes; {make}")));
    }
    if token.len() > MAX_SECRET_BYTES {
        return Err(wrong(&format!("the token has more than {MAX_SECRET_BYTES} bytes; {make}")));
    }
    if !token.iter().all(u8::is_ascii_graphic) {
        return Err(wrong(&format!("it must contain one token on one line, of visible ASCII characters; {make}")));
    }
    Ok(hash(token))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_token_is_read_from_its_file_and_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let error = TokenFile::load(&path).unwrap_err();
        assert!(error.contains("can't be read") && error.ends_with("choose a readable file"), "{error}");
        let long = "x".repeat(MAX_SECRET_BYTES + 1);
        for (text, why) in [
            ("", "has fewer than 16 bytes"),
            ("fifteen bytes..", "has fewer than 16 bytes"),
            (&long, "has more than 4096 bytes"),
            ("two tokens of it\nare too many", "one token on one line"),
            ("sixteen bytes öö", "one token on one line"),
        ] {
            fs::write(&path, text).unwrap();
            let error = TokenFile::load(&path).unwrap_err();
            assert!(error.contains(why) && !error.contains("tokens of it"), "{error}");
        }
        fs::write(&path, "sixteen-bytes-16\n").unwrap();
        let file = TokenFile::load(&path).unwrap();
        assert!(file.matches(b"sixteen-bytes-16") && !file.matches(b"sixteen-bytes-17"));
        assert_eq!(file.reload(), None);
        fs::write(&path, "short").unwrap();
        assert!(file.reload().unwrap().is_err());
        assert_eq!(file.reload(), None);
        assert!(file.matches(b"sixteen-bytes-16") && !file.matches(b"short"));
        fs::write(&path, "seventeen-bytes-17").unwrap();
        assert_eq!(file.reload(), Some(Ok(())));
        assert!(!file.matches(b"sixteen-bytes-16") && file.matches(b"seventeen-bytes-17"));
    }
}
