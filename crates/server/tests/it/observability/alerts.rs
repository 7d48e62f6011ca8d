//! The alerts.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::observability::{path, read};

/// Runs promtool in the folder of the alerts.
fn promtool(args: &[&str]) -> (bool, String) {
    let output = Command::new("promtool").args(args).current_dir(path("deploy/observability")).output();
    let output = output.expect("promtool, which `make setup-tests` installs");
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    (output.status.success(), said.concat())
}

/// Whether names, types and help of metrics are as Prometheus wants them.
pub(crate) fn are_sound(metrics: &str) -> (bool, String) {
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = promtool.spawn().expect("promtool, which `make setup-tests` installs");
    promtool.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// What follows a word, on each line that has it.
fn after<'t>(text: &'t str, word: &str) -> Vec<&'t str> {
    let found = text.lines().filter_map(|line| line.split_once(word));
    found.map(|(_, rest)| rest.split([',', '}']).next().unwrap().trim()).collect()
}

#[test]
fn promtool_takes_them() {
    let (passed, said) = promtool(&["check", "rules", "alerts.yaml"]);
    assert!(passed, "{said}");
    let (passed, said) = promtool(&["check", "config", "prometheus.yaml"]);
    assert!(passed, "{said}");
}

#[test]
fn each_fires_when_it_should_and_not_when_it_should_not() {
    let (passed, said) = promtool(&["test", "rules", "alerts_test.yaml"]);
    assert!(passed, "{said}");
    // And each has both.
    let (rules, tests) = (read("deploy/observability/alerts.yaml"), read("deploy/observability/alerts_test.yaml"));
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
fn each_says_what_to_do_and_has_a_section_that_says_more() {
    let (rules, page) = (read("deploy/observability/alerts.yaml"), read("docs/observability.md"));
    for alert in after(&rules, "- alert:") {
        assert!(page.contains(&format!("\n### {alert}\n")), "docs/observability.md has no section {alert}");
        let anchor = format!("docs/observability.md#{}", alert.to_lowercase());
        let runbook = rules.lines().find(|line| line.ends_with(&anchor));
        let runbook = runbook.unwrap_or_else(|| panic!("{alert} has no line that ends in {anchor}"));
        assert!(runbook.trim().starts_with("runbook: "), "{runbook}");
    }
}
