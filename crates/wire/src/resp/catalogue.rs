//! The supported commands, and their descriptions for `COMMAND`.

use super::frame::Arguments;
use super::reply::Replies;

/// The description of a command.
#[derive(Debug)]
pub(super) struct CommandSpec {
    pub(super) name: &'static str,
    pub(super) kind: CommandKind,
    /// The number of arguments, including the name.
    pub(super) min: usize,
    pub(super) max: usize,
    /// Whether its first argument is a key.
    has_key: bool,
    flags: &'static [&'static str],
    group: &'static str,
    summary: &'static str,
    arguments: &'static [ArgumentSpec],
}

/// The commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandKind {
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

/// An argument: its name, its type, and whether it is required.
#[derive(Debug)]
struct ArgumentSpec(&'static str, &'static str, Presence);

#[derive(Debug, PartialEq, Eq)]
enum Presence {
    Always,
    Optional,
    Repeated,
}

use Presence::{Always, Optional, Repeated};

/// For commands with any number of arguments.
const ANY: usize = usize::MAX;
const THROTTLE: &[ArgumentSpec] = &[
    ArgumentSpec("key", "key", Always),
    ArgumentSpec("max_burst", "integer", Always),
    ArgumentSpec("count", "integer", Always),
    ArgumentSpec("period", "integer", Always),
    ArgumentSpec("quantity", "integer", Optional),
];
const FAST: &[&str] = &["fast"];
const ALWAYS_SERVED: &[&str] = &["loading", "stale", "fast"];

/// The most frequent command first.
static COMMANDS: [CommandSpec; 12] = [
    CommandSpec {
        name: "cl.throttle",
        kind: CommandKind::CellThrottle,
        min: 5,
        max: 6,
        has_key: true,
        flags: &["write", "fast"],
        group: "generic",
        summary: "Takes units from a key's limit, as redis-cell does",
        arguments: THROTTLE,
    },
    CommandSpec {
        name: "throttle",
        kind: CommandKind::CrabThrottle,
        min: 5,
        max: 6,
        has_key: true,
        flags: &["write", "fast"],
        group: "generic",
        summary: "Takes units from a key's limit, as throttlecrab does",
        arguments: THROTTLE,
    },
    CommandSpec {
        name: "ping",
        kind: CommandKind::Ping,
        min: 1,
        max: 2,
        has_key: false,
        flags: FAST,
        group: "connection",
        summary: "Returns PONG, or the message",
        arguments: &[ArgumentSpec("message", "string", Optional)],
    },
    CommandSpec {
        name: "echo",
        kind: CommandKind::Echo,
        min: 2,
        max: 2,
        has_key: false,
        flags: FAST,
        group: "connection",
        summary: "Returns the message",
        arguments: &[ArgumentSpec("message", "string", Always)],
    },
    CommandSpec {
        name: "quit",
        kind: CommandKind::Quit,
        min: 1,
        max: ANY,
        has_key: false,
        flags: ALWAYS_SERVED,
        group: "connection",
        summary: "Closes the connection",
        arguments: &[],
    },
    CommandSpec {
        name: "hello",
        kind: CommandKind::Hello,
        min: 1,
        max: ANY,
        has_key: false,
        flags: ALWAYS_SERVED,
        group: "connection",
        summary: "Describes the server, and selects the protocol version",
        arguments: &[ArgumentSpec("protover", "integer", Optional), ArgumentSpec("option", "string", Repeated)],
    },
    CommandSpec {
        name: "reset",
        kind: CommandKind::Reset,
        min: 1,
        max: 1,
        has_key: false,
        flags: ALWAYS_SERVED,
        group: "connection",
        summary: "Resets the connection to its initial state",
        arguments: &[],
    },
    CommandSpec {
        name: "auth",
        kind: CommandKind::Auth,
        min: 2,
        max: ANY,
        has_key: false,
        flags: ALWAYS_SERVED,
        group: "connection",
        summary: "Accepts any password of the default user",
        arguments: &[ArgumentSpec("username", "string", Optional), ArgumentSpec("password", "string", Always)],
    },
    CommandSpec {
        name: "select",
        kind: CommandKind::Select,
        min: 2,
        max: 2,
        has_key: false,
        flags: ALWAYS_SERVED,
        group: "connection",
        summary: "Accepts database 0, the only one",
        arguments: &[ArgumentSpec("index", "integer", Always)],
    },
    CommandSpec {
        name: "client",
        kind: CommandKind::Client,
        min: 2,
        max: ANY,
        has_key: false,
        flags: ALWAYS_SERVED,
        group: "connection",
        summary: "Describes this connection: ID, INFO, GETNAME, SETNAME, SETINFO, NO-EVICT, NO-TOUCH",
        arguments: &[ArgumentSpec("subcommand", "string", Always), ArgumentSpec("argument", "string", Repeated)],
    },
    CommandSpec {
        name: "command",
        kind: CommandKind::Command,
        min: 1,
        max: ANY,
        has_key: false,
        flags: ALWAYS_SERVED,
        group: "server",
        summary: "Describes the commands: COUNT, LIST, INFO, DOCS",
        arguments: &[ArgumentSpec("subcommand", "string", Optional), ArgumentSpec("name", "string", Repeated)],
    },
    CommandSpec {
        name: "info",
        kind: CommandKind::Info,
        min: 1,
        max: ANY,
        has_key: false,
        flags: &["loading", "stale"],
        group: "server",
        summary: "Describes the server: server, clients, stats",
        arguments: &[ArgumentSpec("section", "string", Repeated)],
    },
];

/// Finds a command by its name, ignoring case.
pub(super) fn find(name: &[u8]) -> Option<&'static CommandSpec> {
    COMMANDS.iter().find(|spec| spec.name.as_bytes().eq_ignore_ascii_case(name))
}

/// `COMMAND COUNT`.
pub(super) fn count(replies: &mut Replies) {
    replies.integer(COMMANDS.len() as i64);
}

/// `COMMAND LIST`.
pub(super) fn list(replies: &mut Replies) {
    replies.array(COMMANDS.len());
    COMMANDS.iter().for_each(|entry| replies.bulk(entry.name.as_bytes()));
}

/// `COMMAND` and `COMMAND INFO`: these commands, or all. An unknown one is null.
pub(super) fn info(names: Arguments<'_>, skip: usize, replies: &mut Replies) {
    if names.len() <= skip {
        replies.array(COMMANDS.len());
        COMMANDS.iter().for_each(|spec| spec.write_info(replies));
        return;
    }
    replies.array(names.len() - skip);
    for name in names.iter().skip(skip) {
        match find(name) {
            Some(spec) => spec.write_info(replies),
            None => replies.null(),
        }
    }
}

/// `COMMAND DOCS`: these commands, or all. Unknown ones are omitted.
pub(super) fn docs(names: Arguments<'_>, skip: usize, replies: &mut Replies) {
    if names.len() <= skip {
        replies.map(COMMANDS.len());
        COMMANDS.iter().for_each(|spec| spec.write_docs(replies));
        return;
    }
    let found = || names.iter().skip(skip).filter_map(find);
    replies.map(found().count());
    found().for_each(|spec| spec.write_docs(replies));
}

impl CommandSpec {
    /// Redis's arity: the number of arguments with the name, negative if there may be more.
    fn arity(&self) -> i64 {
        let min = self.min as i64;
        if self.min == self.max { min } else { -min }
    }

    fn write_info(&self, replies: &mut Replies) {
        let key = i64::from(self.has_key);
        replies.array(10);
        replies.bulk(self.name.as_bytes());
        replies.integer(self.arity());
        replies.set(self.flags.len());
        self.flags.iter().for_each(|flag| replies.simple(flag));
        // The first key, the last, and the step.
        (0..3).for_each(|_| replies.integer(key));
        // Categories, tips, key specifications, subcommands.
        (0..4).for_each(|_| replies.set(0));
    }

    fn write_docs(&self, replies: &mut Replies) {
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
            self.arguments.iter().for_each(|argument| argument.write(replies));
        }
    }
}

impl ArgumentSpec {
    fn write(&self, replies: &mut Replies) {
        let ArgumentSpec(name, kind, need) = self;
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
