//! Logs, traces, and what is told of decisions.

use super::super::LOG_FORMATS;
use super::{Kind, Secret, Setting, row};

pub(super) fn rows() -> Vec<Setting> {
    const GROUP: &str = "Observing";
    vec![
        row(
            GROUP,
            "log_level",
            Kind::LogLevel,
            "info",
            "error, warn, info, debug, trace, or directives such as info,tollgate=debug",
        ),
        row(GROUP, "log_format", Kind::Word(LOG_FORMATS), "text", "Lines for people, or JSON"),
        Setting {
            secret: Secret::Password,
            ..row(GROUP, "otlp_endpoint", Kind::Url, "none", "Where to send traces, by OTLP over gRPC")
        },
        row(GROUP, "otlp_sample", Kind::Percent { off: false }, "1%", "The share of requests that are traced"),
        row(GROUP, "service_name", Kind::Name, "tollgate", "What the server is called in traces"),
        row(
            GROUP,
            "server_name",
            Kind::Name,
            "auto",
            "What this server is called among others, in the decision log and on the dashboard; auto is the name of the machine",
        ),
        row(GROUP, "region", Kind::Text, "none", "Where this server is, in the decision log and on the dashboard"),
        row(
            GROUP,
            "metrics_show_keys",
            Kind::Switch,
            "false",
            "Show callers' keys in ratelimit_top_denied; else there are hashes of them",
        ),
    ]
}
