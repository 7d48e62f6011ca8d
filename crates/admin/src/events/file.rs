//! The file that defines the sinks of events. It is watched, with the files that it names: changes take effect, unless they have
//! errors.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ring::digest;
use tollgate::{Clock, Span};
use tollgate_events::{Definition, Secret, SinkStatus, Subscriptions, Webhook};
use tollgate_net::Closing;
use tollgate_net::client::Poster;
use tollgate_telemetry::Health;

use super::config::{self, WebhookConfig};

/// The file of the sinks.
pub struct EventsFile {
    path: PathBuf,
    /// What was read last, whether it could be used or not.
    contents: Contents,
    clock: Arc<dyn Clock>,
}

/// The texts of the file and of the files that it names; or why it can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Contents(Result<Vec<SinkFiles>, Vec<String>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct SinkFiles {
    config: WebhookConfig,
    secrets: String,
    ca: Option<String>,
}

/// How often the files are read.
const INTERVAL: Duration = Duration::from_secs(1);
/// The largest file.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// Secrets of one webhook.
const MAX_SECRETS: usize = 4;
/// The component whose health is degraded while a change can't be used.
const FILE: &str = "events";
/// The component whose health is degraded while events can't be delivered.
const SINKS: &str = "events_sinks";
/// An event that is not delivered within this time is a problem.
const LATE: Span = Span::from_secs(600);

impl EventsFile {
    /// Reads a file.
    ///
    /// # Errors
    /// All problems, with line and remedy.
    pub fn load(path: &Path, clock: Arc<dyn Clock>) -> Result<(EventsFile, Vec<Definition>), Vec<String>> {
        let contents = Contents::read(path);
        let definitions = contents.definitions(&clock)?;
        Ok((EventsFile { path: path.to_owned(), contents, clock }, definitions))
    }

    /// Puts changes of the files in force, until shutdown.
    pub async fn follow(mut self, sinks: Arc<Subscriptions>, health: Arc<Health>, mut closing: Closing) {
        let mut changed: Option<Contents> = None;
        loop {
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                () = closing.begun() => return,
            }
            let path = self.path.clone();
            let Ok(contents) = tokio::task::spawn_blocking(move || Contents::read(&path)).await else { continue };
            // A file that is being written, or replaced, is different the next time.
            if contents == self.contents {
                changed = None;
            } else if changed.as_ref() != Some(&contents) {
                changed = Some(contents);
            } else {
                self.contents = contents;
                self.install(&sinks, &health).await;
            }
            look(&sinks.status(self.clock.now()), &health);
        }
    }

    async fn install(&self, sinks: &Arc<Subscriptions>, health: &Health) {
        let (contents, clock, sinks) = (self.contents.clone(), self.clock.clone(), sinks.clone());
        let installed = tokio::task::spawn_blocking(move || {
            let definitions = contents.definitions(&clock)?;
            let count = definitions.len();
            sinks.replace(definitions).map_err(|problem| vec![problem])?;
            Ok(count)
        });
        match installed.await.unwrap_or_else(|error| Err(vec![error.to_string()])) {
            Ok(sinks) => {
                tracing::info!(sinks, "the sinks of events were reloaded");
                health.restore(FILE);
            }
            Err(problems) => {
                problems.iter().for_each(|problem| tracing::error!("{problem}"));
                let more = problems.len().saturating_sub(1);
                let first = problems.first().map_or("", String::as_str);
                let reason = format!("the last good sinks of events are in use: {first}");
                health.degrade(FILE, if more > 0 { format!("{reason}, and {more} more") } else { reason });
            }
        }
    }
}

/// Compares what waits with what may wait.
fn look(sinks: &[SinkStatus], health: &Health) {
    let reasons = sinks.iter().filter_map(|sink| {
        let name = &sink.name;
        if sink.is_gone {
            return Some(format!("the receiver of `{name}` takes no more events (410)"));
        }
        let oldest = sink.oldest.filter(|oldest| *oldest > LATE)?;
        let why = sink.error.as_deref().unwrap_or("the receiver is slow");
        Some(format!("events for `{name}` wait for {} min: {why}", oldest.as_micros() / 60_000_000))
    });
    let reasons: Vec<_> = reasons.collect();
    if reasons.is_empty() { health.restore(SINKS) } else { health.degrade(SINKS, reasons.join("; ")) }
}

impl Contents {
    fn read(path: &Path) -> Contents {
        let read_all = || {
            let one = |error: String| vec![error];
            let text = read(path).map_err(one)?;
            let folder = path.parent().unwrap_or(Path::new(""));
            let webhooks = config::read(&path.display().to_string(), &text, folder)?;
            let files = webhooks.into_iter().map(|config| {
                let secrets = read(&config.secret_file)?;
                let ca = config.ca.as_deref().map(read).transpose()?;
                Ok(SinkFiles { config, secrets, ca })
            });
            let mut problems = Vec::new();
            let files =
                files.filter_map(|one: Result<_, String>| one.map_err(|error| problems.push(error)).ok()).collect();
            if problems.is_empty() { Ok(files) } else { Err(problems) }
        };
        Contents(read_all())
    }

    /// The sinks, or all problems.
    fn definitions(&self, clock: &Arc<dyn Clock>) -> Result<Vec<Definition>, Vec<String>> {
        let files = self.0.as_ref().map_err(Clone::clone)?;
        let mut problems = Vec::new();
        let definitions =
            files.iter().filter_map(|one| one.definition(clock).map_err(|error| problems.push(error)).ok());
        let definitions = definitions.collect();
        if problems.is_empty() { Ok(definitions) } else { Err(problems) }
    }
}

impl SinkFiles {
    fn definition(&self, clock: &Arc<dyn Clock>) -> Result<Definition, String> {
        let config = &self.config;
        let at = |why: String| format!("webhook `{}`: {why}", config.name);
        let poster = Poster::new(config.target.clone(), config.ca.as_deref()).map_err(at)?;
        Ok(Definition {
            name: config.name.clone(),
            host: Some(config.target.host()),
            digest: self.digest(),
            filter: config.filter.clone(),
            sink: Arc::new(Webhook::new(poster, self.secrets()?, clock.clone())),
        })
    }

    fn secrets(&self) -> Result<Vec<Secret>, String> {
        let path = self.config.secret_file.display();
        let lines = self.secrets.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
        let lines: Vec<_> = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')).collect();
        if lines.is_empty() {
            let remedy = "write a line such as the output of `echo whsec_$(openssl rand -base64 32)`";
            return Err(format!("{path}: there is no secret in it; {remedy}"));
        }
        if lines.len() > MAX_SECRETS {
            return Err(format!("{path}: there are more than {MAX_SECRETS} secrets in it; remove old ones"));
        }
        let secret = |(at, line)| Secret::parse(line).map_err(|why| format!("{path}:{at}: {why}"));
        lines.into_iter().map(secret).collect()
    }

    /// What distinguishes this definition from others.
    fn digest(&self) -> String {
        let text = format!("{:?}", (&self.config, &self.secrets, &self.ca));
        let digest = digest::digest(&digest::SHA256, text.as_bytes());
        digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn read(path: &Path) -> Result<String, String> {
    let at = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut text = String::new();
    File::open(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)).map_err(at)?;
    match text.len() as u64 > MAX_FILE_BYTES {
        true => Err(format!("{}: the file is larger than {} MiB", path.display(), MAX_FILE_BYTES >> 20)),
        false => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tollgate_events::Journal;
    use tollgate_net::closing::Closer;
    use tollgate_store::ManualClock;
    use tollgate_testing::TIMEOUT;

    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n";

    fn file(directory: &Path, names: &[&str]) -> PathBuf {
        let path = directory.join("events.yaml");
        let webhook = |name: &&str| format!("  - {{name: {name}, url: 'http://127.0.0.1:9/', secret_file: secret}}\n");
        fs::write(&path, format!("webhooks:\n{}", names.iter().map(webhook).collect::<String>())).unwrap();
        path
    }

    fn clock() -> Arc<dyn Clock> {
        Arc::new(ManualClock::default())
    }

    #[test]
    fn secrets_are_read_line_by_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = file(directory.path(), &["a"]);
        let secret = directory.path().join("secret");
        let load = || EventsFile::load(&path, clock()).map(|(_, definitions)| definitions.len());
        assert!(load().unwrap_err()[0].contains("secret: No such file"));
        let rows = [
            (String::new(), Err("there is no secret in it")),
            (format!("# the new one\n{SECRET}\n"), Ok(1)),
            (SECRET.repeat(MAX_SECRETS + 1), Err("more than 4 secrets")),
            (format!("{SECRET}secret"), Err("secret:2: it does not begin with whsec_")),
        ];
        for (text, expected) in rows {
            fs::write(&secret, &text).unwrap();
            match (load(), expected) {
                (Ok(count), Ok(expected)) => assert_eq!(count, expected),
                (Err(problems), Err(expected)) => assert!(problems[0].contains(expected), "{problems:?}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_changed_secret_is_another_definition() {
        let directory = tempfile::tempdir().unwrap();
        let path = file(directory.path(), &["a", "b"]);
        let digests = |secret: &str| -> Vec<String> {
            fs::write(directory.path().join("secret"), secret).unwrap();
            let (_, definitions) = EventsFile::load(&path, clock()).unwrap();
            definitions.into_iter().map(|one| one.digest).collect()
        };
        let (before, same, after) = (digests(SECRET), digests(SECRET), digests(&SECRET.repeat(2)));
        assert!(before == same && before[0] != before[1] && before[0] != after[0]);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn changes_take_effect_unless_they_have_errors() {
        let directory = tempfile::tempdir().unwrap();
        let path = file(directory.path(), &["a"]);
        fs::write(directory.path().join("secret"), SECRET).unwrap();
        let sinks = Arc::new(Subscriptions::new(Arc::new(Journal::in_memory()), clock()));
        let (loaded, definitions) = EventsFile::load(&path, clock()).unwrap();
        sinks.replace(definitions).unwrap();
        let (health, (closer, closing)) = (Arc::<Health>::default(), Closer::new());
        let following = tokio::spawn(loaded.follow(sinks.clone(), health.clone(), closing));
        let names = || sinks.status(Default::default()).into_iter().map(|sink| sink.name).collect::<Vec<_>>();
        let until = async |is: &dyn Fn() -> bool| {
            let polling = async {
                while !is() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            tokio::time::timeout(TIMEOUT, polling).await.unwrap();
        };
        file(directory.path(), &["a", "b"]);
        until(&|| names() == ["a", "b"]).await;
        fs::write(&path, "webhooks: {}").unwrap();
        until(&|| health.conditions().iter().any(|(part, why)| *part == FILE && why.contains("the last good sinks")))
            .await;
        assert_eq!(names(), ["a", "b"]);
        file(directory.path(), &["b"]);
        until(&|| names() == ["b"] && health.conditions().is_empty()).await;
        closer.close();
        following.await.unwrap();
    }

    #[test]
    fn late_events_degrade_health() {
        let (health, mut sink) = (
            Health::default(),
            SinkStatus {
                name: "pager".to_owned(),
                kind: "webhook",
                host: None,
                is_gone: false,
                waiting: 3,
                oldest: Some(LATE),
                failures: 9,
                due: None,
                delivered_at: None,
                error: Some("no connection".to_owned()),
                counts: Default::default(),
            },
        );
        look(std::slice::from_ref(&sink), &health);
        assert!(health.conditions().is_empty());
        sink.oldest = Some(Span::from_secs(660));
        look(std::slice::from_ref(&sink), &health);
        let expected = "events for `pager` wait for 11 min: no connection".to_owned();
        assert_eq!(health.conditions(), [(SINKS, expected)]);
        sink.is_gone = true;
        look(std::slice::from_ref(&sink), &health);
        assert!(health.conditions()[0].1.contains("takes no more events (410)"));
        look(&[], &health);
        assert!(health.conditions().is_empty());
    }
}
