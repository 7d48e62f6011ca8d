//! Parsing commands, and their errors.

use std::fmt;

use tollgate::{LimitError, Span, Throttle};

use super::catalogue::{self, CommandKind};
use super::frame::{Arguments, integer};
use super::reply::Protocol;

/// A parsed command: a throttle, or any other.
#[derive(Debug)]
pub(super) enum ParsedCommand<'a> {
    Throttle(ThrottleCommand<'a>),
    Other(Command<'a>),
}

/// A command that needs no decision.
#[derive(Debug)]
pub(super) enum Command<'a> {
    Ping(Option<&'a [u8]>),
    Echo(&'a [u8]),
    Quit,
    Reset,
    Hello(HelloOptions<'a>),
    /// Any command whose reply is OK.
    Nothing,
    Client(ClientCommand<'a>),
    Query(CommandQuery<'a>),
    Info(Arguments<'a>),
}

/// A throttle: a key, its limit, and the units to take.
#[derive(Debug)]
pub(super) struct ThrottleCommand<'a> {
    pub(super) dialect: ThrottleDialect,
    pub(super) key: &'a [u8],
    pub(super) throttle: Throttle,
    pub(super) units: u64,
}

/// The dialect of a throttle: its arguments and its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThrottleDialect {
    /// redis-cell: the key holds one more than `max_burst`.
    RedisCell,
    /// throttlecrab: the key holds `max_burst`.
    Throttlecrab,
}

/// The options of `HELLO`.
#[derive(Debug, Default)]
pub(super) struct HelloOptions<'a> {
    pub(super) protocol: Option<Protocol>,
    pub(super) name: Option<&'a [u8]>,
}

/// The subcommands of `CLIENT`.
#[derive(Debug)]
pub(super) enum ClientCommand<'a> {
    Id,
    Info,
    GetName,
    SetName(&'a [u8]),
    Help,
}

/// The subcommands of `COMMAND`. Names are the arguments from this index on.
#[derive(Debug)]
pub(super) enum CommandQuery<'a> {
    Count,
    List,
    Info(Arguments<'a>, usize),
    Docs(Arguments<'a>, usize),
    Help,
}

/// An error of a command, in Redis's words where it has some.
#[derive(Debug)]
pub(super) enum CommandError<'a> {
    Unknown(Arguments<'a>),
    UnknownSubcommand { of: &'static str, given: &'a [u8] },
    Arity(&'static str),
    NotAnInteger,
    NotPositive,
    LongPeriod,
    Uncountable(LimitError, ThrottleDialect),
    Database,
    DatabaseNumber,
    Version,
    UnknownVersion,
    HelloOption(&'a [u8]),
    NoPassword,
    WrongPassword,
    Name,
    LongName,
    Attribute(&'a [u8]),
    Syntax,
}

/// The maximum length of a client's name, in bytes.
pub(super) const MAX_NAME_BYTES: usize = 256;
/// The longest period, in seconds: a hundred years, whose end clocks can still represent.
pub(super) const MAX_PERIOD_SECONDS: u64 = 100 * 365 * 86_400;
/// How much of the input an error repeats, in bytes.
const MAX_SHOWN_BYTES: usize = 128;

/// Parses a command, which has at least one argument.
// Inlined into both callers; one of them runs a million times a second.
#[inline(always)]
pub(super) fn parse<'a>(arguments: Arguments<'a>) -> Result<ParsedCommand<'a>, CommandError<'a>> {
    let Some(spec) = arguments.get(0).and_then(catalogue::find) else {
        return Err(CommandError::Unknown(arguments));
    };
    if !(spec.min..=spec.max).contains(&arguments.len()) {
        return Err(CommandError::Arity(spec.name));
    }
    let command = match spec.kind {
        CommandKind::CellThrottle => {
            return throttle(arguments, ThrottleDialect::RedisCell).map(ParsedCommand::Throttle);
        }
        CommandKind::CrabThrottle => {
            return throttle(arguments, ThrottleDialect::Throttlecrab).map(ParsedCommand::Throttle);
        }
        CommandKind::Ping => Command::Ping(arguments.get(1)),
        CommandKind::Echo => Command::Echo(arguments.get(1).unwrap_or_default()),
        CommandKind::Quit => Command::Quit,
        CommandKind::Reset => Command::Reset,
        CommandKind::Hello => Command::Hello(hello(arguments)?),
        CommandKind::Auth => auth(arguments)?,
        CommandKind::Select => match arguments.get(1).and_then(integer) {
            Some(0) => Command::Nothing,
            Some(_) => return Err(CommandError::Database),
            None => return Err(CommandError::DatabaseNumber),
        },
        CommandKind::Client => client(arguments)?,
        CommandKind::Command => Command::Query(command_query(arguments)?),
        CommandKind::Info => Command::Info(arguments),
    };
    Ok(ParsedCommand::Other(command))
}

/// `key max_burst count period [quantity]`.
fn throttle<'a>(arguments: Arguments<'a>, dialect: ThrottleDialect) -> Result<ThrottleCommand<'a>, CommandError<'a>> {
    let at_least = |at: usize, min: i64| {
        let number = arguments.get(at).and_then(integer).ok_or(CommandError::NotAnInteger)?;
        if number < min { Err(CommandError::NotPositive) } else { Ok(number.unsigned_abs()) }
    };
    let burst = match dialect {
        ThrottleDialect::RedisCell => at_least(2, 0)? + 1,
        ThrottleDialect::Throttlecrab => at_least(2, 1)?,
    };
    let (count, period) = (at_least(3, 1)?, at_least(4, 1)?);
    if period > MAX_PERIOD_SECONDS {
        return Err(CommandError::LongPeriod);
    }
    let throttle = Throttle { burst, count, period: Span::from_secs(period) };
    let units = if arguments.len() > 5 { at_least(5, 0)? } else { 1 };
    Ok(ThrottleCommand { dialect, key: arguments.get(1).unwrap_or_default(), throttle, units })
}

/// `[version [AUTH user password] [SETNAME name]]`.
fn hello<'a>(arguments: Arguments<'a>) -> Result<HelloOptions<'a>, CommandError<'a>> {
    let mut hello = HelloOptions::default();
    if let Some(version) = arguments.get(1) {
        hello.protocol = match integer(version).ok_or(CommandError::Version)? {
            2 => Some(Protocol::Two),
            3 => Some(Protocol::Three),
            _ => return Err(CommandError::UnknownVersion),
        };
    }
    let mut at = 2;
    while let Some(option) = arguments.get(at) {
        let (first, second) = (arguments.get(at + 1), arguments.get(at + 2));
        if option.eq_ignore_ascii_case(b"auth") && second.is_some() {
            check_user(first)?;
            at += 3;
        } else if option.eq_ignore_ascii_case(b"setname")
            && let Some(name) = first
        {
            hello.name = Some(parse_client_name(name)?);
            at += 2;
        } else {
            return Err(CommandError::HelloOption(option));
        }
    }
    Ok(hello)
}

/// `[user] password`.
fn auth<'a>(arguments: Arguments<'a>) -> Result<Command<'a>, CommandError<'a>> {
    match arguments.len() {
        2 => Err(CommandError::NoPassword),
        3 => check_user(arguments.get(1)).map(|()| Command::Nothing),
        _ => Err(CommandError::Syntax),
    }
}

/// There is one user without a password: as in a Redis without one, any password is accepted.
fn check_user<'a>(user: Option<&[u8]>) -> Result<(), CommandError<'a>> {
    if user == Some(b"default") { Ok(()) } else { Err(CommandError::WrongPassword) }
}

fn client<'a>(arguments: Arguments<'a>) -> Result<Command<'a>, CommandError<'a>> {
    const OF: &str = "CLIENT";
    let given = arguments.get(1).unwrap_or_default();
    let is = |name: &str| given.eq_ignore_ascii_case(name.as_bytes());
    let needs = |length: usize, name: &'static str| {
        if arguments.len() == length { Ok(()) } else { Err(CommandError::Arity(name)) }
    };
    let argument = arguments.get(2).unwrap_or_default();
    if is("setname") {
        needs(3, "client|setname")?;
        return parse_client_name(argument).map(|name| Command::Client(ClientCommand::SetName(name)));
    } else if is("setinfo") {
        needs(4, "client|setinfo")?;
        let known = [&b"lib-name"[..], b"lib-ver"].iter().any(|known| argument.eq_ignore_ascii_case(known));
        return if known { Ok(Command::Nothing) } else { Err(CommandError::Attribute(argument)) };
    } else if is("no-evict") || is("no-touch") {
        needs(3, if is("no-evict") { "client|no-evict" } else { "client|no-touch" })?;
        let known = [&b"on"[..], b"off"].iter().any(|known| argument.eq_ignore_ascii_case(known));
        return if known { Ok(Command::Nothing) } else { Err(CommandError::Syntax) };
    }
    let (name, client) = match () {
        () if is("id") => ("client|id", ClientCommand::Id),
        () if is("info") => ("client|info", ClientCommand::Info),
        () if is("getname") => ("client|getname", ClientCommand::GetName),
        () if is("help") => ("client|help", ClientCommand::Help),
        () => return Err(CommandError::UnknownSubcommand { of: OF, given }),
    };
    needs(2, name).map(|()| Command::Client(client))
}

fn command_query<'a>(arguments: Arguments<'a>) -> Result<CommandQuery<'a>, CommandError<'a>> {
    let Some(given) = arguments.get(1) else { return Ok(CommandQuery::Info(arguments, 1)) };
    let is = |name: &str| given.eq_ignore_ascii_case(name.as_bytes());
    let (name, query) = match () {
        () if is("info") => return Ok(CommandQuery::Info(arguments, 2)),
        () if is("docs") => return Ok(CommandQuery::Docs(arguments, 2)),
        () if is("count") => ("command|count", CommandQuery::Count),
        () if is("list") => ("command|list", CommandQuery::List),
        () if is("help") => ("command|help", CommandQuery::Help),
        () => return Err(CommandError::UnknownSubcommand { of: "COMMAND", given }),
    };
    if arguments.len() == 2 { Ok(query) } else { Err(CommandError::Arity(name)) }
}

fn parse_client_name(name: &[u8]) -> Result<&[u8], CommandError<'_>> {
    if !name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        Err(CommandError::Name)
    } else if name.len() > MAX_NAME_BYTES {
        Err(CommandError::LongName)
    } else {
        Ok(name)
    }
}

impl CommandError<'_> {
    /// The error code for programs.
    pub(super) fn code(&self) -> &'static str {
        match self {
            CommandError::UnknownVersion => "NOPROTO",
            CommandError::WrongPassword => "WRONGPASS",
            _ => "ERR",
        }
    }

    /// Whether the error is in the arguments of a throttle.
    pub(super) fn is_throttle_error(&self) -> bool {
        match self {
            CommandError::NotAnInteger
            | CommandError::NotPositive
            | CommandError::LongPeriod
            | CommandError::Uncountable(..) => true,
            CommandError::Arity(name) => matches!(*name, "cl.throttle" | "throttle"),
            _ => false,
        }
    }
}

impl fmt::Display for CommandError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandError::Unknown(arguments) => unknown(*arguments, f),
            CommandError::UnknownSubcommand { of, given } => {
                write!(f, "unknown subcommand '{}'. Try {of} HELP.", shown(given, MAX_SHOWN_BYTES))
            }
            CommandError::Arity(name) => write!(f, "wrong number of arguments for '{name}' command"),
            CommandError::NotAnInteger | CommandError::DatabaseNumber => {
                f.write_str("value is not an integer or out of range")
            }
            CommandError::NotPositive => f.write_str("value is out of range, must be positive"),
            CommandError::LongPeriod => write!(f, "value is out of range, period may be at most {MAX_PERIOD_SECONDS}"),
            CommandError::Uncountable(LimitError::TooLarge { max }, dialect) => {
                let max = max.saturating_sub(u64::from(*dialect == ThrottleDialect::RedisCell));
                write!(f, "value is out of range, max_burst and count may be at most {max} in a period of this length")
            }
            CommandError::Uncountable(other, _) => write!(f, "value is out of range, {other}"),
            CommandError::Database => f.write_str("DB index is out of range"),
            CommandError::Version => f.write_str("Protocol version is not an integer or out of range"),
            CommandError::UnknownVersion => f.write_str("unsupported protocol version"),
            CommandError::HelloOption(option) => {
                write!(f, "Syntax error in HELLO option '{}'", shown(option, MAX_SHOWN_BYTES))
            }
            CommandError::NoPassword => f.write_str(
                "AUTH <password> called without any password configured for the default user. \
                 Are you sure your configuration is correct?",
            ),
            CommandError::WrongPassword => f.write_str("invalid username-password pair or user is disabled."),
            CommandError::Name => f.write_str("Client names cannot contain spaces, newlines or special characters."),
            CommandError::LongName => write!(f, "Client names cannot be longer than {MAX_NAME_BYTES} bytes."),
            CommandError::Attribute(name) => write!(f, "Unrecognized option '{}'", shown(name, MAX_SHOWN_BYTES)),
            CommandError::Syntax => f.write_str("syntax error"),
        }
    }
}

/// Repeats the beginning of an unknown command.
fn unknown(arguments: Arguments<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let name = arguments.get(0).unwrap_or_default();
    write!(f, "unknown command '{}', with args beginning with: ", shown(name, MAX_SHOWN_BYTES))?;
    let mut left = MAX_SHOWN_BYTES;
    for argument in arguments.iter().skip(1) {
        if left == 0 {
            break;
        }
        write!(f, "'{}' ", shown(argument, left))?;
        // With the quotes and the space.
        left = left.saturating_sub(argument.len() + 3);
    }
    Ok(())
}

fn shown(bytes: &[u8], max: usize) -> impl fmt::Display {
    String::from_utf8_lossy(&bytes[..bytes.len().min(max)])
}
