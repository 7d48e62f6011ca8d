//! The commands that there are, and what `COMMAND` tells of them.

use super::frame::Arguments;
use super::reply::Replies;

/// What is known of a command.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// How many arguments it may have, its name included.
    pub(super) least: usize,
    pub(super) most: usize,
    /// Whether its first argument names a counter.
    has_key: bool,
    flags: &'static [&'static str],
    group: &'static str,
    summary: &'static str,
    arguments: &'static [Argument],
}

/// The commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    CellThrottle,
    CrabThrottle,
    Ping,
    Echo,
    Quit,
    Hello,
    Reset,
    Auth,
    Select,
    Client,
    Command,
    Info,
}

/// An argument: its name, its type, whether it must be there.
#[derive(Debug)]
struct Argument(&'static str, &'static str, Need);

#[derive(Debug, PartialEq, Eq)]
enum Need {
    Always,
    Optional,
    Repeated,
}

use Need::{Always, Optional, Repeated};

/// For commands that take any number of arguments.
const ANY: usize = usize::MAX;
const THROTTLE: &[Argument] = &[
    Argument("key", "key", Always),
    Argument("max_burst", "integer", Always),
    Argument("count", "integer", Always),
    Argument("period", "integer", Always),
    Argument("quantity", "integer", Optional),
];
const FAST: &[&str] = &["fast"];
const ALWAYS_SERVED: &[&str] = &["loading", "stale", "fast"];

/// The one that matters most comes first.
static ENTRIES: [Entry; 12] = [
    Entry {
        name: "cl.throttle",
        kind: Kind::CellThrottle,
        least: 5,
        most: 6,
        has_key: true,
        flags: &["write", "fast"],
        group: "generic",
        summary: "Takes from a key's limit, as redis-cell does",
        arguments: THROTTLE,
    },
    Entry {
        name: "throttle",
        kind: Kind::CrabThrottle,
        least: 5,
        most: 6,
        has_key: true,
        flags: &["write", "fast"],
        group: "generic",
        summary: "Takes from a key's limit, as throttlecrab does",
        arguments: THROTTLE,
    },
    Entry {
        name: "ping",
        kind: Kind::Ping,
        least: 1,
        most: 2,
        has_key: false,
        flags: FAST,
        group: "connection",
        summary: "Answers PONG, or the message",
        arguments: &[Argument("message", "string", Optional)],
    },
    Entry {
        name: "echo",
        kind: Kind::Echo,
        least: 2,
        most: 2,
        has_key: false,
        flags: FAST,
        group: "connection",
        summary: "Answers the message",
        arguments: &[Argument("message", "string", Always)],
    },
    Entry {
        name: "quit",
        kind: Kind::Quit,
        least: 1,
        most: ANY,
        has_key: false,
        flags: ALWAYS_SERVED,
        group: "connection",
        summary: "Closes the connection",
        arguments: &[],
    },
    Entry {
        name: "hello",
        kind: Kind::Hello,
        least: 1,
        most: ANY,
        has_key: false,
        flags: ALWAYS_SERVED,
        group: "connection",
        summary: "Says who answers, and chooses the version of the protocol",
        arguments: &[Argument("protover", "integer", Optional), Argument("option", "string", Repeated)],
    },
    Entry {
        name: "reset",
        kind: Kind::Reset,
        least: 1,
        most: 1,
        has_key: false,
        flags: ALWAYS_SERVED,
        group: "connection",
        summary: "Makes the connection as it was at the beginning",
        arguments: &[],
    },
    Entry {
        name: "auth",
        kind: Kind::Auth,
        least: 2,
        most: ANY,
        has_key: false,
        flags: ALWAYS_SERVED,
        group: "connection",
        summary: "There is no password",
        arguments: &[Argument("username", "string", Optional), Argument("password", "string", Always)],
    },
    Entry {
        name: "select",
        kind: Kind::Select,
        least: 2,
        most: 2,
        has_key: false,
        flags: ALWAYS_SERVED,
        group: "connection",
        summary: "Accepts database 0, the only one",
        arguments: &[Argument("index", "integer", Always)],
    },
    Entry {
        name: "client",
        kind: Kind::Client,
        least: 2,
        most: ANY,
        has_key: false,
        flags: ALWAYS_SERVED,
        group: "connection",
        summary: "Says who asks: ID, INFO, GETNAME, SETNAME, SETINFO, NO-EVICT, NO-TOUCH",
        arguments: &[Argument("subcommand", "string", Always), Argument("argument", "string", Repeated)],
    },
    Entry {
        name: "command",
        kind: Kind::Command,
        least: 1,
        most: ANY,
        has_key: false,
        flags: ALWAYS_SERVED,
        group: "server",
        summary: "Tells of the commands: COUNT, LIST, INFO, DOCS",
        arguments: &[Argument("subcommand", "string", Optional), Argument("name", "string", Repeated)],
    },
    Entry {
        name: "info",
        kind: Kind::Info,
        least: 1,
        most: ANY,
        has_key: false,
        flags: &["loading", "stale"],
        group: "server",
        summary: "Tells of the server: server, clients, stats",
        arguments: &[Argument("section", "string", Repeated)],
    },
];

/// The command of this name, whatever the case.
pub(super) fn find(name: &[u8]) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.name.as_bytes().eq_ignore_ascii_case(name))
}

/// `COMMAND COUNT`.
pub(super) fn count(replies: &mut Replies) {
    replies.integer(ENTRIES.len() as i64);
}

/// `COMMAND LIST`.
pub(super) fn list(replies: &mut Replies) {
    replies.array(ENTRIES.len());
    ENTRIES.iter().for_each(|entry| replies.bulk(entry.name.as_bytes()));
}

/// `COMMAND` and `COMMAND INFO`: the commands of these names, or all. One that is not there is told as nothing.
pub(super) fn info(names: Arguments<'_>, skip: usize, replies: &mut Replies) {
    if names.len() <= skip {
        replies.array(ENTRIES.len());
        ENTRIES.iter().for_each(|entry| entry.tell_info(replies));
        return;
    }
    replies.array(names.len() - skip);
    for name in names.iter().skip(skip) {
        match find(name) {
            Some(entry) => entry.tell_info(replies),
            None => replies.null(),
        }
    }
}

/// `COMMAND DOCS`: of the commands of these names, or of all. One that is not there is left out.
pub(super) fn docs(names: Arguments<'_>, skip: usize, replies: &mut Replies) {
    if names.len() <= skip {
        replies.map(ENTRIES.len());
        ENTRIES.iter().for_each(|entry| entry.tell_docs(replies));
        return;
    }
    let found = || names.iter().skip(skip).filter_map(find);
    replies.map(found().count());
    found().for_each(|entry| entry.tell_docs(replies));
}

impl Entry {
    /// As Redis counts: the arguments with the name, below zero if there may be more.
    fn arity(&self) -> i64 {
        let least = self.least as i64;
        if self.least == self.most { least } else { -least }
    }

    fn tell_info(&self, replies: &mut Replies) {
        let key = i64::from(self.has_key);
        replies.array(10);
        replies.bulk(self.name.as_bytes());
        replies.integer(self.arity());
        replies.set(self.flags.len());
        self.flags.iter().for_each(|flag| replies.simple(flag));
        // The first key, the last, the step between them.
        (0..3).for_each(|_| replies.integer(key));
        // Categories, tips, key specifications, subcommands.
        (0..4).for_each(|_| replies.set(0));
    }

    fn tell_docs(&self, replies: &mut Replies) {
        const SINCE: &str = env!("CARGO_PKG_VERSION");
        replies.bulk(self.name.as_bytes());
        replies.map(if self.arguments.is_empty() { 4 } else { 5 });
        for (name, text) in [("summary", self.summary), ("since", SINCE), ("group", self.group), ("complexity", "O(1)")]
        {
            replies.bulk(name.as_bytes());
            replies.bulk(text.as_bytes());
        }
        if !self.arguments.is_empty() {
            replies.bulk(b"arguments");
            replies.array(self.arguments.len());
            self.arguments.iter().for_each(|argument| argument.tell(replies));
        }
    }
}

impl Argument {
    fn tell(&self, replies: &mut Replies) {
        let Argument(name, kind, need) = self;
        let flags: &[&str] = match need {
            Always => &[],
            Optional => &["optional"],
            Repeated => &["optional", "multiple"],
        };
        replies.map(if flags.is_empty() { 2 } else { 3 });
        for (name, text) in [("name", name), ("type", kind)] {
            replies.bulk(name.as_bytes());
            replies.bulk(text.as_bytes());
        }
        if !flags.is_empty() {
            replies.bulk(b"flags");
            replies.set(flags.len());
            flags.iter().for_each(|flag| replies.simple(flag));
        }
    }
}
