//! Response headers, by dialect and by the visibility of rules.

use tollgate::{Clock, SystemClock};

use super::{RULES, Reply, Server, config};
use tollgate_http::response::{Dialects, Jitter, ScopeValues, with_jitter};

/// A member of a structured list: its name and its parameters.
type Member = (String, Vec<(String, String)>);

/// A structured list as its members' names with their parameters, if it is one.
fn parsed(text: &str) -> Option<Vec<Member>> {
    let list: sfv::List = sfv::Parser::new(text).parse().ok()?;
    let member = |entry: &sfv::ListEntry| {
        let sfv::ListEntry::Item(item) = entry else { return None };
        let name = item.bare_item.as_string()?.as_str().to_owned();
        let parameter = |(key, value): (&sfv::Key, &sfv::BareItem)| {
            let value = match (value.as_integer(), value.as_string(), value.as_byte_sequence()) {
                (Some(number), _, _) => i64::from(number).to_string(),
                (_, Some(text), _) => text.as_str().to_owned(),
                (_, _, Some(bytes)) => bytes.escape_ascii().to_string(),
                _ => return None,
            };
            Some((key.as_str().to_owned(), value))
        };
        Some((name, item.params.iter().map(parameter).collect::<Option<_>>()?))
    };
    list.iter().map(member).collect()
}

fn field(reply: &Reply, name: &str) -> Vec<Member> {
    let text = reply.header(name).unwrap_or_else(|| panic!("no {name} in {reply:?}"));
    parsed(text).unwrap_or_else(|| panic!("{text} is no list of strings"))
}

fn owned(name: &str, parameters: &[(&str, &str)]) -> Member {
    (name.to_owned(), parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
}

fn ratelimit_headers(reply: &Reply) -> Vec<&str> {
    let names = reply.headers.iter().map(|(name, _)| name.as_str());
    names.filter(|name| name.contains("ratelimit") || *name == "retry-after").collect()
}

#[tokio::test]
async fn every_dialect_tells_the_tightest_reading() {
    let server = Server::new(RULES);
    let before = SystemClock::default().now().as_micros() / 1_000_000;
    let reply = server.check(r#"{"api_key": "k", "endpoint": "POST /orders"}"#).await;
    let is = |name: &str| reply.header(name).unwrap_or_default().to_owned();
    assert_eq!(
        (is("x-ratelimit-limit"), is("x-ratelimit-remaining"), is("x-ratelimit-used")),
        ("2".into(), "1".into(), "1".into())
    );
    let reset: u64 = is("x-ratelimit-reset").parse().unwrap();
    assert!((before + 86_400..before + 86_500).contains(&reset), "{before} {reset}");
    assert_eq!(reply.json()["reset_at"], reset);
    assert_eq!(is("x-ratelimit-policy"), "\"2;w=86400\"");
    assert_eq!(
        field(&reply, "ratelimit-policy"),
        [owned("orders", &[("q", "2"), ("w", "86400")]), owned("per-key", &[("q", "3"), ("w", "86400")])]
    );
    let limits = field(&reply, "ratelimit");
    assert_eq!((limits.len(), limits[0].0.as_str(), &limits[0].1[0]), (1, "orders", &("r".to_owned(), "1".to_owned())));
    let t: u64 = limits[0].1[1].1.parse().unwrap();
    assert!((86_390..=86_400).contains(&t), "{t}");
    assert_eq!((reply.header("retry-after"), reply.header("x-ratelimit-denied-by")), (None, None));
}

#[tokio::test]
async fn a_refusal_tells_who_refused_and_for_how_long() {
    let server = Server::new(RULES);
    let ask = || server.check(r#"{"api_key": "k", "endpoint": "POST /orders"}"#);
    ask().await;
    ask().await;
    let reply = ask().await;
    let wait = reply.header("retry-after").unwrap().to_owned();
    let mut limits = field(&reply, "ratelimit");
    let (partition, _) = limits[0].1.pop().unwrap();
    assert_eq!((partition.as_str(), limits), ("pk", vec![owned("orders", &[("r", "0"), ("t", &wait)])]));
    assert_eq!(reply.header("x-ratelimit-denied-by"), Some("writes"));
    assert_eq!(reply.header("x-ratelimit-remaining"), Some("0"));
}

#[tokio::test]
async fn a_partition_key_tells_counters_apart() {
    const RULES: &str = "
domain: d
rules:
  - {name: key, key: [api_key, address?], limit: 100/day}
  - {name: ip, key: [remote_address], limit: 100/day}
  - {name: all, key: [], match: {all: 'yes'}, limit: 100/day}
";
    let server = Server::new(RULES);
    let partition = async |body: &str| {
        let parameters = field(&server.check(body).await, "ratelimit").remove(0).1;
        parameters.into_iter().find(|(name, _)| name == "pk").map(|(_, value)| value)
    };
    let one = partition(r#"{"api_key": "a"}"#).await;
    assert!(one.is_some());
    assert_eq!(partition(r#"{"api_key": "a", "other": "x"}"#).await, one);
    assert_ne!(partition(r#"{"api_key": "b"}"#).await, one);
    assert_ne!(partition(r#"{"api_key": "a", "address": ""}"#).await, one, "absent is not empty");
    let network = partition(r#"{"remote_address": "2001:db8::1"}"#).await;
    assert_eq!(partition(r#"{"remote_address": "2001:db8::2"}"#).await, network, "one counter for a network");
    assert_eq!(partition(r#"{"all": "yes"}"#).await, None, "there is one counter only");
}

#[tokio::test]
async fn the_numbers_of_a_bucket_are_those_of_its_burst() {
    // Limit, burst; the advertised quota, window and window in bodies.
    let rows = [
        ("100/minute", 200, "q=200;w=120", "2m"),
        ("100/minute", 100, "q=100;w=60", "1m"),
        ("100/minute", 50, "q=50;w=30", "30s"),
        ("3/second", 10, "q=10;w=4", "4s"),
        ("1000/second", 10, "q=10", "10ms"),
    ];
    for (limit, burst, policy, window) in rows {
        let rules =
            format!("domain: d\nrules: [{{name: b, key: [k], limit: {limit}, burst: {burst}, algorithm: gcra}}]\n");
        let server = Server::new(&rules);
        let reply = server.check(r#"{"k": "x"}"#).await;
        let number = |name: &str| reply.header(name).unwrap().parse::<u64>().unwrap();
        let (remaining, used) = (number("x-ratelimit-remaining"), number("x-ratelimit-used"));
        assert_eq!((number("x-ratelimit-limit"), used), (burst, burst - remaining), "{limit} {burst}");
        assert_eq!(reply.header("ratelimit-policy").unwrap(), format!("\"b\";{policy}"));
        let body = reply.json();
        assert_eq!((&body["limit"], &body["remaining"]), (&burst.into(), &remaining.into()));
        // More than ever fits, so that it is refused at any moment.
        let body = format!(r#"{{"attributes": {{"k": "x"}}, "cost": {}}}"#, burst + 1);
        let refused = server.check(&body).await.json();
        assert_eq!((&refused["error"]["limit"], &refused["error"]["window"]), (&burst.into(), &window.into()));
    }
}

#[tokio::test]
async fn dialects_can_be_switched_off() {
    let all = Dialects {
        x_ratelimit: false,
        policy: false,
        bucket: false,
        ratelimit: false,
        denied_by: false,
        signal: false,
    };
    let rows: [(Dialects, &[&str]); 6] = [
        (all, &["retry-after"]),
        (
            Dialects { x_ratelimit: true, ..all },
            &["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-used", "x-ratelimit-reset", "retry-after"],
        ),
        (Dialects { policy: true, ..all }, &["x-ratelimit-policy", "retry-after"]),
        (Dialects { bucket: true, ..all }, &["x-ratelimit-bucket", "retry-after"]),
        (Dialects { ratelimit: true, ..all }, &["ratelimit-policy", "ratelimit", "retry-after"]),
        (Dialects { denied_by: true, ..all }, &["retry-after", "x-ratelimit-denied-by"]),
    ];
    for (dialects, expected) in rows {
        let mut config =
            config("domain: d\nrules: [{name: x, key: [], limit: 1/day, algorithm: sliding_log}]\n", false, 9);
        config.style.dialects = dialects;
        let server = Server::build(config);
        server.check("{}").await;
        let reply = server.check("{}").await;
        assert_eq!((reply.status, ratelimit_headers(&reply)), (429, expected.to_vec()));
    }
}

#[tokio::test]
async fn a_bucket_is_named_for_its_rule_and_says_nothing_of_the_caller() {
    let rules = "domain: d\nrules:\n  - {name: a, key: [a], limit: 5/day}\n  - {name: b, key: [b], limit: 5/day}\n";
    let bucket =
        async |server: &Server, body: &str| server.check(body).await.header("x-ratelimit-bucket").unwrap().to_owned();
    let (server, other) = (Server::new(rules), Server::new(rules));
    let a = bucket(&server, r#"{"a": "1"}"#).await;
    assert_eq!(a, "1f7ac89615f27e41");
    assert_eq!(a, bucket(&server, r#"{"a": "2"}"#).await);
    assert_eq!(a, bucket(&other, r#"{"a": "3"}"#).await);
    assert_ne!(a, bucket(&server, r#"{"b": "1"}"#).await);
    let elsewhere = Server::new(&rules.replace("domain: d", "domain: e"));
    assert_ne!(a, bucket(&elsewhere, r#"{"a": "1"}"#).await);
}

#[tokio::test]
async fn a_rule_shows_no_more_than_it_may() {
    let rules = "
domain: d
rules:
  - {name: abuse, key: [k], limit: 2/day, algorithm: sliding_log, headers: hidden}
  - {name: plain, key: [k], limit: 3/day, algorithm: sliding_log, headers: standard}
  - {name: seen, key: [k], limit: 4/day, algorithm: sliding_log}
";
    let server = Server::new(rules);
    let ask = || server.check(r#"{"k": "abcdefghij"}"#);
    let reply = ask().await;
    assert_eq!((reply.header("x-ratelimit-limit"), reply.header("x-ratelimit-remaining")), (Some("4"), Some("3")));
    let named: Vec<_> = field(&reply, "ratelimit-policy").into_iter().map(|(name, _)| name).collect();
    assert_eq!(named, ["plain", "seen"]);
    assert_eq!(field(&reply, "ratelimit")[0].0, "plain");
    assert_eq!((&reply.json()["rule"], &reply.json()["remaining"]), (&"plain".into(), &2.into()));

    ask().await;
    let reply = ask().await;
    assert_eq!(reply.status, 429);
    assert!(!reply.body.contains("abuse") && reply.headers.iter().all(|(_, value)| !value.contains("abuse")));
    assert_eq!((reply.header("ratelimit"), reply.header("x-ratelimit-denied-by")), (None, None));
    assert!(reply.header("retry-after").is_some());
    let body = reply.json();
    assert_eq!(body["violated-policies"], serde_json::json!([]));
    for hidden in ["denied_by", "limit", "remaining", "reset_at"] {
        assert_eq!(body.get(hidden), None, "{hidden}");
    }
    for hidden in ["limit", "window", "scope"] {
        assert_eq!(body["error"].get(hidden), None, "{hidden}");
    }

    // A label is what the operator wants to show.
    let server = Server::new(&rules.replace("headers: hidden", "headers: hidden, denied_by_label: fair-use"));
    for _ in 0..2 {
        server.check(r#"{"k": "k"}"#).await;
    }
    let reply = server.check(r#"{"k": "k"}"#).await;
    assert_eq!(reply.header("x-ratelimit-denied-by"), Some("fair-use"));
    assert_eq!(reply.json()["denied_by"], "fair-use");
    assert_eq!(reply.json()["violated-policies"], serde_json::json!(["fair-use"]));
}

#[tokio::test]
async fn windows_are_whole_seconds_or_omitted() {
    let rows = [
        ("5/500ms", "\"5\"", "\"x\";q=5"),
        ("5/30s", "\"5;w=30\"", "\"x\";q=5;w=30"),
        ("5/month in Europe/Berlin", "\"5;w=2678400\"", "\"x\";q=5;w=2678400"),
        ("5 concurrent", "\"5\"", "\"x\";q=5;qu=\"concurrent-requests\""),
    ];
    for (limit, x_policy, policy) in rows {
        let server = Server::new(&format!("domain: d\nrules: [{{name: x, key: [], limit: {limit}}}]\n"));
        let reply = server.check("{}").await;
        assert_eq!(
            (reply.header("x-ratelimit-policy"), reply.header("ratelimit-policy")),
            (Some(x_policy), Some(policy))
        );
    }
}

#[tokio::test]
async fn names_are_written_so_that_they_can_be_read() {
    let server =
        Server::new("domain: d\ndescriptors:\n  - key: 'k\"\\é'\n    rate_limit: {unit: day, requests_per_unit: 9}\n");
    let reply = server.check(r#"{"k\"\\é": "v"}"#).await;
    let name = field(&reply, "ratelimit").remove(0).0;
    assert!(name.contains("k\"\\?"), "{name}");
    assert!(reply.json()["rule"].as_str().unwrap().contains("k\"\\é"));
}

#[tokio::test]
async fn policies_are_named_up_to_a_bound() {
    let rules: String = (0..40).map(|n| format!("  - {{name: r{n}, key: [], limit: {}/day}}\n", 100 - n)).collect();
    let reply = Server::new(&format!("domain: d\nrules:\n{rules}")).check("{}").await;
    let named = field(&reply, "ratelimit-policy");
    assert_eq!((named.len(), named[0].0.as_str()), (16, "r39"));
}

#[tokio::test]
async fn scopes_show_as_much_of_a_value_as_is_set() {
    let rows = [
        (ScopeValues::Shortened, "api_key:abcd…:endpoint:GET /a/long/path:user:short"),
        (ScopeValues::Full, "api_key:abcdefghij:endpoint:GET /a/long/path:user:short"),
        (ScopeValues::Hidden, "api_key:*:endpoint:*:user:*"),
    ];
    for (values, expected) in rows {
        let rules = "domain: d\nrules: [{name: x, key: [api_key, endpoint, user], limit: 0/day}]\n";
        let mut config = config(rules, false, 9);
        config.style.scope_values = values;
        let body = r#"{"user": "short", "api_key": "abcdefghij", "endpoint": "GET /a/long/path"}"#;
        assert_eq!(Server::build(config).check(body).await.json()["error"]["scope"], expected);
    }
    let server = Server::new("domain: d\nrules: [{name: x, key: [], limit: 0/day}]\n");
    assert_eq!(server.check("{}").await.json()["error"]["scope"], "global");
}

#[test]
fn jitter_is_at_least_a_second_and_at_most_its_share() {
    let most = |most| most;
    let rows = [
        (Jitter::Off, 42, 42),
        (Jitter::Bps(1_000), 1, 2),
        (Jitter::Bps(1_000), 42, 46),
        (Jitter::Bps(1_000), 600, 660),
        (Jitter::Bps(0), 600, 601),
        (Jitter::Bps(10_000), u64::MAX, u64::MAX),
    ];
    for (jitter, wait, latest) in rows {
        assert_eq!(with_jitter(wait, jitter, most), latest);
        assert_eq!(with_jitter(wait, jitter, |_| 0), wait);
    }
}

#[tokio::test]
async fn what_is_drawn_is_the_same_in_header_and_body() {
    let mut config = config("domain: d\nrules: [{name: x, key: [], limit: 1/day, algorithm: sliding_log}]\n", false, 9);
    config.style.jitter = Jitter::Bps(5_000);
    let server = Server::build(config);
    server.check("{}").await;
    let mut drawn = std::collections::BTreeSet::new();
    for _ in 0..20 {
        let reply = server.check("{}").await;
        let body = reply.json();
        let wait = reply.header("retry-after").unwrap().to_owned();
        assert_eq!(
            (body["retry_after"].to_string(), body["error"]["retry_after"].to_string()),
            (wait.clone(), wait.clone())
        );
        assert_eq!(field(&reply, "ratelimit")[0].1[1].1, wait);
        drawn.insert(wait);
    }
    assert!(drawn.len() > 10, "{drawn:?}");
}
