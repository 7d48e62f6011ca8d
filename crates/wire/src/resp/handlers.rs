//! Replies to commands.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use tollgate::Wait;

use super::command::{ClientCommand, Command, CommandQuery, HelloOptions, ThrottleDialect};
use super::frame::Arguments;
use super::reply::{Protocol, Replies};
use super::{RespCounts, catalogue};
use crate::gate::ThrottleResult;

/// The state of a connection's client.
#[derive(Debug)]
pub(super) struct ClientState {
    id: u64,
    /// Not empty.
    name: Option<Box<[u8]>>,
}

/// What happens after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterReply {
    Continue,
    Close,
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

impl ClientState {
    pub(super) fn new(id: u64) -> ClientState {
        ClientState { id, name: None }
    }

    /// Replies to a command that needs no decision.
    pub(super) fn answer(&mut self, command: &Command<'_>, counts: &RespCounts, replies: &mut Replies) -> AfterReply {
        match command {
            Command::Nothing => replies.simple("OK"),
            Command::Ping(None) => replies.simple("PONG"),
            Command::Ping(Some(message)) | Command::Echo(message) => replies.bulk(message),
            Command::Quit => {
                replies.simple("OK");
                return AfterReply::Close;
            }
            Command::Reset => {
                self.name = None;
                replies.protocol = Protocol::default();
                replies.simple("RESET");
            }
            Command::Hello(hello) => self.hello(hello, replies),
            Command::Client(client) => self.client(client, replies),
            Command::Query(query) => reply_query(query, replies),
            Command::Info(sections) => replies.text(&info(*sections, counts)),
        }
        AfterReply::Continue
    }

    fn hello(&mut self, hello: &HelloOptions<'_>, replies: &mut Replies) {
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
        for (name, number) in [("proto", version), ("id", self.id())] {
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

    fn client(&mut self, client: &ClientCommand<'_>, replies: &mut Replies) {
        match client {
            ClientCommand::Id => replies.integer(self.id()),
            ClientCommand::GetName => match &self.name {
                Some(name) => replies.bulk(name),
                None => replies.null(),
            },
            ClientCommand::SetName(name) => {
                self.rename(name);
                replies.simple("OK");
            }
            ClientCommand::Info => {
                let name = String::from_utf8_lossy(self.name.as_deref().unwrap_or_default());
                let version = if replies.protocol == Protocol::Two { 2 } else { 3 };
                replies.text(&format!("id={} name={name} db=0 resp={version}\n", self.id));
            }
            ClientCommand::Help => help(
                replies,
                &[
                    "CLIENT <subcommand> [<arg> ...]. Subcommands are:",
                    "GETNAME",
                    "    The name of this connection.",
                    "ID",
                    "    The number of this connection.",
                    "INFO",
                    "    Details of this connection.",
                    "NO-EVICT (ON|OFF), NO-TOUCH (ON|OFF)",
                    "    Accepted, without effect.",
                    "SETINFO (LIB-NAME|LIB-VER) <value>",
                    "    Accepted, without effect.",
                    "SETNAME <name>",
                    "    Set the name of this connection.",
                ],
            ),
        }
    }

    fn rename(&mut self, name: &[u8]) {
        self.name = Some(name).filter(|name| !name.is_empty()).map(Box::from);
    }

    fn id(&self) -> i64 {
        i64::try_from(self.id).unwrap_or(i64::MAX)
    }
}

/// Writes the five integers of a throttle. Times are whole seconds, rounded up, so that a refused client never retries
/// too early.
// Inlined into both callers; one of them runs a million times a second.
#[inline(always)]
pub(super) fn reply_throttle(dialect: ThrottleDialect, burst: u64, result: &ThrottleResult, replies: &mut Replies) {
    /// There is nothing to wait for: it passes, or it never will.
    const NO_WAIT: i64 = -1;
    let ThrottleResult { passes, reading } = result;
    let retry_after = match reading.wait {
        Wait::For(span) if !passes => clamp(span.as_secs_ceil()),
        _ if *passes && dialect == ThrottleDialect::Throttlecrab => 0,
        _ => NO_WAIT,
    };
    let reset_after = clamp(reading.reset_after.as_secs_ceil());
    let (first, times) = match dialect {
        ThrottleDialect::RedisCell => (!passes, [retry_after, reset_after]),
        ThrottleDialect::Throttlecrab => (*passes, [reset_after, retry_after]),
    };
    replies.array(5);
    replies.integer(i64::from(first));
    replies.integer(clamp(burst));
    replies.integer(clamp(reading.remaining));
    times.into_iter().for_each(|time| replies.integer(time));
}

fn clamp(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn reply_query(query: &CommandQuery<'_>, replies: &mut Replies) {
    match query {
        CommandQuery::Count => catalogue::count(replies),
        CommandQuery::List => catalogue::list(replies),
        CommandQuery::Info(names, skip) => catalogue::info(*names, *skip, replies),
        CommandQuery::Docs(names, skip) => catalogue::docs(*names, *skip, replies),
        CommandQuery::Help => help(
            replies,
            &[
                "COMMAND <subcommand> [<arg> ...]. Subcommands are:",
                "(no subcommand)",
                "    All commands, as in INFO.",
                "COUNT",
                "    The number of commands.",
                "DOCS [<name> ...]",
                "    The documentation of these commands.",
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

/// The requested sections, or all.
fn info(arguments: Arguments<'_>, counts: &RespCounts) -> String {
    let everything = ["all", "default", "everything"];
    let is_requested = |section: &str| {
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
        if is_requested(name) {
            let gap = if text.is_empty() { "" } else { "\r\n" };
            // Writing to a String can't fail.
            let _ = write!(text, "{gap}{title}\r\n{lines}");
        }
    }
    text
}
