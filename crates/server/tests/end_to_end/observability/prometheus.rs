//! A Prometheus with the configuration in `deploy/observability/prometheus.yaml`.

use std::fs;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use tollgate_testing::{Process, free_port};

use crate::clients::deploy::replace;
use crate::http::new_agent;
use crate::observability::read;

/// A running Prometheus, until this is dropped.
pub(crate) struct Prometheus {
    url: String,
    agent: ureq::Agent,
    _process: Process,
    _home: TempDir,
}

impl Prometheus {
    /// Starts a Prometheus that scrapes the admin listener at this address every second.
    pub(crate) fn start(address: &str) -> Prometheus {
        let home = TempDir::new().unwrap();
        let config = read("deploy/observability/prometheus.yaml");
        let config = replace(&config, "scrape_interval: 15s", "scrape_interval: 1s");
        let config = replace(&config, "evaluation_interval: 15s", "evaluation_interval: 1s");
        let config = replace(&config, "127.0.0.1:8070", address);
        fs::write(home.path().join("prometheus.yaml"), config).unwrap();
        for file in ["alerts.yaml", "slo.yaml"] {
            let rules = read(&format!("deploy/observability/{file}"));
            // Groups with an interval of their own, too.
            let rules = ["15s", "1m", "5m"].iter().fold(rules, |rules, interval| {
                rules.replace(&format!("    interval: {interval}\n"), "    interval: 1s\n")
            });
            fs::write(home.path().join(file), rules).unwrap();
        }
        let listen = format!("127.0.0.1:{}", free_port());
        let mut command = Command::new("prometheus");
        command.current_dir(home.path()).args(["--config.file=prometheus.yaml", "--storage.tsdb.path=data"]);
        let process = Process::start(command.arg(format!("--web.listen-address={listen}")));
        Prometheus { url: format!("http://{listen}"), agent: new_agent(), _process: process, _home: home }
    }

    /// The numbers in the result of a query; empty while Prometheus is unavailable.
    pub(crate) fn numbers(&self, query: &str) -> Vec<f64> {
        let response = self.get(self.agent.get(format!("{}/api/v1/query", self.url)).query("query", query));
        let error = response["error"].as_str();
        assert_eq!(error, None, "{query}");
        let series = response["data"]["result"].as_array().cloned().unwrap_or_default();
        let number = |series: &Value| series["value"][1].as_str().and_then(|number| number.parse::<f64>().ok());
        series.iter().filter_map(number).filter(|number| !number.is_nan()).collect()
    }

    /// The names and health of all alerts.
    pub(crate) fn alerts(&self) -> Vec<(String, String)> {
        let response = self.get(self.agent.get(format!("{}/api/v1/rules", self.url)));
        let groups = response["data"]["groups"].as_array().cloned().unwrap_or_default();
        let rules = groups.iter().flat_map(|group| group["rules"].as_array().cloned().unwrap_or_default());
        let text = |rule: &Value, name: &str| rule[name].as_str().unwrap_or_default().to_owned();
        rules.map(|rule| (text(&rule, "name"), text(&rule, "health"))).collect()
    }

    fn get(&self, request: ureq::RequestBuilder<ureq::typestate::WithoutBody>) -> Value {
        let Ok(mut response) = request.call() else { return Value::Null };
        serde_json::from_str(&response.body_mut().read_to_string().unwrap()).unwrap_or_default()
    }
}
