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
    /// The blocks around it, the innermost last; 0 is the file.
    blocks: Vec<usize>,
}

/// A location of a server.
#[derive(Debug)]
struct Location {
    words: Vec<String>,
    /// The blocks around it and its own, as of a use in it.
    blocks: Vec<usize>,
}

/// What a configuration says about limits.
#[derive(Debug, Default)]
struct NginxLimits {
    zones: HashMap<String, Zone>,
    uses: Vec<ZoneUse>,
    server_names: HashMap<usize, Vec<String>>,
    locations: Vec<Location>,
    /// `limit_req` or `limit_conn`, and the blocks in which it only counts.
    dry: Vec<(&'static str, usize)>,
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
                limits.open(&blocks);
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
    /// Notes a block that is a location.
    fn open(&mut self, blocks: &[Block]) {
        let Some((name, words)) = blocks.last().and_then(|block| block.words.split_first()) else { return };
        if name == "location" {
            self.locations.push(Location { words: words.to_vec(), blocks: numbers(blocks) });
        }
    }

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
                self.uses.push(ZoneUse { directive, location, server, blocks: numbers(blocks) });
            }
            ["server_name", names @ ..] => {
                if let Some(server) = server {
                    self.server_names.insert(server, names.iter().map(|name| (*name).to_owned()).collect());
                }
            }
            ["limit_req_dry_run", "on"] => self.dry.push(("limit_req", block)),
            ["limit_conn_dry_run", "on"] => self.dry.push(("limit_conn", block)),
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
            if self.dry.iter().any(|(name, block)| used.is(name) && used.blocks.contains(block)) {
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
        let location = used.location.as_deref().and_then(|words| words.get(1..)).unwrap_or_default();
        let is_all = location.is_empty() || location == ["/"];
        let path = if is_all {
            "*".to_owned()
        } else if let Some(path) = pattern(location) {
            path
        } else {
            let text = format!(
                "{} in location {}: write its `match` yourself",
                used.directive.words.join(" "),
                location.join(" ")
            );
            conversion.note(line, text);
            return None;
        };
        if let Some(paths) = self.remaining_paths(used) {
            if paths.is_empty() {
                let text = format!("{}: all locations have limits of their own", used.directive.words.join(" "));
                conversion.note(line, text);
                return None;
            }
            conditions.push(("path".to_owned(), ValueCondition::AnyOf(paths)));
            return Some(conditions);
        }
        let (others, unwritten): (Vec<_>, Vec<_>) = self
            .locations_without(used)
            .map(|location| (location, pattern(&location.words)))
            .partition(|(_, path)| is_all && path.is_some());
        for (other, _) in unwritten {
            let text = format!(
                "{}: nginx does not apply it in location {}; the rule does",
                used.directive.words.join(" "),
                other.words.join(" ")
            );
            conversion.note(line, text);
        }
        if is_all {
            let others: Vec<String> = others.into_iter().filter_map(|(_, path)| path).collect();
            if !others.is_empty() {
                conditions.push(("path".to_owned(), ValueCondition::NoneOf(others)));
            }
            return Some(conditions);
        }
        conditions.push(("path".to_owned(), ValueCondition::AnyOf(vec![path])));
        Some(conditions)
    }

    /// The locations to which a use does not apply, although their paths are those of its own place: nginx chooses one location for a
    /// request, and there the limits of outer blocks apply only if it has none of its own.
    fn locations_without<'l>(&'l self, used: &'l ZoneUse) -> impl Iterator<Item = &'l Location> {
        let words = used.location.as_deref().and_then(|words| words.get(1..)).unwrap_or_default();
        // These modifiers go before regular expressions.
        let is_final = words.first().is_some_and(|word| word == "=" || word == "^~");
        let own = pattern(words);
        let is_below = move |location: &Location| match (&own, pattern(&location.words)) {
            (None, _) => true,
            (Some(_), None) => !is_final,
            (Some(own), Some(path)) => own.strip_suffix('*').is_some_and(|own| path.starts_with(own)),
        };
        // Another location of the same server.
        let is_chosen_instead = move |location: &Location| {
            let server = used.blocks.get(..used.blocks.len().saturating_sub(1)).unwrap_or_default();
            used.location.is_some() && location.blocks.starts_with(server) && !location.blocks.starts_with(&used.blocks)
        };
        self.locations.iter().filter(move |location| {
            location.words != ["/"]
                && (is_chosen_instead(location) || self.is_replaced(used, location))
                && is_below(location)
        })
    }

    /// Whether a location has a limit of its own in place of an outer one.
    fn is_replaced(&self, used: &ZoneUse, location: &Location) -> bool {
        self.uses.iter().any(|other| other.replaces(used) && other.blocks == location.blocks)
    }

    /// The paths of an outer limit, if `location /` has one of its own: those of the locations without.
    fn remaining_paths(&self, used: &ZoneUse) -> Option<Vec<String>> {
        let inner = || self.locations.iter().filter(|location| location.blocks.starts_with(&used.blocks));
        let is_root = |location: &&Location| location.words == ["/"] && self.is_replaced(used, location);
        inner().find(is_root)?;
        let others = inner().filter(|location| !self.is_replaced(used, location));
        Some(others.filter_map(|location| pattern(&location.words)).collect())
    }
}

impl ZoneUse {
    fn is(&self, directive: &str) -> bool {
        self.directive.words.first().is_some_and(|word| word == directive)
    }

    /// Whether it is in a block within that of another one of its kind. nginx applies the outer ones only where there is no inner one.
    fn replaces(&self, outer: &ZoneUse) -> bool {
        let same = self.directive.words.first() == outer.directive.words.first();
        same && self.blocks.len() > outer.blocks.len() && self.blocks.starts_with(&outer.blocks)
    }
}

/// The pattern of a location's paths. `None` for regular expressions and names.
fn pattern(words: &[String]) -> Option<String> {
    match words {
        [modifier, path] if modifier == "=" => Some(path.clone()),
        [modifier, path] if modifier == "^~" => Some(format!("{path}*")),
        [path] if path.starts_with('/') => Some(format!("{path}*")),
        _ => None,
    }
}

/// The numbers of blocks; 0 is the file.
fn numbers(blocks: &[Block]) -> Vec<usize> {
    std::iter::once(0).chain(blocks.iter().map(|block| block.number)).collect()
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
