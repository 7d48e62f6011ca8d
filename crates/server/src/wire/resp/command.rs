//! Arguments to commands, with everything that can be wrong with them.

use std::fmt;

use tollgate::{LimitError, Span, Throttle};

use super::catalogue::{self, Kind};
use super::frame::{Arguments, integer};
use super::reply::Protocol;

/// What a client asks: a decision, or anything else.
#[derive(Debug)]
pub(super) enum Order<'a> {
    Throttle(Asked<'a>),
    Other(Command<'a>),
}

/// What is answered without a decision.
#[derive(Debug)]
pub(super) enum Command<'a> {
    Ping(Option<&'a [u8]>),
    Echo(&'a [u8]),
    Quit,
    Reset,
    Hello(Hello<'a>),
    /// Anything that is answered by OK and nothing else.
    Nothing,
    Client(Client<'a>),
    Catalogue(Catalogue<'a>),
    Info(Arguments<'a>),
}

/// A key, the limit that came with it, and how much of that is asked for.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub(super) form: Form,
    pub(super) key: &'a [u8],
    pub(super) throttle: Throttle,
    pub(super) units: u64,
}

/// Whose answer is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// redis-cell's: the key holds one more than `max_burst`.
    Cell,
    /// throttlecrab's: the key holds `max_burst`.
    Crab,
}

/// The beginning of a conversation.
#[derive(Debug, Default)]
pub(super) struct Hello<'a> {
    pub(super) protocol: Option<Protocol>,
    pub(super) name: Option<&'a [u8]>,
}

/// What a client says or asks of itself.
#[derive(Debug)]
pub(super) enum Client<'a> {
    Id,
    Info,
    GetName,
    SetName(&'a [u8]),
    Help,
}

/// What a client asks about commands. The names are the arguments from this place on.
#[derive(Debug)]
pub(super) enum Catalogue<'a> {
    Count,
    List,
    Info(Arguments<'a>, usize),
    Docs(Arguments<'a>, usize),
    Help,
}

/// What is wrong with a command, in Redis's words where it has some.
#[derive(Debug)]
pub(super) enum Fault<'a> {
    Unknown(Arguments<'a>),
    UnknownSubcommand { of: &'static str, given: &'a [u8] },
    Arity(&'static str),
    NotAnInteger,
    NotPositive,
    LongPeriod,
    Uncountable(LimitError, Form),
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

/// The longest name that a client may give itself.
pub(super) const LONGEST_NAME: usize = 256;
/// The longest period, in seconds: a hundred years, which clocks can still tell the end of.
pub(super) const LONGEST_PERIOD: u64 = 100 * 365 * 86_400;
/// How much of what was sent is shown in an error.
const MOST_SHOWN: usize = 128;

/// What the arguments mean; they are at least one.
// Two call it, and one of them a million times a second.
#[inline(always)]
pub(super) fn read<'a>(arguments: Arguments<'a>) -> Result<Order<'a>, Fault<'a>> {
    let Some(entry) = arguments.get(0).and_then(catalogue::find) else {
        return Err(Fault::Unknown(arguments));
    };
    if !(entry.least..=entry.most).contains(&arguments.len()) {
        return Err(Fault::Arity(entry.name));
    }
    let command = match entry.kind {
        Kind::CellThrottle => return asked(arguments, Form::Cell).map(Order::Throttle),
        Kind::CrabThrottle => return asked(arguments, Form::Crab).map(Order::Throttle),
        Kind::Ping => Command::Ping(arguments.get(1)),
        Kind::Echo => Command::Echo(arguments.get(1).unwrap_or_default()),
        Kind::Quit => Command::Quit,
        Kind::Reset => Command::Reset,
        Kind::Hello => Command::Hello(hello(arguments)?),
        Kind::Auth => auth(arguments)?,
        Kind::Select => match arguments.get(1).and_then(integer) {
            Some(0) => Command::Nothing,
            Some(_) => return Err(Fault::Database),
            None => return Err(Fault::DatabaseNumber),
        },
        Kind::Client => client(arguments)?,
        Kind::Command => Command::Catalogue(about_commands(arguments)?),
        Kind::Info => Command::Info(arguments),
    };
    Ok(Order::Other(command))
}

/// `key max_burst count period [quantity]`.
fn asked<'a>(arguments: Arguments<'a>, form: Form) -> Result<Asked<'a>, Fault<'a>> {
    let at_least = |at: usize, least: i64| {
        let number = arguments.get(at).and_then(integer).ok_or(Fault::NotAnInteger)?;
        if number < least { Err(Fault::NotPositive) } else { Ok(number.unsigned_abs()) }
    };
    let burst = match form {
        Form::Cell => at_least(2, 0)? + 1,
        Form::Crab => at_least(2, 1)?,
    };
    let (count, period) = (at_least(3, 1)?, at_least(4, 1)?);
    if period > LONGEST_PERIOD {
        return Err(Fault::LongPeriod);
    }
    let throttle = Throttle { burst, count, period: Span::from_secs(period) };
    let units = if arguments.len() > 5 { at_least(5, 0)? } else { 1 };
    Ok(Asked { form, key: arguments.get(1).unwrap_or_default(), throttle, units })
}

/// `[version [AUTH user password] [SETNAME name]]`.
fn hello<'a>(arguments: Arguments<'a>) -> Result<Hello<'a>, Fault<'a>> {
    let mut hello = Hello::default();
    if let Some(version) = arguments.get(1) {
        hello.protocol = match integer(version).ok_or(Fault::Version)? {
            2 => Some(Protocol::Two),
            3 => Some(Protocol::Three),
            _ => return Err(Fault::UnknownVersion),
        };
    }
    let mut at = 2;
    while let Some(option) = arguments.get(at) {
        let (first, second) = (arguments.get(at + 1), arguments.get(at + 2));
        if option.eq_ignore_ascii_case(b"auth") && second.is_some() {
            authenticated(first)?;
            at += 3;
        } else if option.eq_ignore_ascii_case(b"setname")
            && let Some(name) = first
        {
            hello.name = Some(checked_name(name)?);
            at += 2;
        } else {
            return Err(Fault::HelloOption(option));
        }
    }
    Ok(hello)
}

/// `[user] password`.
fn auth<'a>(arguments: Arguments<'a>) -> Result<Command<'a>, Fault<'a>> {
    match arguments.len() {
        2 => Err(Fault::NoPassword),
        3 => authenticated(arguments.get(1)).map(|()| Command::Nothing),
        _ => Err(Fault::Syntax),
    }
}

/// There is one user, who has no password: as in a Redis that was told of none, any will do.
fn authenticated<'a>(user: Option<&[u8]>) -> Result<(), Fault<'a>> {
    if user == Some(b"default") { Ok(()) } else { Err(Fault::WrongPassword) }
}

fn client<'a>(arguments: Arguments<'a>) -> Result<Command<'a>, Fault<'a>> {
    const OF: &str = "CLIENT";
    let given = arguments.get(1).unwrap_or_default();
    let is = |name: &str| given.eq_ignore_ascii_case(name.as_bytes());
    let needs = |length: usize, name: &'static str| {
        if arguments.len() == length { Ok(()) } else { Err(Fault::Arity(name)) }
    };
    let argument = arguments.get(2).unwrap_or_default();
    if is("setname") {
        needs(3, "client|setname")?;
        return checked_name(argument).map(|name| Command::Client(Client::SetName(name)));
    } else if is("setinfo") {
        needs(4, "client|setinfo")?;
        let known = [&b"lib-name"[..], b"lib-ver"].iter().any(|known| argument.eq_ignore_ascii_case(known));
        return if known { Ok(Command::Nothing) } else { Err(Fault::Attribute(argument)) };
    } else if is("no-evict") || is("no-touch") {
        needs(3, if is("no-evict") { "client|no-evict" } else { "client|no-touch" })?;
        let known = [&b"on"[..], b"off"].iter().any(|known| argument.eq_ignore_ascii_case(known));
        return if known { Ok(Command::Nothing) } else { Err(Fault::Syntax) };
    }
    let (name, client) = match () {
        () if is("id") => ("client|id", Client::Id),
        () if is("info") => ("client|info", Client::Info),
        () if is("getname") => ("client|getname", Client::GetName),
        () if is("help") => ("client|help", Client::Help),
        () => return Err(Fault::UnknownSubcommand { of: OF, given }),
    };
    needs(2, name).map(|()| Command::Client(client))
}

fn about_commands<'a>(arguments: Arguments<'a>) -> Result<Catalogue<'a>, Fault<'a>> {
    let Some(given) = arguments.get(1) else { return Ok(Catalogue::Info(arguments, 1)) };
    let is = |name: &str| given.eq_ignore_ascii_case(name.as_bytes());
    let (name, catalogue) = match () {
        () if is("info") => return Ok(Catalogue::Info(arguments, 2)),
        () if is("docs") => return Ok(Catalogue::Docs(arguments, 2)),
        () if is("count") => ("command|count", Catalogue::Count),
        () if is("list") => ("command|list", Catalogue::List),
        () if is("help") => ("command|help", Catalogue::Help),
        () => return Err(Fault::UnknownSubcommand { of: "COMMAND", given }),
    };
    if arguments.len() == 2 { Ok(catalogue) } else { Err(Fault::Arity(name)) }
}

fn checked_name(name: &[u8]) -> Result<&[u8], Fault<'_>> {
    if !name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        Err(Fault::Name)
    } else if name.len() > LONGEST_NAME {
        Err(Fault::LongName)
    } else {
        Ok(name)
    }
}

impl Fault<'_> {
    /// The word that programs look at.
    pub(super) fn code(&self) -> &'static str {
        match self {
            Fault::UnknownVersion => "NOPROTO",
            Fault::WrongPassword => "WRONGPASS",
            _ => "ERR",
        }
    }

    /// Whether what is wrong are the arguments of a throttle.
    pub(super) fn is_of_a_throttle(&self) -> bool {
        match self {
            Fault::NotAnInteger | Fault::NotPositive | Fault::LongPeriod | Fault::Uncountable(..) => true,
            Fault::Arity(name) => matches!(*name, "cl.throttle" | "throttle"),
            _ => false,
        }
    }
}

impl fmt::Display for Fault<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Unknown(arguments) => unknown(*arguments, f),
            Fault::UnknownSubcommand { of, given } => {
                write!(f, "unknown subcommand '{}'. Try {of} HELP.", shown(given, MOST_SHOWN))
            }
            Fault::Arity(name) => write!(f, "wrong number of arguments for '{name}' command"),
            Fault::NotAnInteger | Fault::DatabaseNumber => f.write_str("value is not an integer or out of range"),
            Fault::NotPositive => f.write_str("value is out of range, must be positive"),
            Fault::LongPeriod => write!(f, "value is out of range, period may be at most {LONGEST_PERIOD}"),
            Fault::Uncountable(LimitError::TooLarge { most }, form) => {
                let most = most.saturating_sub(u64::from(*form == Form::Cell));
                write!(f, "value is out of range, max_burst and count may be at most {most} in a period of this length")
            }
            Fault::Uncountable(other, _) => write!(f, "value is out of range, {other}"),
            Fault::Database => f.write_str("DB index is out of range"),
            Fault::Version => f.write_str("Protocol version is not an integer or out of range"),
            Fault::UnknownVersion => f.write_str("unsupported protocol version"),
            Fault::HelloOption(option) => {
                write!(f, "Syntax error in HELLO option '{}'", shown(option, MOST_SHOWN))
            }
            Fault::NoPassword => f.write_str(
                "AUTH <password> called without any password configured for the default user. \
                 Are you sure your configuration is correct?",
            ),
            Fault::WrongPassword => f.write_str("invalid username-password pair or user is disabled."),
            Fault::Name => f.write_str("Client names cannot contain spaces, newlines or special characters."),
            Fault::LongName => write!(f, "Client names cannot be longer than {LONGEST_NAME} bytes."),
            Fault::Attribute(name) => write!(f, "Unrecognized option '{}'", shown(name, MOST_SHOWN)),
            Fault::Syntax => f.write_str("syntax error"),
        }
    }
}

/// Shows the beginning of what was sent: enough to recognise it.
fn unknown(arguments: Arguments<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let name = arguments.get(0).unwrap_or_default();
    write!(f, "unknown command '{}', with args beginning with: ", shown(name, MOST_SHOWN))?;
    let mut left = MOST_SHOWN;
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

fn shown(bytes: &[u8], most: usize) -> impl fmt::Display {
    String::from_utf8_lossy(&bytes[..bytes.len().min(most)])
}
