//! What each command is answered.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use tollgate::Wait;

use super::command::{Catalogue, Client, Command, Form, Hello};
use super::frame::Arguments;
use super::reply::{Protocol, Replies};
use super::{Counts, catalogue};
use crate::gate::Throttled;

/// What a connection remembers of its client.
#[derive(Debug)]
pub(super) struct Peer {
    id: u64,
    /// Not empty.
    name: Option<Box<[u8]>>,
}

/// What follows an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    GoOn,
    Close,
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

impl Peer {
    pub(super) fn new(id: u64) -> Peer {
        Peer { id, name: None }
    }

    /// Answers what needs no decision.
    pub(super) fn answer(&mut self, command: &Command<'_>, counts: &Counts, replies: &mut Replies) -> Then {
        match command {
            Command::Nothing => replies.simple("OK"),
            Command::Ping(None) => replies.simple("PONG"),
            Command::Ping(Some(message)) | Command::Echo(message) => replies.bulk(message),
            Command::Quit => {
                replies.simple("OK");
                return Then::Close;
            }
            Command::Reset => {
                self.name = None;
                replies.protocol = Protocol::default();
                replies.simple("RESET");
            }
            Command::Hello(hello) => self.hello(hello, replies),
            Command::Client(client) => self.client(client, replies),
            Command::Catalogue(asked) => about_commands(asked, replies),
            Command::Info(sections) => replies.text(&info(*sections, counts)),
        }
        Then::GoOn
    }

    fn hello(&mut self, hello: &Hello<'_>, replies: &mut Replies) {
        if let Some(protocol) = hello.protocol {
            replies.protocol = protocol;
        }
        if let Some(name) = hello.name {
            self.rename(name);
        }
        let version = if replies.protocol == Protocol::Two { 2 } else { 3 };
        replies.map(7);
        for (name, text) in [("server", "tollgate"), ("version", VERSION)] {
            replies.bulk(name.as_bytes());
            replies.bulk(text.as_bytes());
        }
        for (name, number) in [("proto", version), ("id", self.number())] {
            replies.bulk(name.as_bytes());
            replies.integer(number);
        }
        for (name, text) in [("mode", "standalone"), ("role", "master")] {
            replies.bulk(name.as_bytes());
            replies.bulk(text.as_bytes());
        }
        replies.bulk(b"modules");
        replies.array(0);
    }

    fn client(&mut self, client: &Client<'_>, replies: &mut Replies) {
        match client {
            Client::Id => replies.integer(self.number()),
            Client::GetName => match &self.name {
                Some(name) => replies.bulk(name),
                None => replies.null(),
            },
            Client::SetName(name) => {
                self.rename(name);
                replies.simple("OK");
            }
            Client::Info => {
                let name = String::from_utf8_lossy(self.name.as_deref().unwrap_or_default());
                let version = if replies.protocol == Protocol::Two { 2 } else { 3 };
                replies.text(&format!("id={} name={name} db=0 resp={version}\n", self.id));
            }
            Client::Help => help(
                replies,
                &[
                    "CLIENT <subcommand> [<arg> ...]. Subcommands are:",
                    "GETNAME",
                    "    The name of this connection.",
                    "ID",
                    "    The number of this connection.",
                    "INFO",
                    "    What is known of this connection.",
                    "NO-EVICT (ON|OFF), NO-TOUCH (ON|OFF)",
                    "    Accepted, without effect.",
                    "SETINFO (LIB-NAME|LIB-VER) <value>",
                    "    Accepted, without effect.",
                    "SETNAME <name>",
                    "    Names this connection.",
                ],
            ),
        }
    }

    fn rename(&mut self, name: &[u8]) {
        self.name = Some(name).filter(|name| !name.is_empty()).map(Box::from);
    }

    fn number(&self) -> i64 {
        i64::try_from(self.id).unwrap_or(i64::MAX)
    }
}

/// The five integers. Times are whole seconds, rounded up: at that time it is so, and a refusal is never told to come at once.
// Two call it, and one of them a million times a second.
#[inline(always)]
pub(super) fn throttled(form: Form, burst: u64, throttled: &Throttled, replies: &mut Replies) {
    /// There is nothing to wait for: it passes, or it never will.
    const NO_WAIT: i64 = -1;
    let Throttled { passes, reading } = throttled;
    let retry_after = match reading.wait {
        Wait::For(span) if !passes => whole(span.as_secs_ceil()),
        _ if *passes && form == Form::Crab => 0,
        _ => NO_WAIT,
    };
    let reset_after = whole(reading.reset_after.as_secs_ceil());
    let (first, times) = match form {
        Form::Cell => (!passes, [retry_after, reset_after]),
        Form::Crab => (*passes, [reset_after, retry_after]),
    };
    replies.array(5);
    replies.integer(i64::from(first));
    replies.integer(whole(burst));
    replies.integer(whole(reading.remaining));
    times.into_iter().for_each(|time| replies.integer(time));
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn about_commands(asked: &Catalogue<'_>, replies: &mut Replies) {
    match asked {
        Catalogue::Count => catalogue::count(replies),
        Catalogue::List => catalogue::list(replies),
        Catalogue::Info(names, skip) => catalogue::info(*names, *skip, replies),
        Catalogue::Docs(names, skip) => catalogue::docs(*names, *skip, replies),
        Catalogue::Help => help(
            replies,
            &[
                "COMMAND <subcommand> [<arg> ...]. Subcommands are:",
                "(no subcommand)",
                "    All commands, as INFO tells of them.",
                "COUNT",
                "    How many commands there are.",
                "DOCS [<name> ...]",
                "    What these commands are for.",
                "INFO [<name> ...]",
                "    The arguments and keys of these commands.",
                "LIST",
                "    The names of the commands.",
            ],
        ),
    }
}

fn help(replies: &mut Replies, lines: &[&str]) {
    replies.array(lines.len());
    lines.iter().for_each(|line| replies.simple(line));
}

/// The sections that were asked for, or all.
fn info(arguments: Arguments<'_>, counts: &Counts) -> String {
    let everything = ["all", "default", "everything"];
    let wanted = |section: &str| {
        arguments.len() == 1
            || arguments.iter().skip(1).any(|given| {
                let is = |name: &str| given.eq_ignore_ascii_case(name.as_bytes());
                is(section) || everything.into_iter().any(is)
            })
    };
    let count = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
    let sections = [
        (
            "server",
            "# Server",
            format!("tollgate_version:{VERSION}\r\nredis_mode:standalone\r\nprocess_id:{}\r\n", std::process::id()),
        ),
        ("clients", "# Clients", format!("connected_clients:{}\r\n", count(&counts.open))),
        (
            "stats",
            "# Stats",
            format!(
                "total_connections_received:{}\r\ntotal_commands_processed:{}\r\n",
                count(&counts.opened),
                count(&counts.commands)
            ),
        ),
    ];
    let mut text = String::new();
    for (name, title, lines) in sections {
        if wanted(name) {
            let gap = if text.is_empty() { "" } else { "\r\n" };
            // Writing to a String can't fail.
            let _ = write!(text, "{gap}{title}\r\n{lines}");
        }
    }
    text
}
