//! `tollgate gateway check` and `tollgate gateway explain`.

use serde_json::Value;

use crate::cli::{rule_file, tollgate};

const GOOD: &str = r#"
listen: 127.0.0.1:8000
domain: shop
attributes: {api_key: {header: X-Api-Key}}
priority: {critical: [{route: charges}]}
upstreams: {orders: {servers: [10.0.0.1:8080]}}
routes:
  - {name: charges, match: "POST /v1/charges", upstream: orders, require: api_key}
  - {name: all, match: "/v1/*", upstream: orders, strip_prefix: /v1}
"#;

const RULES: &str = r#"
domain: shop
rules:
  - {name: by-key, key: [api_key], limit: 100/minute}
  - {name: charges, key: [api_key], match: {route: charges}, limit: 10/minute}
  - {name: gold, key: [api_key], match: {api_key: "gold_*"}, limit: 1000/minute}
"#;

const BAD: &str = r#"
listen: 0.0.0.0:8000
upstreams: {orders: {servers: [nowhere:port]}}
routes:
  - {name: all, match: "v1/*", upstream: order}
"#;

#[test]
fn a_good_file_is_one_line() {
    let good = rule_file("gateway-good", GOOD);
    let output = tollgate(&["gateway", "check", &good], b"");
    let expected = "2 routes, 1 upstream, 1 listener: 0 errors, 0 warnings\n";
    assert_eq!((output.code, &*output.out, &*output.err), (0, expected, ""));
    let output = tollgate(&["gateway", "check", "--json", &good], b"");
    let report: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(
        (&report["routes"], &report["errors"], &report["problems"]),
        (&2.into(), &0.into(), &Value::Array(vec![]))
    );
}

#[test]
fn all_problems_have_a_line_and_determine_the_exit_code() {
    let bad = rule_file("gateway-bad", BAD);
    let output = tollgate(&["gateway", "check", &bad], b"");
    let lines: Vec<&str> = output.out.lines().collect();
    assert_eq!((output.code, lines.len(), lines.last()), (1, 5, Some(&"3 errors, 1 warning")), "{}", output.out);
    for (line, severity, message) in [
        (3, "error", "`nowhere:port`"),
        (5, "error", "write a slash before it: /v1/*"),
        (5, "error", "there is no upstream `order`; did you mean `orders`?"),
        (2, "warning", "has no TLS"),
    ] {
        let begin = format!("{bad}:{line}: {severity}: ");
        assert!(
            lines.iter().any(|line| line.starts_with(&begin) && line.contains(message)),
            "{message}\n{}",
            output.out
        );
    }
    let output = tollgate(&["gateway", "check", &bad, "--json"], b"");
    let report: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!((output.code, &report["errors"], &report["warnings"]), (1, &3.into(), &1.into()));
    assert_eq!((&report["routes"], &report["problems"][0]["line"]), (&Value::Null, &3.into()));
}

#[test]
fn files_that_the_configuration_names_are_checked() {
    let text = format!("{GOOD}issuers: {{id: {{keys: no-keys.json}}}}\n")
        .replace("listen: 127.0.0.1:8000", "listen: {address: 127.0.0.1:8443, tls: {cert: no.pem, key: no.key}}")
        .replace("{api_key: {header: X-Api-Key}}", "{api_key: {header: X-Api-Key}, user: {jwt: sub, issuer: id}}")
        .replace("servers: [10.0.0.1:8080]", "servers: [10.0.0.1:8080], tls: {ca: no-ca.pem}");
    let file = rule_file("gateway-files", &text);
    let output = tollgate(&["gateway", "check", &file], b"");
    assert_eq!((output.code, output.out.lines().last()), (1, Some("2 errors, 1 warning")), "{}", output.out);
    for (line, name) in [(2, "no.pem"), (10, "no-keys.json"), (1, "no-ca.pem")] {
        let found = output.out.lines().find(|line| line.contains(&format!("{name}: "))).unwrap();
        assert!(found.starts_with(&format!("{file}:{line}: ")), "{found}");
    }
}

#[test]
fn a_file_is_compared_with_the_rules() {
    let good = rule_file("gateway-agreed", GOOD);
    let rules = rule_file("gateway-agreed-rules", RULES);
    let output = tollgate(&["gateway", "check", &good, "--rules", &rules], b"");
    let expected = "2 routes, 1 upstream, 1 listener: 0 errors, 0 warnings\n";
    assert_eq!((output.code, &*output.out, &*output.err), (0, expected, ""));
    let text = GOOD
        .replace("[10.0.0.1:8080]}}", "[10.0.0.1:8080],\n  adaptive: {reserve:\n    {pro: 10%, entreprise: 20%}}}}")
        .replace("require: api_key}", "require: api_key,\n     cost: {tokens: {reserve: 5}}}");
    let bad = rule_file("gateway-disagreed", &text);
    let output = tollgate(&["gateway", "check", &bad, "--rules", &rules], b"");
    let lines: Vec<&str> = output.out.lines().collect();
    let tier = format!(
        "{bad}:8: error: upstream `orders` reserves for the tier `entreprise`, which the rules do not have; did you mean `enterprise`?"
    );
    let cost = format!(
        "{bad}:11: warning: no rule uses the cost `tokens` of the route `charges`; write `cost: tokens` to a rule, or remove it from the route"
    );
    assert_eq!((output.code, lines), (1, vec![&*tier, &cost, "1 error, 1 warning"]), "{}", output.err);
    let other = rule_file("gateway-agreed-other", &RULES.replace("domain: shop", "domain: stop"));
    let output = tollgate(&["gateway", "check", &good, "--rules", &other, "--json"], b"");
    let report: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!((output.code, &report["problems"][0]["line"]), (1, &3.into()));
    assert_eq!(report["problems"][0]["remedy"], "did you mean `stop`?");
    let both = ["gateway", "check", &good, "--rules", &other, "--rules", &rules];
    assert_eq!(tollgate(&both, b"").code, 0);
    assert_eq!(tollgate(&["gateway", "check", &good, "--rules", "no-such-file.yaml"], b"").code, 1);
}

#[test]
fn unusual_files_are_refused() {
    for (name, text, message) in [
        ("gateway-empty", "", "the file is empty"),
        ("gateway-list", "- a\n", "the configuration of a gateway belongs"),
        ("gateway-broken", "listen: [\n", "error: "),
        ("gateway-two", "listen: 1\n---\nlisten: 2\n", "a second document begins here"),
    ] {
        let file = rule_file(name, text);
        let output = tollgate(&["gateway", "check", &file], b"");
        assert!(output.code == 1 && output.out.contains(message), "{name}: {}{}", output.out, output.err);
        let output = tollgate(&["gateway", "explain", &file, "/"], b"");
        assert!(output.code == 1 && output.err.contains(message) && output.out.is_empty(), "{name}: {}", output.err);
    }
    for path in ["no-such-file.yaml", "."] {
        let output = tollgate(&["gateway", "check", path], b"");
        assert!(output.code == 1 && output.out.contains("can't be read"), "{path}: {}{}", output.out, output.err);
    }
    let rows: [(&[&str], &str); 4] = [
        (&["gateway", "check"], "FILE"),
        (&["gateway", "explain", "x.yaml"], "REQUEST"),
        (&["gateway", "explain", "x.yaml", "orders"], "does not begin with a slash"),
        (&["gateway", "explain", "x.yaml", "/", "--header", "none"], "is not a header"),
    ];
    for (args, message) in rows {
        let output = tollgate(args, b"");
        assert!(output.code == 2 && output.err.contains(message), "{args:?}: {}{}", output.out, output.err);
    }
}

#[test]
fn a_request_is_explained() {
    let good = rule_file("gateway-explained", GOOD);
    let rules = rule_file("gateway-explained-rules", RULES);
    let key = "X-Api-Key: 0123456789abcdef";
    let args = ["gateway", "explain", &good, "POST /v1/charges", "--header", key, "--rules", &rules];
    let output = tollgate(&args, b"");
    assert_eq!((output.code, &*output.err), (0, ""));
    for line in [
        "route      charges (line 8): POST /v1/charges",
        "attribute  api_key = ****cdef (header x-api-key)",
        "priority   critical, by {route: charges}",
        "upstream   orders: 10.0.0.1:8080",
        "not        all (line 9): it matches as well, but is less specific",
        "applies    charges  10/minute, sliding window; key [****cdef]; enforce; takes 1 of 10 left",
        "misses     gold     `api_key` is \"****cdef\", and it must be \"gold_*\"",
        "The request is allowed; the tightest limit is `charges`, with 9 left.",
    ] {
        assert!(output.out.lines().any(|one| one == line), "no {line:?} in\n{}", output.out);
    }
    assert!(!output.out.contains("0123456789"), "{}", output.out);

    let output = tollgate(&[&args[..], &["--json"]].concat(), b"");
    let report: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!((&report["route"]["name"], &report["rules"]["allowed"]), (&"charges".into(), &true.into()));
    assert_eq!(report["rules"]["rules"][1]["counters"][0]["key"][0], "****cdef");
    assert!(!output.out.contains("0123456789"), "{}", output.out);
}

#[test]
fn what_the_gateway_answers_itself_is_explained() {
    let good = rule_file("gateway-answers", GOOD);
    let rules = rule_file("gateway-answers-rules", RULES);
    for (request, status) in [("POST /v1/charges", "401"), ("/v2", "404"), ("/v1/a%2fb", "400"), ("TRACE /v1/a", "405")]
    {
        let output = tollgate(&["gateway", "explain", &good, request, "--rules", &rules], b"");
        let answer = format!("The gateway answers {status} (");
        assert!(output.code == 0 && output.out.contains(&answer), "{request}: {}{}", output.out, output.err);
    }
    let other = rule_file("gateway-answers-other", &RULES.replace("domain: shop", "domain: other"));
    let output = tollgate(&["gateway", "explain", &good, "/v1/a", "--rules", &other], b"");
    assert!(output.code == 1 && output.err.contains("there is no domain `shop`"), "{}", output.err);
    let output = tollgate(&["gateway", "explain", &good, "/v1/a", "--rules", "no-such-file.yaml"], b"");
    assert_eq!(output.code, 1, "{}", output.out);
}
