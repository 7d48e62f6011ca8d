//! A plan for people.

use serde_json::Value;

use super::super::show::{self, Columns, TextTable};

/// Rules, tiers and callers of a table.
const MAX_LINES: usize = 20;

const ALL: Columns = &[
    ("REQUESTS", |item| show::text(&item["requests"])),
    ("REFUSED NOW", |item| show::text(&item["refused_before"])),
    ("REFUSED THEN", |item| show::text(&item["refused_after"])),
    ("NEWLY REFUSED", newly_refused),
    ("NEWLY ADMITTED", |item| show::text(&item["newly_admitted"])),
];

const RULES: Columns = &[
    ("RULE", |item| show::text(&item["rule"])),
    ("CALLERS", |item| show::text(&item["callers"])),
    ("REFUSED NOW", |item| show::text(&item["refused_before"])),
    ("REFUSED THEN", |item| show::text(&item["refused_after"])),
    ("NEWLY REFUSED", |item| show::text(&item["newly_refused"])),
    ("NEWLY ADMITTED", |item| show::text(&item["newly_admitted"])),
];

const TIERS: Columns = &[
    ("TIER", |item| show::text(&item["tier"])),
    ("REQUESTS", |item| show::text(&item["requests"])),
    ("NEWLY REFUSED", newly_refused),
    ("NEWLY ADMITTED", |item| show::text(&item["newly_admitted"])),
];

const CALLERS: Columns = &[
    ("CALLER", |item| show::text(&item["caller"])),
    ("TIER", |item| show::text(&item["tier"])),
    ("REQUESTS", |item| show::text(&item["requests"])),
    ("NEWLY REFUSED", newly_refused),
    ("NEWLY ADMITTED", |item| show::text(&item["newly_admitted"])),
];

fn newly_refused(item: &Value) -> String {
    let percent = item["newly_refused_percent"].as_f64().unwrap_or_default();
    format!("{} ({percent} %)", show::text(&item["newly_refused"]))
}

/// The report.
pub(in super::super) fn report(plan: &Value) -> String {
    let records = plan["records"].as_u64().unwrap_or_default();
    if records == 0 {
        return "no requests were recorded in this time: nothing is known of what would change\n".to_owned();
    }
    let [from, to] = ["from", "to"].map(|end| show::text(&plan[end]));
    let coverage = match plan["complete"].as_bool() {
        Some(true) => "all of them".to_owned(),
        _ => format!("estimated from {records} that were recorded"),
    };
    let mut text = format!("requests from {from} to {to}, {coverage}\n\n");
    text.push_str(&TextTable::new(ALL).lines(std::slice::from_ref(plan)));
    let is_changed = |item: &&Value| item["newly_refused"] != 0 || item["newly_admitted"] != 0;
    for (columns, member) in [(RULES, "rules"), (TIERS, "tiers"), (CALLERS, "worst_callers")] {
        let all = plan[member].as_array().map(Vec::as_slice).unwrap_or_default();
        let changed: Vec<Value> = all.iter().filter(is_changed).cloned().collect();
        if changed.is_empty() {
            continue;
        }
        text.push('\n');
        text.push_str(&TextTable::new(columns).lines(&changed[..changed.len().min(MAX_LINES)]));
        if changed.len() > MAX_LINES {
            text.push_str(&format!("and {} more\n", changed.len() - MAX_LINES));
        }
    }
    let examples = examples(plan);
    if !examples.is_empty() {
        text.push_str("\nexamples\n");
        text.push_str(&examples);
    }
    if plan["newly_refused"] == 0 && plan["newly_admitted"] == 0 {
        text.push_str("\nnothing changes for these requests\n");
    }
    for one in plan["uncertain"].as_array().into_iter().flatten() {
        text.push_str(&format!("not certain: {}: {}\n", show::text(&one["rule"]), show::text(&one["why"])));
    }
    for one in plan["omitted"].as_array().into_iter().flatten() {
        text.push_str(&format!("not tried: {}\n", show::text(one)));
    }
    if let Some(undecided) = plan["undecided"].as_u64().filter(|undecided| *undecided > 0) {
        text.push_str(&format!("{undecided} requests are of a domain that only one of the two sets of rules has\n"));
    }
    text
}

fn examples(plan: &Value) -> String {
    let mut text = String::new();
    for rule in plan["rules"].as_array().into_iter().flatten().take(MAX_LINES) {
        for example in rule["examples"].as_array().into_iter().flatten() {
            let attributes = example["attributes"].as_object().into_iter().flatten();
            let attributes: Vec<String> =
                attributes.map(|(name, value)| format!("{name}={}", show::text(value))).collect();
            let what = if example["admitted"] == true { "admitted" } else { "refused" };
            let line = format!("  {} by {}: {}", what, show::text(&rule["rule"]), attributes.join(" "));
            text.push_str(&show::clean(&line));
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn impact(refused: u64, admitted: u64) -> Value {
        json!({"requests": 100, "refused_before": 3, "refused_after": 3 + refused, "newly_refused": refused,
            "newly_admitted": admitted, "newly_refused_percent": refused})
    }

    #[test]
    fn reports_say_what_changes_for_whom() {
        let mut plan = impact(7, 0);
        plan["records"] = json!(40);
        plan["complete"] = json!(false);
        (plan["from"], plan["to"]) = (json!("2026-11-16T09:00:00Z"), json!("2026-11-16T09:15:00Z"));
        let mut rule = impact(7, 0);
        (rule["rule"], rule["callers"]) = (json!("per-key"), json!(2));
        rule["examples"] = json!([{"attributes": {"api_key": "ada"}, "admitted": false}]);
        plan["rules"] = json!([rule, impact(0, 0)]);
        let mut caller = impact(7, 0);
        (caller["caller"], caller["tier"]) = (json!("ada"), json!("pro"));
        plan["worst_callers"] = (0..30).map(|_| caller.clone()).collect();
        plan["uncertain"] = json!([{"rule": "flight", "why": "when requests end is not recorded"}]);
        plan["omitted"] = json!(["the quota \"a*\" …"]);
        let text = report(&plan);
        let expected = [
            "estimated from 40 that were recorded",
            "7 (7 %)",
            "per-key",
            "and 10 more",
            "  refused by per-key: api_key=ada",
            "not certain: flight: when requests end is not recorded",
            "not tried: the quota",
        ];
        expected.iter().for_each(|part| assert!(text.contains(part), "{part}: {text}"));
        assert!(!text.contains("TIER\n"), "{text}");
    }

    #[test]
    fn reports_without_changes_or_requests_say_so() {
        let mut plan = impact(0, 0);
        (plan["records"], plan["complete"]) = (json!(5), json!(true));
        let text = report(&plan);
        assert!(text.contains("all of them") && text.contains("nothing changes"), "{text}");
        assert!(report(&json!({"records": 0})).starts_with("no requests were recorded"));
    }
}
