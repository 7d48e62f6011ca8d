//! `tollgate replay` with access logs and other JSON.

use crate::cli::{rule_file, tollgate};

const RULES: &str = "\
domain: api
entity: api_key
rules:
  - {name: per-key, key: [api_key], limit: 2/minute, algorithm: sliding_log}
  - {name: anonymous, key: [remote_address], match: {api_key: absent}, limit: 1/minute, algorithm: sliding_log}
  - {name: orders, key: [api_key], match: {endpoint: \"POST /orders*\"}, limit: 1/minute, algorithm: sliding_log}
";

/// nginx's `combined`, with a scanner's line, a truncated one and one with a quote in the user agent.
const NGINX: &str = r#"192.0.2.7 - - [14/Nov/2023:22:13:20 +0000] "GET /orders?key=ada&x=1 HTTP/1.1" 200 512 "-" "curl/8.5.0"
192.0.2.7 - - [14/Nov/2023:22:13:21 +0000] "POST /orders?key=ada HTTP/1.1" 201 80 "https://shop.example/" "Mozilla/5.0 (X11; Linux x86_64)"
192.0.2.7 - bob [14/Nov/2023:22:13:22 +0000] "POST /orders/7?key=ada HTTP/1.1" 201 80 "-" "odd \"agent\""
203.0.113.9 - - [14/Nov/2023:22:13:23 +0000] "\x16\x03\x01\x02" 400 157 "-" "-"
203.0.113.9 - - [14/Nov/2023:22:13:23
2001:db8::7 - - [14/Nov/2023:22:13:24 +0000] "GET / HTTP/2.0" 200 612 "-" "curl/8.5.0"
2001:db8::7 - - [14/Nov/2023:22:13:25 +0000] "GET /a HTTP/2.0" 200 612 "-" "curl/8.5.0"
"#;

const ENVOY: &str = r#"[2023-11-14T22:13:20.310Z] "POST /api/v1/locations HTTP/2" 204 - 154 0 226 100 "10.0.35.28" "nsq2http" "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "locations" "tcp://10.0.2.1:80"
[2023-11-14T22:13:21.000Z] "GET /x HTTP/1.1" 200 - 0 5 1 0 "198.51.100.1, 10.0.35.28" "curl/8" "id-2" "locations" "10.0.2.1:80"
"#;

const ALB: &str = r#"http 2023-11-14T22:13:20.186641Z app/my-loadbalancer/50dc6c495c0c9188 192.168.131.39:2817 10.0.0.1:80 0.000 0.001 0.000 200 200 34 366 "GET http://www.example.com:80/orders?key=ada HTTP/1.1" "curl/7.46.0" - - arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/my-targets/73e2d6bc24d8a067 "Root=1-58337262-36d228ad5d99923122bbe354" "-" "-" 0 2023-11-14T22:13:20.100000Z "forward" "-" "-" "10.0.0.1:80" "200" "-" "-"
https 2023-11-14T22:13:21.186641Z app/my-loadbalancer/50dc6c495c0c9188 192.168.131.39:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 "POST https://www.example.com:443/orders HTTP/1.1" "curl/7.46.0" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws:x "Root=1" "www.example.com" "arn:aws:acm" 1 2023-11-14T22:13:21.100000Z "forward" "-" "-" "10.0.0.1:80" "200" "-" "-"
"#;

const JSON: &str = r#"{"ts": 1700000000123, "http": {"route": "POST /orders"}, "user": {"key": "ada"}, "units": 2}
{"ts": "2023-11-14T22:13:21Z", "http": {"route": "GET /"}, "user": {"key": "ada"}, "units": 1}
{"http": {}}
"#;

/// The summary: `requests …: allowed …, refused …; … lines: …`.
fn replay(test: &str, args: &[&str], input: &str) -> (i32, String, String) {
    let rules = rule_file(test, RULES);
    let output = tollgate(&[&["replay", &rules][..], args].concat(), input.as_bytes());
    let last = output.err.lines().find(|line| line.starts_with("requests ")).unwrap_or_default();
    let summary = last.rsplit_once(';').map_or(last, |(summary, _)| summary).to_owned();
    (output.code, summary, output.out + &output.err)
}

#[test]
fn access_logs_are_replayed() {
    let rows: [(&[&str], &str, i32, &str); 7] = [
        (&["--format", "nginx"], NGINX, 0, "requests 5: allowed 2, refused 3; skipped lines: 2"),
        (
            &["--format", "nginx", "--map", "api_key=query.key"],
            NGINX,
            0,
            "requests 5: allowed 3, refused 2; skipped lines: 2",
        ),
        (
            &["--format", "nginx", "--map", "api_key=remote_user"],
            NGINX,
            0,
            "requests 5: allowed 3, refused 2; skipped lines: 2",
        ),
        (&["--format", "envoy"], ENVOY, 0, "requests 2: allowed 1, refused 1; skipped lines: 0"),
        (&["--format", "alb"], ALB, 0, "requests 2: allowed 1, refused 1; skipped lines: 0"),
        (
            &["--format", "alb", "--map", "api_key=query.key"],
            ALB,
            0,
            "requests 2: allowed 2, refused 0; skipped lines: 0",
        ),
        (&["--format", "envoy"], NGINX, 1, "requests 0: allowed 0, refused 0; skipped lines: 7"),
    ];
    for (args, input, code, expected) in rows {
        let (found, summary, all) = replay("logs", args, input);
        assert_eq!((found, &*summary), (code, expected), "{args:?}: {all}");
    }
    let (_, _, all) = replay("logs", &["--format", "nginx"], NGINX);
    assert!(all.contains("line 4: `\\x16\\x03\\x01\\x02` is not a request"), "{all}");
    assert!(all.contains("line 5: it is not a line of nginx's format `combined`"), "{all}");
    let many = "nonsense\n".repeat(50) + NGINX;
    let (code, summary, all) = replay("logs", &["--format", "nginx"], &many);
    assert_eq!((code, summary.ends_with("skipped lines: 52")), (0, true), "{all}");
    assert_eq!(all.lines().filter(|line| line.starts_with("line ")).count(), 6, "{all}");
}

#[test]
fn json_is_mapped() {
    let map = ["--format", "json", "--map", "at=ts", "--map", "api_key=user.key", "--map", "endpoint=http.route"];
    let (code, summary, all) = replay("logs-json", &map, JSON);
    assert_eq!((code, &*summary), (1, "requests 2: allowed 2, refused 0; bad lines: 1"), "{all}");
    assert!(all.contains("line 3: it has no time in ts; name its field: --map at=FIELD"), "{all}");
    let (_, summary, all) = replay("logs-json", &[&map[..], &["--map", "cost=units"]].concat(), JSON);
    assert_eq!(summary, "requests 2: allowed 1, refused 1; bad lines: 1", "{all}");

    let rows: [(&[&str], &str); 5] = [
        (&["--format", "json"], "--format json needs --map"),
        (&["--map", "a=b"], "--map needs --format"),
        (&["--format", "nginx", "--map", "a=b"], "there is no field `b`; write one of remote_address, "),
        (&["--format", "nginx", "--map", "a"], "write attribute=field"),
        (&["--format", "apache"], "nginx"),
    ];
    for (args, expected) in rows {
        let (code, _, all) = replay("logs-json", args, "");
        assert!(code == 2 && all.contains(expected), "{args:?}: {all}");
    }
}

/// Spellings of `POST /orders`, as a client may send them to be past the rule.
const SPELLINGS: [&str; 4] = ["POST /%6frders", "POST //orders", "post /x/../orders", "POST /orders?x=1"];

#[test]
fn paths_are_read_as_the_listener_reads_them() {
    let lines: String = (0..)
        .zip(SPELLINGS)
        .map(|(at, endpoint)| {
            format!("{{\"at\": {}, \"attributes\": {{\"endpoint\": \"{endpoint}\"}}}}\n", 1_700_000_000 + at)
        })
        .collect();
    let log: String = SPELLINGS
        .iter()
        .map(|target| format!("192.0.2.7 - - [14/Nov/2023:22:13:20 +0000] \"{target} HTTP/1.1\" 200 5 \"-\" \"-\"\n"))
        .collect();
    let rules = "domain: api\nrules: [{name: orders, key: [], match: {endpoint: POST /orders}, limit: 1/minute, \
                 algorithm: sliding_log}]\n";
    let file = rule_file("logs-spellings", rules);
    let refused = |args: &[&str], input: &str| {
        let output = tollgate(&[&["replay", &file][..], args].concat(), input.as_bytes());
        assert_eq!(output.code, 0, "{}", output.err);
        output.out.matches("\"denied_by\":\"orders\"").count()
    };
    assert_eq!(refused(&[], &lines), 3);
    assert_eq!(refused(&["--format", "nginx"], &log), 3);
    assert_eq!(refused(&["--http-normalize", "none"], &lines), 0);
    let upper = lines.replace("orders", "ORDERS").replace("frders", "fRDERS");
    assert_eq!(refused(&[], &upper), 0);
    assert_eq!(refused(&["--http-normalize", "standard,lower-case"], &upper), 3);
    // Over gRPC, descriptors are matched as they are.
    let entry = |endpoint| format!("{{\"entries\": [{{\"key\": \"endpoint\", \"value\": \"{endpoint}\"}}]}}");
    let tree: String = SPELLINGS
        .iter()
        .map(|endpoint| format!("{{\"at\": 1700000000, \"descriptors\": [{}]}}\n", entry(endpoint)))
        .collect();
    assert_eq!(refused(&[], &tree), 0);

    let explained = tollgate(&["explain", &file, "endpoint=post //orders"], b"");
    assert!(explained.out.contains("endpoint is read as `POST /orders`"), "{}", explained.out);
    assert!(explained.out.contains("applies    orders"), "{}", explained.out);
    let unchanged = tollgate(&["explain", &file, "--http-normalize", "none", "endpoint=post //orders"], b"");
    assert!(!unchanged.out.contains("is read as") && unchanged.out.contains("misses"), "{}", unchanged.out);
}
