//! Access to Redis: passwords, users, certificates, sockets; and settings that fail the start.

use std::fs;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tollgate_testing::redis::Certificate;
use tollgate_testing::{Redis, ServerBuilder, eventually};

use crate::http::{get, post};
use crate::new_server;
use crate::serve::redis::{RULES, check, degraded_parts, outcome, wait_for_health};

#[test]
fn no_password_is_ever_printed() {
    const SECRET: &str = "s3cr3t-9f31";
    let redis = Redis::start_with(&["--requirepass", SECRET]);
    let port = redis.port();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("{SECRET}\n")).unwrap();
    let path = file.path().display().to_string();
    let url = format!("redis://127.0.0.1:{port}");
    let with_password = format!("redis://:{SECRET}@127.0.0.1:{port}");
    let wrong = format!("redis://:{SECRET}-not@127.0.0.1:{port}");
    let base = || {
        new_server().rules(RULES).listen(&["http", "admin"]).args(&[
            "--log-level",
            "trace",
            "--store-deadline",
            "200ms",
        ])
    };
    let rows: [(ServerBuilder, bool); 5] = [
        (base().args(&["--store", &with_password]), true),
        (base().args(&["--store", &url, "--store-password-file", &path]), true),
        (base().args(&["--store", &url]).env("TOLLGATE_STORE_PASSWORD", SECRET), true),
        (base().args(&["--store", &url, "--log-format", "json", "--store-password", SECRET]), true),
        (base().args(&["--store", &wrong]), false),
    ];
    for (builder, right) in rows {
        let mut server = builder.start();
        let response = check(&server, "address", "a");
        let expected = if right { (200, "store") } else { (503, "assumed") };
        assert_eq!(outcome(&response), (expected.0, expected.1.to_owned()), "{}", server.log());
        if !right {
            wait_for_health(&server, |conditions| conditions.iter().any(|(part, _)| part == "store"));
        }
        let pages = ["/readyz", "/metrics"].map(|page| get(&server.url("admin", page)).body).concat();
        assert!(server.stop().success());
        let output = format!("{}{}{pages}{}", server.startup_output(), server.log(), response.body);
        assert!(!output.contains("s3cr3t"), "{output}");
    }
    let printed = new_server().args(&["--store", &url, "--store-password", SECRET, "--print-config"]).output();
    assert!(!printed.contains("s3cr3t") && printed.contains("store_password: \"***\""), "{printed}");
}

#[test]
fn unusable_redis_settings_fail_the_start() {
    let rows: [(&[&str], &str); 4] = [
        (
            &["--store", "redis://h", "--store-password-file", "none.txt"],
            "store_password_file: none.txt can't be read: ",
        ),
        (&["--store", "rediss://h", "--store-ca", "none.pem"], "store_ca: none.pem can't be read: "),
        (&["--store", "redis://:s3cr3t@h:x"], "--store: error: `store`: after h comes a colon and a port"),
        (&["--store-password", "s3cr3t"], "`store_password`: counters are in memory"),
    ];
    for (args, reason) in rows {
        let (code, log) = new_server().rules(RULES).args(args).run_to_exit();
        assert!(code.is_some_and(|code| code != 0), "{code:?}");
        assert!(log.contains(reason) && !log.contains("s3cr3t"), "{log}");
    }
}

/// Every algorithm, so that the script uses every command that it needs.
const EVERYTHING: &str = "
domain: d
entity: caller
rules:
  - {name: sliding, key: [caller], limit: 9/day}
  - {name: fixed, key: [caller], limit: 9/day, algorithm: fixed_window}
  - {name: bucket, key: [caller], limit: 9/day, algorithm: token_bucket}
  - {name: log, key: [caller], limit: 9/day, algorithm: sliding_log}
  - {name: parts, key: [caller], limit: 9/day, sub_windows: 24}
  - {name: in-flight, key: [caller], limit: 9 concurrent, hold: 60s}
  - {name: month, key: [caller], limit: 9/month in Europe/Berlin}
  - {name: all, key: [], limit: 9/day}
  - {name: summed, key: [], match: {kind: summed}, limit: 5 concurrent, count: summed}
";

#[test]
fn the_documented_permissions_of_a_redis_user_suffice() {
    let page = include_str!("../../../../../docs/redis.md");
    let line = page.lines().find(|line| line.starts_with("ACL SETUSER tollgate ")).unwrap();
    let redis = Redis::start();
    assert_eq!(redis.inline(&line.replace("PASSWORD", "pass")).lines().next(), Some("+OK"));
    let url = format!("redis://tollgate:pass@127.0.0.1:{}", redis.port());
    let server = new_server().rules(EVERYTHING).listen(&["http", "admin"]);
    let server = server.args(&["--store", &url, "--store-deadline", "200ms"]).start();
    for left in (0..9).rev() {
        let response = post(&server.url("http", "/v1/ratelimit/check"), r#"{"attributes":{"caller":"c"}}"#);
        assert_eq!(
            (outcome(&response), response.json()["remaining"].as_u64()),
            ((200, "store".to_owned()), Some(left))
        );
    }
    assert_eq!(outcome(&check(&server, "caller", "c")), (429, "store".to_owned()));
    // Heartbeats work too.
    let metrics = || get(&server.url("admin", "/metrics")).body;
    assert!(metrics().contains("tollgate_store_replicas 1"));
    // So do exchanges of what servers count, also of a request that the rule `all` refuses.
    assert_eq!(check(&server, "kind", "summed").status, 429);
    assert!(eventually(|| metrics().contains("tollgate_summed_servers 1").then_some(())).is_some());
    assert_eq!(degraded_parts(&server), []);
}

#[test]
fn the_server_connects_to_redis_by_socket_and_by_tls() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut authority = CertificateParams::default();
    // The name must differ from those of the signed certificates.
    authority.distinguished_name.push(DnType::CommonName, "the authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let names = vec!["127.0.0.1".to_owned()];
    let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &authority).unwrap();
    fs::write(path("ca.pem"), authority.pem()).unwrap();
    fs::write(path("cert.pem"), certificate.pem()).unwrap();
    fs::write(path("key.pem"), key.serialize_pem()).unwrap();
    let (cert, key, ca) = (path("cert.pem"), path("key.pem"), path("ca.pem"));
    let (secured, port) = Redis::start_tls(Certificate { cert: &cert, key: &key, authority: &ca });
    let socket = path("redis.sock");
    let plain = Redis::start_with(&["--unixsocket", &text(&socket)]);
    let rows: [(String, &[&str]); 2] = [
        (
            format!("rediss://127.0.0.1:{port}"),
            &["--store-ca", &text(&ca), "--store-cert", &text(&cert), "--store-key", &text(&key)],
        ),
        (format!("redis+unix://{}", text(&socket)), &[]),
    ];
    for (url, args) in rows {
        let server = new_server().rules(RULES).listen(&["http"]).args(&["--store", &url, "--store-deadline", "200ms"]);
        let server = server.args(args).start();
        assert_eq!(outcome(&check(&server, "caller", "c")), (200, "store".to_owned()), "{}", server.log());
    }
    drop((secured, plain));
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
