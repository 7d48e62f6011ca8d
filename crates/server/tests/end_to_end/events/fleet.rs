//! Three servers with a store of record in PostgreSQL: one of them sends the event of a change.

use std::collections::BTreeSet;

use serde_json::json;
use tollgate_testing::{Postgres, Server, until};

use super::receiver::{Received, Receiver, Reply};
use super::{metric, write_file};
use crate::control::support::{RULES, send, with_control};
use crate::new_server;

fn server_on(control: &str, receiver: &Receiver) -> Server {
    let builder = new_server().rules(RULES);
    write_file(builder.home(), &[("pager", receiver.url("/"))]);
    let path = builder.home().join("events.yaml").display().to_string();
    with_control(builder, control, &["--events", &path]).start()
}

fn block(server: &Server, name: &str) {
    let body = json!({"reason": "abuse"}).to_string();
    let response = send("PUT", &server.url("admin", &format!("/admin/v1/blocks/{name}")), "application/json", body);
    assert!([200, 201].contains(&response.status), "{response:?}");
}

/// The ids of the events about a block.
fn ids(receiver: &Receiver, name: &str) -> Vec<String> {
    let is_about =
        |message: &&Received| message.is("block.changed") && message.event["data"]["after"]["reason"] == "abuse";
    let about = receiver.received();
    let about =
        about.iter().filter(is_about).filter(|message| message.event["subject"].as_str().unwrap().ends_with(name));
    about.map(|message| message.id().to_owned()).collect()
}

#[test]
fn one_of_three_servers_sends_a_change_and_another_takes_over() {
    let (database, receiver) = (Postgres::database(), Receiver::start(Reply::Status(200)));
    let mut servers: Vec<_> = (0..3).map(|_| server_on(database.url(), &receiver)).collect();
    receiver.wait_for(3, |message| message.is("server.started"));
    // Servers that start at once may each take themselves for the first one, for as long as it takes to report.
    block(&servers[0], "a-caller-of-this-test-ada1");
    until("the change is sent", || !ids(&receiver, "ada1").is_empty());
    let distinct: BTreeSet<_> = ids(&receiver, "ada1").into_iter().collect();
    assert_eq!(distinct.len(), 1, "{distinct:?}");

    // Whichever server sends: one of them does after another was lost.
    let sent = |server: &Server| metric(server, "tollgate_events_total{type=\"block.changed\"}");
    let leader = servers.iter().position(|server| sent(server) > 0.0).unwrap();
    servers.remove(leader).kill();
    block(&servers[0], "a-caller-of-this-test-bob2");
    // The report of a server that was killed expires after a minute.
    until("the others know", || {
        database.query("DELETE FROM servers");
        !ids(&receiver, "bob2").is_empty()
    });
    let distinct: BTreeSet<_> = ids(&receiver, "bob2").into_iter().collect();
    assert_eq!((distinct.len(), ids(&receiver, "ada1").iter().collect::<BTreeSet<_>>().len()), (1, 1));
}

#[test]
fn changes_are_sent_after_a_restart_if_they_were_not_before() {
    let receiver = Receiver::start(Reply::Status(200));
    let server = {
        let builder = new_server().rules(RULES).listen(&["admin"]);
        write_file(builder.home(), &[("pager", receiver.url("/"))]);
        let path = builder.home().join("events.yaml").display().to_string();
        builder.args(&["--events", &path]).start()
    };
    block(&server, "a-caller-of-this-test-ada1");
    until("the change is sent", || ids(&receiver, "ada1").len() == 1);
    receiver.reply(Reply::Status(503));
    block(&server, "a-caller-of-this-test-bob2");
    until("it was tried", || !ids(&receiver, "bob2").is_empty());
    let builder = server.restart();
    receiver.reply(Reply::Status(200));
    let before = ids(&receiver, "bob2").len();
    let path = builder.home().join("events.yaml").display().to_string();
    let server = builder.listen(&["admin"]).args(&["--events", &path]).start();
    until("it is sent again", || ids(&receiver, "bob2").len() > before);
    block(&server, "a-caller-of-this-test-eve3");
    until("the next one is sent", || ids(&receiver, "eve3").len() == 1);
    let all = ids(&receiver, "bob2");
    assert!(all.iter().all(|id| *id == all[0]), "{all:?}");
    assert_eq!(ids(&receiver, "ada1").len(), 1);
}
