//! Reads `events.yaml`. All errors are reported at once, each with its line and a remedy.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use tollgate_events::EventFilter;
use tollgate_net::client::PostTarget;
use tollgate_rules::problem::{TextFault, quoted};
use tollgate_rules::yaml::fields::{Faults, Fields, text};
use tollgate_rules::yaml::{self, Yaml};

/// A webhook as the file defines it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WebhookConfig {
    pub name: String,
    pub url: String,
    pub target: PostTarget,
    pub secret_file: PathBuf,
    pub filter: EventFilter,
    /// The system's CAs without it.
    pub ca: Option<PathBuf>,
}

/// Sinks of a server.
const MAX_SINKS: usize = 16;
/// Patterns of events of one sink.
const MAX_PATTERNS: usize = 32;
/// The longest name.
const MAX_NAME_BYTES: usize = 64;

/// Reads the text of a file. Relative paths in it are relative to the folder.
///
/// # Errors
/// All problems.
pub(super) fn read(file_name: &str, text: &str, folder: &Path) -> Result<Vec<WebhookConfig>, Vec<String>> {
    let (documents, unreadable) = yaml::read_either(text);
    let faults = Faults::default();
    for (line, fault) in unreadable {
        faults.push(line, fault);
    }
    let webhooks = match documents.as_slice() {
        [] => Vec::new(),
        [document] => {
            Fields::of(document, "the sinks of events", &faults).map_or(Vec::new(), |map| sinks(&map, folder))
        }
        [_, second, ..] => {
            faults.push(second.line, TextFault::new("a second document begins here", "write one to a file"));
            Vec::new()
        }
    };
    let problems = faults.into_sorted();
    if problems.is_empty() {
        return Ok(webhooks);
    }
    let describe =
        |(line, fault): (usize, TextFault)| format!("{file_name}:{line}: {}; {}", fault.message, fault.remedy);
    Err(problems.into_iter().map(describe).collect())
}

fn sinks(map: &Fields<'_>, folder: &Path) -> Vec<WebhookConfig> {
    let mut webhooks = Vec::new();
    let mut names = HashSet::new();
    for item in map.items("webhooks", MAX_SINKS) {
        let Some(fields) = Fields::of(item, "a webhook", map.faults()) else { continue };
        if let Some(webhook) = webhook(&fields, folder) {
            if !names.insert(webhook.name.clone()) {
                fields.fault_at("name", "another sink has this name", "give each a name of its own");
            }
            webhooks.push(webhook);
        }
    }
    map.finish();
    webhooks
}

fn webhook(fields: &Fields<'_>, folder: &Path) -> Option<WebhookConfig> {
    fields.require("name", "write a name such as pager");
    fields.require("url", "write the address that events are posted to");
    fields.require("secret_file", "name a file with a secret such as whsec_…, which signs the events");
    let path = |value: &Yaml| text(value).map(|path| folder.join(path));
    let name = fields.read("name", name);
    let url = fields.read("url", |value| {
        let url = text(value)?;
        let target = PostTarget::parse(url);
        let target =
            target.map_err(|why| TextFault::new(why, "write for instance https://hooks.example.com/tollgate"))?;
        Ok((url.to_owned(), target))
    });
    let secret_file = fields.read("secret_file", path);
    let filter = match fields.has("events") {
        false => Some(EventFilter::ALL),
        true => filter(fields),
    };
    let ca = fields.read("ca", path);
    fields.finish();
    let (url, target) = url?;
    Some(WebhookConfig { name: name?, url, target, secret_file: secret_file?, filter: filter?, ca })
}

/// A name, which is a part of file names and a label.
fn name(value: &Yaml) -> Result<String, TextFault> {
    let name = text(value)?;
    let is_valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    match !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.chars().all(is_valid) {
        true => Ok(name.to_owned()),
        false => {
            let remedy = "write at most 64 lower case letters, digits, `-` and `_`";
            Err(TextFault::new(format!("{} is not a name", quoted(name)), remedy))
        }
    }
}

fn filter(fields: &Fields<'_>) -> Option<EventFilter> {
    let mut patterns = Vec::new();
    for item in fields.items("events", MAX_PATTERNS) {
        patterns.push(fields.faults().sound(item.line, text(item))?.to_owned());
    }
    let unknown = |pattern: String| {
        let message = format!("there is no event like {}", quoted(&pattern));
        fields.fault_at("events", &message, "docs/events.md lists all; `rules.*` stands for all that begin so");
    };
    EventFilter::new(patterns).map_err(unknown).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<WebhookConfig>, Vec<String>> {
        super::read("events.yaml", text, Path::new("/etc/tollgate"))
    }

    #[test]
    fn a_file_defines_webhooks() {
        let text = "
webhooks:
  - {name: pager, url: https://hooks.example.com/t, secret_file: hook.secret, events: [rules.*, store.level], ca: ca.pem}
  - {name: all, url: http://127.0.0.1:9/x, secret_file: /run/secret}
";
        let webhooks = read(text).unwrap();
        assert_eq!((webhooks.len(), webhooks[0].target.host().as_str()), (2, "hooks.example.com"));
        assert_eq!(webhooks[0].secret_file, Path::new("/etc/tollgate/hook.secret"));
        assert_eq!(webhooks[0].ca.as_deref(), Some(Path::new("/etc/tollgate/ca.pem")));
        assert_eq!((&webhooks[1].filter, webhooks[1].secret_file.to_str()), (&EventFilter::ALL, Some("/run/secret")));
        assert_eq!(read(""), Ok(Vec::new()));
        assert_eq!(read("webhooks: []"), Ok(Vec::new()));
    }

    #[test]
    fn every_problem_has_its_line_and_a_remedy() {
        let rows = [
            ("webhooks: {}", "1: a map stands where a list belongs; begin"),
            ("webhook: []", "1: `webhook` has no meaning here; "),
            ("webhooks:\n  - {url: 'http://a/', secret_file: s}", "2: `name` is missing; "),
            ("webhooks:\n  - {name: a, secret_file: s}", "2: `url` is missing; "),
            ("webhooks:\n  - {name: a, url: 'http://a/'}", "2: `secret_file` is missing; "),
            ("webhooks:\n  - {name: A b, url: 'http://a/', secret_file: s}", "2: `A b` is not a name; "),
            ("webhooks:\n  - {name: ../a, url: 'http://a/', secret_file: s}", "2: `../a` is not a name; "),
            ("webhooks:\n  - {name: a, url: 'ftp://a/', secret_file: s}", "2: it begins neither with https://"),
            (
                "webhooks:\n  - {name: a, url: 'http://a/', secret_file: s, events: [role.*]}",
                "2: there is no event like `role.*`; ",
            ),
            (
                "webhooks:\n  - {name: a, url: 'http://a/', secret_file: s}\n  - {name: a, url: 'http://b/', secret_file: s}",
                "3: another sink has this name; ",
            ),
            ("webhooks: []\n---\nwebhooks: []", ": a second document begins here; "),
        ];
        for (text, expected) in rows {
            let problems = read(text).unwrap_err();
            assert!(problems.len() == 1 && problems[0].contains(expected), "{text}: {problems:?}");
        }
        let many = "  - {name: a, url: 'http://a/', secret_file: s}\n".repeat(MAX_SINKS + 1);
        assert!(read(&format!("webhooks:\n{many}")).unwrap_err()[0].contains("the list is too long"));
    }
}
