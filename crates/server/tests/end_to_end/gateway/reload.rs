//! The file of a gateway is changed under load.

use tollgate_testing::eventually;

use super::upstream::Upstream;
use super::{Load, degraded, everything_to, with_gateway, write_file};
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
