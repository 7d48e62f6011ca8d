//! What requests cost: before they are forwarded, and after.

use tollgate_rules::limit_text;
use tollgate_rules::problem::{TextFault, quoted};
use tollgate_rules::yaml::fields::{Fields, switch, text};
use tollgate_rules::yaml::{Yaml, YamlEntry, YamlKind};

use super::values::{self, count, set};
use super::{MAX_COSTS, OF_EVERY_REQUEST};
use crate::model::{CostConfig, CostSource, GraphQlBounds, JsonPointer, SettleSource};

/// The largest cost: rules count exactly up to it.
const MAX_COST: u64 = 1_000_000_000_000;

/// The most steps of a place in a JSON document.
const MAX_STEPS: usize = 16;

const KINDS: [&str; 4] = ["reserve", "header", "length", "graphql"];

pub(super) fn costs(map: &Fields<'_>, attributes: &[&str]) -> Vec<CostConfig> {
    let Some(entries) = map.map("cost").map(|map| map.entries()) else { return Vec::new() };
    if entries.len() > MAX_COSTS {
        map.fault_at("cost", "the route has too many costs", &format!("write at most {MAX_COSTS}"));
    }
    let mut costs: Vec<CostConfig> = Vec::new();
    for entry in entries.iter().take(MAX_COSTS) {
        let name = map.faults().sound(entry.line, name(&entry.key.text, attributes));
        let Some(cost) = cost(entry, name.unwrap_or_default(), map) else { continue };
        if cost.settle.is_some() && costs.iter().any(|other| other.settle.is_some()) {
            let message = format!("{} is the second cost of this route with `settle`", quoted(&entry.key.text));
            map.faults().push(entry.line, TextFault::new(message, "settle one of them only"));
        }
        costs.push(cost);
    }
    costs
}

fn name(given: &str, attributes: &[&str]) -> Result<String, TextFault> {
    match attributes.contains(&given) || OF_EVERY_REQUEST.contains(&given) {
        true => Err(TextFault::new(format!("{} is an attribute already", quoted(given)), "write another name")),
        false => values::name("a cost", given),
    }
}

fn cost(entry: &YamlEntry, attribute: String, outer: &Fields<'_>) -> Option<CostConfig> {
    if let YamlKind::Scalar(_) = &entry.value.kind {
        let number = outer.faults().sound(entry.line, count(&entry.value, 0..=MAX_COST))?;
        return Some(CostConfig { attribute, reserve: CostSource::Number(number), otherwise: number, settle: None });
    }
    let map = Fields::of(&entry.value, "a cost", outer.faults())?;
    let otherwise = map.read("else", |value| count(value, 0..=MAX_COST));
    let settle = map.entry("settle").and_then(|entry| settle(entry, &map));
    let found: Vec<_> = KINDS.into_iter().filter(|kind| map.has(kind)).collect();
    let reserve = match found.as_slice() {
        ["reserve"] => map.read("reserve", |value| reserve(text(value)?)),
        ["header"] => map.read("header", |value| values::header(text(value)?)).map(CostSource::Header),
        ["length"] => map.read("length", length),
        ["graphql"] => graphql(&map).map(CostSource::GraphQl),
        // The cost is known at the end only.
        [] if map.has("settle") => Some(CostSource::Number(otherwise.unwrap_or(1))),
        [] if !map.entries().is_empty() && !map.has("else") => None,
        _ => {
            map.fault("this is not one cost", &format!("write one of {}", KINDS.join(", ")));
            None
        }
    };
    map.finish();
    let otherwise = match &reserve {
        Some(CostSource::Number(number)) => otherwise.unwrap_or(*number),
        _ => otherwise.unwrap_or(1),
    };
    Some(CostConfig { attribute, reserve: reserve?, otherwise, settle })
}

/// `json:/max_tokens`, `header:X-Cost` or a number.
fn reserve(given: &str) -> Result<CostSource, TextFault> {
    match given.split_once(':') {
        Some(("json", pointer)) => json_pointer(pointer).map(CostSource::Json),
        Some(("header", name)) => values::header(name.trim()).map(CostSource::Header),
        _ => match limit_text::number(given) {
            Ok(number) if number <= MAX_COST => Ok(CostSource::Number(number)),
            _ => Err(TextFault::new(
                format!("{} is not a cost", quoted(given)),
                "write for instance 10, \"json:/max_tokens\" or \"header:X-Cost\"",
            )),
        },
    }
}

fn length(value: &Yaml) -> Result<CostSource, TextFault> {
    match values::size(value)? {
        0 => Err(TextFault::new("a unit of 0 bytes has no end", "write for instance 1KiB")),
        bytes => Ok(CostSource::Length { bytes }),
    }
}

/// `graphql: on`, or its bounds.
fn graphql(map: &Fields<'_>) -> Option<GraphQlBounds> {
    let mut bounds = GraphQlBounds::default();
    if matches!(map.entry("graphql")?.value.kind, YamlKind::Scalar(_)) {
        return map.read("graphql", switch)?.then_some(bounds);
    }
    let map = map.map("graphql")?;
    set(&mut bounds.depth, map.read("depth", |value| count(value, 1..=100)));
    set(&mut bounds.aliases, map.read("aliases", |value| count(value, 0..=10_000)));
    set(&mut bounds.batch, map.read("batch", |value| count(value, 1..=1_000)));
    set(&mut bounds.list, map.read("list", |value| count(value, 1..=1_000_000)));
    set(&mut bounds.most, map.read("most", |value| count(value, 1..=MAX_COST)));
    map.finish();
    Some(bounds)
}

/// `json:/usage/total_tokens`, `header:X-Tollgate-Cost`, `llm` or `{llm: {include_usage: on}}`.
fn settle(entry: &YamlEntry, outer: &Fields<'_>) -> Option<SettleSource> {
    if let YamlKind::Scalar(_) = &entry.value.kind {
        let read = text(&entry.value).and_then(settle_text);
        return outer.faults().sound(entry.line, read);
    }
    let map = Fields::of(&entry.value, "what a request cost", outer.faults())?;
    map.require(
        "llm",
        "write llm, {llm: {include_usage: on}}, \"json:/usage/total_tokens\" or \"header:X-Tollgate-Cost\"",
    );
    let llm = map.map("llm").map(|map| {
        let include_usage = map.read("include_usage", switch).unwrap_or(false);
        map.finish();
        SettleSource::Llm { include_usage }
    });
    map.finish();
    llm
}

fn settle_text(given: &str) -> Result<SettleSource, TextFault> {
    match given.split_once(':') {
        None if given == "llm" => Ok(SettleSource::Llm { include_usage: false }),
        Some(("json", pointer)) => json_pointer(pointer).map(SettleSource::Json),
        Some(("header", name)) => values::header(name.trim()).map(SettleSource::Header),
        _ => Err(TextFault::new(
            format!("{} does not say what a request cost", quoted(given)),
            "write llm, \"json:/usage/total_tokens\" or \"header:X-Tollgate-Cost\"",
        )),
    }
}

/// A JSON pointer to a member (RFC 6901).
fn json_pointer(given: &str) -> Result<JsonPointer, TextFault> {
    let fault = || {
        let remedy = format!("write 1 to {MAX_STEPS} names, each after a slash, for instance json:/usage/total_tokens");
        TextFault::new(format!("{} is not a place in a JSON document", quoted(given)), remedy)
    };
    let steps = given.strip_prefix('/').ok_or_else(fault)?;
    let unescaped = |step: &str| {
        let is_valid = step.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
        (is_valid && !step.is_empty()).then(|| step.replace("~1", "/").replace("~0", "~"))
    };
    let steps: Option<Vec<String>> = steps.split('/').map(unescaped).collect();
    steps.filter(|steps| steps.len() <= MAX_STEPS).map(JsonPointer).ok_or_else(fault)
}
