//! Events at receivers that answer, fail, hang or are gone, and across crashes of the server.

mod fleet;
pub(crate) mod receiver;

use std::fs;
use std::path::Path;

use serde_json::Value;
use tollgate_testing::{Server, ServerBuilder, free_port, until};

use crate::cli::tollgate;
use crate::http::get;
use crate::new_server;
use receiver::{Receiver, Reply};

const RULES: &str = "domain: api\nrules:\n  - {name: all, key: [], limit: 10/minute}\n";
const BROKEN: &str = "domain: api\nrules:\n  - {name: all, key: [], limit: none}\n";

/// Writes the file of the sinks to a folder: name and address of each.
fn write_file(folder: &Path, sinks: &[(&str, String)]) {
    let webhook = |(name, url): &(&str, String)| format!("  - {{name: {name}, url: '{url}', secret_file: secret}}\n");
    fs::write(folder.join("secret"), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
    let text = format!("webhooks:\n{}", sinks.iter().map(webhook).collect::<String>());
    fs::write(folder.join("events.yaml"), text).unwrap();
}

fn server_with(sinks: &[(&str, String)]) -> Server {
    let builder = new_server().rules(RULES);
    write_file(builder.home(), sinks);
    start(builder)
}

fn start(builder: ServerBuilder) -> Server {
    let path = builder.home().join("events.yaml").display().to_string();
    builder.listen(&["admin"]).args(&["--events", &path]).start()
}

/// The value of a series.
fn metric(server: &Server, series: &str) -> f64 {
    let text = get(&server.url("admin", "/metrics")).body;
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map_or(0.0, |value| value.parse().unwrap())
}

fn degraded(server: &Server, part: &str) -> bool {
    let health: Value = get(&server.url("admin", "/readyz")).json();
    health["degraded"].as_array().unwrap().iter().any(|one| one["part"] == part)
}

#[test]
fn events_are_sent_again_until_they_are_taken_and_a_receiver_that_hangs_holds_up_nobody() {
    let (pager, hanging) = (Receiver::start(Reply::Status(503)), Receiver::start(Reply::Hang));
    let mut server = server_with(&[("pager", pager.url("/hook?key=7")), ("hanging", hanging.url("/"))]);
    pager.wait_for(2, |message| message.is("server.started"));
    pager.reply(Reply::Status(204));
    server.write_rules(BROKEN);
    let rejected = &pager.wait_for(1, |message| message.is("rules.rejected"))[0];
    server.write_rules("domain: api\nrules:\n  - {name: all, key: [], limit: 20/minute}\n");
    pager.wait_for(1, |message| message.is("rules.reloaded"));

    let started = pager.wait_for(3, |message| message.is("server.started"));
    assert!(started.iter().all(|message| message.id() == started[0].id()), "{started:?}");
    assert_eq!(
        (&*started[0].path, &*rejected.headers["content-type"]),
        ("/hook?key=7", "application/cloudevents+json")
    );
    assert_eq!(rejected.headers["webhook-id"], rejected.id());
    assert!(rejected.headers["webhook-signature"].starts_with("v1,"), "{rejected:?}");
    assert_eq!(rejected.event["data"]["severity"], "warning");
    assert!(rejected.event["data"]["text"].as_str().unwrap().contains("rules.yaml:3"), "{rejected:?}");
    until("three are delivered", || {
        metric(&server, "tollgate_event_deliveries_total{sink=\"pager\",result=\"ok\"}") >= 3.0
    });
    assert!(metric(&server, "tollgate_event_deliveries_total{sink=\"pager\",result=\"retry\"}") >= 2.0);
    assert!(metric(&server, "tollgate_events_total{type=\"rules.rejected\"}") >= 1.0);
    assert_eq!(hanging.received().len(), 1);
    assert!(metric(&server, "tollgate_events_waiting{sink=\"hanging\"}") >= 3.0);
    assert!(server.stop().success());
}

#[test]
fn a_receiver_that_is_gone_gets_no_more_until_the_file_changes() {
    let pager = Receiver::start(Reply::Status(410));
    let server = server_with(&[("pager", pager.url("/"))]);
    pager.wait_for(1, |message| message.is("server.started"));
    until("health shows it", || degraded(&server, "events_sinks"));
    pager.reply(Reply::Status(200));
    server.write_rules(BROKEN);
    server.wait_for_log("rules.yaml:3");
    until("the event is in the journal", || metric(&server, "tollgate_events_total{type=\"rules.rejected\"}") >= 1.0);
    assert_eq!(pager.received().len(), 1);

    // A file with errors changes nothing; another address does.
    fs::write(server.home().join("events.yaml"), "webhooks: 7").unwrap();
    until("health shows it", || degraded(&server, "events"));
    write_file(server.home(), &[("pager", pager.url("/again"))]);
    let rejected = pager.wait_for(1, |message| message.is("rules.rejected"));
    assert_eq!(rejected[0].path, "/again");
    // What was refused with 410 is sent, too.
    assert_eq!(pager.wait_for(2, |message| message.is("server.started")).len(), 2);
    until("all is well", || !degraded(&server, "events") && !degraded(&server, "events_sinks"));
}

#[test]
fn an_event_that_a_crash_left_unsent_is_sent_after_the_restart() {
    // Nobody listens yet.
    let port = free_port();
    let mut server = server_with(&[("pager", format!("http://127.0.0.1:{port}/"))]);
    server.write_rules(BROKEN);
    until("sending failed, and both events are in the journal", || {
        metric(&server, "tollgate_event_deliveries_total{sink=\"pager\",result=\"retry\"}") >= 1.0
            && metric(&server, "tollgate_events_waiting{sink=\"pager\"}") >= 2.0
    });
    server.kill();
    let pager = Receiver::on(port, Reply::Status(200));
    server.write_rules(RULES);
    let server = start(server.restart());
    let rejected = pager.wait_for(1, |message| message.is("rules.rejected"));
    let started = pager.wait_for(2, |message| message.is("server.started"));
    assert_eq!(rejected.len(), 1);
    assert_ne!(started[0].id(), started[1].id());
    // In their order.
    let order: Vec<_> = pager.received().iter().map(|message| message.event["type"].clone()).collect();
    assert_eq!(order[..3], ["tollgate.server.started", "tollgate.rules.rejected", "tollgate.server.started"]);

    // What was taken is not sent again.
    until("all are delivered", || metric(&server, "tollgate_events_waiting{sink=\"pager\"}") == 0.0);
    let before = pager.received().len();
    let _server = start(server.restart());
    pager.wait_for(3, |message| message.is("server.started"));
    assert_eq!(pager.received().len(), before + 1);
}

#[test]
fn a_file_with_errors_stops_the_start() {
    let builder = new_server().rules(RULES).listen(&["admin"]);
    let path = builder.home().join("events.yaml");
    fs::write(&path, "webhooks:\n  - {name: pager, url: hooks.example.com}\n").unwrap();
    let (code, log) = builder.args(&["--events", &path.display().to_string()]).run_to_exit();
    assert!(code != Some(0) && log.contains("events.yaml:2: `secret_file` is missing"), "{code:?} {log}");
}

#[test]
fn commands_show_events_and_test_sinks() {
    let pager = Receiver::start(Reply::Status(410));
    let server = server_with(&[("pager", pager.url("/"))]);
    let url = server.url("admin", "");
    let run = |args: &[&str]| tollgate(&[args, &["--server", &url]].concat(), b"");
    until("the receiver is gone", || run(&["events", "sinks"]).out.contains("gone"));
    let failed = run(&["events", "test", "pager"]);
    assert_eq!((failed.code, &*failed.out), (1, ""));
    assert!(failed.err.contains("the receiver of pager did not take the event"), "{}", failed.err);
    pager.reply(Reply::Status(200));
    let taken = run(&["events", "test", "pager"]);
    assert_eq!((taken.code, &*taken.out), (0, "the receiver of pager took the event\n"), "{}", taken.err);
    // It gets what it refused, too.
    assert_eq!(pager.wait_for(2, |message| message.is("server.started")).len(), 2);
    let listed = run(&["events", "--json"]).out;
    let started: Value = serde_json::from_str(listed.lines().next().unwrap()).unwrap();
    assert_eq!((&started["kind"], &started["type"]), (&"start".into(), &"server.started".into()));
    assert!(run(&["events"]).out.contains(" started, version "));
}
