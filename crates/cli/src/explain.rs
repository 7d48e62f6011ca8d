//! `tollgate explain`: which rules apply to a request.
//!
//! The counters are fresh ones in memory: the result depends on the rules alone.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use tollgate::{CounterStatus, Decision, Descriptor, Explanation, Limiter, MemoryConfig, Request, RuleMatch, Ruleset};

use super::rules_args::RulesArgs;
use super::spelling_args::{SpellingArgs, normalized};
use super::style::{Palette, Tone};
use super::{EXIT_FAILURE, EXIT_USAGE, print_error, request_error, write_output};
use tollgate_observe::display;
use tollgate_rules::problem::nearest;
use tollgate_rules::{Domain, RegionMode, Rule};

#[derive(Debug, Args)]
pub(super) struct Explain {
    #[command(flatten)]
    rules: RulesArgs,
    #[command(flatten)]
    spelling: SpellingArgs,
    /// The domain; required if there are several
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
    /// The cost of the request; 0 only peeks
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_cost)]
    cost: u64,
    /// Write a JSON document
    #[arg(long)]
    json: bool,
    /// Attributes of the request, in their order; a `+` begins another descriptor. Without --rules, rule files come first
    #[arg(value_name = "PATH|KEY=VALUE")]
    arguments: Vec<String>,
}

/// The effect of rules on a request, on fresh counters.
pub(super) struct ExplainedRules {
    pub(super) explanation: Explanation,
    decision: Decision,
    /// Attributes that no rule uses.
    pub(super) unknown: Vec<String>,
    cost: u64,
}

const NO_RULES: &str =
    "there are no rules; name their file first: `tollgate explain rules.yaml KEY=VALUE`, or write --rules PATH";

/// The JSON document.
#[derive(Serialize)]
struct ExplainReport<'a> {
    domain: &'a str,
    cost: u64,
    /// Always `fresh`: no counter of a running limiter was read.
    counters: &'static str,
    allowed: bool,
    denied_by: Option<&'a str>,
    /// Attributes that no rule uses.
    unknown: Vec<&'a str>,
    rules: Vec<RuleReport<'a>>,
}

#[derive(Serialize)]
struct RuleReport<'a> {
    name: &'a str,
    file: String,
    line: usize,
    fate: &'static str,
    /// Why it does not apply.
    why: Option<&'a str>,
    counters: Vec<CounterReport<'a>>,
}

#[derive(Serialize)]
struct CounterReport<'a> {
    key: &'a [String],
    limit: u64,
    period: String,
    algorithm: &'static str,
    units: u64,
    mode: &'static str,
    remaining: u64,
    has_room: bool,
    /// Why servers may not lease the limit; `null` if they may.
    not_leased: Option<String>,
}

impl Explain {
    pub(super) fn run(&self) -> ExitCode {
        let (paths, attributes) = self.split_arguments();
        let unlikely = paths.iter().skip(self.rules.rules.len().max(1)).find(|path| is_unlikely_file(path));
        let lists = match (descriptors(attributes), unlikely) {
            (Ok(_), _) if paths.is_empty() => Err(NO_RULES.to_owned()),
            (Ok(_), Some(path)) => Err(not_an_attribute(&path.to_string_lossy())),
            (lists, _) => lists,
        };
        let lists = match lists {
            Ok(lists) => lists,
            Err(message) => {
                print_error(format_args!("error: {message}"));
                return ExitCode::from(EXIT_USAGE);
            }
        };
        let rules = match self.rules.load(&paths) {
            Ok(rules) => rules,
            Err(code) => return code,
        };
        let rewritten = self.rewritten(&lists);
        let lists: Vec<Vec<(&str, &str)>> = lists
            .iter()
            .map(|list| list.iter().map(|pair| rewritten.get(pair).map_or(*pair, |value| (pair.0, &**value))).collect())
            .collect();
        let explained = match ExplainedRules::new(rules, self.domain.as_deref(), &lists, self.cost) {
            Ok(explained) => explained,
            Err(message) => {
                print_error(format_args!("error: {message}"));
                return ExitCode::from(EXIT_FAILURE);
            }
        };
        let text = match self.json {
            true => explained.to_json(),
            false => {
                let notes = rewritten.iter().map(|((name, _), value)| {
                    format!("{name} is read as {}, as over HTTP (--http-normalize).\n", tollgate_rules::quoted(value))
                });
                notes.collect::<String>() + &explained.to_text()
            }
        };
        write_output(&text, 0)
    }

    /// The rule files, and the attributes after them.
    fn split_arguments(&self) -> (Vec<&Path>, &[String]) {
        let is_attribute = |argument: &String| argument.contains('=') || argument == "+";
        let files = match self.rules.rules.is_empty() {
            true => self.arguments.iter().position(is_attribute).unwrap_or(self.arguments.len()),
            false => 0,
        };
        let (files, attributes) = self.arguments.split_at(files);
        (self.rules.paths(files.iter().map(Path::new)), attributes)
    }

    /// The attributes that rules see in another spelling, with their values in that.
    fn rewritten<'a>(&self, lists: &[Vec<(&'a str, &'a str)>]) -> BTreeMap<(&'a str, &'a str), String> {
        let normalization = self.spelling.normalization();
        let pairs = lists.iter().flatten();
        pairs.filter_map(|(name, value)| Some(((*name, *value), normalized(normalization, name, value)?))).collect()
    }
}

impl ExplainedRules {
    /// Explains a request with these attributes in each descriptor.
    pub(super) fn new(
        rules: Ruleset,
        domain: Option<&str>,
        lists: &[Vec<(&str, &str)>],
        cost: u64,
    ) -> Result<ExplainedRules, String> {
        let descriptors: Vec<_> = lists.iter().map(|entries| Descriptor::new(entries)).collect();
        let request = Request { domain, descriptors: &descriptors, cost, ..Request::default() };
        let limiter = Limiter::new(rules, MemoryConfig::default().build());
        // The counters are temporary, so the check may consume units.
        let results = async { Ok((limiter.explain(&request).await?, limiter.check_request(&request).await?)) };
        let (explanation, decision) = match tollgate::poll_once(results) {
            Some(Ok(both)) => both,
            Some(Err(error)) => return Err(request_error(&error, domain, &limiter.rules())),
            None => return Err("the store did not answer".to_owned()),
        };
        let unknown = unknown_attributes(lists, decision.domain()).into_iter().map(str::to_owned).collect();
        Ok(ExplainedRules { explanation, decision, unknown, cost })
    }

    /// The JSON document.
    pub(super) fn to_json(&self) -> String {
        let ExplainedRules { explanation, decision, unknown, .. } = self;
        let rules = explanation.rules.iter().zip(decision.domain().rules());
        let report = ExplainReport {
            domain: &explanation.domain,
            cost: self.cost,
            counters: "fresh",
            allowed: decision.allowed(),
            denied_by: decision.denied_by().map(|outcome| outcome.rule.name()),
            unknown: unknown.iter().map(String::as_str).collect(),
            rules: rules
                .map(|(explained, rule)| RuleReport {
                    name: &explained.name,
                    file: rule.location().file.to_string(),
                    line: rule.location().line,
                    fate: fate(&explained.fate),
                    why: match &explained.fate {
                        RuleMatch::Misses(why) => Some(why),
                        RuleMatch::Applies | RuleMatch::Unlimited => None,
                    },
                    counters: explained.counters.iter().map(|counter| CounterReport::new(counter, rule)).collect(),
                })
                .collect(),
        };
        // Serialisation of texts and numbers can't fail.
        let mut text = serde_json::to_string_pretty(&report).unwrap_or_default();
        text.push('\n');
        text
    }

    pub(super) fn to_text(&self) -> String {
        let ExplainedRules { explanation, decision, unknown, .. } = self;
        let palette = Palette::of_stdout();
        let width = explanation.rules.iter().map(|rule| rule.name.chars().count()).max().unwrap_or(0);
        let mut text = format!(
            "Domain {}, a request of cost {}, on fresh counters (independent of any running server).\n\n",
            tollgate_rules::quoted(&explanation.domain),
            self.cost
        );
        // Writing to a String can't fail.
        for (rule, in_force) in explanation.rules.iter().zip(decision.domain().rules()) {
            let fate = palette.paint(tone(&rule.fate), &format!("{:<9}", fate(&rule.fate)));
            let prefix = format!("{fate}  {:width$}  ", rule.name);
            match &rule.fate {
                RuleMatch::Misses(why) => {
                    let _ = writeln!(text, "{prefix}{why}");
                }
                RuleMatch::Unlimited => {
                    let _ = writeln!(text, "{prefix}no limit for this request");
                }
                RuleMatch::Applies => {
                    for counter in &rule.counters {
                        let _ = writeln!(text, "{prefix}{}{}", counter_text(counter), notes(in_force));
                    }
                }
            }
        }
        text.push('\n');
        for name in unknown {
            let near = nearest(name, decision.domain().used_attributes());
            let guess = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            let note = format!("No rule knows the attribute {}{guess}", tollgate_rules::quoted(name));
            let _ = writeln!(text, "{}", palette.paint(Tone::Unusual, &note));
        }
        let (tone, result) = match (decision.denied_by(), decision.tightest()) {
            (Some(denied), _) => {
                (Tone::Bad, format!("The request is refused by {}.", tollgate_rules::quoted(denied.rule.name())))
            }
            (None, Some(tightest)) => {
                let (left, name) = (tightest.reading.remaining, tollgate_rules::quoted(tightest.rule.name()));
                (Tone::Good, format!("The request is allowed; the tightest limit is {name}, with {left} left."))
            }
            (None, None) => (Tone::Unusual, "The request is allowed; no limit applies.".to_owned()),
        };
        let _ = writeln!(text, "{}", palette.paint(tone, &result));
        text
    }
}

fn parse_cost(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "a cost is a whole number from 0, for instance --cost 5".to_owned())
}

/// The attributes of each descriptor.
fn descriptors(attributes: &[String]) -> Result<Vec<Vec<(&str, &str)>>, String> {
    if attributes.is_empty() {
        return Ok(Vec::new());
    }
    let mut lists = Vec::new();
    for pairs in attributes.split(|attribute| attribute == "+") {
        if pairs.is_empty() {
            return Err("a descriptor next to `+` is empty; write KEY=VALUE before and after it".to_owned());
        }
        let pair = |text: &'_ String| match text.split_once('=') {
            None | Some(("", _)) => Err(not_an_attribute(text)),
            Some(_) => Ok(()),
        };
        pairs.iter().try_for_each(pair)?;
        lists.push(pairs.iter().filter_map(|text| text.split_once('=')).collect());
    }
    Ok(lists)
}

fn not_an_attribute(text: &str) -> String {
    let shown = tollgate_rules::quoted(text);
    match text {
        _ if text.ends_with(".yaml") || text.ends_with(".yml") => {
            format!("{shown} is not KEY=VALUE; rule files come before the attributes, or after --rules")
        }
        _ => format!("{shown} is not KEY=VALUE; write for instance api_key=ada"),
    }
}

/// Whether an argument was probably meant as an attribute: there is no such file, and it does not look like the name of one.
fn is_unlikely_file(path: &Path) -> bool {
    path.extension().is_none() && path.components().count() == 1 && !path.exists()
}

/// The attributes of a request that no rule uses, each once. The server's own ones are known to it.
fn unknown_attributes<'a>(lists: &[Vec<(&'a str, &str)>], domain: &Domain) -> Vec<&'a str> {
    const OWN_PREFIX: &str = "tollgate.";
    let mut unknown: Vec<&str> = Vec::new();
    for (name, _) in lists.iter().flatten() {
        let is_known = name.starts_with(OWN_PREFIX) || domain.used_attributes().any(|known| known == *name);
        if !is_known && !unknown.contains(name) {
            unknown.push(name);
        }
    }
    unknown
}

fn tone(fate: &RuleMatch) -> Tone {
    match fate {
        RuleMatch::Applies => Tone::Good,
        RuleMatch::Unlimited => Tone::Unusual,
        RuleMatch::Misses(_) => Tone::Quiet,
    }
}

fn fate(fate: &RuleMatch) -> &'static str {
    match fate {
        RuleMatch::Applies => "applies",
        RuleMatch::Unlimited => "unlimited",
        RuleMatch::Misses(_) => "misses",
    }
}

/// `100/minute, sliding window; key [k1]; enforce; takes 1 of 100 left`.
/// What is special about a rule.
fn notes(rule: &Rule) -> String {
    let by = rule.limit_by().map(|attribute| format!("; limited by {attribute}")).unwrap_or_default();
    let count = if rule.is_summed() { "; summed" } else { "" };
    let region = match rule.region() {
        RegionMode::Each => String::new(),
        mode => format!("; region {}", mode.text()),
    };
    by + count + &region + if rule.sheds() { "; refusals are 503" } else { "" }
}

fn counter_text(counter: &CounterStatus) -> String {
    let room = if counter.has_room() { "" } else { ": no room" };
    format!(
        "{}; key [{}]; {}; takes {} of {} left{room}",
        display::limit(&counter.limit),
        counter.key.join(", "),
        counter.mode.name(),
        counter.units,
        counter.reading.remaining
    )
}

impl CounterReport<'_> {
    fn new<'a>(counter: &'a CounterStatus, rule: &Rule) -> CounterReport<'a> {
        CounterReport {
            key: &counter.key,
            limit: counter.limit.amount(),
            period: display::period(counter.limit.period()),
            algorithm: counter.limit.algorithm().name(),
            units: counter.units,
            mode: counter.mode.name(),
            remaining: counter.reading.remaining,
            has_room: counter.has_room(),
            not_leased: rule.why_not_leased(&counter.limit).map(|reason| reason.to_string()),
        }
    }
}
