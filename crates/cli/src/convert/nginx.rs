//! `limit_req` and `limit_conn` of nginx.

use std::collections::HashMap;

use super::Conversion;
use super::rule::{ConvertedRule, ValueCondition};

/// A directive with its words.
#[derive(Debug, Default)]
struct Directive {
    line: usize,
    words: Vec<String>,
}

/// A block that is open.
#[derive(Debug)]
struct Block {
    number: usize,
    words: Vec<String>,
}

/// A zone: its key and, for requests, its rate.
#[derive(Debug)]
struct Zone {
    key: Vec<String>,
    limit: Option<String>,
}

/// A use of a zone.
#[derive(Debug)]
struct ZoneUse {
    directive: Directive,
    location: Option<Vec<String>>,
    server: Option<usize>,
    block: usize,
}

/// What a configuration says about limits.
#[derive(Debug, Default)]
struct NginxLimits {
    zones: HashMap<String, Zone>,
    uses: Vec<ZoneUse>,
    server_names: HashMap<usize, Vec<String>>,
    /// The blocks with `limit_req_dry_run on`.
    dry: Vec<usize>,
}

/// Blocks within each other.
const MAX_DEPTH: usize = 64;

/// Converts a configuration.
pub(super) fn convert(text: &str) -> Conversion {
    let mut conversion = Conversion::default();
    let mut limits = NginxLimits::default();
    let (mut blocks, mut number): (Vec<Block>, usize) = (Vec::new(), 0);
    let mut directive = Directive::default();
    for (line, token) in tokens(text) {
        match token {
            Token::Word(word) => {
                if directive.words.is_empty() {
                    directive.line = line;
                }
                directive.words.push(word);
            }
            Token::End => limits.add(std::mem::take(&mut directive), &blocks, &mut conversion),
            Token::Open if blocks.len() < MAX_DEPTH => {
                number += 1;
                blocks.push(Block { number, words: std::mem::take(&mut directive.words) });
            }
            Token::Open => {
                conversion.note(line, "blocks are nested too deeply");
                break;
            }
            Token::Close => drop(blocks.pop()),
        }
    }
    limits.add_rules(&mut conversion);
    conversion
}

enum Token {
    Word(String),
    End,
    Open,
    Close,
}

/// The tokens with their lines. `${` of a variable does not open a block.
fn tokens(text: &str) -> Vec<(usize, Token)> {
    let mut tokens = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let number = number + 1;
        let (mut word, mut quote) = (String::new(), None);
        let end_word = |word: &mut String, tokens: &mut Vec<(usize, Token)>| {
            if !word.is_empty() {
                tokens.push((number, Token::Word(std::mem::take(word))));
            }
        };
        for c in line.chars() {
            match (quote, c) {
                (Some(open), c) if c == open => quote = None,
                (Some(_), c) => word.push(c),
                (None, '"' | '\'') => quote = Some(c),
                (None, '#') if word.is_empty() => break,
                (None, '{') if !word.ends_with('$') => {
                    end_word(&mut word, &mut tokens);
                    tokens.push((number, Token::Open));
                }
                (None, '}') if !word.contains("${") => {
                    end_word(&mut word, &mut tokens);
                    tokens.push((number, Token::Close));
                }
                (None, ';') => {
                    end_word(&mut word, &mut tokens);
                    tokens.push((number, Token::End));
                }
                (None, c) if c.is_whitespace() => end_word(&mut word, &mut tokens),
                (None, c) => word.push(c),
            }
        }
        end_word(&mut word, &mut tokens);
    }
    tokens
}

impl NginxLimits {
    fn add(&mut self, directive: Directive, blocks: &[Block], conversion: &mut Conversion) {
        let line = directive.line;
        let words: Vec<&str> = directive.words.iter().map(String::as_str).collect();
        let is = |block: &&Block, name: &str| block.words.first().is_some_and(|word| word == name);
        let server = blocks.iter().rev().find(|block| is(block, "server")).map(|block| block.number);
        let block = blocks.last().map_or(0, |block| block.number);
        match words.as_slice() {
            ["limit_req_zone", key, rest @ ..] | ["limit_conn_zone", key, rest @ ..] => {
                let value = |name: &str| rest.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
                let Some(zone) = value("zone") else { return };
                let name = zone.split(':').next().unwrap_or(zone).to_owned();
                let zone = Zone { key: self.key(key, line, conversion), limit: value("rate").and_then(rate) };
                self.zones.insert(name, zone);
            }
            ["limit_req" | "limit_conn", ..] => {
                let location = blocks.iter().rev().find(|block| is(block, "location")).map(|block| block.words.clone());
                self.uses.push(ZoneUse { directive, location, server, block });
            }
            ["server_name", names @ ..] => {
                if let Some(server) = server {
                    self.server_names.insert(server, names.iter().map(|name| (*name).to_owned()).collect());
                }
            }
            ["limit_req_dry_run" | "limit_conn_dry_run", "on"] => self.dry.push(block),
            [name, ..]
                if name.starts_with("limit_req")
                    || name.starts_with("limit_conn")
                    || name.starts_with("limit_rate") =>
            {
                conversion.note(line, format!("{}: it stays in nginx", words.join(" ")));
            }
            ["include", file] if !file.contains("mime.types") => {
                conversion.note(line, format!("include {file}: convert that file too, if it has limits"));
            }
            _ => {}
        }
    }

    /// The attributes of a zone's key.
    fn key(&self, key: &str, line: usize, conversion: &mut Conversion) -> Vec<String> {
        let variables = key.split('$').skip(1).map(|name| name.trim_matches(['{', '}']));
        let mut attributes: Vec<String> = Vec::new();
        for variable in variables {
            let name = variable.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default();
            let attribute = match name {
                "" => continue,
                "binary_remote_addr" | "remote_addr" | "realip_remote_addr" => "remote_address",
                "server_name" | "host" | "http_host" => "host",
                "uri" | "request_uri" | "document_uri" => "path",
                "request_method" => "method",
                "remote_user" => "user",
                name => match ["http_", "arg_", "cookie_"].iter().find_map(|prefix| name.strip_prefix(prefix)) {
                    Some(inner) => inner,
                    None => {
                        let text = format!(
                            "${name} is computed by nginx (map, geo or set): send it as the attribute `{name}`"
                        );
                        conversion.note(line, text);
                        name
                    }
                },
            };
            if !attributes.iter().any(|other| other == attribute) {
                attributes.push(attribute.to_owned());
            }
        }
        attributes
    }

    fn add_rules(&self, conversion: &mut Conversion) {
        for used in &self.uses {
            let Directive { line, words } = &used.directive;
            let Some((rule_name, zone, rule)) = self.rule(used, conversion) else { continue };
            let Some(conditions) = self.conditions(used, conversion) else { continue };
            let suffix = used.location.as_ref().and_then(|words| words.last()).map(|path| format!("-{path}"));
            let name = format!("{rule_name}{}", suffix.unwrap_or_default());
            let mut terms = rule.terms;
            if self.dry.contains(&used.block) {
                terms.push(("mode", "shadow".to_owned()));
            }
            if words.iter().any(|word| word.starts_with("delay=")) {
                conversion.note(*line, "delay=: nginx delays a part of the burst; the rule delays nothing");
            }
            conversion.rules.push(ConvertedRule {
                name,
                key: zone.key.clone(),
                conditions,
                line: *line,
                terms,
                ..rule
            });
        }
    }

    /// The zone of a use, and the rule's limit and terms.
    fn rule(&self, used: &ZoneUse, conversion: &mut Conversion) -> Option<(String, &Zone, ConvertedRule)> {
        let Directive { line, words } = &used.directive;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let value = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        let is_conn = words.first() == Some(&"limit_conn");
        let name = if is_conn { words.get(1).copied() } else { value("zone") };
        let zone = name.and_then(|name| Some((name, self.zones.get(name)?)));
        let Some((name, zone)) = zone else {
            conversion.note(*line, format!("{}: its zone is not in this file", words.join(" ")));
            return None;
        };
        if is_conn {
            let limit = words.get(2).and_then(|number| number.parse::<u64>().ok());
            let Some(limit) = limit else {
                conversion.note(*line, format!("{}: its number can't be read", words.join(" ")));
                return None;
            };
            conversion.note(*line, format!("{}: callers have to settle each request (docs/http.md)", words.join(" ")));
            return Some((
                name.to_owned(),
                zone,
                ConvertedRule { limit: format!("{limit} concurrent"), ..ConvertedRule::default() },
            ));
        }
        let Some(limit) = zone.limit.clone() else {
            conversion.note(*line, format!("{}: the rate of its zone can't be read", words.join(" ")));
            return None;
        };
        let burst = value("burst").and_then(|burst| burst.parse::<u64>().ok()).unwrap_or(0);
        // Without `nodelay`, requests of the burst wait for their turn.
        let waits = burst > 0 && !words.contains(&"nodelay") && value("delay").is_none();
        let algorithm = if waits { "leaky_bucket" } else { "token_bucket" };
        let terms = vec![("algorithm", algorithm.to_owned()), ("burst", burst.saturating_add(1).to_string())];
        Some((name.to_owned(), zone, ConvertedRule { limit, terms, ..ConvertedRule::default() }))
    }

    /// The conditions of the place of a use. `None` if they can't be written.
    fn conditions(&self, used: &ZoneUse, conversion: &mut Conversion) -> Option<Vec<(String, ValueCondition)>> {
        let mut conditions = Vec::new();
        let line = used.directive.line;
        if let Some(names) = used.server.and_then(|server| self.server_names.get(&server)) {
            let hosts: Vec<String> = names
                .iter()
                .filter(|name| !matches!(name.as_str(), "_" | "") && !name.starts_with('~'))
                .cloned()
                .collect();
            if names.iter().any(|name| name.starts_with('~')) {
                conversion.note(line, format!("server_name {}: regular expressions", names.join(" ")));
            }
            if !hosts.is_empty() {
                conditions.push(("host".to_owned(), ValueCondition::AnyOf(hosts)));
            }
        }
        let location: Vec<&str> = used.location.iter().flatten().skip(1).map(String::as_str).collect();
        let path = match location.as_slice() {
            [] | ["/"] => return Some(conditions),
            ["=", path] => (*path).to_owned(),
            ["^~", path] | [path] if path.starts_with('/') => format!("{path}*"),
            other => {
                let text = format!(
                    "{} in location {}: write its `match` yourself",
                    used.directive.words.join(" "),
                    other.join(" ")
                );
                conversion.note(line, text);
                return None;
            }
        };
        conditions.push(("path".to_owned(), ValueCondition::AnyOf(vec![path])));
        Some(conditions)
    }
}

/// `10/second` for `10r/s`.
fn rate(text: &str) -> Option<String> {
    let (amount, unit) = text.split_once("r/")?;
    let unit = match unit {
        "s" => "second",
        "m" => "minute",
        _ => return None,
    };
    amount.parse::<u64>().ok().map(|amount| format!("{amount}/{unit}"))
}
