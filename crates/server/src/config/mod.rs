//! The settings of `tollgate serve`: flags, `TOLLGATE_*` variables, `tollgate.yaml` and, if asked, envoyproxy/ratelimit's
//! environment, in that order of strength.
//!
//! Every setting is a row of one [table](table::table). Every value is a text that knows where it came from; the strongest
//! becomes a part of [`Settings`], or a [`Problem`]. All problems are told at once.

mod auth;
mod build;
mod control;
mod environment;
mod envoy;
mod file;
mod observe;
mod origin;
mod print;
mod read;
mod receipts;
#[cfg(test)]
mod reference;
mod settings;
mod store;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod values;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::builder::StyledStr;
use clap::{Arg, ArgAction, ArgMatches, Command};
use tollgate_rules::problem::Fault;

use environment::Environment;
use origin::{Given, Layer, Origin, Problems};
use read::Reader;
use table::{DEFAULT_FILE, Kind, Setting, table};
use values::Values;

pub(crate) use origin::Problem;
#[cfg(test)]
use settings::{
    Access, AdminSettings, Certificate, ControlSettings, GrpcSettings, HttpSettings, Idempotency, Percent,
    RespSettings, ResponseHeaders, TlsClients,
};
pub(crate) use settings::{
    ControlPlace, Data, DataAuth, DecisionLogPlace, KeysFrom, Listen, LogFormat, ObserveSettings, PasswordFrom,
    RedisSettings, RulesSettings, Settings, Store, Tls, Workers,
};

/// What was gathered at the start.
#[derive(Debug)]
pub(crate) struct Gathered {
    /// What the server is told.
    pub(crate) settings: Settings,
    /// What whoever started it should know.
    pub(crate) warnings: Vec<Problem>,
    /// They are only to be shown.
    pub(crate) print_only: bool,
    values: Values,
}

/// A command with a flag for every setting.
pub(crate) fn command(command: Command) -> Command {
    command.args(table().iter().map(argument))
}

/// Settings from the flags of [`command`], these variables, and the file that they name or that is in this directory.
///
/// # Errors
/// All problems, if one of them is an error.
pub(crate) fn gather(
    matches: &ArgMatches,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    directory: &Path,
) -> Result<Gathered, Vec<Problem>> {
    let mut problems = Problems::default();
    let environment = Environment::new(variables);
    let (flags, own) = (flags(matches), environment.own(&mut problems));
    let file = match file_named(&Values::strongest(&[&flags, &own]), directory) {
        Ok(Some(path)) => file::read(&path, &mut problems),
        Ok(None) => Layer::new(),
        Err((place, fault)) => {
            problems.error(place, fault);
            Layer::new()
        }
    };
    let without_envoy = Values::strongest(&[&flags, &own, &file]);
    let envoy = match Reader::new(&without_envoy, &mut problems).switch("envoy_env") {
        Some(true) => envoy::read(&environment, &without_envoy, &mut problems),
        _ => Layer::new(),
    };
    let values = Values::strongest(&[&flags, &own, &file, &envoy]);
    let mut reader = Reader::new(&values, &mut problems);
    let (settings, print_only) = (reader.settings(), reader.switch("print_config"));
    if let Some(settings) = &settings {
        envoy::tell_of_open_listeners(settings, &values, &mut problems);
    }
    let warnings = problems.into_result()?;
    // Whatever keeps settings from being built has been told as an error.
    let gathered = settings.zip(print_only);
    gathered.map(|(settings, print_only)| Gathered { settings, warnings, print_only, values }).ok_or_else(Vec::new)
}

/// The file to read, if any.
fn file_named(values: &Values, directory: &Path) -> Result<Option<PathBuf>, (String, Fault)> {
    let Some(Given { text, origin }) = values.given("config") else { return Ok(None) };
    if *origin == Origin::Default {
        let path = directory.join(DEFAULT_FILE);
        // Of a file that can't be looked at, reading says why.
        return Ok(Some(path).filter(|path| !matches!(path.try_exists(), Ok(false))));
    }
    match text.as_ref().map(|text| text.trim()) {
        Ok("none") => Ok(None),
        Ok("") => Err((origin.place(), Fault::new("`config`: it is empty", "name a file, or write none"))),
        Ok(path) => Ok(Some(PathBuf::from(path))),
        Err(fault) => Err((origin.place(), fault.clone())),
    }
}

fn flags(matches: &ArgMatches) -> Layer {
    let given = |setting: &'static Setting| {
        let texts: Vec<&str> = matches.get_many::<String>(&setting.name)?.map(String::as_str).collect();
        let origin = Origin::Flag(setting.flag());
        Some((&*setting.name, Given { text: Ok(texts.join(",")), origin }))
    };
    table().iter().filter_map(given).collect()
}

fn argument(setting: &'static Setting) -> Arg {
    let help = match setting.kind {
        Kind::Switch => setting.help.to_string(),
        _ => format!("{} [default: {}]", setting.help, setting.default),
    };
    let argument = Arg::new(&*setting.name)
        .long(setting.long())
        .value_name(setting.kind.hint())
        .help(StyledStr::from(help))
        .help_heading(setting.group)
        .action(if setting.kind.is_list() { ArgAction::Append } else { ArgAction::Set });
    if setting.kind == Kind::Switch {
        // `--shadow-mode` alone says true; without the `=` it would swallow what comes behind it.
        return argument.num_args(0..=1).require_equals(true).default_missing_value("true");
    }
    argument
}

impl Gathered {
    /// All settings as a file that says the same, each with where it came from.
    pub(crate) fn print(&self) -> String {
        print::print(&self.values)
    }
}
