//! The settings of `tollgate serve` as plain data, parsed and checked for contradictions.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use tollgate::{PrivacySetting, RegionNames};
use tollgate_redis_address::{Address as RedisAddress, Password};

use tollgate_admin::auth::Identity;
use tollgate_admin::guardrails::GuardedFiles;
use tollgate_http::request_target::PathNormalization;
use tollgate_http::response::{Dialects, ScopeValues};
use tollgate_net::Address;

use tollgate_wire::http::AuthorizeSettings;

/// The form of private values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPrivacySettings {
    pub form: PrivacySetting,
    /// The file with the secrets; `None` means one that the fleet agrees on.
    pub secret_file: Option<PathBuf>,
}

/// All settings of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    pub rules: RulesSettings,
    pub grpc: GrpcSettings,
    pub http: HttpSettings,
    pub admin: AdminSettings,
    pub resp: RespSettings,
    /// The file of the gateway; `None` means no gateway.
    pub gateway: Option<PathBuf>,
    pub store: StoreSettings,
    /// The other regions, if there are any.
    pub regions: Option<RegionSettings>,
    /// The maximum number of counters in memory.
    pub max_keys: usize,
    /// The part of them that one rule can have at the expense of others.
    pub max_keys_per_rule: Percent,
    pub data: DataSettings,
    /// The time between snapshots of the counters.
    pub snapshot_interval: Duration,
    pub workers: WorkerSettings,
    /// How long the server still serves after the signal to stop, not ready any more.
    pub shutdown_delay: Duration,
    /// The wait for requests in flight at shutdown.
    pub shutdown_timeout: Duration,
    /// Denials are reported and nothing is denied.
    pub shadow_mode: bool,
    pub control: ControlSettings,
    pub key_privacy: KeyPrivacySettings,
    pub receipt_keys: ReceiptKeySource,
    pub idempotency: IdempotencySettings,
    pub observe: ObserveSettings,
    pub events: EventSettings,
}

/// Events for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSettings {
    /// The file of the webhooks; `None` means that there are none.
    pub file: Option<PathBuf>,
    /// The maximum size of the journal, in bytes.
    pub size: u64,
    /// How long events are retained.
    pub keep: Duration,
}

/// The rule files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulesSettings {
    /// Files and directories; none means the built-in example rules.
    pub paths: Vec<PathBuf>,
    /// Whether several files may have the same domain.
    pub merge_domains: bool,
    /// Whether every file in a directory is a rule file, whatever its name.
    pub every_file: bool,
    /// The time between polls of the files, which are watched as well.
    pub poll: Duration,
}

/// A listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenSettings {
    pub address: Address,
    /// `None` means no TLS.
    pub tls: Option<TlsSettings>,
    /// The maximum number of connections. Beyond it one without a request is closed, else the new one.
    pub max_connections: usize,
}

/// TLS of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// The certificate with its chain, in PEM.
    pub cert: PathBuf,
    /// The certificate's private key, in PEM.
    pub key: PathBuf,
    /// `None` accepts clients without a certificate.
    pub clients: Option<ClientAuthSettings>,
}

/// The certificates that clients must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuthSettings {
    /// The CA of client certificates, in PEM.
    pub ca: PathBuf,
    /// The allowed names; empty means all.
    pub sans: Vec<String>,
    /// Whether clients may have no certificate.
    pub is_optional: bool,
}

/// Envoy's protocol over gRPC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcSettings {
    pub listen: ListenSettings,
    /// The maximum number of concurrent checks; others are answered by the policies of their rules. 0 sheds everything.
    pub max_in_flight: usize,
    /// The longest message, in bytes.
    pub max_message: usize,
    /// The maximum number of concurrent calls on a connection.
    pub max_streams: u32,
    /// The age at which a connection is closed gracefully; `None` means never.
    pub max_connection_age: Option<Duration>,
    /// The time for calls in flight after that.
    pub max_connection_age_grace: Duration,
    /// The time between pings on an idle connection.
    pub keepalive: Duration,
    /// The timeout of a ping.
    pub keepalive_timeout: Duration,
    /// Whether clients of Envoy get the headers and the refusals that clients over HTTP get.
    pub full_responses: bool,
    /// The names of envoyproxy/ratelimit's headers; `None` does not add them.
    pub response_headers: Option<ResponseHeaders>,
    /// Whether the response has the metadata of rules.
    pub dynamic_metadata: bool,
    pub auth: DataAuth,
}

/// The names of the headers that Envoy adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHeaders {
    /// As written, with its capitals.
    pub limit: String,
    pub remaining: String,
    pub reset: String,
}

/// JSON over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpSettings {
    pub listen: ListenSettings,
    /// The maximum number of concurrent checks; others are answered by the policies of their rules. 0 sheds everything.
    pub max_in_flight: usize,
    /// The longest idle time between requests.
    pub idle_timeout: Duration,
    /// The longest time for the head and the body of a request to arrive.
    pub body_timeout: Duration,
    pub headers: Dialects,
    /// Which spellings of paths and methods are the same to rules.
    pub normalization: PathNormalization,
    /// Names under which a listener on loopback is called.
    pub allowed_hosts: Vec<String>,
    /// The jitter of `Retry-After`, as a share of the wait; `None` adds none.
    pub retry_jitter: Option<Percent>,
    pub scope_values: ScopeValues,
    pub authorize: AuthorizeSettings,
    pub auth: DataAuth,
}

/// The admin listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminSettings {
    pub listen: ListenSettings,
    /// A file with a token that has every scope.
    pub token_file: Option<PathBuf>,
    /// The scopes of names in client certificates.
    pub identities: Vec<Identity>,
    /// Whether the address comes from envoyproxy/ratelimit's environment or defaults.
    pub as_envoy: bool,
}

/// Access control of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataAuth {
    /// Everyone who can reach it.
    Off,
    /// Only clients with a token that has the scope `check`.
    Token,
}

/// Redis's protocol, RESP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RespSettings {
    pub listen: ListenSettings,
    /// The maximum number of concurrent checks; others are answered by the policies of their rules. 0 sheds everything.
    pub max_in_flight: usize,
}

/// The store of the counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreSettings {
    Memory,
    Redis(Box<RedisSettings>),
}

/// Redis, alone, with Sentinel or as a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisSettings {
    /// May contain a user and a password; `Display` hides them.
    pub address: RedisAddress,
    pub access: RedisAccess,
    /// The prefix of every key.
    pub prefix: String,
    /// Connections per node.
    pub pool: usize,
    /// The timeout of a check.
    pub deadline: Duration,
    /// The time before a node that failed is tried again.
    pub cool_down: Duration,
    /// Requests per second that may pass uncounted; `None` means no bound.
    pub last_resort: Option<u64>,
    /// The least number of servers among which limits are divided without Redis.
    pub replicas: u64,
    /// The maximum number of counters in this server's memory during an outage.
    pub local_keys: usize,
    /// Units that are taken ahead of requests.
    pub leases: LeaseSettings,
}

/// The regions, each with a Redis of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionSettings {
    /// This region and the others.
    pub names: RegionNames,
    /// The others, in the order of their names.
    pub others: Vec<OtherRegion>,
    /// Authentication with the Redis of other regions.
    pub access: RedisAccess,
    /// How long a check waits for another region.
    pub deadline: Duration,
    /// The interval at which units are debited in other regions.
    pub beat: Duration,
    /// The interval at which shares that follow demand are planned.
    pub share_interval: Duration,
}

/// Another region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherRegion {
    pub name: String,
    /// Its Redis. May contain a user and a password; `Display` hides them.
    pub address: RedisAddress,
}

/// Units that are taken from Redis ahead of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseSettings {
    /// Whether any are.
    pub is_enabled: bool,
    /// The longest time for which they are taken.
    pub time: Duration,
    /// The maximum number of keys.
    pub keys: usize,
}

/// Authentication with Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisAccess {
    pub user: Option<String>,
    pub password: Option<PasswordSource>,
    /// In PEM; `None` means the CAs of the system.
    pub ca: Option<PathBuf>,
    pub certificate: Option<ClientCertificate>,
}

/// The source of a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PasswordSource {
    Text(Password),
    File(PathBuf),
}

/// The certificate that the server presents to Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// In PEM.
    pub cert: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
}

/// The directory for state that outlives the process: counters, the last good rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataSettings {
    /// No state is saved.
    Off,
    Directory {
        path: PathBuf,
        /// Whether a setting names it. The default need not be writable; an explicit one must be.
        is_explicit: bool,
    },
}

/// The control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlSettings {
    pub place: ControlPlace,
    /// A directory for snapshots that servers share.
    pub snapshots: Option<PathBuf>,
    /// Whether the server is ready only when a state of the store of record is known.
    pub required: bool,
    pub guardrails: GuardrailSettings,
}

/// When writes by API are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardrailSettings {
    pub on: bool,
    /// With a larger share of newly refused requests a write needs a confirmation.
    pub confirm: Percent,
    /// The same, of the requests of one paid caller.
    pub paid: Percent,
    /// With a larger share a write needs an approval.
    pub approve: Percent,
    /// Nothing is known from fewer recorded requests.
    pub requests: u64,
    pub files: GuardedFiles,
}

/// The store of record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlPlace {
    /// A file in the data directory, if there is one.
    Auto,
    /// None.
    Off,
    At(tollgate_control::DbLocation),
}

/// The number of worker threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerSettings {
    /// One per core.
    Auto,
    Count(NonZeroUsize),
}

/// The source of the keys that sign receipts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiptKeySource {
    /// No key is set: one is generated.
    Generated,
    Texts(Vec<SecretText>),
    File(PathBuf),
}

/// A text that `Debug` hides.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(pub(super) String);

/// Idempotency keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdempotencySettings {
    /// How long responses are stored.
    pub ttl: Duration,
    /// The maximum number of stored responses in memory.
    pub max: usize,
    /// The maximum number of those of one caller.
    pub max_per_caller: usize,
}

/// Logs, traces, metrics and the decision log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObserveSettings {
    /// A level, or directives of `tracing_subscriber::EnvFilter`; known to be valid.
    pub log_level: String,
    pub log_format: LogFormat,
    /// The collector of traces, by OTLP over gRPC; `None` means no traces.
    pub otlp_endpoint: Option<Url>,
    /// The share of requests that are traced.
    pub otlp_sample: Percent,
    /// The service name in traces.
    pub service_name: String,
    /// The name of this server in the fleet; `None` means the host name.
    pub server_name: Option<String>,
    /// The region of this server.
    pub region: Option<String>,
    /// Whether callers' keys may be labels of metrics.
    pub metrics_show_keys: bool,
    pub decisions: DecisionLogSettings,
    pub traffic: TrafficSettings,
}

/// The sample of recent requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrafficSettings {
    pub on: bool,
    /// The maximum memory, in bytes.
    pub size: u64,
    /// The share of callers that are recorded, at most.
    pub callers: Percent,
}

/// The decision log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionLogSettings {
    pub place: DecisionLogPlace,
    /// The share of allowed decisions that are logged.
    pub sample: Percent,
    /// The share of callers whose decisions are all logged.
    pub callers: Percent,
    /// The directory of files; `None` means the data directory.
    pub directory: Option<PathBuf>,
    pub file_size: u64,
    pub files: usize,
    pub keep: Duration,
    /// The maximum number of rows in the control store.
    pub max: u64,
    /// The maximum number of bytes in the control store.
    pub max_size: u64,
    /// Refusals of one caller by one rule that are logged one by one in a minute.
    pub repeats: u64,
}

/// The destination of the decision log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionLogPlace {
    /// The control store, else files, else memory, whichever is available.
    Auto,
    Control,
    Files,
    Stdout,
    Off,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

/// A share from 0 % to 100 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent {
    /// In basis points: 10,000 is 100 %.
    pub bps: u16,
}

/// An http or https URL. `Debug` hides its password.
#[derive(Clone, PartialEq, Eq)]
pub struct Url(pub(super) String);

// === impl Percent ===

impl Percent {
    /// 100 %
    pub const WHOLE: u16 = 10_000;

    /// From 0 to 1.
    pub fn as_fraction(self) -> f64 {
        f64::from(self.bps) / f64::from(Percent::WHOLE)
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.bps / 100, self.bps % 100) {
            (whole, 0) => write!(f, "{whole}%"),
            (whole, rest) if rest % 10 == 0 => write!(f, "{whole}.{}%", rest / 10),
            (whole, rest) => write!(f, "{whole}.{rest:02}%"),
        }
    }
}

// === impl SecretText ===

impl SecretText {
    /// The text itself.
    pub fn reveal(&self) -> &str {
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
    /// The URL with its password.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", super::text::without_password(&self.0))
    }
}
