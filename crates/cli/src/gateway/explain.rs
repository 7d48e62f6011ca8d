//! `tollgate gateway explain`.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Uri, header};
use serde_json::Value;
use tollgate::{RuleMatch, Severity};
use tollgate_gateway::config::GatewayProblem;
use tollgate_gateway::explain::{ExplainedRequest, RequestExplanation, explain, masked};
use tollgate_gateway::model::GatewayConfig;
use tollgate_rules::quoted;
use tollgate_store::{Clock as _, SystemClock};

use crate::explain::ExplainedRules;
use crate::rules_args::RulesArgs;
use crate::spelling_args::SpellingArgs;
use crate::style::{Palette, Tone};
use crate::{EXIT_FAILURE, EXIT_USAGE, print_error, write_output};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    tollgate gateway explain gateway.yaml 'POST /v1/orders' --header 'X-Api-Key: k1'\n  \
    tollgate gateway explain gateway.yaml /v1/orders/7 --host api.example.com --rules rules.yaml\n  \
    tollgate gateway explain gateway.yaml 'POST /v1/chat' --body '{\"max_tokens\": 100}' --json")]
pub(super) struct ExplainRequest {
    /// The file of a gateway
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// A method and a path, with a query if there is one; a path alone is a GET
    #[arg(value_name = "REQUEST")]
    request: String,
    /// A header of the request, `Name: value`; may be repeated
    #[arg(long, short = 'H', value_name = "HEADER")]
    header: Vec<String>,
    /// The host of the request
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// The body of the request, for costs that are read from it
    #[arg(long, value_name = "TEXT")]
    body: Option<String>,
    /// The address that the client connects from
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    address: IpAddr,
    #[command(flatten)]
    rules: RulesArgs,
    #[command(flatten)]
    spelling: SpellingArgs,
    /// Write a JSON document
    #[arg(long)]
    json: bool,
}

/// The host of a request that names none.
const DEFAULT_HOST: &str = "localhost";

impl ExplainRequest {
    pub(super) fn run(&self) -> ExitCode {
        let parts = match self.parts() {
            Ok(parts) => parts,
            Err(message) => {
                print_error(format_args!("error: {message}"));
                return ExitCode::from(EXIT_USAGE);
            }
        };
        let config = match GatewayConfig::read_file(&self.file) {
            Ok(read) => read.config,
            Err(problems) => {
                let is_error = |problem: &&GatewayProblem| problem.severity == Severity::Error;
                problems.iter().filter(is_error).for_each(print_error);
                return ExitCode::from(EXIT_FAILURE);
            }
        };
        let explanation = explain(
            &config,
            ExplainedRequest {
                parts: &parts,
                body: self.body.as_deref().map(str::as_bytes),
                peer: self.address,
                now: SystemClock::default().now(),
                normalization: self.spelling.normalization(),
            },
        );
        let rules = match self.explain_rules(&config, &explanation) {
            Ok(rules) => rules,
            Err(code) => return code,
        };
        let text = match self.json {
            true => to_json(&explanation, rules.as_ref()),
            false => to_text(&explanation, rules.as_ref()),
        };
        write_output(&text, 0)
    }

    /// The head of the request.
    fn parts(&self) -> Result<Parts, String> {
        let (method, target) = match self.request.trim().split_once(' ') {
            Some((method, target)) => (method, target.trim()),
            None => ("GET", self.request.trim()),
        };
        let wrong = |what: &str| {
            format!("{} is not a request: {what}; write for instance 'POST /v1/orders'", quoted(&self.request))
        };
        let method: Method = method.parse().map_err(|_| wrong("the method has other characters than letters"))?;
        let uri: Uri = target.parse().map_err(|_| wrong("the target is not a path"))?;
        if !target.starts_with('/') && uri.scheme().is_none() && target != "*" {
            return Err(wrong("the path does not begin with a slash"));
        }
        let mut request = http::Request::new(());
        for line in &self.header {
            let (name, value) = parse_header(line)?;
            request.headers_mut().append(name, value);
        }
        let host = self.host.as_deref().or(uri.authority().map(http::uri::Authority::as_str));
        let has_host = request.headers().contains_key(header::HOST);
        if let Some(host) = host.or((!has_host).then_some(DEFAULT_HOST)) {
            let value = HeaderValue::from_str(host).map_err(|_| format!("{} is not a host", quoted(host)))?;
            request.headers_mut().insert(header::HOST, value);
        }
        if let Some(body) = self.body.as_ref().filter(|_| !request.headers().contains_key(header::CONTENT_LENGTH)) {
            request.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
        let mut parts = request.into_parts().0;
        (parts.method, parts.uri) = (method, uri);
        Ok(parts)
    }

    /// What the rules say of the request. `None` if none are given, or the request does not get so far. Errors have been
    /// printed.
    fn explain_rules(
        &self,
        config: &GatewayConfig,
        explanation: &RequestExplanation,
    ) -> Result<Option<ExplainedRules>, ExitCode> {
        if self.rules.rules.is_empty() {
            return Ok(None);
        }
        let rules = self.rules.load(&self.rules.paths([]))?;
        if explanation.answer.is_some() {
            return Ok(None);
        }
        let entries = explanation.entries.iter().map(|(name, value)| (&**name, &**value)).collect();
        let explained = ExplainedRules::new(rules, config.domain.as_deref(), &[entries], 1);
        let mut explained = explained.map_err(|message| {
            print_error(format_args!("error: {message}"));
            ExitCode::from(EXIT_FAILURE)
        })?;
        mask_keys(&mut explained, &explanation.entries);
        // The gateway sends more attributes than any rule uses.
        explained.unknown.clear();
        Ok(Some(explained))
    }
}

fn parse_header(line: &str) -> Result<(HeaderName, HeaderValue), String> {
    let wrong = || format!("{} is not a header; write for instance 'X-Api-Key: k1'", quoted(line));
    let (name, value) = line.split_once(':').ok_or_else(wrong)?;
    let value = HeaderValue::from_str(value.trim()).map_err(|_| wrong())?;
    Ok((name.trim().parse().map_err(|_| wrong())?, value))
}

/// Masks credentials in the keys of counters, and in the reasons.
fn mask_keys(explained: &mut ExplainedRules, entries: &[(String, String)]) {
    let masked: Vec<(&str, String)> = entries
        .iter()
        .map(|(name, value)| (&**value, masked(name, value)))
        .filter(|(value, masked)| value != masked)
        .collect();
    for rule in &mut explained.explanation.rules {
        for part in rule.counters.iter_mut().flat_map(|counter| &mut counter.key) {
            if let Some((_, masked)) = masked.iter().find(|(value, _)| *value == part.as_str()) {
                part.clone_from(masked);
            }
        }
        if let RuleMatch::Misses(why) = &mut rule.fate {
            for (value, masked) in &masked {
                *why = why.replace(&format!("\"{value}\""), &format!("\"{masked}\""));
            }
        }
    }
}

fn to_json(explanation: &RequestExplanation, rules: Option<&ExplainedRules>) -> String {
    // Serialisation of texts and numbers can't fail.
    let mut report = serde_json::to_value(explanation).unwrap_or_default();
    report["rules"] = rules.and_then(|rules| serde_json::from_str(&rules.to_json()).ok()).unwrap_or(Value::Null);
    serde_json::to_string_pretty(&report).unwrap_or_default() + "\n"
}

fn to_text(explanation: &RequestExplanation, rules: Option<&ExplainedRules>) -> String {
    let palette = Palette::of_stdout();
    let mut text = String::new();
    // Writing to a String can't fail.
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{} {value}", palette.paint(Tone::Heading, &format!("{name:<10}")));
    };
    if let Some(route) = &explanation.route {
        line("route", &format!("{} (line {}): {}", route.name, route.line, route.matches));
    }
    if let Some(path) = &explanation.path {
        line("path", path);
    }
    if let Some(forwarded) = &explanation.forwarded {
        line("forwarded", forwarded);
    }
    if let Some(upstream) = &explanation.upstream {
        line("upstream", &format!("{}: {}", upstream.name, upstream.servers));
    }
    for attribute in &explanation.attributes {
        let value = attribute.value.as_deref().unwrap_or("(absent)");
        line("attribute", &format!("{} = {value} ({})", attribute.name, attribute.source));
    }
    if let Some(priority) = &explanation.priority {
        line("priority", &format!("{}, {}", priority.class, priority.why));
    }
    for cost in &explanation.costs {
        let settled = cost.settled_by.as_ref().map(|by| format!("; settled by {by}")).unwrap_or_default();
        line("cost", &format!("{} = {} ({}{settled})", cost.attribute, cost.units, cost.from));
    }
    if let Some(timeouts) = &explanation.timeouts {
        let whole = timeouts.whole_ms.map(|whole| format!(", whole {}", duration(whole))).unwrap_or_default();
        let (connect, tls) = (duration(timeouts.connect_ms), duration(timeouts.tls_ms));
        let (response, idle) = (duration(timeouts.response_ms), duration(timeouts.response_idle_ms));
        let request = duration(timeouts.request_idle_ms);
        let value = format!("connect {connect}, tls {tls}, request idle {request}, response {response}, idle {idle}");
        line("timeouts", &(value + &whole));
    }
    for other in &explanation.other_routes {
        line("not", &format!("{} (line {}): {}", other.name, other.line, other.why));
    }
    for note in &explanation.notes {
        line("note", note);
    }
    match (&explanation.answer, rules) {
        (Some(answer), _) => {
            let answer = format!("\nThe gateway answers {} ({}): {}.", answer.status, answer.code, answer.detail);
            let _ = writeln!(text, "{}", palette.paint(Tone::Bad, &answer));
        }
        (None, Some(rules)) => {
            text.push('\n');
            text.push_str(&rules.to_text());
        }
        (None, None) => {
            let result = "\nThe request is forwarded if the limits admit it (--rules shows which apply).";
            let _ = writeln!(text, "{}", palette.paint(Tone::Good, result));
        }
    }
    text
}

/// `15s`, `500ms`.
fn duration(milliseconds: u128) -> String {
    match milliseconds {
        ms if ms > 0 && ms % 60_000 == 0 => format!("{}m", ms / 60_000),
        ms if ms % 1_000 == 0 => format!("{}s", ms / 1_000),
        ms => format!("{ms}ms"),
    }
}

#[cfg(test)]
mod tests;
