//! The table of settings: the source of flags, variables, keys of the file, help, `--print-config` and the reference page.

mod rows;

use std::borrow::Cow;
use std::sync::LazyLock;
use std::time::Duration;

/// A setting. Its value is a text that is parsed by its kind.
#[derive(Debug)]
pub(super) struct Setting {
    /// As in the file: `grpc_tls_cert`. The flag is `--grpc-tls-cert`, the variable `TOLLGATE_GRPC_TLS_CERT`.
    pub name: Cow<'static, str>,
    /// Its heading in the help and on the page.
    pub group: &'static str,
    pub kind: SettingKind,
    /// The default, as one would write it.
    pub default: &'static str,
    /// The help text, without a full stop.
    pub help: Cow<'static, str>,
    /// Where it can be set.
    pub scope: SettingScope,
    /// The part of its value that is never shown.
    pub secret: Secrecy,
}

/// The part of a value that is never shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Secrecy {
    Nothing,
    /// The password of a URL.
    Password,
    /// The whole value.
    Everything,
}

/// The syntax of a setting's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SettingKind {
    /// `true` or `false`
    Switch,
    Address,
    /// A file or directory, or `none`
    Path,
    /// Files and directories, or `none`
    Paths,
    /// A text, or `none`
    Text,
    /// Texts, or `none`
    Texts,
    /// A text that may not be `none`
    Name,
    Number {
        min: u64,
        max: u64,
    },
    /// Bytes
    Size {
        min: u64,
        max: u64,
    },
    Time {
        min: Duration,
        max: Duration,
        /// `off` may be written.
        off: bool,
    },
    /// A percentage
    Percent {
        /// `off` may be written.
        off: bool,
    },
    /// The name of a header
    Header,
    /// One of these
    Word(&'static [&'static str]),
    /// Some of these, `all` or `none`
    Words(&'static [&'static str]),
    /// `attribute=Header-Name` pairs, or `none`
    Attributes,
    /// `memory`, or the address of Redis
    Store,
    /// `auto`, `off`, or the address of the store of record
    Control,
    /// The prefix of keys
    Prefix,
    /// `region=URL` pairs, or `none`
    Regions,
    /// A number per second, or `off`
    Rate {
        max: u64,
    },
    /// A directory, or `off`
    Directory,
    /// A number up to this, or `auto`
    Workers {
        max: u64,
    },
    LogLevel,
    /// An http or https URL, or `none`
    Url,
}

/// Where a setting can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SettingScope {
    Everywhere,
    /// Not in the file: it names the file.
    Outside,
    /// As a flag only: it is a command.
    Flag,
}

/// The prefix of Tollgate's variables.
pub(super) const PREFIX: &str = "TOLLGATE_";

/// Header dialects that report limits to clients.
pub(super) const DIALECTS: &[&str] =
    &["x-ratelimit", "x-ratelimit-policy", "x-ratelimit-bucket", "ratelimit", "denied-by", "signal"];
/// What clients of Envoy get.
pub(super) const GRPC_RESPONSES: &[&str] = &["full", "status"];
/// The forms in which values of a key are shown.
pub(super) const SCOPE_VALUES: &[&str] = &["shortened", "full", "hidden"];
/// The values of `leases`.
pub(super) const LEASES: &[&str] = &["auto", "off"];
/// The formats of log lines.
pub(super) const GUARDED_FILES: &[&str] = &["warn", "hold", "off"];
pub(super) const LOG_FORMATS: &[&str] = &["text", "json"];
/// Spellings of paths and methods.
pub(super) const NORMALIZATIONS: &[&str] = &["standard", "matrix-parameters", "trailing-slash", "lower-case"];
/// Access control of a wire.
pub(super) const DATA_AUTH: &[&str] = &["off", "token"];
/// Destinations of the decision log.
pub(super) const DECISION_LOGS: &[&str] = &["auto", "control", "files", "stdout", "off"];
/// The forms of private values.
pub(super) const KEY_PRIVACY: &[&str] = &["auto", "hashed", "clear"];
/// Log levels.
pub(super) const LOG_LEVELS: &[&str] = &["error", "warn", "info", "debug", "trace"];
/// The default settings file.
pub(super) const DEFAULT_FILE: &str = "tollgate.yaml";
/// The default of `authorize_attributes`: headers that proxies send by default, or with one line of configuration each.
pub(super) const AUTHORIZE_ATTRIBUTES: &str = tollgate_wire::http::AuthorizeSettings::ATTRIBUTES;

static TABLE: LazyLock<Vec<Setting>> = LazyLock::new(rows::all);

/// All settings, in the order in which they are shown.
pub(super) fn table() -> &'static [Setting] {
    &TABLE
}

/// The setting of this name.
pub(super) fn find(name: &str) -> Option<&'static Setting> {
    TABLE.iter().find(|setting| setting.name == name)
}

// === impl Setting ===

impl Setting {
    /// `--grpc-tls-cert`
    pub(super) fn flag(&self) -> String {
        format!("--{}", self.long())
    }

    /// The flag without its dashes.
    pub(super) fn long(&self) -> String {
        self.name.replace('_', "-")
    }

    /// `TOLLGATE_GRPC_TLS_CERT`
    pub(super) fn variable(&self) -> String {
        format!("{PREFIX}{}", self.name.to_ascii_uppercase())
    }
}

// === impl SettingKind ===

impl SettingKind {
    /// The placeholder of the value in the help.
    pub(super) fn hint(self) -> String {
        let hint = match self {
            SettingKind::Switch => "true|false",
            SettingKind::Address => "ADDR",
            SettingKind::Path | SettingKind::Paths => "PATH",
            SettingKind::Text | SettingKind::Name => "TEXT",
            SettingKind::Texts => "TEXT,…",
            SettingKind::Number { .. } | SettingKind::Workers { .. } => "N",
            SettingKind::Size { .. } => "SIZE",
            SettingKind::Time { .. } => "TIME",
            SettingKind::Percent { .. } => "PERCENT",
            SettingKind::Header => "HEADER",
            SettingKind::Word(words) => return words.join("|"),
            SettingKind::Words(_) => "NAME,…",
            SettingKind::Attributes => "NAME=HEADER,…",
            SettingKind::Store => "memory|URL,…",
            SettingKind::Control => "auto|off|URL",
            SettingKind::Prefix => "TEXT",
            SettingKind::Regions => "REGION=URL,…",
            SettingKind::Rate { .. } => "N/second",
            SettingKind::Directory => "DIR",
            SettingKind::LogLevel => "LEVEL",
            SettingKind::Url => "URL",
        };
        hint.to_owned()
    }

    /// Whether it takes several values, separated by commas.
    pub(super) fn is_list(self) -> bool {
        matches!(
            self,
            SettingKind::Paths
                | SettingKind::Texts
                | SettingKind::Words(_)
                | SettingKind::Attributes
                | SettingKind::Regions
                | SettingKind::Store
        )
    }
}
