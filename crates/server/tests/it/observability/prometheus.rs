//! A Prometheus that scrapes, as `deploy/observability/prometheus.yaml` says.

use std::fs;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use tollgate_testing::{Process, free_port};

use crate::observability::read;
use crate::observability::traffic::agent;

/// It ends with this.
pub(crate) struct Prometheus {
    url: String,
    agent: ureq::Agent,
    _process: Process,
    _home: TempDir,
}

impl Prometheus {
    /// Scrapes the admin listener at this address, every second.
    pub(crate) fn scraping(address: &str) -> Prometheus {
        let home = TempDir::new().unwrap();
        let config = read("deploy/observability/prometheus.yaml");
        let config = replaced(&config, "scrape_interval: 15s", "scrape_interval: 1s");
        let config = replaced(&config, "evaluation_interval: 15s", "evaluation_interval: 1s");
        let config = replaced(&config, "127.0.0.1:8070", address);
        fs::write(home.path().join("prometheus.yaml"), config).unwrap();
        fs::write(home.path().join("alerts.yaml"), read("deploy/observability/alerts.yaml")).unwrap();
        let listen = format!("127.0.0.1:{}", free_port());
        let mut command = Command::new("prometheus");
        command.current_dir(home.path()).args(["--config.file=prometheus.yaml", "--storage.tsdb.path=data"]);
        let process = Process::start(command.arg(format!("--web.listen-address={listen}")));
        Prometheus { url: format!("http://{listen}"), agent: agent(), _process: process, _home: home }
    }

    /// The numbers that a query has for an answer; none also while it does not answer.
    pub(crate) fn numbers(&self, query: &str) -> Vec<f64> {
        let answer = self.get(self.agent.get(format!("{}/api/v1/query", self.url)).query("query", query));
        let error = answer["error"].as_str();
        assert_eq!(error, None, "{query}");
        let series = answer["data"]["result"].as_array().cloned().unwrap_or_default();
        let number = |series: &Value| series["value"][1].as_str().and_then(|number| number.parse::<f64>().ok());
        series.iter().filter_map(number).filter(|number| !number.is_nan()).collect()
    }

    /// The alerts that it evaluates: names and how that goes.
    pub(crate) fn alerts(&self) -> Vec<(String, String)> {
        let answer = self.get(self.agent.get(format!("{}/api/v1/rules", self.url)));
        let groups = answer["data"]["groups"].as_array().cloned().unwrap_or_default();
        let rules = groups.iter().flat_map(|group| group["rules"].as_array().cloned().unwrap_or_default());
        let text = |rule: &Value, name: &str| rule[name].as_str().unwrap_or_default().to_owned();
        rules.map(|rule| (text(&rule, "name"), text(&rule, "health"))).collect()
    }

    fn get(&self, request: ureq::RequestBuilder<ureq::typestate::WithoutBody>) -> Value {
        let Ok(mut answer) = request.call() else { return Value::Null };
        serde_json::from_str(&answer.body_mut().read_to_string().unwrap()).unwrap_or_default()
    }
}

#[track_caller]
fn replaced(text: &str, old: &str, new: &str) -> String {
    assert!(text.contains(old), "there is no `{old}` in the configuration");
    text.replace(old, new)
}
