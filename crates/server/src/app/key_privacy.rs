//! The form of private values, such as API keys, in names of counters and in logs: from the settings, and saved in the data
//! directory.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tollgate::KeyPrivacy;

use super::component::{Foundation, Tasks};
use super::store::read;
use crate::config::KeyPrivacySettings;
use tollgate_admin::data_dir::{replace, write_problem};
use tollgate_net::Closing;
use tollgate_telemetry::Health;

/// The file in the data directory.
const FILE: &str = "key.privacy";
/// The longest file, in bytes.
const MAX_FILE_BYTES: u64 = 4_096;
/// The component of the health page.
const COMPONENT: &str = "key_privacy";
/// How often changes are looked for.
const INTERVAL: Duration = Duration::from_millis(500);

/// The form of private values as the settings and an earlier process left it.
///
/// # Errors
/// If the secrets that the settings name can't be used.
pub(super) fn build(foundation: &Foundation<'_>, tasks: &mut Tasks) -> Result<Arc<KeyPrivacy>, String> {
    let KeyPrivacySettings { form, secret_file } = &foundation.settings.key_privacy;
    let privacy = Arc::new(match secret_file {
        Some(path) => {
            let bytes = read("key_secret_file", path)?;
            let lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
            KeyPrivacy::with_secrets(*form, lines)
                .map_err(|why| format!("key_secret_file: {}: {why}", path.display()))?
        }
        None => KeyPrivacy::new(*form),
    });
    let file = foundation.data.as_ref().map(|data| data.file(FILE));
    if let Some(path) = &file {
        restore(&privacy, path);
    }
    let (keeping, health) = (Keeper { privacy: privacy.clone(), file }, foundation.health.clone());
    tasks.add(move |closing| keeping.run(health, closing));
    Ok(privacy)
}

/// Starts from what an earlier process saved.
fn restore(privacy: &KeyPrivacy, path: &Path) {
    let mut text = String::new();
    let why = match File::open(path).and_then(|file| file.take(MAX_FILE_BYTES).read_to_string(&mut text)) {
        Ok(_) if privacy.restore(&text) => return,
        Ok(_) => "it has another format".to_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(error) => error.to_string(),
    };
    let path = path.display();
    tracing::warn!("{path} can't be read: {why}; what was logged before can't be found by private values");
}

/// Keeps the file and the health page up to date.
struct Keeper {
    privacy: Arc<KeyPrivacy>,
    file: Option<PathBuf>,
}

impl Keeper {
    async fn run(self, health: Arc<Health>, mut closing: Closing) {
        let (mut saved, mut is_failing) = (String::new(), false);
        loop {
            let text = self.privacy.save();
            if let Some(path) = self.file.as_ref().filter(|_| text != saved) {
                match save(path.clone(), text.clone()).await {
                    Ok(()) => (saved, is_failing) = (text, false),
                    Err(error) if !std::mem::replace(&mut is_failing, true) => {
                        tracing::warn!("{}", write_problem(path, &error));
                    }
                    Err(_) => {}
                }
            }
            match self.privacy.warning() {
                Some(warning) => health.degrade(COMPONENT, warning.to_owned()),
                None => health.restore(COMPONENT),
            }
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                () = closing.begun() => return,
            }
        }
    }
}

/// Writes the file, not on an async thread.
async fn save(path: PathBuf, text: String) -> io::Result<()> {
    let written = tokio::task::spawn_blocking(move || replace(&path, |file| file.write_all(text.as_bytes())));
    written.await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

#[cfg(test)]
mod tests {
    use tollgate::PrivacySetting;

    use super::*;

    #[tokio::test]
    async fn a_file_is_private_and_read_by_the_next_process() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let (first, next) = (KeyPrivacy::default(), KeyPrivacy::default());
        restore(&next, &path);
        save(path.clone(), first.save()).await.unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        restore(&next, &path);
        assert_eq!(next.log_secret(), first.log_secret());
        // A damaged file changes nothing.
        std::fs::write(&path, "hashed\n").unwrap();
        restore(&next, &path);
        assert_eq!(next.log_secret(), first.log_secret());
        let clear = KeyPrivacy::new(PrivacySetting::Clear);
        assert_eq!(clear.log_secret(), None);
    }
}
