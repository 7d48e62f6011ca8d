//! The file of a gateway is changed under load.

use std::fs;

use tollgate_testing::eventually;

use super::upstream::Upstream;
use super::{FILE, Load, degraded, everything_to, with_gateway, write_file};
use crate::http::get;

#[test]
fn a_changed_file_takes_effect_without_a_failure() {
    let (first, second) = (Upstream::start(), Upstream::start());
    let file = everything_to(&[first.address()]);
    let server = with_gateway(&file).listen(&["admin"]).start();
    let load = Load::start(&server.url("gateway", "/load"));
    load.wait_for(100);

    // Another upstream, and a route that removes a prefix.
    let changed = everything_to(&[second.address()])
        + "  - {name: versioned, match: \"/v1/*\", upstream: app, strip_prefix: /v1}\n";
    write_file(server.home(), &changed);
    let is_changed = || get(&server.url("gateway", "/v1/a")).body.starts_with("GET /a ").then_some(());
    assert!(eventually(is_changed).is_some(), "{}", server.log());
    load.wait_for(100);

    // A broken file: the last good one stays in force, and health says why.
    write_file(server.home(), &changed.replace("upstream: app,", "upstream: ap,"));
    let parts = eventually(|| Some(degraded(&server)).filter(|parts| !parts.is_empty()));
    let parts = parts.unwrap_or_else(|| panic!("{}", server.log()));
    assert_eq!(parts[0]["part"], "gateway", "{parts:?}");
    let text = parts[0].to_string();
    assert!(text.contains("gateway.yaml:7") && text.contains("did you mean `app`?"), "{text}");
    assert!(get(&server.url("gateway", "/v1/a")).body.starts_with("GET /a "));
    load.wait_for(100);

    write_file(server.home(), &file);
    assert!(eventually(|| degraded(&server).is_empty().then_some(())).is_some(), "{}", server.log());
    assert!(get(&server.url("gateway", "/v1/a")).body.starts_with("GET /v1/a "));
    load.wait_for(100);
    let failures = load.stop();
    assert!(failures.is_empty(), "{} failures: {:?}", failures.len(), failures.first());
}

#[test]
fn a_file_that_cannot_be_read_any_more_is_a_health_condition() {
    let upstream = Upstream::start();
    let file = everything_to(&[upstream.address()]);
    let server = with_gateway(&file).listen(&["admin"]).start();
    let path = server.home().join(FILE);
    for (what, reason) in [(None, "No such file"), (Some(&b"listen: \xff\n"[..]), "UTF-8")] {
        match what {
            None => fs::remove_file(&path).unwrap(),
            Some(bytes) => fs::write(&path, bytes).unwrap(),
        }
        let parts = eventually(|| Some(degraded(&server)).filter(|parts| !parts.is_empty()));
        let parts = parts.unwrap_or_else(|| panic!("{}", server.log()));
        let text = parts[0].to_string();
        assert!(parts[0]["part"] == "gateway" && text.contains("gateway.yaml: ") && text.contains(reason), "{text}");
        assert!(text.contains("the last good configuration is in use"), "{text}");
        assert!(get(&server.url("gateway", "/a")).body.starts_with("GET /a "));
        let lines = server.log().lines().filter(|line| line.contains(reason)).count();
        assert_eq!(lines, 1, "{}", server.log());
        // The same file as before is good again.
        write_file(server.home(), &file);
        assert!(eventually(|| degraded(&server).is_empty().then_some(())).is_some(), "{}", server.log());
    }
}
