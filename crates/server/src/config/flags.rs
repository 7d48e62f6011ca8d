//! The flags of `tollgate serve`: one for each setting. Rule files may also be arguments without a flag.

use clap::builder::StyledStr;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use tollgate_rules::problem::TextFault;

use super::origin::{ConfigProblems, Origin, SettingLayer, SettingValue};
use super::table::{Setting, SettingKind, table};

/// The arguments without a flag: rule files, as with `--rules`.
pub const PATHS: &str = "PATH";

/// The setting that [`PATHS`] add to.
const RULES: &str = "rules";

/// Other names of flags that can only mean one setting.
const ALIASES: [(&str, &str); 1] = [("store", "redis")];

/// Flags of other servers that could mean several listeners. They are parsed, so that the error can say what to write.
const FOREIGN: [&str; 5] = ["port", "listen", "bind", "addr", "host"];

/// The port in remedies if the flag has none.
const EXAMPLE_PORT: u16 = 8080;

/// A command with a flag for every setting, and with rule files as arguments.
pub fn command(command: Command) -> Command {
    let paths = Arg::new(PATHS)
        .help("Rule files, or directories of them; the same as --rules")
        .num_args(0..)
        .value_parser(value_parser!(String));
    let foreign = FOREIGN.map(|name| Arg::new(name).long(name).hide(true).num_args(1));
    command.arg(paths).args(table().iter().map(argument)).args(foreign)
}

/// The values of the flags that are present.
pub(super) fn read(matches: &ArgMatches) -> SettingLayer {
    let value = |setting: &'static Setting| {
        let texts = |id: &str| matches.get_many::<String>(id).into_iter().flatten().map(String::as_str);
        let paths = (setting.name == RULES).then(|| texts(PATHS)).into_iter().flatten();
        let texts: Vec<&str> = texts(&setting.name).chain(paths).collect();
        let origin = Origin::Flag(setting.flag());
        (!texts.is_empty()).then(|| (&*setting.name, SettingValue { text: Ok(texts.join(",")), origin }))
    };
    table().iter().filter_map(value).collect()
}

/// Reports flags of other servers, with the flag to write instead.
pub(super) fn report_foreign(matches: &ArgMatches, problems: &mut ConfigProblems) {
    for name in FOREIGN {
        let Some(text) = matches.get_one::<String>(name) else { continue };
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, port),
            None if text.bytes().all(|byte| byte.is_ascii_digit()) => ("", &**text),
            None => (&**text, ""),
        };
        let is_host = |host: &str| host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._[]:".contains(&byte));
        let host = if host.is_empty() || !is_host(host) { "127.0.0.1" } else { host };
        let port = port.parse().unwrap_or(EXAMPLE_PORT);
        let message = format!("there is no flag --{name}: each protocol has an address of its own");
        let remedy = format!(
            "write --http {host}:{port} for checks as JSON, --grpc {host}:{port} for Envoy, or --admin {host}:{port} for the dashboard"
        );
        problems.error(format!("--{name}"), TextFault::new(message, remedy));
    }
}

fn argument(setting: &'static Setting) -> Arg {
    let help = match setting.kind {
        SettingKind::Switch => setting.help.to_string(),
        _ => format!("{} [default: {}]", setting.help, setting.default),
    };
    let alias = ALIASES.iter().find(|(name, _)| setting.name == *name).map(|(_, alias)| *alias);
    let argument = Arg::new(&*setting.name)
        .long(setting.long())
        .alias(alias)
        .value_name(setting.kind.hint())
        .help(StyledStr::from(help))
        .help_heading(setting.group)
        .action(if setting.kind.is_list() { ArgAction::Append } else { ArgAction::Set });
    if setting.kind == SettingKind::Switch {
        // `--shadow-mode` alone means true; without `require_equals` it would consume the next argument.
        return argument.num_args(0..=1).require_equals(true).default_missing_value("true");
    }
    argument
}
