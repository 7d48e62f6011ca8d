//! A short form of rules, like in the APIs of other rate limiters, converted to the form of files.

use crate::layer::LayerRule;
use crate::limit_text;
use crate::load::{ALGORITHMS, UNITS};
use crate::problem::{choose, nearest, quoted};
use crate::yaml::{self, Yaml, YamlEntry, YamlKind, json};

/// The valid members.
const MEMBERS: &[&str] = &["key_pattern", "algorithm", "rate", "burst", "window", "unit"];

/// Makes a rule of its short form, both as JSON:
/// `{"key_pattern": "user:{user_id}", "algorithm": "token_bucket", "rate": 100, "burst": 150, "window": "1m"}` becomes
/// `{"key": ["user_id"], "algorithm": "token_bucket", "limit": "100/1m", "burst": 150}`.
///
///
/// # Errors
/// Every error, with a remedy. Errors that the form cannot detect, such as a burst with an algorithm that has none,
/// are reported when the rule is loaded.
pub fn short_form(text: &str) -> Result<String, Vec<String>> {
    let mut form = ShortFormReader { faults: Vec::new() };
    let json = form.read(text).and_then(|entries| form.rule(&entries));
    match json {
        Some(json) if form.faults.is_empty() => Ok(json),
        _ => Err(form.faults),
    }
}

/// Parses the form and collects its errors.
struct ShortFormReader {
    faults: Vec<String>,
}

impl ShortFormReader {
    fn fault<T>(&mut self, message: impl std::fmt::Display, remedy: impl std::fmt::Display) -> Option<T> {
        self.faults.push(format!("{message}; {remedy}"));
        None
    }

    fn read(&mut self, text: &str) -> Option<Vec<YamlEntry>> {
        const REMEDY: &str =
            "write for instance {\"key_pattern\": \"user:{user_id}\", \"rate\": 100, \"window\": \"1m\"}";
        if text.len() > LayerRule::MAX_BYTES {
            return self
                .fault(format!("the rule is longer than {} KiB", LayerRule::MAX_BYTES >> 10), "write it shorter");
        }
        let (values, faults) = json::read(text).unwrap_or_else(|| yaml::read(text));
        for (line, fault) in &faults {
            self.faults.push(format!("line {line}: {fault}"));
        }
        match values.into_iter().next() {
            Some(Yaml { kind: YamlKind::Map(entries), .. }) => Some(entries),
            _ if !faults.is_empty() => None,
            Some(other) => self.fault(format!("the rule must be an object, not {}", other.described()), REMEDY),
            None => self.fault("the rule has no text", REMEDY),
        }
    }

    /// Everything is read before the rule is rejected.
    fn rule(&mut self, entries: &[YamlEntry]) -> Option<String> {
        for YamlEntry { key, .. } in entries.iter().filter(|entry| !MEMBERS.contains(&entry.key.text.as_str())) {
            let remedy = match nearest(&key.text, MEMBERS.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the members are {}", MEMBERS.join(", ")),
            };
            self.fault::<()>(format!("{} is not a member of a rule", quoted(&key.text)), remedy);
        }
        let member = |name: &str| entries.iter().find(|entry| entry.key.text == name).map(|entry| &entry.value);
        let key = match member("key_pattern") {
            Some(value) => self.text(value, "key_pattern").and_then(|pattern| self.key(pattern)),
            None => self.fault("`key_pattern` is missing", "write for instance \"user:{user_id}\""),
        };
        let algorithm = member("algorithm").map(|value| self.algorithm(value));
        let rate = match member("rate") {
            Some(value) => self.number(value, "rate"),
            None => self.fault("`rate` is missing", "write a whole number, for instance 100"),
        };
        let burst = member("burst").map(|value| self.number(value, "burst"));
        let period = self.period(member("window"), member("unit"));
        let limit = format!("{}/{}", rate?, period?);
        if let Err(fault) = limit_text::limit(&limit) {
            return self.fault(format!("`rate` and `window`: {}", fault.message), fault.remedy);
        }
        let key = key?.iter().map(|part| json::write_text(part)).collect::<Vec<_>>().join(", ");
        let mut members = vec![format!("\"key\": [{key}]")];
        if let Some(algorithm) = algorithm {
            members.push(format!("\"algorithm\": {}", json::write_text(algorithm?)));
        }
        members.push(format!("\"limit\": {}", json::write_text(&limit)));
        if let Some(burst) = burst {
            members.push(format!("\"burst\": {}", burst?));
        }
        Some(format!("{{{}}}", members.join(", ")))
    }

    /// The attributes in braces.
    fn key<'v>(&mut self, pattern: &'v str) -> Option<Vec<&'v str>> {
        const EXAMPLE: &str = "write attributes between braces, for instance \"user:{user_id}\"";
        let (mut parts, mut rest) = (Vec::new(), pattern);
        while let Some(at) = rest.find(['{', '}']) {
            let inside = &rest[at + 1..];
            let end =
                inside.find(['{', '}']).filter(|end| rest[at..].starts_with('{') && inside[*end..].starts_with('}'));
            let Some(end) = end else {
                return self.fault(format!("`key_pattern`: {} has a brace too many", quoted(pattern)), EXAMPLE);
            };
            let part = &inside[..end];
            if part.is_empty() || parts.contains(&part) {
                let what = if part.is_empty() { "braces without a name" } else { "an attribute twice" };
                return self
                    .fault(format!("`key_pattern`: {} has {what}", quoted(pattern)), "name each attribute once");
            }
            parts.push(part);
            rest = &inside[end + 1..];
        }
        Some(parts)
    }

    fn algorithm<'v>(&mut self, value: &'v Yaml) -> Option<&'v str> {
        let text = self.text(value, "algorithm")?;
        if ALGORITHMS.iter().any(|(name, _)| *name == text) {
            return Some(text);
        }
        let remedy = choose(text, ALGORITHMS.iter().map(|(name, _)| *name));
        self.fault(format!("`algorithm` can't be {}", quoted(text)), remedy)
    }

    /// One of `window` and `unit`.
    fn period<'v>(&mut self, window: Option<&'v Yaml>, unit: Option<&'v Yaml>) -> Option<&'v str> {
        match (window, unit) {
            (Some(_), Some(_)) => self.fault("`unit` conflicts with `window`", "keep one of the two"),
            (None, None) => {
                self.fault("`window` is missing", "write for instance \"window\": \"1m\", or \"unit\": \"minute\"")
            }
            (Some(window), None) => {
                let text = self.text(window, "window")?;
                if let Err(fault) = limit_text::limit(&format!("1/{text}")) {
                    // The error for the whole limit would mention a number that the user did not write.
                    let fault = limit_text::duration(text).err().unwrap_or(fault);
                    return self.fault(format!("`window`: {}", fault.message), fault.remedy);
                }
                Some(text)
            }
            (None, Some(unit)) => {
                let text = self.text(unit, "unit")?;
                let known = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
                match known {
                    Some((name, _)) => Some(name),
                    None => {
                        let remedy = choose(text, UNITS.iter().map(|(name, _)| *name));
                        self.fault(format!("`unit` can't be {}", quoted(text)), remedy)
                    }
                }
            }
        }
    }

    fn text<'v>(&mut self, value: &'v Yaml, what: &str) -> Option<&'v str> {
        match &value.kind {
            YamlKind::Scalar(scalar) if !scalar.plain && !scalar.text.is_empty() => Some(&scalar.text),
            YamlKind::Scalar(scalar) if !scalar.plain => self.fault(format!("`{what}` is empty"), "write a text"),
            _ => self.fault(format!("`{what}` must be a text, not {}", value.described()), "write it in quotes"),
        }
    }

    fn number(&mut self, value: &Yaml, what: &str) -> Option<u64> {
        let number = match &value.kind {
            YamlKind::Scalar(scalar) if scalar.plain => limit_text::number(&scalar.text).ok(),
            _ => None,
        };
        if number.is_none() {
            let is = match &value.kind {
                YamlKind::Scalar(scalar) if !scalar.plain => format!("the text {}", quoted(&scalar.text)),
                _ => value.described(),
            };
            return self
                .fault(format!("`{what}` must be a whole number, not {is}"), "write digits alone, for instance 100");
        }
        number
    }
}
