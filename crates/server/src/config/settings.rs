//! The settings of `tollgate serve`, read and checked. Plain data: no text is left to be understood, and no two of them
//! contradict each other.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use tollgate_store::redis::{Address as RedisAddress, Password};

use crate::admin::auth::Identity;
use crate::net::Address;
use tollgate::told::{Dialects, ScopeValues};

use crate::wire::http::AuthorizeSettings;

/// Everything that the server is told at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) rules: RulesSettings,
    pub(crate) grpc: GrpcSettings,
    pub(crate) http: HttpSettings,
    pub(crate) admin: AdminSettings,
    pub(crate) resp: RespSettings,
    pub(crate) store: Store,
    /// The most counters that are kept in memory.
    pub(crate) max_keys: usize,
    pub(crate) data: Data,
    /// How often the counters are written to the data directory.
    pub(crate) snapshot_interval: Duration,
    pub(crate) workers: Workers,
    /// How long what is in flight may take once the server is told to stop.
    pub(crate) shutdown_timeout: Duration,
    /// Every refusal is told and nothing is refused.
    pub(crate) shadow_mode: bool,
    pub(crate) control: ControlSettings,
    pub(crate) receipt_keys: KeysFrom,
    pub(crate) idempotency: Idempotency,
    pub(crate) observe: ObserveSettings,
}

/// Which rules, and how they are followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RulesSettings {
    /// Files and directories; none means the built-in example rules.
    pub(crate) paths: Vec<PathBuf>,
    /// Files of the same domain are one.
    pub(crate) merge_domains: bool,
    /// In a directory every file is one of rules, whatever its name.
    pub(crate) every_file: bool,
    /// How often the files are looked at, besides being watched.
    pub(crate) poll: Duration,
}

/// A listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listen {
    pub(crate) address: Address,
    /// `None` takes connections in the clear.
    pub(crate) tls: Option<Tls>,
    /// The most connections at a time; others are closed at once.
    pub(crate) max_connections: usize,
}

/// How a listener proves who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tls {
    /// The certificate and those that vouch for it, in PEM.
    pub(crate) cert: PathBuf,
    /// The certificate's private key, in PEM.
    pub(crate) key: PathBuf,
    /// `None` lets clients in without a certificate.
    pub(crate) clients: Option<TlsClients>,
}

/// Which clients a listener lets in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsClients {
    /// Those whose certificates come from these, in PEM.
    pub(crate) ca: PathBuf,
    /// Of them only those with one of these names; none means all.
    pub(crate) sans: Vec<String>,
}

/// Envoy's protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GrpcSettings {
    pub(crate) listen: Listen,
    /// The most checks at a time; others are answered by the policy of their rules. 0 sheds everything.
    pub(crate) max_in_flight: usize,
    /// The longest message, in bytes.
    pub(crate) max_message: usize,
    /// The most calls at a time on a connection.
    pub(crate) max_streams: u32,
    /// How long a connection is kept before it is asked to end; `None` is for ever.
    pub(crate) max_connection_age: Option<Duration>,
    /// How long a connection that was asked to end may still take.
    pub(crate) max_connection_age_grace: Duration,
    /// How often a silent connection is asked whether it is still there.
    pub(crate) keepalive: Duration,
    /// How long it may take to answer that.
    pub(crate) keepalive_timeout: Duration,
    /// `None` adds no headers to the caller's response.
    pub(crate) response_headers: Option<ResponseHeaders>,
    /// Whether the metadata of rules is in the answer.
    pub(crate) dynamic_metadata: bool,
    pub(crate) auth: DataAuth,
}

/// The names of the headers that Envoy is asked to add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResponseHeaders {
    /// As written, also in its capitals.
    pub(crate) limit: String,
    pub(crate) remaining: String,
    pub(crate) reset: String,
}

/// JSON over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpSettings {
    pub(crate) listen: Listen,
    /// The most checks at a time; others are answered by the policy of their rules. 0 sheds everything.
    pub(crate) max_in_flight: usize,
    /// How long a connection may be silent between requests.
    pub(crate) idle_timeout: Duration,
    /// How long the head and the body of a request may take to arrive.
    pub(crate) body_timeout: Duration,
    pub(crate) headers: Dialects,
    /// By how much of the wait `Retry-After` is spread; `None` tells the wait as it is.
    pub(crate) retry_jitter: Option<Percent>,
    pub(crate) scope_values: ScopeValues,
    pub(crate) authorize: AuthorizeSettings,
    pub(crate) auth: DataAuth,
}

/// What operators see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdminSettings {
    pub(crate) listen: Listen,
    /// A file with a token that may do everything.
    pub(crate) token_file: Option<PathBuf>,
    /// What the names in clients' certificates may.
    pub(crate) identities: Vec<Identity>,
    /// The address is what envoyproxy/ratelimit's environment says, or does not say.
    pub(crate) as_envoy: bool,
}

/// Whom a wire lets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataAuth {
    /// Whoever can reach it.
    Off,
    /// Those who show a token that may check.
    Token,
}

/// Redis's protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RespSettings {
    pub(crate) listen: Listen,
    /// The most checks at a time; others are answered by the policy of their rules. 0 sheds everything.
    pub(crate) max_in_flight: usize,
}

/// Where counters are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Memory,
    Redis(Box<RedisSettings>),
}

/// A Redis, several or a cluster, and how they are treated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RedisSettings {
    /// May have a user and a password in it, which it does not show.
    pub(crate) address: RedisAddress,
    pub(crate) access: Access,
    /// What every key begins with.
    pub(crate) prefix: String,
    /// Connections to each server.
    pub(crate) pool: usize,
    /// How long a check waits.
    pub(crate) deadline: Duration,
    /// How long a server that failed is left alone.
    pub(crate) cool_down: Duration,
    /// Requests a second that may pass uncounted; `None` sets no bound.
    pub(crate) last_resort: Option<u64>,
}

/// Who we are to Redis, and how we know that it is Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<PasswordFrom>,
    /// In PEM; `None` is the authorities that the system trusts.
    pub(crate) ca: Option<PathBuf>,
    pub(crate) certificate: Option<Certificate>,
}

/// Where a password is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PasswordFrom {
    Text(Password),
    File(PathBuf),
}

/// What we show to those who ask for a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Certificate {
    /// In PEM.
    pub(crate) cert: PathBuf,
    /// Its private key, in PEM.
    pub(crate) key: PathBuf,
}

/// What outlives the process: counters, the last good rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    /// Nothing does.
    Off,
    Directory {
        path: PathBuf,
        /// Someone asked for this one. The default need not be writable; what was asked for must be.
        asked_for: bool,
    },
}

/// Where what operators decide is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ControlSettings {
    pub(crate) place: ControlPlace,
    /// A directory that servers share for snapshots.
    pub(crate) snapshots: Option<PathBuf>,
}

/// Where the store of record is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ControlPlace {
    /// In the data directory, if there is one.
    Auto,
    /// There is none.
    Off,
    At(tollgate_control::Place),
}

/// How many threads serve connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workers {
    /// One for each core.
    Auto,
    Count(NonZeroUsize),
}

/// Where the keys are found that sign receipts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeysFrom {
    /// Nobody gave any: one is made.
    Nobody,
    Texts(Vec<SecretText>),
    File(PathBuf),
}

/// A text that does not show itself.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SecretText(pub(super) String);

/// Requests that are decided once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Idempotency {
    /// How long answers are kept.
    pub(crate) ttl: Duration,
    /// The most answers that are kept in memory.
    pub(crate) max: usize,
}

/// Logs and traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObserveSettings {
    /// A level, or directives of `tracing_subscriber::EnvFilter`; known to be readable.
    pub(crate) log_level: String,
    pub(crate) log_format: LogFormat,
    /// Where traces are sent, by OTLP over gRPC; `None` traces nothing.
    pub(crate) otlp_endpoint: Option<Url>,
    /// The share of requests that are traced.
    pub(crate) otlp_sample: Percent,
    /// What the server is called in traces.
    pub(crate) service_name: String,
    /// What it is called among others; `None` is the name of the machine.
    pub(crate) server_name: Option<String>,
    /// Where it is.
    pub(crate) region: Option<String>,
    /// Callers' keys may be labels of metrics.
    pub(crate) metrics_show_keys: bool,
    pub(crate) decisions: DecisionLogSettings,
}

/// The decision log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DecisionLogSettings {
    pub(crate) place: DecisionLogPlace,
    /// Of decisions that are no refusals.
    pub(crate) sample: Percent,
    /// Of callers about whom everything is logged.
    pub(crate) callers: Percent,
    /// Where files are; `None` is in the data directory.
    pub(crate) directory: Option<PathBuf>,
    pub(crate) file_size: u64,
    pub(crate) files: usize,
    pub(crate) keep: Duration,
    /// Rows in the control store.
    pub(crate) max: u64,
}

/// Where decisions are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecisionLogPlace {
    /// In the control store, else in files, else in memory: whatever there is.
    Auto,
    Control,
    Files,
    Stdout,
    Off,
}

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// A share from 0 % to 100 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Percent {
    /// Of 10,000.
    pub(crate) parts: u16,
}

/// An http or https URL. Its password is not shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Url(pub(super) String);

// === impl Percent ===

impl Percent {
    /// 100 %
    pub(crate) const WHOLE: u16 = 10_000;

    /// From 0 to 1.
    pub(crate) fn as_fraction(self) -> f64 {
        f64::from(self.parts) / f64::from(Percent::WHOLE)
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.parts / 100, self.parts % 100) {
            (whole, 0) => write!(f, "{whole}%"),
            (whole, rest) if rest % 10 == 0 => write!(f, "{whole}.{}%", rest / 10),
            (whole, rest) => write!(f, "{whole}.{rest:02}%"),
        }
    }
}

// === impl SecretText ===

impl SecretText {
    /// The text itself.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(super::text::HIDDEN)
    }
}

// === impl Url ===

impl Url {
    /// With its password.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", super::text::without_password(&self.0))
    }
}
