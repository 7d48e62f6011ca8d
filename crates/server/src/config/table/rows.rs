//! The rows of the table of settings.

mod auth;
mod control;
mod events;
mod guardrails;
mod key_privacy;
mod observe;
mod receipts;
mod regions;

use std::borrow::Cow;
use std::time::Duration;

use super::{
    AUTHORIZE_ATTRIBUTES, DEFAULT_FILE, DIALECTS, GRPC_RESPONSES, LEASES, NORMALIZATIONS, SCOPE_VALUES, Secrecy,
    Setting, SettingKind, SettingScope,
};

/// The maximum of settings for connections and concurrent checks.
const MAX_AT_ONCE: u64 = 1_000_000;

/// All settings, in the order of the help.
pub(super) fn all() -> Vec<Setting> {
    let groups = [
        general(),
        rules(),
        listener("grpc"),
        grpc(),
        listener("http"),
        http(),
        authorize(),
        listener("admin"),
        listener("resp"),
        gateway(),
        state(),
        redis(),
        regions::rows(),
        control::rows(),
        guardrails::rows(),
        auth::rows(),
        key_privacy::rows(),
        receipts::rows(),
        observe::rows(),
        events::rows(),
    ];
    groups.into_iter().flatten().collect()
}

fn gateway() -> Vec<Setting> {
    vec![row(
        "Gateway",
        "gateway",
        SettingKind::Path,
        "none",
        "The file of the gateway, which forwards requests to upstreams; none: no gateway",
    )]
}

fn general() -> Vec<Setting> {
    const GROUP: &str = "General";
    vec![
        Setting {
            scope: SettingScope::Outside,
            ..row(
                GROUP,
                "config",
                SettingKind::Path,
                DEFAULT_FILE,
                "The settings file; the default is read if it exists",
            )
        },
        Setting {
            scope: SettingScope::Flag,
            ..row(GROUP, "print_config", SettingKind::Switch, "false", "Print every setting and its origin, and exit")
        },
        row(
            GROUP,
            "envoy_env",
            SettingKind::Switch,
            "false",
            "Also read envoyproxy/ratelimit's environment, with its defaults; Tollgate's own settings override it",
        ),
        row(
            GROUP,
            "workers",
            SettingKind::Workers { max: 256 },
            "auto",
            "Threads that serve connections; auto is one per core",
        ),
        row(
            GROUP,
            "shutdown_delay",
            time(0, 600_000),
            "0s",
            "How long to report not ready and still serve at shutdown, before connections are closed",
        ),
        row(GROUP, "shutdown_timeout", time(0, 600_000), "10s", "How long to wait for requests in flight at shutdown"),
        row(GROUP, "shadow_mode", SettingKind::Switch, "false", "Report denials and deny nothing"),
    ]
}

fn rules() -> Vec<Setting> {
    const GROUP: &str = "Rules";
    vec![
        row(
            GROUP,
            "rules",
            SettingKind::Paths,
            "none",
            "Rule files, or directories of them; none uses the built-in example rules",
        ),
        row(GROUP, "merge_domains", SettingKind::Switch, "false", "Let several files add to one domain"),
        row(
            GROUP,
            "every_file",
            SettingKind::Switch,
            "false",
            "In a directory of rules, read every file, not only .yaml and .yml files",
        ),
        row(
            GROUP,
            "rules_poll",
            time(100, 3_600_000),
            "2s",
            "How often rule files are polled, in addition to being watched",
        ),
    ]
}

/// The settings of every listener.
fn listener(listener: &'static str) -> Vec<Setting> {
    let (group, purpose, address, connections) = match listener {
        "grpc" => ("gRPC", "Envoy's protocol", "127.0.0.1:8081", "4096"),
        "http" => ("HTTP", "checks as JSON", "127.0.0.1:8080", "4096"),
        "admin" => ("Admin", "metrics and health", "127.0.0.1:8070", "256"),
        _ => ("RESP", "Redis's protocol", "off", "4096"),
    };
    let mut settings = vec![
        Setting {
            name: Cow::Borrowed(listener),
            ..row(group, "", SettingKind::Address, address, format!("Where to listen for {purpose}"))
        },
        part(
            listener,
            group,
            "tls_cert",
            SettingKind::Path,
            "none",
            "The listener's certificate with its chain, in PEM",
        ),
        part(listener, group, "tls_key", SettingKind::Path, "none", "The private key of the certificate, in PEM"),
        part(
            listener,
            group,
            "tls_client_ca",
            SettingKind::Path,
            "none",
            "Accept only clients with a certificate of these CAs, in PEM",
        ),
        part(
            listener,
            group,
            "tls_client_sans",
            SettingKind::Texts,
            "none",
            "Of those clients, accept only certificates with one of these names",
        ),
        part(
            listener,
            group,
            "max_connections",
            SettingKind::Number { min: 1, max: MAX_AT_ONCE },
            connections,
            "The maximum number of connections; beyond it, those that wait for a first request are closed, or the new one",
        ),
    ];
    if listener != "admin" {
        settings.push(part(
            listener,
            group,
            "max_in_flight",
            SettingKind::Number { min: 0, max: MAX_AT_ONCE },
            "4096",
            "The maximum number of concurrent checks; others are answered by the policies of their rules",
        ));
    }
    settings
}

fn grpc() -> Vec<Setting> {
    const GROUP: &str = "gRPC";
    const KIB: u64 = 1 << 10;
    const DAY: u64 = 24 * 3_600_000;
    let age = SettingKind::Time { min: Duration::from_secs(1), max: Duration::from_millis(365 * DAY), off: true };
    vec![
        row(
            GROUP,
            "grpc_max_message",
            SettingKind::Size { min: KIB, max: 16 << 20 },
            "512KiB",
            "The longest message; longer ones are answered by the policies of the rules",
        ),
        row(
            GROUP,
            "grpc_max_streams",
            SettingKind::Number { min: 1, max: 65_536 },
            "1024",
            "The maximum number of concurrent calls on a connection",
        ),
        row(GROUP, "grpc_max_connection_age", age, "24h", "The age at which a connection is closed gracefully"),
        row(GROUP, "grpc_max_connection_age_grace", time(0, DAY), "1m", "How long calls in flight may take after that"),
        row(GROUP, "grpc_keepalive", time(1_000, DAY), "60s", "How often an idle connection is pinged"),
        row(GROUP, "grpc_keepalive_timeout", time(100, 3_600_000), "20s", "The timeout of a ping"),
        row(
            GROUP,
            "grpc_responses",
            SettingKind::Word(GRPC_RESPONSES),
            "full",
            "What clients of Envoy get: the headers that clients over HTTP get, and with a refusal Retry-After and a body; or nothing but the status",
        ),
        row(
            GROUP,
            "grpc_response_headers",
            SettingKind::Switch,
            "false",
            "Have Envoy add the next three headers to the response",
        ),
        row(GROUP, "grpc_limit_header", SettingKind::Header, "RateLimit-Limit", "The header with the limit"),
        row(
            GROUP,
            "grpc_remaining_header",
            SettingKind::Header,
            "RateLimit-Remaining",
            "The header with the remaining units",
        ),
        row(
            GROUP,
            "grpc_reset_header",
            SettingKind::Header,
            "RateLimit-Reset",
            "The header with the seconds until the limit is restored",
        ),
        row(
            GROUP,
            "grpc_dynamic_metadata",
            SettingKind::Switch,
            "false",
            "Give Envoy the metadata of the rules that applied",
        ),
    ]
}

fn http() -> Vec<Setting> {
    const GROUP: &str = "HTTP";
    vec![
        row(
            GROUP,
            "http_idle_timeout",
            time(1_000, 3_600_000),
            "60s",
            "How long a connection may be idle between requests",
        ),
        row(
            GROUP,
            "body_timeout",
            time(100, 300_000),
            "5s",
            "How long a request may take to arrive: a body, a gRPC message, a RESP command",
        ),
        row(
            GROUP,
            "http_headers",
            SettingKind::Words(DIALECTS),
            "all",
            "Header dialects that report limits to clients",
        ),
        row(
            GROUP,
            "http_normalize",
            SettingKind::Words(NORMALIZATIONS),
            "standard",
            "Which spellings of a path and a method are the same to rules, in authorize and check",
        ),
        row(
            GROUP,
            "http_allowed_hosts",
            SettingKind::Texts,
            "none",
            "On loopback: other host names than localhost that clients of explain and status use",
        ),
        row(
            GROUP,
            "retry_jitter",
            SettingKind::Percent { off: true },
            "10%",
            "Add up to this share of the wait to Retry-After at random, and at least a second",
        ),
        row(
            GROUP,
            "scope_values",
            SettingKind::Word(SCOPE_VALUES),
            "shortened",
            "How a denial shows the values of its key, such as API keys",
        ),
    ]
}

fn authorize() -> Vec<Setting> {
    const GROUP: &str = "Authorize: requests of proxies, described by headers";
    vec![
        row(GROUP, "authorize_domain", SettingKind::Text, "none", "The domain; none if the rules have only one"),
        row(
            GROUP,
            "authorize_attributes",
            SettingKind::Attributes,
            AUTHORIZE_ATTRIBUTES,
            "Attributes, each with its header; :endpoint, :method and :path are those of the original request",
        ),
        row(GROUP, "authorize_cost_header", SettingKind::Header, "X-RateLimit-Cost", "The header with the cost"),
        row(
            GROUP,
            "authorize_trusted_hops",
            SettingKind::Number { min: 0, max: 32 },
            "0",
            "Which entry of X-Forwarded-For is the caller, counted from the last, which is 0",
        ),
    ]
}

fn state() -> Vec<Setting> {
    const GROUP: &str = "Counters and data";
    vec![
        Setting {
            secret: Secrecy::Password,
            ..row(
                GROUP,
                "store",
                SettingKind::Store,
                "memory",
                "Where counters are stored: in memory, in the Redis at this URL, or in the Redis Cluster of these nodes",
            )
        },
        row(
            GROUP,
            "max_keys",
            SettingKind::Number { min: 1, max: 10_000_000_000 },
            "10000000",
            "The maximum number of counters in memory; beyond it those with the most room left are evicted, and none that refuses",
        ),
        row(
            GROUP,
            "max_keys_per_rule",
            SettingKind::Percent { off: false },
            "50%",
            "The part of these counters that one rule can have at the expense of others; half of `max_keys` is guaranteed to all rules \
             in equal parts",
        ),
        row(
            GROUP,
            "data",
            SettingKind::Directory,
            "tollgate-data",
            "The directory for state that outlives the process: counters, the last good rules",
        ),
        row(
            GROUP,
            "snapshot_interval",
            time(1_000, 3_600_000),
            "10s",
            "How often counters are written to the data directory",
        ),
    ]
}

fn redis() -> Vec<Setting> {
    const GROUP: &str = "Counters in Redis";
    vec![
        row(GROUP, "store_user", SettingKind::Text, "none", "The user name for Redis"),
        Setting {
            secret: Secrecy::Everything,
            ..row(
                GROUP,
                "store_password",
                SettingKind::Text,
                "none",
                "The password for Redis; a file keeps it out of `ps`",
            )
        },
        row(GROUP, "store_password_file", SettingKind::Path, "none", "The file with the password, and nothing else"),
        row(GROUP, "store_ca", SettingKind::Path, "none", "The CAs of Redis, in PEM; none uses those of the system"),
        row(GROUP, "store_cert", SettingKind::Path, "none", "The client certificate for Redis, in PEM"),
        row(GROUP, "store_key", SettingKind::Path, "none", "The private key of that certificate, in PEM"),
        row(GROUP, "store_prefix", SettingKind::Prefix, "tg:", "The prefix of every key in Redis"),
        row(
            GROUP,
            "store_pool",
            SettingKind::Number { min: 1, max: 64 },
            "2",
            "Connections to each Redis; claims share them",
        ),
        row(
            GROUP,
            "store_deadline",
            time(1, 1_000),
            "8ms",
            "How long a check waits for Redis; less if its caller's timeout is shorter",
        ),
        row(
            GROUP,
            "store_cool_down",
            time(100, 300_000),
            "5s",
            "How long to wait before a Redis that failed is tried again, plus or minus a fifth",
        ),
        row(
            GROUP,
            "leases",
            SettingKind::Word(LEASES),
            "auto",
            "Whether this server takes units of busy keys from Redis ahead of requests; off: Redis decides every request, \
             whatever the rules say",
        ),
        row(
            GROUP,
            "lease_time",
            time(100, 60_000),
            "5s",
            "The longest time for which units are taken ahead of requests",
        ),
        row(
            GROUP,
            "lease_keys",
            SettingKind::Number { min: 1, max: 10_000_000 },
            "65536",
            "The maximum number of keys that are leased at the same time; Redis decides the requests of others",
        ),
        row(
            GROUP,
            "local_keys",
            SettingKind::Number { min: 1, max: 100_000_000 },
            "100000",
            "The maximum number of counters in this server's memory while Redis is unavailable; beyond it, the new keys of a rule \
             share one counter",
        ),
        row(
            GROUP,
            "last_resort",
            SettingKind::Rate { max: 1_000_000_000 },
            "1000/second",
            "The maximum number of requests per second that pass this server uncounted while Redis is unavailable; with off, all do",
        ),
        row(
            GROUP,
            "replicas",
            SettingKind::Number { min: 1, max: 100_000 },
            "1",
            "The least number of servers among which limits are divided while Redis is unavailable; more if more were seen",
        ),
    ]
}

fn row(
    group: &'static str,
    name: &'static str,
    kind: SettingKind,
    default: &'static str,
    help: impl Into<Cow<'static, str>>,
) -> Setting {
    Setting {
        name: Cow::Borrowed(name),
        group,
        kind,
        default,
        help: help.into(),
        scope: SettingScope::Everywhere,
        secret: Secrecy::Nothing,
    }
}

fn part(
    listener: &str,
    group: &'static str,
    name: &str,
    kind: SettingKind,
    default: &'static str,
    help: &'static str,
) -> Setting {
    Setting { name: Cow::Owned(format!("{listener}_{name}")), ..row(group, "", kind, default, help) }
}

/// A duration, with its bounds in milliseconds.
fn time(min: u64, max: u64) -> SettingKind {
    SettingKind::Time { min: Duration::from_millis(min), max: Duration::from_millis(max), off: false }
}
