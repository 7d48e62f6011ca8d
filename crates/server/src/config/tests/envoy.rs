//! envoyproxy/ratelimit's environment.

use super::start;
use crate::config::envoy::{COMPOSED_VARIABLES, DIRECT_VARIABLES, UNSUPPORTED};
use crate::config::table::find;

/// A variable or several, the setting, and its text and origin then.
#[test]
fn variables_become_settings() {
    let default = "default";
    let rows: &[(&[&str], &str, &str, &str)] = &[
        (&[], "http", "0.0.0.0:8080", default),
        (&[], "grpc", "0.0.0.0:8081", default),
        (&[], "admin", "0.0.0.0:6070", default),
        (&[], "rules", "/srv/runtime_data/current/config", default),
        (&[], "log_level", "warn", default),
        (&[], "grpc_max_connection_age", "24h", default),
        (&[], "grpc_max_connection_age_grace", "1h", default),
        (&[], "otlp_sample", "100%", default),
        (&["HOST=127.0.0.1"], "http", "127.0.0.1:8080", "HOST"),
        (&["HOST=::1", "PORT=80"], "http", "[::1]:80", "HOST and PORT"),
        (&["HOST=[::1]"], "http", "[::1]:8080", "HOST"),
        (&["PORT="], "http", "0.0.0.0:8080", default),
        (&["GRPC_PORT=9"], "grpc", "0.0.0.0:9", "GRPC_PORT"),
        (&["GRPC_PORT=9", "GRPC_UDS=/run/x.sock"], "grpc", "unix:/run/x.sock", "GRPC_UDS"),
        (&["DEBUG_HOST=localhost", "DEBUG_PORT=7"], "admin", "localhost:7", "DEBUG_HOST and DEBUG_PORT"),
        (&["RUNTIME_ROOT=/data"], "rules", "/data/config", "RUNTIME_ROOT"),
        (
            &["RUNTIME_ROOT=/data/", "RUNTIME_SUBDIRECTORY=/ratelimit/", "RUNTIME_APPDIRECTORY=rules"],
            "rules",
            "/data/ratelimit/rules",
            "RUNTIME_ROOT and RUNTIME_SUBDIRECTORY and RUNTIME_APPDIRECTORY",
        ),
        (&["MERGE_DOMAIN_CONFIG=TRUE"], "merge_domains", "true", "MERGE_DOMAIN_CONFIG"),
        (&["SHADOW_MODE=1"], "shadow_mode", "true", "SHADOW_MODE"),
        (&["GRPC_MAX_CONNECTION_AGE=1.5h"], "grpc_max_connection_age", "1h30m", "GRPC_MAX_CONNECTION_AGE"),
        (&["GRPC_MAX_CONNECTION_AGE=0"], "grpc_max_connection_age", "off", "GRPC_MAX_CONNECTION_AGE"),
        (
            &["GRPC_MAX_CONNECTION_AGE_GRACE=90s"],
            "grpc_max_connection_age_grace",
            "1m30s",
            "GRPC_MAX_CONNECTION_AGE_GRACE",
        ),
        (&["LIMIT_RESPONSE_HEADERS_ENABLED=t"], "grpc_response_headers", "true", "LIMIT_RESPONSE_HEADERS_ENABLED"),
        (&["LIMIT_LIMIT_HEADER=X-L"], "grpc_limit_header", "X-L", "LIMIT_LIMIT_HEADER"),
        (&["LIMIT_REMAINING_HEADER=X-L"], "grpc_remaining_header", "X-L", "LIMIT_REMAINING_HEADER"),
        (&["LIMIT_RESET_HEADER=X-L"], "grpc_reset_header", "X-L", "LIMIT_RESET_HEADER"),
        (&["RESPONSE_DYNAMIC_METADATA=true"], "grpc_dynamic_metadata", "true", "RESPONSE_DYNAMIC_METADATA"),
        (&["LOG_LEVEL=DEBUG"], "log_level", "debug", "LOG_LEVEL"),
        (&["LOG_FORMAT=json"], "log_format", "json", "LOG_FORMAT"),
        (&["TRACING_SERVICE_NAME=gate"], "service_name", "gate", "TRACING_SERVICE_NAME"),
        (&["TRACING_SAMPLING_RATE=0.01"], "otlp_sample", "1%", "TRACING_SAMPLING_RATE"),
        (&["TRACING_ENABLED=true"], "otlp_endpoint", "http://localhost:4317", "TRACING_ENABLED"),
        (
            &["TRACING_ENABLED=true", "OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4317"],
            "otlp_endpoint",
            "http://c:4317",
            "OTEL_EXPORTER_OTLP_ENDPOINT",
        ),
        (
            &["TRACING_ENABLED=true", "OTEL_EXPORTER_OTLP_ENDPOINT=x", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=c:4317"],
            "otlp_endpoint",
            "http://c:4317",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        ),
        (&["REDIS_URL=redis:6379"], "store", "redis://redis:6379", "REDIS_URL"),
        (&["REDIS_URL=/run/r.sock"], "store", "redis+unix:///run/r.sock", "REDIS_URL"),
        (&["REDIS_URL=redis://x", "BACKEND_TYPE=redis"], "store", "redis://x", "REDIS_URL"),
        (
            &["REDIS_URL=redis:6379", "REDIS_SOCKET_TYPE=tcp", "REDIS_TLS=true"],
            "store",
            "rediss://redis:6379",
            "REDIS_URL and REDIS_SOCKET_TYPE and REDIS_TLS",
        ),
        (&["REDIS_URL=a:1,b:2", "REDIS_TYPE=CLUSTER"], "store", "redis+cluster://a:1,b:2", "REDIS_URL and REDIS_TYPE"),
        (
            &["REDIS_URL=main,a:1,b:2", "REDIS_TYPE=sentinel"],
            "store",
            "redis+sentinel://a:1,b:2/main",
            "REDIS_URL and REDIS_TYPE",
        ),
        (&["REDIS_URL=a:1", "REDIS_AUTH=p:w"], "store_user", "p", "REDIS_AUTH"),
        (&["REDIS_URL=a:1", "REDIS_AUTH=p:w"], "store_password", "w", "REDIS_AUTH"),
        (&["REDIS_URL=a:1", "REDIS_AUTH=pw"], "store_password", "pw", "REDIS_AUTH"),
        (&["REDIS_URL=a:1", "REDIS_TLS=1", "REDIS_TLS_CACERT=c"], "store_ca", "c", "REDIS_TLS_CACERT"),
        (&["REDIS_URL=a:1", "REDIS_POOL_SIZE=10"], "store_pool", "10", "REDIS_POOL_SIZE"),
        (&["REDIS_URL=a:1", "REDIS_POOL_SIZE=500"], "store_pool", "64", "REDIS_POOL_SIZE"),
        (&["REDIS_URL=a:1", "CACHE_KEY_PREFIX=rl_"], "store_prefix", "rl_", "CACHE_KEY_PREFIX"),
        (&TLS, "grpc_tls_cert", "c.pem", "GRPC_SERVER_TLS_CERT"),
        (&TLS, "grpc_tls_key", "k.pem", "GRPC_SERVER_TLS_KEY"),
        (&TLS, "grpc_tls_client_ca", "ca.pem", "GRPC_CLIENT_TLS_CACERT"),
        (&TLS, "grpc_tls_client_sans", "envoy.example", "GRPC_CLIENT_TLS_SAN"),
    ];
    for (variables, setting, text, origin) in rows {
        let start = start(&["--envoy-env"], variables, "");
        assert_eq!(
            start.value(setting),
            ((*text).to_owned(), format!("envoyproxy/ratelimit's {origin}")),
            "{variables:?}"
        );
    }
    // Other settings have their own defaults.
    assert_eq!(start(&["--envoy-env"], &[], "").value("resp").1, "default");
    assert_eq!(start(&["--envoy-env"], &["OTEL_EXPORTER_OTLP_ENDPOINT=x"], "").value("otlp_endpoint").1, "default");
}

const TLS: [&str; 5] = [
    "GRPC_SERVER_USE_TLS=true",
    "GRPC_SERVER_TLS_CERT=c.pem",
    "GRPC_SERVER_TLS_KEY=k.pem",
    "GRPC_CLIENT_TLS_CACERT=ca.pem",
    "GRPC_CLIENT_TLS_SAN=envoy.example",
];

/// Disables the listeners, so that there are no other warnings.
const QUIET: [&str; 4] = ["--envoy-env", "--grpc=off", "--http=off", "--admin=off"];

#[test]
fn invalid_values_are_errors() {
    let rows: [(&[&str], &[&str]); 12] = [
        (
            &["SHADOW_MODE=yes"],
            &["SHADOW_MODE: error: `shadow_mode`: `yes` is neither true nor false; write true or false"],
        ),
        (
            &["GRPC_MAX_CONNECTION_AGE=24"],
            &[
                "GRPC_MAX_CONNECTION_AGE: error: `grpc_max_connection_age`: `24` is not a length of time; write for instance 24h or 1h30m",
            ],
        ),
        (
            &["LOG_LEVEL=loud"],
            &[
                "LOG_LEVEL: error: `log_level`: `loud` is not a level; write one of panic, fatal, error, warn, warning, info, debug, trace",
            ],
        ),
        (
            &["LOG_FORMAT=xml"],
            &["LOG_FORMAT: error: `log_format`: `xml` is not one of text, json; write one of text, json"],
        ),
        (
            &["TRACING_SAMPLING_RATE=2"],
            &[
                "TRACING_SAMPLING_RATE: error: `otlp_sample`: `2` is not a share; write a number from 0 to 1, for instance 0.01",
            ],
        ),
        (
            &["TRACING_ENABLED=2"],
            &["TRACING_ENABLED: error: `otlp_endpoint`: `2` is neither true nor false; write true or false"],
        ),
        (
            &["REDIS_URL=a:1", "REDIS_TYPE=ring"],
            &["REDIS_URL and REDIS_TYPE: error: `store`: REDIS_TYPE is `ring`; write single, sentinel or cluster"],
        ),
        (
            &["REDIS_URL=a:1", "REDIS_TYPE=SENTINEL"],
            &[
                "REDIS_URL and REDIS_TYPE: error: `store`: REDIS_URL has no sentinels; write the primary's name, a comma, and host:port of each sentinel",
            ],
        ),
        (
            &["REDIS_URL=a:1", "REDIS_SOCKET_TYPE=udp"],
            &["REDIS_URL and REDIS_SOCKET_TYPE: error: `store`: REDIS_SOCKET_TYPE is `udp`; write tcp or unix"],
        ),
        (
            &["REDIS_URL=a:1", "REDIS_TLS_CACERT=ca"],
            &[
                "REDIS_TLS_CACERT: error: `store_ca`: the connection to Redis has no TLS; write rediss:// in `store`, or remove it",
            ],
        ),
        (
            &["GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_KEY=k"],
            &[
                "GRPC_SERVER_USE_TLS: error: `grpc_tls_cert`: GRPC_SERVER_USE_TLS is true and GRPC_SERVER_TLS_CERT is not set; set GRPC_SERVER_TLS_CERT",
            ],
        ),
        (
            &["GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT=c", "GRPC_SERVER_TLS_KEY=k", "GRPC_CLIENT_TLS_SAN=s"],
            &[
                "GRPC_CLIENT_TLS_SAN: error: `grpc_tls_client_sans` needs `grpc_tls_client_ca`, which is not set; set `grpc_tls_client_ca` too, or remove `grpc_tls_client_sans`",
            ],
        ),
    ];
    for (variables, expected) in rows {
        assert_eq!(start(&QUIET, variables, "").problems(), expected, "{variables:?}");
    }
    let problems = start(&["--envoy-env", "--grpc=off", "--admin=off"], &["PORT=http"], "").problems();
    assert_eq!(
        problems,
        ["PORT: error: `http`: `0.0.0.0:http` is not an address; write a port from 0 to 65535 after the colon"]
    );
}

#[test]
fn listeners_that_are_open_to_every_network_are_reported() {
    let problems = start(&["--envoy-env"], &["PORT=80"], "").warnings();
    assert_eq!(
        problems,
        [
            "envoyproxy/ratelimit's default: warning: `grpc` listens on 0.0.0.0:8081, open to every network, as envoyproxy/ratelimit does; set TOLLGATE_GRPC to restrict it",
            "PORT: warning: `http` listens on 0.0.0.0:80, open to every network, as envoyproxy/ratelimit does; set TOLLGATE_HTTP to restrict it",
            "envoyproxy/ratelimit's default: warning: `admin` listens on 0.0.0.0:6070, open to every network, as envoyproxy/ratelimit does; set TOLLGATE_ADMIN to restrict it",
        ]
    );
    let restricted = ["HOST=127.0.0.1", "GRPC_UDS=/run/x", "TOLLGATE_ADMIN=127.0.0.1:1"];
    assert_eq!(start(&["--envoy-env"], &restricted, "").warnings(), [""; 0]);
    // An explicit setting of Tollgate's own causes no warning.
    assert_eq!(start(&["--grpc=0.0.0.0:1"], &[], "").warnings(), [""; 0]);
}

#[test]
fn unsupported_variables_are_reported_if_they_are_set() {
    for unsupported in UNSUPPORTED {
        for name in unsupported.names {
            let problems = start(&QUIET, &[&format!("{name}=secret")], "").warnings();
            assert_eq!(problems, [format!("{name}: warning: {}; {}", unsupported.reason, unsupported.remedy)]);
            assert_eq!(start(&QUIET, &[&format!("{name}=")], "").warnings(), [""; 0]);
            assert_eq!(start(&[], &[&format!("{name}=secret")], "").warnings(), [""; 0], "without --envoy-env");
        }
    }
}

#[test]
fn its_redis_is_ignored_if_another_store_is_set() {
    let its = ["REDIS_URL=redis:6379", "REDIS_AUTH=secret", "REDIS_POOL_SIZE=5"];
    for (flag, text) in [("--store=memory", "memory"), ("--store=redis://mine", "redis://mine")] {
        let start = start(&[&QUIET[..], &[flag]].concat(), &its, "");
        assert_eq!(start.warnings(), [""; 0]);
        assert_eq!(start.value("store").0, text);
        assert_eq!(start.value("store_password").0, "none");
    }
    // Without an address its counters are in memory, and settings of Redis are reported.
    let start = start(&QUIET, &["REDIS_AUTH=secret", "REDIS_TYPE=SINGLE"], "");
    assert_eq!(start.value("store").0, "memory");
    let nothing = "it has no effect while REDIS_URL is not set; set that, or unset this";
    assert_eq!(
        start.warnings(),
        [format!("REDIS_TYPE: warning: {nothing}"), format!("REDIS_AUTH: warning: {nothing}")]
    );
}

#[test]
fn memcached_is_reported() {
    let start = start(&QUIET, &["BACKEND_TYPE=memcache", "REDIS_URL=redis:6379"], "");
    assert_eq!(start.value("store").0, "memory");
    assert_eq!(
        start.warnings(),
        ["BACKEND_TYPE: warning: counters are in Redis or in memory, not in memcached; set it to redis, or unset it"]
    );
}

#[test]
fn unknown_variables_with_known_prefixes_are_reported() {
    let unknown = "is not a known variable of envoyproxy/ratelimit";
    let rows = [
        ("REDIS_URLL", "did you mean REDIS_URL?"),
        ("MEMCACHE_NOPE_NOPE_NOPE", "unset it"),
        ("RUNTIME_APP_DIRECTORY", "did you mean RUNTIME_APPDIRECTORY?"),
        ("GRPC_PROT", "did you mean GRPC_PORT?"),
        ("LIMIT_NOTHING_OF_THE_KIND", "unset it"),
        ("CONFIG_GRPC_XDS_NODE", "did you mean CONFIG_GRPC_XDS_NODE_ID?"),
        ("TRACING_ENABLE", "did you mean TRACING_ENABLED?"),
        ("STATSD_PROTOCOL", "did you mean STATSD_PORT?"),
    ];
    for (name, remedy) in rows {
        let problems = start(&QUIET, &[&format!("{name}=1")], "").warnings();
        assert_eq!(problems, [format!("{name}: warning: `{name}` {unknown}; {remedy}")]);
    }
    assert_eq!(start(&QUIET, &["HOME=1", "PATH=1", "OTEL_X=1", "PORTAL=1"], "").warnings(), [""; 0]);
}

#[test]
fn certificates_and_tracing_without_effect_are_reported() {
    let problems = start(&QUIET, &["GRPC_SERVER_TLS_CERT=c"], "").warnings();
    assert_eq!(
        problems,
        [
            "GRPC_SERVER_TLS_CERT: warning: it has no effect while GRPC_SERVER_USE_TLS is not true; set that, or unset this"
        ]
    );
    let grpc = "traces are sent over gRPC, not over HTTP; set TRACING_EXPORTER_PROTOCOL to grpc and OTEL_EXPORTER_OTLP_ENDPOINT to the collector's gRPC port, often 4317";
    let problems = start(&QUIET, &["TRACING_ENABLED=true"], "").warnings();
    assert_eq!(problems, [format!("TRACING_ENABLED: warning: {grpc}")]);
    let problems = start(&QUIET, &["TRACING_ENABLED=true", "TRACING_EXPORTER_PROTOCOL=http"], "").warnings();
    assert_eq!(problems, [format!("TRACING_EXPORTER_PROTOCOL: warning: {grpc}")]);
    let problems = start(&QUIET, &["TRACING_ENABLED=true", "TRACING_EXPORTER_PROTOCOL=grpc"], "").warnings();
    assert_eq!(problems, [""; 0]);
}

/// Every variable appears once, and each setting exists. There are 114 variables, and `PROTO` of old versions.
#[test]
fn its_table_is_sound() {
    let mut names: Vec<&str> = DIRECT_VARIABLES.iter().map(|direct| direct.variable).collect();
    names.extend(COMPOSED_VARIABLES.iter().map(|(name, ..)| *name));
    names.extend(UNSUPPORTED.iter().flat_map(|unsupported| unsupported.names));
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert_eq!(count, 115);
    let settings = DIRECT_VARIABLES
        .iter()
        .map(|direct| direct.setting)
        .chain(COMPOSED_VARIABLES.iter().map(|(.., setting)| *setting));
    for setting in settings {
        assert!(find(setting).is_some(), "{setting}");
    }
}
