//! `tollgate explain`: what every rule makes of a request.
//!
//! The counters are fresh ones in memory: it says what the rules say, not how callers stand.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use tollgate::{Counter, Decision, Descriptor, Explanation, Fate, Limiter, MemoryConfig, Request};

use super::{FAILURE, RulesArgs, USAGE, complain, finish, request_error};
use crate::words;

#[derive(Debug, Args)]
pub(super) struct Explain {
    #[command(flatten)]
    rules: RulesArgs,
    /// Whose rules; needed where there are several domains
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
    /// What the request costs; 0 is a look
    #[arg(long, value_name = "N", default_value_t = 1)]
    cost: u64,
    /// Write one JSON document
    #[arg(long)]
    json: bool,
    /// Attributes of the request, in their order; a lone `+` begins another descriptor
    #[arg(value_name = "KEY=VALUE")]
    attributes: Vec<String>,
}

/// What is said, as JSON has it.
#[derive(Serialize)]
struct Report<'a> {
    domain: &'a str,
    cost: u64,
    /// Always `fresh`: no counter of a running limiter was read.
    counters: &'static str,
    allowed: bool,
    denied_by: Option<&'a str>,
    rules: Vec<Told<'a>>,
}

#[derive(Serialize)]
struct Told<'a> {
    name: &'a str,
    file: &'a str,
    line: usize,
    fate: &'static str,
    /// Why it does not apply.
    why: Option<&'a str>,
    counters: Vec<ToldCounter<'a>>,
}

#[derive(Serialize)]
struct ToldCounter<'a> {
    key: &'a [String],
    limit: u64,
    period: String,
    algorithm: &'static str,
    units: u64,
    mode: &'static str,
    remaining: u64,
    has_room: bool,
}

impl Explain {
    pub(super) fn run(&self) -> ExitCode {
        let lists = match descriptors(&self.attributes) {
            Ok(lists) => lists,
            Err(what) => {
                complain(format_args!("error: {what}"));
                return ExitCode::from(USAGE);
            }
        };
        let rules = match self.rules.load() {
            Ok(rules) => rules,
            Err(code) => return code,
        };
        let descriptors: Vec<_> = lists.iter().map(|entries| Descriptor::new(entries)).collect();
        let domain = self.domain.as_deref();
        let request = Request { domain, descriptors: &descriptors, cost: self.cost, ..Request::default() };
        let limiter = Limiter::new(rules, MemoryConfig::default().build());
        // The counters are thrown away, so that the decision itself can be asked for.
        let asked = async { Ok((limiter.explain(&request).await?, limiter.check(&request).await?)) };
        let (explanation, decision) = match tollgate::now(asked) {
            Some(Ok(both)) => both,
            Some(Err(error)) => {
                complain(format_args!("error: {}", request_error(&error, domain, &limiter.rules())));
                return ExitCode::from(FAILURE);
            }
            None => {
                complain("error: the store did not answer");
                return ExitCode::from(FAILURE);
            }
        };
        let text =
            if self.json { self.to_json(&explanation, &decision) } else { self.to_text(&explanation, &decision) };
        finish(&text, 0)
    }

    fn to_json(&self, explanation: &Explanation, decision: &Decision) -> String {
        let rules = explanation.rules.iter().zip(decision.domain().rules());
        let report = Report {
            domain: &explanation.domain,
            cost: self.cost,
            counters: "fresh",
            allowed: decision.allowed(),
            denied_by: decision.denied_by().map(|outcome| outcome.rule.name()),
            rules: rules
                .map(|(explained, rule)| Told {
                    name: &explained.name,
                    file: &rule.place().file,
                    line: rule.place().line,
                    fate: fate(&explained.fate),
                    why: match &explained.fate {
                        Fate::Misses(why) => Some(why),
                        Fate::Applies | Fate::Unlimited => None,
                    },
                    counters: explained.counters.iter().map(ToldCounter::new).collect(),
                })
                .collect(),
        };
        // Texts and numbers always have a form in JSON.
        let mut text = serde_json::to_string_pretty(&report).unwrap_or_default();
        text.push('\n');
        text
    }

    fn to_text(&self, explanation: &Explanation, decision: &Decision) -> String {
        let width = explanation.rules.iter().map(|rule| rule.name.chars().count()).max().unwrap_or(0);
        let mut text = format!(
            "Domain {}, a request of cost {}, on fresh counters (no running limiter was asked).\n\n",
            tollgate_rules::quoted(&explanation.domain),
            self.cost
        );
        // Writing to a String can't fail.
        for rule in &explanation.rules {
            let begin = format!("{:<9}  {:width$}  ", fate(&rule.fate), rule.name);
            match &rule.fate {
                Fate::Misses(why) => {
                    let _ = writeln!(text, "{begin}{why}");
                }
                Fate::Unlimited => {
                    let _ = writeln!(text, "{begin}it does not limit this request");
                }
                Fate::Applies => {
                    for counter in &rule.counters {
                        let _ = writeln!(text, "{begin}{}", sentence(counter));
                    }
                }
            }
        }
        let _ = match (decision.denied_by(), decision.tightest()) {
            (Some(denied), _) => {
                writeln!(text, "\nThe request is refused by {}.", tollgate_rules::quoted(denied.rule.name()))
            }
            (None, Some(tightest)) => {
                let (left, name) = (tightest.reading.remaining, tollgate_rules::quoted(tightest.rule.name()));
                writeln!(text, "\nThe request is allowed; the fewest left after it are the {left} of {name}.")
            }
            (None, None) => writeln!(text, "\nThe request is allowed; nothing limits it."),
        };
        text
    }
}

/// The attributes of each descriptor.
fn descriptors(attributes: &[String]) -> Result<Vec<Vec<(&str, &str)>>, String> {
    if attributes.is_empty() {
        return Ok(Vec::new());
    }
    let mut lists = Vec::new();
    for pairs in attributes.split(|attribute| attribute == "+") {
        if pairs.is_empty() {
            return Err("a descriptor beside `+` is empty; write KEY=VALUE before it and after it".to_owned());
        }
        let pair = |text: &'_ String| match text.split_once('=') {
            None | Some(("", _)) => Err(format!("{} is not KEY=VALUE", tollgate_rules::quoted(text))),
            Some(_) => Ok(()),
        };
        pairs.iter().try_for_each(pair)?;
        lists.push(pairs.iter().filter_map(|text| text.split_once('=')).collect());
    }
    Ok(lists)
}

fn fate(fate: &Fate) -> &'static str {
    match fate {
        Fate::Applies => "applies",
        Fate::Unlimited => "unlimited",
        Fate::Misses(_) => "misses",
    }
}

/// `100/minute, sliding window; key [k1]; enforce; takes 1 of 100 left`.
fn sentence(counter: &Counter) -> String {
    let room = if counter.has_room() { "" } else { ": no room" };
    format!(
        "{}; key [{}]; {}; takes {} of {} left{room}",
        words::limit(&counter.limit),
        counter.key.join(", "),
        words::mode(counter.mode),
        counter.units,
        counter.reading.remaining
    )
}

impl ToldCounter<'_> {
    fn new(counter: &Counter) -> ToldCounter<'_> {
        ToldCounter {
            key: &counter.key,
            limit: counter.limit.amount(),
            period: words::period(counter.limit.period()),
            algorithm: words::algorithm(counter.limit.algorithm()),
            units: counter.units,
            mode: words::mode(counter.mode),
            remaining: counter.reading.remaining,
            has_room: counter.has_room(),
        }
    }
}
