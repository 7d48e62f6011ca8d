//! Servers that are found while the gateway runs: by a file, and by a name.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{App, NO_RULES, TestGateway, everything_to};
use crate::tls_upstreams::{Identity, More, server};

/// A configuration whose servers come from elsewhere.
fn found_by(source: &str) -> String {
    let fixed = "servers: []";
    let config = everything_to(&[]);
    assert!(config.contains(fixed), "{config}");
    config.replace(fixed, &format!("servers: {source}"))
}

/// Replaces a file in one step.
fn write(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(&new, path).unwrap();
}

async fn until_answered(gateway: &TestGateway) {
    for _ in 0..500 {
        if gateway.get("/").await.starts_with("HTTP/1.1 200 ") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("no server was found");
}

#[tokio::test]
async fn a_file_of_servers_changes_under_load_without_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("servers.txt");
    let (first, second) = (App::start().await, App::start().await);
    write(&file, &format!("# one\n{}\n", first.address));
    let config = found_by(&format!("{{file: {}, every: 10ms}}", file.display()));
    let gateway = Arc::new(TestGateway::start(&config, NO_RULES).await);
    until_answered(&gateway).await;
    let (is_over, failures) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let load = tokio::spawn({
        let (gateway, is_over, failures) = (gateway.clone(), is_over.clone(), failures.clone());
        async move {
            let mut client = gateway.connect().await;
            while !is_over.load(Ordering::Relaxed) {
                client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
                if !client.response().await.starts_with("HTTP/1.1 200 ") {
                    failures.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    });
    let servers = || -> Vec<String> {
        let status = gateway.gateway.status();
        status.upstreams[0].servers.iter().map(|server| server.address.clone()).collect()
    };
    let becomes = async |expected: &[&App]| {
        let expected: Vec<_> = expected.iter().map(|app| app.address.to_string()).collect();
        for _ in 0..500 {
            if servers() == expected {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{:?} are used, not {expected:?}", servers());
    };
    write(&file, &format!("{}\n{}\n", first.address, second.address));
    becomes(&[&first, &second]).await;
    write(&file, &format!("{}\n", second.address));
    becomes(&[&second]).await;
    let (at_first, at_second) = (first.seen().len(), second.seen().len());
    // What can't be used changes nothing: no servers, or text that is no address.
    for bad in ["# none\n", "not an address\n"] {
        write(&file, bad);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    becomes(&[&second]).await;
    while second.seen().len() < at_second + 20 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    is_over.store(true, Ordering::Relaxed);
    load.await.unwrap();
    assert_eq!(failures.load(Ordering::Relaxed), 0);
    assert!(first.seen().len() <= at_first + 1, "a server that is gone gets no further requests");
}

#[tokio::test]
async fn servers_that_were_found_stay_when_another_setting_changes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("servers.txt");
    let app = App::start().await;
    write(&file, &app.address.to_string());
    let config = found_by(&format!("{{file: {}, every: 10ms}}", file.display()));
    let gateway = TestGateway::start(&config, NO_RULES).await;
    until_answered(&gateway).await;
    std::fs::remove_file(&file).unwrap();
    gateway.reload(&config.replace("servers:", "adaptive: off, servers:")).await;
    let response = gateway.get("/").await;
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
}

#[tokio::test]
async fn certificates_of_servers_found_by_a_name_have_the_name() {
    // It has no address as a name.
    let identity = Identity::make();
    let (address, _) = server(&identity, More::Nothing).await;
    let dns = found_by(&format!("{{dns: \"localhost:{}\", every: 50ms}}", address.port()));
    let config = dns.replace("servers:", &format!("tls: {{ca: {}}}, servers:", identity.ca.path().display()));
    let gateway = TestGateway::start(&config, NO_RULES).await;
    until_answered(&gateway).await;
    let status = gateway.gateway.status();
    assert!(status.upstreams[0].servers.iter().any(|server| server.address == address.to_string()), "{status:?}");
}
