//! The HTTP/2 listener, by the cases of h2spec.

use std::path::Path;
use std::process::Command;

use crate::support::{App, TestGateway};

/// Where `make` builds it.
const H2SPEC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers/bin/h2spec");

/// Cases whose result is another one here.
const EXPECTED_FAILURES: [&str; 2] = [
    // Without TLS the same listener speaks HTTP/1.1: other first bytes are a bad request of that, and closed with a 400.
    "2: Sends invalid connection preface",
    // A race of the case: the whole response may be on its way before the reset arrives, and ends the stream first.
    "9: closed: Sends a HEADERS frame after sending RST_STREAM frame",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs h2spec, which `make test-long` builds"]
async fn the_cases_of_h2spec_pass() {
    if !Path::new(H2SPEC).is_file() {
        let has_go = Command::new("go").arg("version").output().is_ok();
        assert!(!has_go, "{H2SPEC} is missing: run make h2spec");
        println!("h2spec could not be built without Go: nothing is tested");
        return;
    }
    let app = App::start().await;
    let gateway = TestGateway::to(&[app.address]).await;
    let port = gateway.address.port().to_string();
    // A busy machine needs more than the usual two seconds.
    let args = ["--host", "127.0.0.1", "--port", &port, "--timeout", "10", "--strict"].map(str::to_owned);
    let run = tokio::task::spawn_blocking(move || Command::new(H2SPEC).args(args).output().unwrap());
    let output = run.await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let summary = text.lines().rev().find(|line| line.contains(" tests, ")).unwrap_or_default();
    println!("{summary}");
    assert!(summary.contains(" 0 skipped"), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let failures: Vec<&str> = text.lines().filter_map(|line| line.trim().strip_prefix("× ")).collect();
    assert!(summary.ends_with(&format!(", {} failed", failures.len())), "{text}");
    let unexpected: Vec<_> = failures.iter().filter(|name| !EXPECTED_FAILURES.contains(name)).collect();
    assert!(unexpected.is_empty(), "{unexpected:?}\n{text}");
}
