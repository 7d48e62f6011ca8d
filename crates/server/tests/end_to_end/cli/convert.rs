//! `tollgate convert`.

use std::fs;

use crate::cli::{directory, rule_file, tollgate};

const NGINX: &str = r#"
http {
    include /etc/nginx/conf.d/*.conf;
    limit_req_zone $binary_remote_addr zone=one:10m rate=10r/s;
    limit_req_zone "$http_x_api_key$uri" zone=keys:10m rate=30r/m;
    limit_req_zone $plan zone=plans:1m rate=5r/s;
    limit_conn_zone $binary_remote_addr zone=addr:10m;
    limit_req_status 429;
    # limit_req zone=comment;
    server {
        server_name api.example.com *.example.org;
        limit_req zone=one;
        location / { limit_req zone=one burst=20 nodelay; proxy_pass http://app; }
        location = /login { limit_req zone=one burst=5; }
        location /search/ { limit_req zone=keys burst=9 delay=3; limit_req_dry_run on; limit_conn addr 10; }
        location ~ \.php$ { limit_req zone=plans; }
        location /old { limit_req zone=gone; }
    }
    server {
        limit_req zone=one burst=2 nodelay;
        location / { proxy_pass http://app; }
        location /upload { limit_req zone=one burst=7 nodelay; }
    }
    server {
        limit_req zone=one burst=3 nodelay;
        location / { limit_req zone=one burst=8 nodelay; }
        location /static { root /srv; }
    }
}
"#;

const KONG: &str = r#"
_format_version: "3.0"
plugins:
  - name: rate-limiting
    config: {second: 5, hour: 1000, policy: local}
  - name: cors
services:
  - name: orders
    url: http://orders:80
    plugins:
      - name: rate-limiting
        config: {minute: 60, limit_by: ip, policy: redis, redis: {host: cache}, fault_tolerant: false, hide_client_headers: true}
    routes:
      - name: write-orders
        paths: [/orders]
        plugins:
          - name: rate-limiting-advanced
            config: {limit: [10, 100], window_size: [60, 3600], window_type: sliding, identifier: consumer, sync_rate: 10}
      - name: exports
        plugins: [{name: response-ratelimiting, config: {limits: {sms: {minute: 10}}}}]
consumers:
  - username: trial
    plugins:
      - name: rate-limiting
        enabled: false
        config: {day: 100, limit_by: header, header_name: X-Team}
"#;

const LIMITADOR: &str = r#"
- namespace: toystore
  name: writes
  max_value: 10
  seconds: 60
  conditions: ["req.method == 'POST'", "descriptors[0]['plan'] != \"gold\""]
  variables: ["descriptors[0].user_id"]
- namespace: toystore
  max_value: 5
  seconds: 10
  conditions: []
  variables: []
- namespace: other
  max_value: 1000
  seconds: 86400
  variables: [api_key]
- namespace: other
  max_value: 1
  seconds: 1
  conditions: ["descriptors[0].path.startsWith('/admin')"]
  variables: [api_key]
"#;

const EXPRESS: &str = r#"
import { rateLimit } from 'express-rate-limit'
// const old = rateLimit({ windowMs: 1, limit: 1 })
const apiLimiter = rateLimit({
  windowMs: 15 * 60 * 1000, // 15 minutes
  limit: 100, /* per address */
  standardHeaders: 'draft-8',
  message: 'Too many, try "later", please',
  keyGenerator: (req) => { return req.headers['x-api-key'] ?? req.ip },
})
const loginLimiter = rateLimit({ windowMs: 60_000, max: 5 })
const dynamic = rateLimit({ limit: (req) => req.user ? 10 : 1 })
app.use('/api/', apiLimiter)
app.post('/login', loginLimiter, (req, res) => { res.send('ok') })
app.put('/users/:id/password', loginLimiter, change)
app.use(rateLimit())
"#;

/// The converted rules, and standard error. The rules have no errors.
fn convert(origin: &str, input: &str) -> (String, String) {
    let file = rule_file(&format!("convert-{origin}"), input);
    let output = tollgate(&["convert", "--from", origin, &file], b"");
    assert_eq!(output.code, 0, "{origin}: {}", output.err);
    let rules = directory(&format!("converted-{origin}")).join("rules.yaml");
    fs::write(&rules, &output.out).unwrap();
    let linted = tollgate(&["lint", rules.to_str().unwrap()], b"");
    assert_eq!(linted.code, 0, "{origin}: {}\n{}", linted.out, output.out);
    (output.out, output.err)
}

/// Checks that each text is in the rules, and that each note is in the rules' comments and on standard error.
#[track_caller]
fn check(origin: &str, input: &str, rules: &[&str], notes: &[&str]) {
    let (out, err) = convert(origin, input);
    for rule in rules {
        assert!(out.contains(rule), "{origin}: {rule:?} is missing:\n{out}");
    }
    for note in notes {
        let is_in = |text: &str, prefix: &str| text.lines().any(|line| line.starts_with(prefix) && line.contains(note));
        assert!(is_in(&out, "#   line ") && is_in(&err, "line "), "{origin}: {note:?} is missing:\n{out}\n{err}");
    }
    let comments = out.lines().filter(|line| line.starts_with("#   line ")).count();
    assert_eq!(comments, notes.len(), "{origin}:\n{out}");
}

#[test]
fn nginx() {
    let match_all =
        r#"match: {host: [api.example.com, "*.example.org"], path: {not: ["/login", "/search/*", "/old*"]}}"#;
    check(
        "nginx",
        NGINX,
        &[
            "domain: nginx\nentity: remote_address\n",
            // nginx chooses one location for a request.
            &format!(
                "key: [remote_address]\n    {match_all}\n    limit: 10/second\n    algorithm: token_bucket\n    burst: 21\n"
            ),
            "match: {path: {not: \"/upload*\"}}\n    limit: 10/second\n    algorithm: token_bucket\n    burst: 3\n",
            "match: {path: \"/upload*\"}\n    limit: 10/second\n    algorithm: token_bucket\n    burst: 8\n",
            "match: {path: \"/static*\"}\n    limit: 10/second\n    algorithm: token_bucket\n    burst: 4\n",
            "match: {path: {not: \"/static*\"}}\n    limit: 10/second\n    algorithm: token_bucket\n    burst: 9\n",
            "path: \"/login\"}\n    limit: 10/second\n    algorithm: leaky_bucket\n    burst: 6\n",
            "    key: [x_api_key, path]\n",
            "path: \"/search/*\"}\n    limit: 30/minute\n    algorithm: token_bucket\n    burst: 10\n    mode: shadow\n",
            "limit: 10 concurrent\n",
        ],
        &[
            "include /etc/nginx/conf.d/*.conf",
            "$plan is computed by nginx",
            "limit_req_status 429: it stays in nginx",
            "limit_req zone=one: all locations have limits of their own",
            "limit_req zone=one burst=20 nodelay: nginx does not apply it in location ~ \\.php$; the rule does",
            "limit_req zone=keys burst=9 delay=3: nginx does not apply it in location ~ \\.php$; the rule does",
            "limit_conn addr 10: nginx does not apply it in location ~ \\.php$; the rule does",
            "delay=: nginx delays a part",
            "limit_conn addr 10: callers have to settle",
            "limit_req zone=plans in location ~ \\.php$: write its `match` yourself",
            "limit_req zone=gone: its zone is not in this file",
        ],
    );
}

#[test]
fn kong() {
    check(
        "kong",
        KONG,
        &[
            "  - name: all-second\n    key: [consumer]\n    limit: 5/second\n    algorithm: fixed_window\n",
            "  - name: all-hour\n    key: [consumer]\n    limit: 1000/hour\n",
            "key: [remote_address]\n    match: {service: orders}\n    limit: 60/minute\n    algorithm: fixed_window\n    on_failure: deny\n    headers: hidden\n",
            "match: {service: orders, route: write-orders}\n    limit: 10/60s\n    algorithm: sliding_window\n",
            "limit: 100/3600s\n",
            "key: [x-team]\n    match: {consumer: trial}\n    limit: 100/day\n    algorithm: fixed_window\n    mode: off\n",
        ],
        &[
            "limit_by consumer: Kong counts requests without one by address",
            "policy: counters in memory are the default",
            "policy: start the server with --store redis://HOST:PORT",
            "redis: it is no part of a rule",
            "limit_by consumer: Kong counts",
            "sync_rate: it is no part of a rule",
            "the plugin response-ratelimiting",
            "Kong applies only the most specific plugin to a request",
        ],
    );
}

#[test]
fn limitador() {
    check(
        "limitador",
        LIMITADOR,
        &[
            "domain: toystore\nentity: user_id\n",
            "  - name: writes\n    key: [user_id]\n    match: {req.method: POST, plan: {not: gold}}\n    limit: 10/60s\n",
            "  - name: all\n    key: []\n    limit: 5/10s\n",
            "---\ndomain: other\nentity: api_key\n",
            "  - name: by-api_key\n    key: [api_key]\n    limit: 1000/86400s\n    algorithm: fixed_window\n",
        ],
        &["the limit with the condition descriptors[0].path.startsWith('/admin'): write its `match` yourself"],
    );
}

#[test]
fn express_rate_limit() {
    check(
        "express-rate-limit",
        EXPRESS,
        &[
            "  - name: apiLimiter\n    key: [remote_address]\n    match: {path: \"/api/*\"}\n    limit: 100/15m\n",
            "match: {endpoint: [\"POST /login\", \"PUT /users/*/password\"]}\n    limit: 5/1m\n",
            "  - name: limiter\n    key: [remote_address]\n    limit: 5/1m\n    algorithm: fixed_window\n",
        ],
        &[
            "standardHeaders: the server sends both kinds of headers",
            "message: 'Too many, try \"later\", please'",
            "keyGenerator: (req) => { return req.headers['x-api-key'] ?? req.ip }",
            "rateLimit: windowMs or limit is not a number",
        ],
    );
}

#[test]
fn what_has_no_limits_is_an_error() {
    let rows = [
        ("nginx", "}}}{{{ \"'"),
        ("kong", "{"),
        ("limitador", "a: b"),
        ("express-rate-limit", "rateLimit({ 'a"),
        ("kong", ""),
    ];
    for (origin, text) in rows {
        let output = tollgate(&["convert", "--from", origin, "-"], text.as_bytes());
        assert_eq!((output.code, &*output.out), (1, ""), "{origin}: {text}");
        assert!(output.err.contains("there is no limit to convert; is --from right?"), "{origin}: {}", output.err);
    }
    let output = tollgate(&["convert", "--from", "nginx", "no-such-file.conf"], b"");
    assert!(output.code == 1 && output.err.contains("no-such-file.conf"), "{}", output.err);
}
