//! What holds where the file says nothing.

use std::time::Duration;

use tollgate_shed::FairnessSettings;

use crate::model::{
    AdaptiveConfig, ConnectionConfig, EjectionConfig, FairnessConfig, GraphQlBounds, RetryConfig, SheddingMode,
    Timeouts, UpstreamHeaders, WorkerSheddingConfig,
};

/// The largest body of a request, in bytes.
pub(super) const MAX_BODY: u64 = 10 << 20;

/// The most connections of a listener.
pub(super) const MAX_CONNECTIONS: usize = 10_000;

/// How often names of servers are looked up, files of servers are read, and servers are checked.
pub(super) const EVERY: Duration = Duration::from_secs(5);

/// How long a check of a server may take.
pub(super) const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);

/// How often keys are fetched.
pub(super) const KEYS_EVERY: Duration = Duration::from_secs(300);

/// How far clocks may differ.
pub(super) const LEEWAY: Duration = Duration::from_secs(60);

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            connect: Duration::from_secs(1),
            tls: Duration::from_secs(2),
            request_idle: Duration::from_secs(30),
            response: Duration::from_secs(15),
            response_idle: Duration::from_secs(60),
            whole: None,
        }
    }
}

impl Default for RetryConfig {
    fn default() -> RetryConfig {
        RetryConfig {
            attempts: 1,
            on_connect: true,
            on_reset: true,
            on_timeout: false,
            on_status: Vec::new(),
            methods: Vec::new(),
            budget: 0.2,
        }
    }
}

impl Default for ConnectionConfig {
    /// Unused connections are closed before a server closes them: Node.js does so after 5 s, nginx after 75 s.
    fn default() -> ConnectionConfig {
        ConnectionConfig { most: 256, waiting: 1024, idle: Duration::from_secs(4), age: Duration::from_secs(600) }
    }
}

impl Default for EjectionConfig {
    fn default() -> EjectionConfig {
        EjectionConfig { failures: 5, statuses: vec![500, 502, 503, 504], time: Duration::from_secs(30), most: 0.5 }
    }
}

impl Default for AdaptiveConfig {
    /// Nothing is shed unless the file says so.
    fn default() -> AdaptiveConfig {
        AdaptiveConfig {
            mode: SheddingMode::Shadow,
            min: 3,
            max: 1000,
            probe: Duration::from_secs(60),
            shares: [0.7, 0.8, 0.9, 1.0],
            reserve: Vec::new(),
        }
    }
}

impl Default for FairnessConfig {
    /// Nothing is shed unless the file says so.
    fn default() -> FairnessConfig {
        let FairnessSettings { latency, refused, grace, ramp, .. } = FairnessSettings::default();
        FairnessConfig { mode: SheddingMode::Shadow, latency, refused, grace, ramp }
    }
}

impl Default for WorkerSheddingConfig {
    fn default() -> WorkerSheddingConfig {
        WorkerSheddingConfig {
            mode: SheddingMode::Off,
            from: 0.8,
            until: 0.7,
            ramp: Duration::from_secs(120),
            grace: Duration::from_secs(28),
        }
    }
}

impl Default for GraphQlBounds {
    fn default() -> GraphQlBounds {
        GraphQlBounds { depth: 15, aliases: 30, batch: 10, list: 20, most: 10_000 }
    }
}

impl Default for UpstreamHeaders {
    /// None: an upstream may belong to somebody else, who need not know the callers.
    fn default() -> UpstreamHeaders {
        UpstreamHeaders { caller: false, tier: false, priority: false, rule: false, remaining: false, cost: false }
    }
}
