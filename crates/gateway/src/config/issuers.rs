//! How tokens are verified: `issuers`, and the same settings within an attribute.

use std::sync::Arc;

use tollgate_rules::problem::{TextFault, quoted};
use tollgate_rules::yaml::fields::{Fields, text};
use tollgate_rules::yaml::{Yaml, YamlKind};

use super::{Context, defaults, values};
use crate::model::{IssuerConfig, KeySource, TokenSource};

/// Issuers by name, and those of attributes. Equal ones are one, so that their keys are fetched once.
pub(super) struct Issuers {
    /// `None`: its settings have errors, which are reported.
    named: Vec<(String, Option<Arc<IssuerConfig>>)>,
    all: Vec<Arc<IssuerConfig>>,
}

/// The most issuers.
const MAX_ISSUERS: usize = 64;

/// The remedy for the place of a token.
const PLACES: &str = "write bearer, `{header: X-Token}` or `{cookie: session}`";

impl Issuers {
    pub(super) fn read(map: &Fields<'_>, context: &Context<'_>) -> Issuers {
        let mut issuers = Issuers { named: Vec::new(), all: Vec::new() };
        let Some(entries) = map.map("issuers").map(|map| map.entries()) else { return issuers };
        if entries.len() > MAX_ISSUERS {
            map.fault_at("issuers", "there are too many issuers", &format!("write at most {MAX_ISSUERS}"));
        }
        for entry in entries.iter().take(MAX_ISSUERS) {
            let name = map.faults().sound(entry.line, values::name("an issuer", &entry.key.text));
            let issuer = Fields::of(&entry.value, "an issuer", map.faults()).and_then(|map| {
                let issuer = settings(&map, context);
                map.finish();
                issuer
            });
            let issuer = issuer.map(|issuer| issuers.shared(issuer));
            issuers.named.extend(name.map(|name| (name, issuer)));
        }
        issuers
    }

    /// The issuer of an attribute: with `keys` it has its own settings, and `issuer` is the required `iss`; otherwise `issuer`
    /// is the name of one. `None`: an error is reported.
    pub(super) fn of_attribute(&mut self, map: &Fields<'_>, context: &Context<'_>) -> Option<Arc<IssuerConfig>> {
        if map.has("keys") {
            return settings(map, context).map(|issuer| self.shared(issuer));
        }
        map.require("issuer", "write the name of one of `issuers`, or `keys: jwks.json`");
        let name = map.read("issuer", |value| text(value))?;
        match self.named.iter().find(|(known, _)| known == name) {
            Some((_, issuer)) => issuer.clone(),
            None => {
                let names = self.named.iter().map(|(name, _)| name.as_str());
                let TextFault { message, remedy } = values::unknown("issuer", name, names);
                map.fault_at("issuer", &message, &format!("{remedy} (or write `keys` here)"));
                None
            }
        }
    }

    pub(super) fn into_all(self) -> Vec<Arc<IssuerConfig>> {
        self.all
    }

    fn shared(&mut self, issuer: IssuerConfig) -> Arc<IssuerConfig> {
        if let Some(known) = self.all.iter().find(|known| ***known == issuer) {
            return known.clone();
        }
        let issuer = Arc::new(issuer);
        self.all.push(issuer.clone());
        issuer
    }
}

fn settings(map: &Fields<'_>, context: &Context<'_>) -> Option<IssuerConfig> {
    map.require("keys", "write the file or the https:// address of the key set");
    let every = map.read("every", values::time);
    let keys = map.read("keys", |value| keys(value, context));
    if map.has("every") && matches!(keys, Some(KeySource::File(_))) {
        map.fault_at("every", "only keys with an https:// address are fetched", "remove `every`: files are watched");
    }
    let ca = map.read("ca", |value| values::file(value, context.folder));
    if map.has("ca") && matches!(keys, Some(KeySource::File(_))) {
        map.fault_at("ca", "only keys with an https:// address come from a server", "remove `ca`");
    }
    let keys = keys.map(|keys| match keys {
        KeySource::Url { url, every: default, .. } => KeySource::Url { url, every: every.unwrap_or(default), ca },
        keys @ KeySource::File(_) => keys,
    });
    let issuer = map.read("issuer", values::words);
    let audience = map.read("audience", values::words);
    let token = map.entry("token").map_or(Some(TokenSource::Bearer), |entry| token(&entry.value, map));
    let leeway = map.read("leeway", values::time_or_zero).unwrap_or(defaults::LEEWAY);
    Some(IssuerConfig { keys: keys?, issuer, audience, token: token?, leeway })
}

fn keys(value: &Yaml, context: &Context<'_>) -> Result<KeySource, TextFault> {
    let given = text(value)?;
    let is_local = |rest: &str| {
        let host = rest.split(['/', ':']).next().unwrap_or_default();
        matches!(host, "localhost" | "127.0.0.1") || rest.starts_with("[::1]")
    };
    let is_url = match given.split_once("://") {
        None => return values::file(value, context.folder).map(KeySource::File),
        Some(("https", rest)) => !rest.is_empty(),
        // Whoever is between could replace the keys.
        Some(("http", rest)) => is_local(rest),
        Some(_) => false,
    };
    match is_url && given.parse::<http::Uri>().is_ok_and(|uri| uri.authority().is_some()) {
        true => Ok(KeySource::Url { url: given.to_owned(), every: defaults::KEYS_EVERY, ca: None }),
        false => Err(TextFault::new(
            format!("keys can't be fetched from {}", quoted(given)),
            "write an https:// address, or the name of a file",
        )),
    }
}

/// `bearer`, `{header: X-Token}` or `{cookie: session}`.
fn token(value: &Yaml, outer: &Fields<'_>) -> Option<TokenSource> {
    if let YamlKind::Scalar(_) = &value.kind {
        if text(value).is_ok_and(|given| given == "bearer") {
            return Some(TokenSource::Bearer);
        }
        let message = format!("{} is not the place of a token", value.described());
        outer.faults().push(value.line, TextFault::new(message, PLACES));
        return None;
    }
    let map = Fields::of(value, "the place of a token", outer.faults())?;
    let header = map.read("header", |value| values::header(text(value)?)).map(TokenSource::Header);
    let cookie = map.read("cookie", values::words).map(TokenSource::Cookie);
    if map.has("header") == map.has("cookie") {
        map.fault("this is not one place of a token", PLACES);
    }
    map.finish();
    header.or(cookie)
}
