//! The settings of logs, traces, metrics and the decision log.

use std::path::PathBuf;

use super::read::SettingsReader;
use super::settings::{DecisionLogPlace, DecisionLogSettings, LogFormat, ObserveSettings, TrafficSettings, Url};
use super::table::{DECISION_LOGS, LOG_FORMATS, LOG_LEVELS};
use super::text;

impl SettingsReader<'_> {
    pub(super) fn observe(&mut self) -> Option<ObserveSettings> {
        let log_level = self.read("log_level", |text, _| text::log_level(text, LOG_LEVELS));
        let log_format = self.word("log_format", LOG_FORMATS, &[LogFormat::Text, LogFormat::Json]);
        let otlp_endpoint = self.or("otlp_endpoint", "none", |text, _| text::url(text).map(Url));
        let otlp_sample = self.percent("otlp_sample");
        let service_name = self.read("service_name", |text, _| Ok(text.to_owned()));
        let server_name = self.or("server_name", "auto", |text, _| Ok(text.to_owned()));
        let region = self.or("region", "none", |text, _| Ok(text.to_owned()));
        let metrics_show_keys = self.switch("metrics_show_keys");
        let decisions = self.decision_log();
        let traffic = self.traffic();
        Some(ObserveSettings {
            log_level: log_level?,
            log_format: log_format?,
            otlp_endpoint: otlp_endpoint?,
            otlp_sample: otlp_sample?,
            service_name: service_name?,
            server_name: server_name?,
            region: region?,
            metrics_show_keys: metrics_show_keys?,
            decisions: decisions?,
            traffic: traffic?,
        })
    }

    fn traffic(&mut self) -> Option<TrafficSettings> {
        let on = self.switch("traffic_sample");
        let size = self.count("traffic_sample_size");
        let callers = self.percent("traffic_sample_callers");
        Some(TrafficSettings { on: on?, size: size?, callers: callers? })
    }

    fn decision_log(&mut self) -> Option<DecisionLogSettings> {
        use DecisionLogPlace::{Auto, Control, Files, Off, Stdout};
        let place = self.word("decision_log", DECISION_LOGS, &[Auto, Control, Files, Stdout, Off]);
        let sample = self.percent("decision_log_sample");
        let callers = self.percent("decision_log_callers");
        let directory = self.or("decision_log_dir", "none", |text, _| Ok(PathBuf::from(text)));
        let file_size = self.count("decision_log_file_size");
        let files = self.count("decision_log_files");
        let keep = self.time("decision_log_keep");
        let max = self.count("decision_log_max");
        let max_size = self.count("decision_log_max_size");
        let repeats = self.count("decision_log_repeats");
        Some(DecisionLogSettings {
            place: place?,
            sample: sample?,
            callers: callers?,
            directory: directory?,
            file_size: file_size?,
            files: files?,
            keep: keep?,
            max: max?,
            max_size: max_size?,
            repeats: repeats?,
        })
    }
}
