//! Access logs of nginx, Envoy and AWS load balancers: words, texts in quotes, and times in brackets.

use std::borrow::Cow;

use smallvec::SmallVec;
use tollgate::Timestamp;
use tollgate_rules::quoted;

use super::LineFields;
use crate::replay::timestamp;

/// A line of an access log. Fields that the format does not have are empty.
#[derive(Debug, Default)]
pub(super) struct LogLine<'a> {
    time: &'a str,
    remote_address: &'a str,
    remote_user: &'a str,
    method: &'a str,
    /// Path and query, without scheme and host.
    target: &'a str,
    status: &'a str,
    user_agent: &'a str,
    referer: &'a str,
    host: &'a str,
    request_id: &'a str,
}

/// The fields of all formats. `query.NAME` is a parameter of the query.
pub(super) const FIELDS: [&str; 11] = [
    "remote_address",
    "remote_user",
    "method",
    "path",
    "query",
    "endpoint",
    "host",
    "status",
    "user_agent",
    "referer",
    "request_id",
];

/// The prefix of parameters of the query.
const QUERY: &str = "query.";

/// Fields of a line, at most; the formats have at most 33.
const MAX_FIELDS: usize = 64;

type Words<'a> = SmallVec<[&'a str; 32]>;

/// Whether this is a field of access logs.
pub(super) fn is_field(name: &str) -> bool {
    FIELDS.contains(&name) || name.strip_prefix(QUERY).is_some_and(|parameter| !parameter.is_empty())
}

/// `$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"`
pub(super) fn nginx(line: &str) -> Result<LogLine<'_>, String> {
    let words = words(line);
    let [address, "-", user, time, request, status, rest @ ..] = words.as_slice() else {
        return Err("it is not a line of nginx's format `combined`".to_owned());
    };
    let (method, target) = request_line(request)?;
    let referer = rest.get(1).copied().unwrap_or_default();
    let user_agent = rest.get(2).copied().unwrap_or_default();
    Ok(LogLine {
        time,
        remote_address: address,
        remote_user: user,
        method,
        target,
        status,
        user_agent,
        referer,
        ..LogLine::default()
    })
}

/// `[time] "request" status flags received sent duration service-time "x-forwarded-for" "user-agent" "request-id" "authority" "upstream"`
pub(super) fn envoy(line: &str) -> Result<LogLine<'_>, String> {
    let words = words(line);
    let (Some([time, request, status]), Some([forwarded, user_agent, request_id, host])) =
        (words.get(..3), words.get(8..12))
    else {
        return Err("it is not a line of Envoy's default format".to_owned());
    };
    let (method, target) = request_line(request)?;
    // Envoy appends the address of its peer to the header.
    let remote_address = forwarded.rsplit(',').next().unwrap_or_default().trim();
    Ok(LogLine { time, remote_address, method, target, status, user_agent, host, request_id, ..LogLine::default() })
}

/// `type time elb client:port target:port … status status received sent "request" "user agent" …`
pub(super) fn alb(line: &str) -> Result<LogLine<'_>, String> {
    let words = words(line);
    let (Some([_, time, _, client]), Some(status), Some([request, user_agent])) =
        (words.get(..4), words.get(8), words.get(12..14))
    else {
        return Err("it is not a line of an ALB access log".to_owned());
    };
    let (method, url) = request_line(request)?;
    // The target is a URL: https://api.example.com:443/orders
    let (host, target) = match url.split_once("://") {
        Some((_, rest)) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        None => ("", url),
    };
    let remote_address = client.rsplit_once(':').map_or(*client, |(address, _)| address).trim_matches(['[', ']']);
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    Ok(LogLine { time, remote_address, method, target, status, user_agent, host, ..LogLine::default() })
}

/// The words of a line. Quotes and brackets are removed.
fn words(line: &str) -> Words<'_> {
    let mut words = Words::new();
    let mut rest = line.trim();
    while !rest.is_empty() && words.len() < MAX_FIELDS {
        let (word, after) = match rest.as_bytes().first() {
            Some(b'"') => quoted_word(rest),
            Some(b'[') => rest.get(1..).and_then(|inner| inner.split_once(']')).unwrap_or((rest, "")),
            _ => rest.split_once(' ').unwrap_or((rest, "")),
        };
        words.push(word);
        rest = after.trim_start();
    }
    words
}

/// The text up to the quote that is followed by a space or ends the line: texts of clients may have quotes.
fn quoted_word(text: &str) -> (&str, &str) {
    let inner = text.get(1..).unwrap_or_default();
    let mut ends = inner.match_indices('"').map(|(at, _)| at);
    let end = ends.find(|at| matches!(inner.as_bytes().get(at + 1), None | Some(b' ')));
    match end {
        Some(end) => (inner.get(..end).unwrap_or_default(), inner.get(end + 1..).unwrap_or_default()),
        None => (inner, ""),
    }
}

/// Method and target of `GET /orders?id=7 HTTP/1.1`.
fn request_line(text: &str) -> Result<(&str, &str), String> {
    let mut parts = text.splitn(3, ' ');
    match (parts.next(), parts.next()) {
        (Some(method), Some(target)) if !target.is_empty() && method.bytes().all(|byte| byte.is_ascii_alphabetic()) => {
            Ok((method, target))
        }
        _ => Err(format!("{} is not a request", quoted(text))),
    }
}

impl LogLine<'_> {
    fn path(&self) -> &str {
        self.target.split(['?', '#']).next().unwrap_or_default()
    }

    fn query(&self) -> &str {
        self.target.split_once('?').map(|(_, query)| query).unwrap_or_default()
    }

    fn query_parameter(&self, name: &str) -> Option<&str> {
        self.query().split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    }
}

impl LineFields for LogLine<'_> {
    fn get(&self, name: &str) -> Option<Cow<'_, str>> {
        let value = match name {
            "remote_address" => self.remote_address,
            "remote_user" => self.remote_user,
            "method" => self.method,
            "path" => match self.path() {
                "" => "/",
                path => path,
            },
            "query" => self.query(),
            "endpoint" => return Some(format!("{} {}", self.method, self.get("path")?).into()),
            "host" => self.host,
            "status" => self.status,
            "user_agent" => self.user_agent,
            "referer" => self.referer,
            "request_id" => self.request_id,
            other => self.query_parameter(other.strip_prefix(QUERY)?)?,
        };
        (!matches!(value, "" | "-")).then_some(Cow::Borrowed(value))
    }

    fn time(&self, _: Option<&str>) -> Result<Timestamp, String> {
        let time = timestamp::from_rfc3339(self.time).or_else(|| timestamp::from_log_time(self.time));
        time.ok_or_else(|| format!("its time is {}", quoted(self.time)))
    }
}
