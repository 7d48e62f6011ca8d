//! Variables of envoyproxy/ratelimit that mean nothing here: why, and what to do instead.

/// Variables with one reason.
#[derive(Debug)]
pub(in crate::config) struct Unneeded {
    pub(in crate::config) names: &'static [&'static str],
    /// What is so here.
    pub(in crate::config) why: &'static str,
    /// What to do instead.
    pub(in crate::config) instead: &'static str,
}

const UNSET: &str = "unset it";
const METRICS: &str = "metrics for Prometheus are at /metrics of the admin listener; unset it";
const FILES: &str = "put rule files where RUNTIME_ROOT, RUNTIME_SUBDIRECTORY and RUNTIME_APPDIRECTORY say";

/// All of them, told only where they are set.
pub(in crate::config) const UNNEEDED: &[Unneeded] = &[
    Unneeded {
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
        why: "there is no second Redis for limits per second: all counters of a caller are settled in one step",
        instead: UNSET,
    },
    Unneeded {
        names: &["REDIS_PIPELINE_WINDOW", "REDIS_PIPELINE_LIMIT", "REDIS_CLUSTER_PIPELINE_PARALLELISM"],
        why: "what arrives during a round trip goes out with the next one, and nothing waits for a window",
        instead: UNSET,
    },
    Unneeded {
        names: &["REDIS_TIMEOUT", "REDIS_POOL_ON_EMPTY_BEHAVIOR"],
        why: "a check waits for Redis no longer than its deadline, and then follows the policy of its rules",
        instead: "set TOLLGATE_STORE_DEADLINE",
    },
    Unneeded {
        names: &[
            "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION",
            "REDIS_STARTUP_INITIAL_INTERVAL",
            "REDIS_STARTUP_MAX_INTERVAL",
            "REDIS_STARTUP_MAX_ELAPSED_TIME",
        ],
        why: "the server starts and stays healthy without Redis: it is degraded, and says so",
        instead: UNSET,
    },
    Unneeded {
        names: &["REDIS_SENTINEL_AUTH"],
        why: "sentinels are asked with the user and password of Redis",
        instead: "give them the same",
    },
    Unneeded {
        names: &["REDIS_TLS_SKIP_HOSTNAME_VERIFICATION"],
        why: "the name in Redis's certificate is always checked",
        instead: "name Redis as its certificate does",
    },
    Unneeded {
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
        why: "counters are in Redis or in memory, and not in memcached",
        instead: UNSET,
    },
    Unneeded {
        names: &["EXPIRATION_JITTER_MAX_SECONDS"],
        why: "a key in Redis expires when all that it counts is over",
        instead: UNSET,
    },
    Unneeded {
        names: &["LOCAL_CACHE_SIZE_IN_BYTES"],
        why: "refusals that still hold are remembered by themselves, within a bound",
        instead: UNSET,
    },
    Unneeded {
        names: &["STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT"],
        why: "a refused request never consumes anything here",
        instead: UNSET,
    },
    Unneeded {
        names: &["NEAR_LIMIT_RATIO"],
        why: "near the limit is past four fifths of it, its default",
        instead: UNSET,
    },
    Unneeded {
        names: &["QUOTA_MODE"],
        why: "it can't be switched on for all rules at once here",
        instead: "write quota_mode: true in the descriptors that should have it",
    },
    Unneeded {
        names: &["RUNTIME_IGNOREDOTFILES", "RUNTIME_WATCH_ROOT"],
        why: "rule files are always followed, also through links that are swapped, and names that begin with a dot are left out",
        instead: UNSET,
    },
    Unneeded {
        names: &["FORCE_START_WITHOUT_INITIAL_CONFIG", "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED"],
        why: "the server starts only with rules, its last good ones if need be, and is healthy once it has started",
        instead: UNSET,
    },
    Unneeded {
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
        why: "rules are read from files only, not by xDS",
        instead: FILES,
    },
    Unneeded {
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
        why: "nothing is sent to statsd",
        instead: METRICS,
    },
    Unneeded {
        names: &[
            "USE_PROMETHEUS",
            "PROMETHEUS_ADDR",
            "PROMETHEUS_PATH",
            "PROMETHEUS_MAPPER_YAML",
            "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS",
        ],
        why: "there is no listener for metrics alone",
        instead: METRICS,
    },
    Unneeded {
        names: &["TRACING_SERVICE_NAMESPACE", "TRACING_SERVICE_INSTANCE_ID"],
        why: "traces carry a service name only",
        instead: UNSET,
    },
    Unneeded {
        names: &["PROTO"],
        why: "addresses say by themselves what they are",
        instead: "use GRPC_UDS for a socket",
    },
];
