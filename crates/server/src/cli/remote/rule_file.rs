//! A rule in a file, YAML or JSON, as the API takes it.

use std::io::Read as _;
use std::path::Path;

use serde_json::Value;
use tollgate_rules::yaml::{self, Entry, Kind, Yaml};
use tollgate_rules::{LayerRule, quoted};

use super::Failure;
use super::client::input;

/// The body of a write of this rule.
pub(super) fn body(id: &str, file: &Path, state: Option<&str>, reason: Option<&str>) -> Result<String, Failure> {
    let told = |what: String| Failure::Usage(format!("{}: {what}", file.display()));
    let mut text = String::new();
    let most = LayerRule::LONGEST as u64;
    let read = input(file)?.take(most + 1).read_to_string(&mut text);
    read.map_err(|error| told(format!("it can't be read: {error}")))?;
    if text.len() as u64 > most {
        return Err(told(format!("it is longer than {} KiB; a rule is shorter", most >> 10)));
    }
    members(id, &text, state, reason).map_err(told)
}

fn members(id: &str, text: &str, state: Option<&str>, reason: Option<&str>) -> Result<String, String> {
    let (documents, faults) = yaml::read_either(text);
    if !faults.is_empty() {
        let lines: Vec<String> = faults.iter().map(|(line, fault)| format!("line {line}: {fault}")).collect();
        return Err(lines.join("\n"));
    }
    let mut entries = match <[Yaml; 1]>::try_from(documents) {
        Ok([Yaml { kind: Kind::Map(entries), .. }]) => entries,
        Ok([other]) => return Err(format!("a rule is a map, not {}", other.described())),
        Err(many) => return Err(format!("there are {} rules in it; write one", many.len())),
    };
    let has = |entries: &[Entry], key: &str| entries.iter().any(|entry| entry.key.text == key);
    if has(&entries, "rules") || has(&entries, "descriptors") {
        return Err("it is a rule file; write one rule of it: key, limit and the rest, without `rules`".to_owned());
    }
    // The API's own forms are sent as they are; else it is a rule as files have it.
    let is_form = has(&entries, "rule") || has(&entries, "key_pattern");
    if let Some(at) = entries.iter().position(|entry| !is_form && entry.key.text == "name") {
        let name = entries.remove(at).value;
        if !matches!(&name.kind, Kind::Scalar(name) if name.text == id) {
            return Err(format!("its `name` is not {}; write the same, or none", quoted(id)));
        }
    }
    let told = [("state", state), ("reason", reason)];
    let mut members: Vec<String> = Vec::new();
    match is_form {
        false => members.push(format!("\"rule\":{}", map(&entries))),
        true => {
            let is_told = |name: &str| told.iter().any(|(known, value)| *known == name && value.is_some());
            let own = entries.iter().filter(|entry| !is_told(&entry.key.text));
            members
                .extend(own.map(|entry| format!("{}:{}", Value::from(entry.key.text.as_str()), entry.value.to_json())));
        }
    }
    for (name, value) in told {
        members.extend(value.map(|value| format!("\"{name}\":{}", Value::from(value))));
    }
    Ok(format!("{{{}}}", members.join(",")))
}

fn map(entries: &[Entry]) -> String {
    let members: Vec<String> = entries
        .iter()
        .map(|entry| format!("{}:{}", Value::from(entry.key.text.as_str()), entry.value.to_json()))
        .collect();
    format!("{{{}}}", members.join(","))
}

#[cfg(test)]
mod tests {
    use super::members;

    #[test]
    fn yaml_and_json_become_what_the_api_takes() {
        let rows = [
            (
                "name: orders\nkey: [api_key, \"7\"]\nlimit: 100/minute\nburst: 200\n",
                r#"{"rule":{"key":["api_key","7"],"limit":"100/minute","burst":200}}"#,
            ),
            (r#"{"limit": "5/second", "key": []}"#, r#"{"rule":{"limit":"5/second","key":[]}}"#),
            (
                "key: []\nlimit: {z: 1/second, a: 2/second}",
                r#"{"rule":{"key":[],"limit":{"z":"1/second","a":"2/second"}}}"#,
            ),
            (
                "{key_pattern: 'user:{user_id}', rate: 5, unit: minute}",
                r#"{"key_pattern":"user:{user_id}","rate":5,"unit":"minute"}"#,
            ),
            (r#"{"rule": {"key": []}, "state": "draft"}"#, r#"{"rule":{"key":[]},"state":"draft"}"#),
        ];
        for (text, body) in rows {
            assert_eq!(members("orders", text, None, None).as_deref(), Ok(body), "{text}");
        }
        let told = members("r", r#"{"rule": {}, "state": "draft"}"#, Some("shadow"), Some("a \"b\""));
        assert_eq!(told.as_deref(), Ok(r#"{"rule":{},"state":"shadow","reason":"a \"b\""}"#));
    }

    #[test]
    fn what_is_no_rule_is_told() {
        let rows = [
            ("name: other\nkey: []", "its `name` is not `orders`"),
            ("- 1", "a rule is a map, not "),
            ("", "there are 0 rules in it"),
            ("key: []\n---\nkey: []", "there are 2 rules in it"),
            ("domain: shop\nrules: []", "it is a rule file"),
            ("key: [", "line 1: this is not YAML"),
        ];
        for (text, what) in rows {
            let told = members("orders", text, None, None).unwrap_err();
            assert!(told.starts_with(what), "{text}: {told}");
        }
    }
}
