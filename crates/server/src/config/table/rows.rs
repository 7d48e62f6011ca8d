//! The rows of the table.

mod auth;
mod control;
mod observe;
mod receipts;

use std::borrow::Cow;
use std::time::Duration;

use super::{AUTHORIZE_ATTRIBUTES, DEFAULT_FILE, DIALECTS, Kind, SCOPE_VALUES, Said, Secret, Setting};

/// The most connections, or checks at a time, that can be asked for.
const MOST_AT_ONCE: u64 = 1_000_000;

/// All of them, in the order in which they are shown.
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
        state(),
        redis(),
        control::rows(),
        auth::rows(),
        receipts::rows(),
        observe::rows(),
    ];
    groups.into_iter().flatten().collect()
}

fn general() -> Vec<Setting> {
    const GROUP: &str = "General";
    vec![
        Setting {
            said: Said::Outside,
            ..row(GROUP, "config", Kind::Path, DEFAULT_FILE, "The file of settings; the default is read if it is there")
        },
        Setting {
            said: Said::Flag,
            ..row(GROUP, "print_config", Kind::Switch, "false", "Print every setting and where it came from, and end")
        },
        row(
            GROUP,
            "envoy_env",
            Kind::Switch,
            "false",
            "Read envoyproxy/ratelimit's environment too, with its defaults: weaker than all settings of Tollgate's own",
        ),
        row(
            GROUP,
            "workers",
            Kind::Workers { most: 256 },
            "auto",
            "Threads that serve connections; auto is one for each core",
        ),
        row(
            GROUP,
            "shutdown_timeout",
            time(0, 600_000),
            "10s",
            "How long what is in flight may take once the server is told to stop",
        ),
        row(GROUP, "shadow_mode", Kind::Switch, "false", "Tell every refusal and refuse nothing"),
    ]
}

fn rules() -> Vec<Setting> {
    const GROUP: &str = "Rules";
    vec![
        row(
            GROUP,
            "rules",
            Kind::Paths,
            "none",
            "Rule files, or directories of them; none is the built-in example rules",
        ),
        row(GROUP, "merge_domains", Kind::Switch, "false", "Let several files add to one domain"),
        row(
            GROUP,
            "every_file",
            Kind::Switch,
            "false",
            "In a directory of rules read every file, not only those that end in .yaml or .yml",
        ),
        row(
            GROUP,
            "rules_poll",
            time(100, 3_600_000),
            "2s",
            "How often rule files are looked at, besides being watched",
        ),
    ]
}

/// What every listener has.
fn listener(listener: &'static str) -> Vec<Setting> {
    let (group, what, address, connections) = match listener {
        "grpc" => ("gRPC", "Envoy's protocol", "127.0.0.1:8081", "4096"),
        "http" => ("HTTP", "checks as JSON", "127.0.0.1:8080", "4096"),
        "admin" => ("Admin", "metrics and health", "127.0.0.1:8070", "256"),
        _ => ("RESP", "Redis's protocol", "off", "4096"),
    };
    let mut settings = vec![
        Setting {
            name: Cow::Borrowed(listener),
            ..row(group, "", Kind::Address, address, format!("Where to listen for {what}"))
        },
        part(
            listener,
            group,
            "tls_cert",
            Kind::Path,
            "none",
            "The listener's certificate, with those that vouch for it, in PEM",
        ),
        part(listener, group, "tls_key", Kind::Path, "none", "The private key of the certificate, in PEM"),
        part(
            listener,
            group,
            "tls_client_ca",
            Kind::Path,
            "none",
            "Let in only clients with a certificate from these authorities, in PEM",
        ),
        part(
            listener,
            group,
            "tls_client_sans",
            Kind::Texts,
            "none",
            "Of those clients, let in only the ones whose certificate has one of these names",
        ),
        part(
            listener,
            group,
            "max_connections",
            Kind::Number { least: 1, most: MOST_AT_ONCE },
            connections,
            "The most connections at a time; others are closed at once",
        ),
    ];
    if listener != "admin" {
        settings.push(part(
            listener,
            group,
            "max_in_flight",
            Kind::Number { least: 0, most: MOST_AT_ONCE },
            "4096",
            "The most checks at a time; others are answered by the policy of their rules",
        ));
    }
    settings
}

fn grpc() -> Vec<Setting> {
    const GROUP: &str = "gRPC";
    const KIB: u64 = 1 << 10;
    const DAY: u64 = 24 * 3_600_000;
    let age = Kind::Time { least: Duration::from_secs(1), most: Duration::from_millis(365 * DAY), off: true };
    vec![
        row(GROUP, "grpc_max_message", Kind::Size { least: KIB, most: 16 << 20 }, "256KiB", "The longest message"),
        row(
            GROUP,
            "grpc_max_streams",
            Kind::Number { least: 1, most: 65_536 },
            "1024",
            "The most calls at a time on a connection",
        ),
        row(GROUP, "grpc_max_connection_age", age, "24h", "How long a connection lives before it is asked to end"),
        row(
            GROUP,
            "grpc_max_connection_age_grace",
            time(0, DAY),
            "1m",
            "How long a connection that was asked to end may still take",
        ),
        row(
            GROUP,
            "grpc_keepalive",
            time(1_000, DAY),
            "60s",
            "How often a silent connection is asked whether it is still there",
        ),
        row(GROUP, "grpc_keepalive_timeout", time(100, 3_600_000), "20s", "How long the answer to that may take"),
        row(
            GROUP,
            "grpc_response_headers",
            Kind::Switch,
            "false",
            "Have Envoy add the next three headers to the response",
        ),
        row(GROUP, "grpc_limit_header", Kind::Header, "RateLimit-Limit", "The header with the limit"),
        row(GROUP, "grpc_remaining_header", Kind::Header, "RateLimit-Remaining", "The header with what is left"),
        row(
            GROUP,
            "grpc_reset_header",
            Kind::Header,
            "RateLimit-Reset",
            "The header with the seconds until it is whole again",
        ),
        row(GROUP, "grpc_dynamic_metadata", Kind::Switch, "false", "Give Envoy the metadata of the rules that applied"),
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
            "How long a connection may be silent between requests",
        ),
        row(GROUP, "body_timeout", time(100, 300_000), "5s", "How long a request may take to arrive"),
        row(GROUP, "http_headers", Kind::Words(DIALECTS), "all", "Headers in which clients are told their limits"),
        row(
            GROUP,
            "retry_jitter",
            Kind::Percent { off: true },
            "10%",
            "Spread Retry-After by up to this share of the wait, and by a second at least",
        ),
        row(
            GROUP,
            "scope_values",
            Kind::Word(SCOPE_VALUES),
            "shortened",
            "How a refusal shows the values that it was counted by, such as API keys",
        ),
    ]
}

fn authorize() -> Vec<Setting> {
    const GROUP: &str = "Authorize: requests that proxies ask about by their headers";
    vec![
        row(GROUP, "authorize_domain", Kind::Text, "none", "The domain; none where the rules have only one"),
        row(
            GROUP,
            "authorize_attributes",
            Kind::Attributes,
            AUTHORIZE_ATTRIBUTES,
            "Attributes, each with the header it is in; :endpoint, :method and :path are those of the original request",
        ),
        row(GROUP, "authorize_cost_header", Kind::Header, "X-RateLimit-Cost", "The header with the cost"),
        row(
            GROUP,
            "authorize_trusted_hops",
            Kind::Number { least: 0, most: 32 },
            "0",
            "Which entry of X-Forwarded-For is the caller, counted from the last, which is 0",
        ),
    ]
}

fn state() -> Vec<Setting> {
    const GROUP: &str = "Counters and data";
    vec![
        Setting {
            secret: Secret::Password,
            ..row(
                GROUP,
                "store",
                Kind::Store,
                "memory",
                "Where counters are kept: in memory, or in the Redis at this URL, or in the Redis Cluster of these nodes",
            )
        },
        row(
            GROUP,
            "max_keys",
            Kind::Number { least: 1, most: 10_000_000_000 },
            "10000000",
            "The most counters in memory; past it those that would soonest be forgotten are",
        ),
        row(
            GROUP,
            "data",
            Kind::Directory,
            "tollgate-data",
            "The directory for what outlives the process: counters, the last good rules",
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
        row(GROUP, "store_user", Kind::Text, "none", "Who the server is to Redis"),
        Setting {
            secret: Secret::Everything,
            ..row(GROUP, "store_password", Kind::Text, "none", "The password for Redis; a file keeps it out of `ps`")
        },
        row(GROUP, "store_password_file", Kind::Path, "none", "The file that has the password, and nothing else"),
        row(
            GROUP,
            "store_ca",
            Kind::Path,
            "none",
            "The authorities that vouch for Redis, in PEM; none is the system's",
        ),
        row(GROUP, "store_cert", Kind::Path, "none", "The certificate that is shown to Redis, in PEM"),
        row(GROUP, "store_key", Kind::Path, "none", "The private key of that certificate, in PEM"),
        row(GROUP, "store_prefix", Kind::Prefix, "tg:", "What every key in Redis begins with"),
        row(
            GROUP,
            "store_pool",
            Kind::Number { least: 1, most: 64 },
            "2",
            "Connections to each Redis; claims share them",
        ),
        row(
            GROUP,
            "store_deadline",
            time(1, 1_000),
            "8ms",
            "How long a check waits for Redis; less where its caller waits less",
        ),
        row(
            GROUP,
            "store_cool_down",
            time(100, 300_000),
            "5s",
            "How long a Redis that failed is left alone before it is tried again, give or take a fifth",
        ),
        row(
            GROUP,
            "last_resort",
            Kind::Rate { most: 1_000_000_000 },
            "off",
            "The most requests a second that pass this server while nobody can count them",
        ),
    ]
}

fn row(
    group: &'static str,
    name: &'static str,
    kind: Kind,
    default: &'static str,
    help: impl Into<Cow<'static, str>>,
) -> Setting {
    Setting {
        name: Cow::Borrowed(name),
        group,
        kind,
        default,
        help: help.into(),
        said: Said::Everywhere,
        secret: Secret::Nothing,
    }
}

fn part(
    listener: &str,
    group: &'static str,
    name: &str,
    kind: Kind,
    default: &'static str,
    help: &'static str,
) -> Setting {
    Setting { name: Cow::Owned(format!("{listener}_{name}")), ..row(group, "", kind, default, help) }
}

/// A length of time, with its bounds in milliseconds.
fn time(least: u64, most: u64) -> Kind {
    Kind::Time { least: Duration::from_millis(least), most: Duration::from_millis(most), off: false }
}
