//! Logs, traces, and what is told of decisions.

use super::super::{DECISION_LOGS, LOG_FORMATS};
use super::{Kind, Secret, Setting, row, time};

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
        row(
            GROUP,
            "decision_log",
            Kind::Word(DECISION_LOGS),
            "auto",
            "Where refusals and a sample of other decisions are logged, with callers' values: the control store, files, standard output \
             or nowhere; auto is the control store if there is one, else files in the data directory, else memory alone",
        ),
        row(
            GROUP,
            "decision_log_sample",
            Kind::Percent { off: false },
            "0.1%",
            "The share of decisions that are logged though they are no refusals",
        ),
        row(
            GROUP,
            "decision_log_callers",
            Kind::Percent { off: false },
            "0.1%",
            "The share of callers about whom every decision is logged, the same ones on every server",
        ),
        row(
            GROUP,
            "decision_log_dir",
            Kind::Path,
            "none",
            "Where the files of the decision log are; none is `decisions` in the data directory",
        ),
        row(
            GROUP,
            "decision_log_file_size",
            Kind::Size { least: 64 << 10, most: 16 << 30 },
            "32MiB",
            "How large such a file gets before the next one is begun",
        ),
        row(GROUP, "decision_log_files", Kind::Number { least: 2, most: 10_000 }, "8", "How many of them are kept"),
        row(GROUP, "decision_log_keep", time(60_000, 366 * 86_400_000), "24h", "How long decisions are kept, at most"),
        row(
            GROUP,
            "decision_log_max",
            Kind::Number { least: 1_000, most: 1_000_000_000 },
            "500000",
            "How many decisions the control store keeps, at most, of all servers together",
        ),
    ]
}
