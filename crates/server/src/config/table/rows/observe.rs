//! Logs, traces, metrics and the decision log.

use super::super::{DECISION_LOGS, LOG_FORMATS};
use super::{Secrecy, Setting, SettingKind, row, time};

pub(super) fn rows() -> Vec<Setting> {
    const GROUP: &str = "Observability";
    vec![
        row(
            GROUP,
            "log_level",
            SettingKind::LogLevel,
            "info",
            "error, warn, info, debug, trace, or directives such as info,tollgate=debug",
        ),
        row(GROUP, "log_format", SettingKind::Word(LOG_FORMATS), "text", "Lines of text, or JSON"),
        Setting {
            secret: Secrecy::Password,
            ..row(GROUP, "otlp_endpoint", SettingKind::Url, "none", "Where to send traces, by OTLP over gRPC")
        },
        row(GROUP, "otlp_sample", SettingKind::Percent { off: false }, "1%", "The share of requests that are traced"),
        row(GROUP, "service_name", SettingKind::Name, "tollgate", "The service name in traces"),
        row(
            GROUP,
            "server_name",
            SettingKind::Name,
            "auto",
            "The name of this server in the decision log and on the dashboard; auto is the host name",
        ),
        row(
            GROUP,
            "metrics_show_keys",
            SettingKind::Switch,
            "false",
            "Show callers' keys in ratelimit_top_denied instead of hashes",
        ),
        row(
            GROUP,
            "decision_log",
            SettingKind::Word(DECISION_LOGS),
            "auto",
            "Where denials and a sample of other decisions are logged, with callers' values: the control store, files, standard output \
             or nowhere; auto is the control store if there is one, else files in the data directory, else memory only",
        ),
        row(
            GROUP,
            "decision_log_sample",
            SettingKind::Percent { off: false },
            "0.1%",
            "The share of other decisions that are logged",
        ),
        row(
            GROUP,
            "decision_log_callers",
            SettingKind::Percent { off: false },
            "0.1%",
            "The share of callers whose decisions are all logged, the same ones on every server",
        ),
        row(
            GROUP,
            "decision_log_dir",
            SettingKind::Path,
            "none",
            "The directory of the decision log; none is `decisions` in the data directory",
        ),
        row(
            GROUP,
            "decision_log_file_size",
            SettingKind::Size { min: 64 << 10, max: 16 << 30 },
            "32MiB",
            "The size at which a new file is started",
        ),
        row(
            GROUP,
            "decision_log_files",
            SettingKind::Number { min: 2, max: 10_000 },
            "8",
            "How many files are retained",
        ),
        row(GROUP, "decision_log_keep", time(60_000, 366 * 86_400_000), "24h", "How long decisions are retained"),
        row(
            GROUP,
            "decision_log_max",
            SettingKind::Number { min: 1_000, max: 1_000_000_000 },
            "500000",
            "The maximum number of decisions in the control store, of all servers together",
        ),
        row(
            GROUP,
            "decision_log_max_size",
            SettingKind::Size { min: 1 << 20, max: 1 << 40 },
            "256MiB",
            "The maximum size of the decision log in the control store, of all servers together; files have decision_log_file_size and \
             decision_log_files",
        ),
        row(
            GROUP,
            "decision_log_repeats",
            SettingKind::Number { min: 1, max: 1_000_000 },
            "20",
            "How many refusals of one caller by one rule are logged one by one in a minute; the others are one entry with their number",
        ),
        row(
            GROUP,
            "traffic_sample",
            SettingKind::Switch,
            "true",
            "Record a sample of the requests of the last quarter of an hour in memory, with private values masked, to try changes on",
        ),
        row(
            GROUP,
            "traffic_sample_size",
            SettingKind::Size { min: 1 << 20, max: 1 << 30 },
            "64MiB",
            "The maximum memory of the sample; with more traffic, fewer callers are recorded",
        ),
        row(
            GROUP,
            "traffic_sample_callers",
            SettingKind::Percent { off: false },
            "100%",
            "The share of callers that is recorded at most; the busiest are recorded in any case",
        ),
    ]
}
