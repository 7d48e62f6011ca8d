//! The alerts.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::observability::read;
use crate::repository_path;

/// Runs promtool in the directory of the alerts.
fn promtool(args: &[&str]) -> (bool, String) {
    let output = Command::new("promtool").args(args).current_dir(repository_path("deploy/observability")).output();
    let output = output.expect("promtool, which `make setup-tests` installs");
    let streams = [output.stdout, output.stderr].map(|stream| String::from_utf8_lossy(&stream).into_owned());
    (output.status.success(), streams.concat())
}

/// Checks names, types and help texts of metrics by promtool.
pub(crate) fn lint_metrics(metrics: &str) -> (bool, String) {
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = promtool.spawn().expect("promtool, which `make setup-tests` installs");
    promtool.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// The rest of each line after a word.
fn after<'t>(text: &'t str, word: &str) -> Vec<&'t str> {
    let found = text.lines().filter_map(|line| line.split_once(word));
    found.map(|(_, rest)| rest.split([',', '}']).next().unwrap().trim()).collect()
}

#[test]
fn promtool_accepts_the_alerts() {
    let (passed, output) = promtool(&["check", "rules", "alerts.yaml", "slo.yaml"]);
    assert!(passed, "{output}");
    let (passed, output) = promtool(&["check", "config", "prometheus.yaml"]);
    assert!(passed, "{output}");
}

#[test]
fn each_alert_has_tests_of_firing_and_of_staying_quiet() {
    for (rules, tests) in [("alerts.yaml", "alerts_test.yaml"), ("slo.yaml", "slo_test.yaml")] {
        let (passed, output) = promtool(&["test", "rules", tests]);
        assert!(passed, "{output}");
        assert_both_tests(rules, tests);
    }
}

#[track_caller]
fn assert_both_tests(rules: &str, tests: &str) {
    let [rules, tests] = [rules, tests].map(|file| read(&format!("deploy/observability/{file}")));
    let quiet: String = tests.lines().filter(|line| line.contains("exp_alerts: []")).collect::<Vec<_>>().join("\n");
    let loud: String = tests.lines().filter(|line| !line.contains("exp_alerts: []")).collect::<Vec<_>>().join("\n");
    let alerts = after(&rules, "- alert:");
    assert!(alerts.len() >= 8, "{alerts:?}");
    for alert in alerts {
        assert!(after(&loud, "alertname:").contains(&alert), "no test shows {alert} firing");
        assert!(after(&quiet, "alertname:").contains(&alert), "no test shows {alert} staying quiet");
    }
}

#[test]
fn each_alert_has_a_description_and_a_runbook_section() {
    for (rules, page) in [("alerts.yaml", "docs/observability.md"), ("slo.yaml", "docs/slo.md")] {
        let (rules, text) = (read(&format!("deploy/observability/{rules}")), read(page));
        for alert in after(&rules, "- alert:") {
            assert!(text.contains(&format!("\n### {alert}\n")), "{page} has no section {alert}");
            let anchor = format!("{page}#{}", alert.to_lowercase());
            let runbook = rules.lines().find(|line| line.ends_with(&anchor));
            let runbook = runbook.unwrap_or_else(|| panic!("{alert} has no line that ends in {anchor}"));
            assert!(runbook.trim().starts_with("runbook: "), "{runbook}");
        }
    }
}

/// Runs amtool on the example for Alertmanager.
fn amtool(args: &[&str]) -> (bool, String) {
    let output = Command::new("amtool").args(args).current_dir(repository_path("deploy/observability")).output();
    let output = output.expect("amtool, which `make setup-tests` installs");
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn alertmanager_pages_for_critical_alerts_only() {
    let (passed, output) = amtool(&["check-config", "alertmanager.yml"]);
    assert!(passed, "{output}");
    for (severity, receiver) in [("critical", "page"), ("warning", "ticket"), ("info", "log")] {
        let label = format!("severity={severity}");
        let (passed, output) = amtool(&["config", "routes", "test", "--config.file=alertmanager.yml", &label]);
        assert!(passed && output.trim() == receiver, "{severity}: {output}");
    }
    let alerts = ["alerts.yaml", "slo.yaml"].map(|file| read(&format!("deploy/observability/{file}"))).concat();
    for severity in after(&alerts, "severity:") {
        assert!(["critical", "warning", "info"].contains(&severity), "{severity} has no receiver");
    }
}
