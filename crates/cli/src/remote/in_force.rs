//! The rules in force, of files and by API, as the server lists them.

use serde_json::Value;

use super::client::{AdminClient, ApiRequest};
use super::path::ApiPath;
use super::show::{self, Columns, TextTable};
use super::{CommandError, CommandResult, write_stdout};

/// Rules of a page.
const PAGE_SIZE: usize = 1_000;
/// Pages of a list; a server has at most some hundred thousand rules.
const MAX_PAGES: usize = 10_000;

const COLUMNS: Columns = &[
    ("RULE", |item| show::text(&item["name"])),
    ("DOMAIN", |item| show::text(&item["domain"])),
    ("LIMIT", |item| limits(item)),
    ("MODE", |item| show::text(&item["mode"])),
    ("POLICY", |item| show::text(&item["policy"])),
    ("FROM", |item| place(item)),
];

/// Lists all rules in force.
pub(super) fn list(client: &AdminClient, domain: Option<&str>) -> CommandResult {
    let mut table = TextTable::new(COLUMNS);
    let mut total = 0;
    for page in 0..MAX_PAGES {
        let number = show::print_items(client, &mut table, &client.send(request(domain, page))?)?;
        total += number;
        if number < PAGE_SIZE as u64 {
            break;
        }
    }
    if total == 0 && !client.json {
        return write_stdout("no rules are in force\n");
    }
    Ok(())
}

/// The rules of this name, one for each domain that has it.
pub(super) fn find(client: &AdminClient, domain: Option<&str>, name: &str) -> Result<Vec<Value>, CommandError> {
    let mut found = Vec::new();
    for page in 0..MAX_PAGES {
        let response = client.send(request(domain, page))?.value()?;
        let items = show::items(&response)?;
        found.extend(items.iter().filter(|item| item["name"] == name).cloned());
        if items.len() < PAGE_SIZE {
            break;
        }
    }
    Ok(found)
}

/// A rule as text.
pub(super) fn to_text(item: &Value) -> String {
    show::fields(&[
        ("rule", show::text(&item["name"])),
        ("domain", show::text(&item["domain"])),
        ("limit", limits(item)),
        ("mode", show::text(&item["mode"])),
        ("policy", show::text(&item["policy"])),
        ("from", place(item)),
    ])
}

fn request(domain: Option<&str>, page: usize) -> ApiRequest {
    let path = ApiPath::new(&["admin", "v1", "rules"]).with("domain", domain);
    let offset = page.saturating_mul(PAGE_SIZE);
    ApiRequest::get(path.with("limit", Some(PAGE_SIZE.to_string())).with("offset", Some(offset.to_string())))
}

/// One limit, or those of the tiers: `free, pro: 100/minute; enterprise: unlimited`.
fn limits(item: &Value) -> String {
    let mut groups: Vec<(&Value, Vec<String>)> = Vec::new();
    for limit in item["limits"].as_array().into_iter().flatten() {
        let tier = show::text(&limit["tier"]);
        match groups.iter_mut().find(|(other, _)| **other == limit["limit"]) {
            Some((_, tiers)) => tiers.push(tier),
            None => groups.push((&limit["limit"], vec![tier])),
        }
    }
    match groups.as_slice() {
        [] => "-".to_owned(),
        [(limit, _)] => show::text(limit),
        several => {
            let by_tier = several.iter().map(|(limit, tiers)| format!("{}: {}", tiers.join(", "), short(limit)));
            by_tier.collect::<Vec<_>>().join("; ")
        }
    }
}

/// A limit without its algorithm.
fn short(limit: &Value) -> String {
    let text = show::text(limit);
    text.split(", ").next().unwrap_or(&text).to_owned()
}

/// `rules.yaml:7`, or that it was written by API.
fn place(item: &Value) -> String {
    let file = show::text(&item["file"]);
    match file.ends_with("(by API)") {
        true => "API".to_owned(),
        false => format!("{file}:{}", show::text(&item["line"])),
    }
}
