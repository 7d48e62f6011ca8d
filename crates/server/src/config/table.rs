//! The table of settings. Flags, variables, keys of the file, help, `--print-config` and the reference page come from it.

mod rows;

use std::borrow::Cow;
use std::sync::LazyLock;
use std::time::Duration;

/// A setting. Its value is a text until it is read by its kind.
#[derive(Debug)]
pub(crate) struct Setting {
    /// As in the file: `grpc_tls_cert`. The flag is `--grpc-tls-cert`, the variable `TOLLGATE_GRPC_TLS_CERT`.
    pub(crate) name: Cow<'static, str>,
    /// The heading under which it is found.
    pub(crate) group: &'static str,
    pub(crate) kind: Kind,
    /// Its value if nobody says otherwise, as one would write it.
    pub(crate) default: &'static str,
    /// A sentence without its full stop.
    pub(crate) help: Cow<'static, str>,
    /// Where it can be said.
    pub(crate) said: Said,
    /// What of it is never shown.
    pub(crate) secret: Secret,
}

/// What of a setting is never shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Secret {
    Nothing,
    /// The password of a URL.
    Password,
    /// All of it.
    Everything,
}

/// What the text of a setting means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
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
    /// A text that is always there
    Name,
    Number {
        least: u64,
        most: u64,
    },
    /// Bytes
    Size {
        least: u64,
        most: u64,
    },
    Time {
        least: Duration,
        most: Duration,
        /// `off` may be written.
        off: bool,
    },
    /// A share
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
    /// `memory`, or where a Redis is
    Store,
    /// `auto`, `off`, or where the store of record is
    Control,
    /// The beginning of keys
    Prefix,
    /// So many a second, or `off`
    Rate {
        most: u64,
    },
    /// A directory, or `off`
    Directory,
    /// A number up to this, or `auto`
    Workers {
        most: u64,
    },
    LogLevel,
    /// An http or https URL, or `none`
    Url,
}

/// Where a setting can be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Everywhere,
    /// Not in the file: it says which file.
    Outside,
    /// As a flag only: it says what to do now.
    Flag,
}

/// How variables of Tollgate's own begin.
pub(crate) const PREFIX: &str = "TOLLGATE_";

/// Headers that clients are told their limits in.
pub(crate) const DIALECTS: &[&str] =
    &["x-ratelimit", "x-ratelimit-policy", "x-ratelimit-bucket", "ratelimit", "denied-by", "signal"];
/// How the values of a key are shown.
pub(crate) const SCOPE_VALUES: &[&str] = &["shortened", "full", "hidden"];
/// How a line of the log looks.
pub(crate) const LOG_FORMATS: &[&str] = &["text", "json"];
/// Whom a wire lets in.
pub(crate) const DATA_AUTH: &[&str] = &["off", "token"];
/// Where decisions are logged.
pub(crate) const DECISION_LOGS: &[&str] = &["auto", "control", "files", "stdout", "off"];
/// How much is logged.
pub(crate) const LOG_LEVELS: &[&str] = &["error", "warn", "info", "debug", "trace"];
/// The file that is read if it is there and nobody names another.
pub(crate) const DEFAULT_FILE: &str = "tollgate.yaml";
/// The default of `authorize_attributes`: what proxies send by themselves, or with a line for each.
pub(crate) const AUTHORIZE_ATTRIBUTES: &str = crate::wire::http::AuthorizeSettings::ATTRIBUTES;

static TABLE: LazyLock<Vec<Setting>> = LazyLock::new(rows::all);

/// All settings, in the order in which they are shown.
pub(crate) fn table() -> &'static [Setting] {
    &TABLE
}

/// The setting of this name.
pub(crate) fn find(name: &str) -> Option<&'static Setting> {
    TABLE.iter().find(|setting| setting.name == name)
}

// === impl Setting ===

impl Setting {
    /// `--grpc-tls-cert`
    pub(crate) fn flag(&self) -> String {
        format!("--{}", self.long())
    }

    /// The flag without its dashes.
    pub(crate) fn long(&self) -> String {
        self.name.replace('_', "-")
    }

    /// `TOLLGATE_GRPC_TLS_CERT`
    pub(crate) fn variable(&self) -> String {
        format!("{PREFIX}{}", self.name.to_ascii_uppercase())
    }
}

// === impl Kind ===

impl Kind {
    /// Stands for the value in help.
    pub(crate) fn hint(self) -> String {
        let hint = match self {
            Kind::Switch => "true|false",
            Kind::Address => "ADDR",
            Kind::Path | Kind::Paths => "PATH",
            Kind::Text | Kind::Name => "TEXT",
            Kind::Texts => "TEXT,…",
            Kind::Number { .. } | Kind::Workers { .. } => "N",
            Kind::Size { .. } => "SIZE",
            Kind::Time { .. } => "TIME",
            Kind::Percent { .. } => "PERCENT",
            Kind::Header => "HEADER",
            Kind::Word(words) => return words.join("|"),
            Kind::Words(_) => "NAME,…",
            Kind::Attributes => "NAME=HEADER,…",
            Kind::Store => "memory|URL,…",
            Kind::Control => "auto|off|URL",
            Kind::Prefix => "TEXT",
            Kind::Rate { .. } => "N/second",
            Kind::Directory => "DIR",
            Kind::LogLevel => "LEVEL",
            Kind::Url => "URL",
        };
        hint.to_owned()
    }

    /// Whether it takes several values, parted by commas.
    pub(crate) fn is_list(self) -> bool {
        matches!(self, Kind::Paths | Kind::Texts | Kind::Words(_) | Kind::Attributes | Kind::Store)
    }
}
