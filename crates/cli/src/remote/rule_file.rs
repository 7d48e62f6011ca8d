//! Converts a rule in a YAML or JSON file to the format of the API.

use std::io::Read as _;
use std::path::Path;

use serde_json::Value;
use tollgate_rules::yaml::{self, Yaml, YamlEntry, YamlKind};
use tollgate_rules::{LayerRule, quoted};

use super::CommandError;
use super::client::input;

/// The request body for this rule.
pub(super) fn body(id: &str, file: &Path, state: Option<&str>, reason: Option<&str>) -> Result<String, CommandError> {
    let usage = |message: String| CommandError::Usage(format!("{}: {message}", file.display()));
    let mut text = String::new();
    let max = LayerRule::MAX_BYTES as u64;
    let read = input(file)?.take(max + 1).read_to_string(&mut text);
    read.map_err(|error| usage(format!("it can't be read: {error}")))?;
    if text.len() as u64 > max {
        return Err(usage(format!("it is longer than {} KiB; a rule is shorter", max >> 10)));
    }
    members(id, &text, state, reason).map_err(usage)
}

fn members(id: &str, text: &str, state: Option<&str>, reason: Option<&str>) -> Result<String, String> {
    let (documents, faults) = yaml::read_either(text);
    if !faults.is_empty() {
        let lines: Vec<String> = faults.iter().map(|(line, fault)| format!("line {line}: {fault}")).collect();
        return Err(lines.join("\n"));
    }
    let mut entries = match <[Yaml; 1]>::try_from(documents) {
        Ok([Yaml { kind: YamlKind::Map(entries), .. }]) => entries,
        Ok([other]) => return Err(format!("a rule is a map, not {}", other.described())),
        Err(many) => return Err(format!("it contains {} rules; write one", many.len())),
    };
    let has = |entries: &[YamlEntry], key: &str| entries.iter().any(|entry| entry.key.text == key);
    if has(&entries, "rules") || has(&entries, "descriptors") {
        return Err("it is a rule file; write a single rule: key, limit and so on, without `rules`".to_owned());
    }
    // The API's own formats are sent unchanged; otherwise it is a rule in the format of rule files.
    let is_api_format = has(&entries, "rule") || has(&entries, "key_pattern");
    if let Some(at) = entries.iter().position(|entry| !is_api_format && entry.key.text == "name") {
        let name = entries.remove(at).value;
        if !matches!(&name.kind, YamlKind::Scalar(name) if name.text == id) {
            return Err(format!("its `name` is not {}; write the same name, or none", quoted(id)));
        }
    }
    let options = [("state", state), ("reason", reason)];
    let mut members: Vec<String> = Vec::new();
    match is_api_format {
        false => members.push(format!("\"rule\":{}", to_json_object(&entries))),
        true => {
            let is_overridden = |name: &str| options.iter().any(|(option, value)| *option == name && value.is_some());
            let own = entries.iter().filter(|entry| !is_overridden(&entry.key.text));
            members
                .extend(own.map(|entry| format!("{}:{}", Value::from(entry.key.text.as_str()), entry.value.to_json())));
        }
    }
    for (name, value) in options {
        members.extend(value.map(|value| format!("\"{name}\":{}", Value::from(value))));
    }
    Ok(format!("{{{}}}", members.join(",")))
}

fn to_json_object(entries: &[YamlEntry]) -> String {
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
    fn yaml_and_json_are_converted() {
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
        let overridden = members("r", r#"{"rule": {}, "state": "draft"}"#, Some("shadow"), Some("a \"b\""));
        assert_eq!(overridden.as_deref(), Ok(r#"{"rule":{},"state":"shadow","reason":"a \"b\""}"#));
    }

    #[test]
    fn invalid_rules_are_rejected() {
        let rows = [
            ("name: other\nkey: []", "its `name` is not `orders`"),
            ("- 1", "a rule is a map, not "),
            ("", "it contains 0 rules"),
            ("key: []\n---\nkey: []", "it contains 2 rules"),
            ("domain: shop\nrules: []", "it is a rule file"),
            ("key: [", "line 1: this is not YAML"),
        ];
        for (text, expected) in rows {
            let error = members("orders", text, None, None).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
