//! The token in a file: for the first hour of a fleet, and for the day on which all others are lost.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::health::Health;
use crate::net::Closing;
use crate::tokens::{Digest, LONGEST_SECRET, hash, same};

/// A file with one token, which is followed while the server runs. Only its hash is kept.
#[derive(Debug)]
pub(crate) struct TokenFile {
    path: PathBuf,
    current: ArcSwap<Digest>,
    /// What was found when it was last looked at.
    seen: Mutex<Result<Digest, String>>,
}

/// The setting, and who somebody is who shows this token.
pub(super) const NAME: &str = "admin_token_file";
/// The shortest token, in bytes: nobody guesses it.
const SHORTEST: usize = 16;
/// How often the file is looked at.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(3);
/// Who else may read a file that has these bits.
const OTHERS: u32 = 0o077;

impl TokenFile {
    /// # Errors
    /// If there is no token in it that can be used.
    pub(crate) fn load(path: &Path) -> Result<TokenFile, String> {
        let found = read(path)?;
        if File::open(path).and_then(|file| file.metadata()).is_ok_and(|about| about.permissions().mode() & OTHERS != 0)
        {
            tracing::warn!("{NAME}: {} can be read by others than its owner: `chmod 600` it", path.display());
        }
        Ok(TokenFile { path: path.to_owned(), current: ArcSwap::from_pointee(found), seen: Mutex::new(Ok(found)) })
    }

    /// Whether a secret is the one in the file.
    pub(super) fn is(&self, secret: &[u8]) -> bool {
        secret.len() <= LONGEST_SECRET && same(&self.current.load(), &hash(secret))
    }

    /// Looks at the file. `Some` if it is another than before: whether what is in it is in force now.
    pub(super) fn look(&self) -> Option<Result<(), String>> {
        let found = read(&self.path);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == found {
            return None;
        }
        seen.clone_from(&found);
        Some(found.map(|found| self.current.store(Arc::new(found))))
    }

    /// Follows the file until the server is about to stop.
    pub(crate) async fn follow(self: Arc<Self>, health: Arc<Health>, mut closing: Closing) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = closing.begun() => return,
            }
            let file = Arc::clone(&self);
            match tokio::task::spawn_blocking(move || file.look()).await.ok().flatten() {
                None => {}
                Some(Ok(())) => {
                    tracing::info!("{NAME}: the token was replaced");
                    health.restore(NAME);
                }
                Some(Err(why)) => {
                    tracing::warn!("{why}; the token that was there last stays in force");
                    health.degrade(NAME, format!("the token that was there last is in force: {why}"));
                }
            }
        }
    }
}

/// The hash of the token in a file. What is wrong is told without it.
fn read(path: &Path) -> Result<Digest, String> {
    let wrong = |why: &str| format!("{NAME}: {}: {why}", path.display());
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LONGEST_SECRET as u64 + 2).read_to_end(&mut bytes));
    read.map_err(|error| wrong(&format!("it can't be read: {error}; name a file that can be")))?;
    let token = bytes.trim_ascii();
    let make = "make one with `openssl rand -hex 32`";
    if token.len() < SHORTEST {
        return Err(wrong(&format!("the token has fewer than {SHORTEST} bytes; {make}")));
    }
    if token.len() > LONGEST_SECRET {
        return Err(wrong(&format!("the token has more than {LONGEST_SECRET} bytes; {make}")));
    }
    if !token.iter().all(u8::is_ascii_graphic) {
        return Err(wrong(&format!("there must be one token in one line, of visible ASCII characters; {make}")));
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
        let told = TokenFile::load(&path).unwrap_err();
        assert!(told.contains("can't be read") && told.ends_with("name a file that can be"), "{told}");
        let long = "x".repeat(LONGEST_SECRET + 1);
        for (text, why) in [
            ("", "has fewer than 16 bytes"),
            ("fifteen bytes..", "has fewer than 16 bytes"),
            (&long, "has more than 4096 bytes"),
            ("two tokens of it\nare too many", "one token in one line"),
            ("sixteen bytes öö", "one token in one line"),
        ] {
            fs::write(&path, text).unwrap();
            let told = TokenFile::load(&path).unwrap_err();
            assert!(told.contains(why) && !told.contains("tokens of it"), "{told}");
        }
        fs::write(&path, "sixteen-bytes-16\n").unwrap();
        let file = TokenFile::load(&path).unwrap();
        assert!(file.is(b"sixteen-bytes-16") && !file.is(b"sixteen-bytes-17"));
        assert_eq!(file.look(), None);
        fs::write(&path, "short").unwrap();
        assert!(file.look().unwrap().is_err());
        assert_eq!(file.look(), None);
        assert!(file.is(b"sixteen-bytes-16") && !file.is(b"short"));
        fs::write(&path, "seventeen-bytes-17").unwrap();
        assert_eq!(file.look(), Some(Ok(())));
        assert!(!file.is(b"sixteen-bytes-16") && file.is(b"seventeen-bytes-17"));
    }
}
