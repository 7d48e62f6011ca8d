//! Variables of envoyproxy/ratelimit that are not supported, with reasons and remedies.

/// Variables with the same reason.
#[derive(Debug)]
pub(in crate::config) struct UnsupportedVariables {
    pub(in crate::config) names: &'static [&'static str],
    /// Why they are not supported.
    pub(in crate::config) reason: &'static str,
    /// What to do instead.
    pub(in crate::config) remedy: &'static str,
}

const UNSET: &str = "unset it";
const METRICS: &str = "metrics for Prometheus are at /metrics of the admin listener; unset it";
const FILES: &str = "put rule files into the directory of RUNTIME_ROOT, RUNTIME_SUBDIRECTORY and RUNTIME_APPDIRECTORY";

/// All groups; only variables that are set are reported.
pub(in crate::config) const UNSUPPORTED: &[UnsupportedVariables] = &[
    UnsupportedVariables {
        names: &[
            "REDIS_PERSECOND",
            "REDIS_PERSECOND_SOCKET_TYPE",
            "REDIS_PERSECOND_TYPE",
            "REDIS_PERSECOND_URL",
            "REDIS_PERSECOND_POOL_SIZE",
            "REDIS_PERSECOND_AUTH",
            "REDIS_PERSECOND_TLS",
            "REDIS_PERSECOND_SENTINEL_AUTH",
            "REDIS_PERSECOND_PIPELINE_WINDOW",
            "REDIS_PERSECOND_PIPELINE_LIMIT",
            "REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM",
            "REDIS_PERSECOND_TIMEOUT",
            "REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR",
        ],
        reason: "there is no second Redis for limits per second: all counters of a caller are settled in one step",
        remedy: UNSET,
    },
    UnsupportedVariables {
        names: &["REDIS_PIPELINE_WINDOW", "REDIS_PIPELINE_LIMIT", "REDIS_CLUSTER_PIPELINE_PARALLELISM"],
        reason: "claims that arrive during a round trip are sent with the next one, without waiting for a window",
        remedy: UNSET,
    },
    UnsupportedVariables {
        names: &["REDIS_TIMEOUT", "REDIS_POOL_ON_EMPTY_BEHAVIOR"],
        reason: "a check waits for Redis until its deadline, and then follows the policies of its rules",
        remedy: "set TOLLGATE_STORE_DEADLINE",
    },
    UnsupportedVariables {
        names: &[
            "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION",
            "REDIS_STARTUP_INITIAL_INTERVAL",
            "REDIS_STARTUP_MAX_INTERVAL",
            "REDIS_STARTUP_MAX_ELAPSED_TIME",
        ],
        reason: "the server starts and stays ready without Redis; its health is degraded",
        remedy: UNSET,
    },
    UnsupportedVariables {
        names: &["REDIS_SENTINEL_AUTH"],
        reason: "sentinels get the user and password of Redis",
        remedy: "configure sentinels with the same",
    },
    UnsupportedVariables {
        names: &["REDIS_TLS_SKIP_HOSTNAME_VERIFICATION"],
        reason: "the name in Redis's certificate is always checked",
        remedy: "name Redis as its certificate does",
    },
    UnsupportedVariables {
        names: &[
            "MEMCACHE_HOST_PORT",
            "MEMCACHE_MAX_IDLE_CONNS",
            "MEMCACHE_SRV",
            "MEMCACHE_SRV_REFRESH",
            "MEMCACHE_TLS",
            "MEMCACHE_TLS_CLIENT_CERT",
            "MEMCACHE_TLS_CLIENT_KEY",
            "MEMCACHE_TLS_CACERT",
            "MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION",
        ],
        reason: "counters are in Redis or in memory, not in memcached",
        remedy: UNSET,
    },
    UnsupportedVariables {
        names: &["EXPIRATION_JITTER_MAX_SECONDS"],
        reason: "a key in Redis expires when its windows are over",
        remedy: UNSET,
    },
    UnsupportedVariables {
        names: &["LOCAL_CACHE_SIZE_IN_BYTES"],
        reason: "denials are always cached until their wait is over, within a bound",
        remedy: UNSET,
    },
    UnsupportedVariables {
        names: &["STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT"],
        reason: "a denied request never consumes anything",
        remedy: UNSET,
    },
    UnsupportedVariables {
        names: &["NEAR_LIMIT_RATIO"],
        reason: "near the limit always means beyond four fifths of it, the default",
        remedy: UNSET,
    },
    UnsupportedVariables {
        names: &["QUOTA_MODE"],
        reason: "it can't be enabled for all rules at once",
        remedy: "write quota_mode: true in the descriptors that should have it",
    },
    UnsupportedVariables {
        names: &["RUNTIME_IGNOREDOTFILES", "RUNTIME_WATCH_ROOT"],
        reason: "rule files are always watched, also through swapped links, and names with a leading dot are ignored",
        remedy: UNSET,
    },
    UnsupportedVariables {
        names: &["FORCE_START_WITHOUT_INITIAL_CONFIG", "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED"],
        reason: "the server starts only with rules, with the last good ones if necessary, and is ready once it has started",
        remedy: UNSET,
    },
    UnsupportedVariables {
        names: &[
            "CONFIG_TYPE",
            "CONFIG_GRPC_XDS_NODE_ID",
            "CONFIG_GRPC_XDS_NODE_METADATA",
            "CONFIG_GRPC_XDS_SERVER_URL",
            "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL",
            "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
            "CONFIG_GRPC_XDS_SERVER_USE_TLS",
            "CONFIG_GRPC_XDS_CLIENT_TLS_CERT",
            "CONFIG_GRPC_XDS_CLIENT_TLS_KEY",
            "CONFIG_GRPC_XDS_SERVER_TLS_CACERT",
            "CONFIG_GRPC_XDS_SERVER_TLS_SAN",
            "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL",
            "XDS_CLIENT_BACKOFF_MAX_INTERVAL",
            "XDS_CLIENT_BACKOFF_RANDOM_FACTOR",
            "XDS_CLIENT_BACKOFF_JITTER",
            "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES",
        ],
        reason: "rules are read from files only, not over xDS",
        remedy: FILES,
    },
    UnsupportedVariables {
        names: &[
            "USE_STATSD",
            "STATSD_HOST",
            "STATSD_PORT",
            "USE_DOG_STATSD",
            "USE_DOG_STATSD_MOGRIFIERS",
            "EXTRA_TAGS",
            "STATS_FLUSH_INTERVAL",
            "DISABLE_STATS",
        ],
        reason: "nothing is sent to statsd",
        remedy: METRICS,
    },
    UnsupportedVariables {
        names: &[
            "USE_PROMETHEUS",
            "PROMETHEUS_ADDR",
            "PROMETHEUS_PATH",
            "PROMETHEUS_MAPPER_YAML",
            "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS",
        ],
        reason: "there is no separate listener for metrics",
        remedy: METRICS,
    },
    UnsupportedVariables {
        names: &["TRACING_SERVICE_NAMESPACE", "TRACING_SERVICE_INSTANCE_ID"],
        reason: "traces have a service name only",
        remedy: UNSET,
    },
    UnsupportedVariables {
        names: &["PROTO"],
        reason: "addresses include their protocol",
        remedy: "use GRPC_UDS for a socket",
    },
];
