//! The demo: its traffic on a real server, and its script, which ends all processes that it started.

use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tollgate_testing::{eventually, free_port};

use crate::cli::tollgate;
use crate::repository_path;

/// A process that is killed when this is dropped.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn get_overview(admin: &str) -> Option<Value> {
    let mut response = ureq::get(format!("http://{admin}/admin/v1/overview")).call().ok()?;
    serde_json::from_str(&response.body_mut().read_to_string().ok()?).ok()
}

#[test]
fn the_script_generates_traffic_and_ends_all_its_processes() {
    let [http, admin] = [free_port(), free_port()].map(|port| format!("127.0.0.1:{port}"));
    let mut demo = Command::new(repository_path("demo/run.sh"));
    demo.env("TOLLGATE", env!("CARGO_BIN_EXE_tollgate")).env("DEMO_RATE", "600");
    demo.env("DEMO_HTTP", &http).env("DEMO_ADMIN", &admin);
    let demo = demo.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut demo = KillOnDrop(demo);
    // The noisy neighbour is refused, and the shadow rule would refuse others.
    let overview = eventually(|| {
        let overview = get_overview(&admin)?;
        let total = |outcome: &str| overview["totals"][outcome].as_u64().unwrap();
        (total("allow") > 100 && total("shadow") > 10 && total("deny") > 0).then_some(overview)
    });
    let overview = overview.expect("the traffic has refusals and shadow refusals");
    assert!(overview["rates"]["decisions"].as_f64().unwrap() < 700.0, "{overview}");
    let children = format!("/proc/{0}/task/{0}/children", demo.0.id());
    let started = std::fs::read_to_string(children).unwrap();
    assert_eq!(started.split_whitespace().count(), 2, "{started}");
    let signalled = Command::new("kill").args(["-INT", &demo.0.id().to_string()]).status().unwrap();
    assert!(signalled.success());
    let code = eventually(|| demo.0.try_wait().unwrap()).expect("it did not end").code();
    assert_eq!(code, Some(130));
    for id in started.split_whitespace() {
        assert!(!std::path::Path::new(&format!("/proc/{id}")).exists(), "process {id} still runs");
    }
}

#[test]
fn traffic_ends_if_the_server_is_unavailable() {
    let output = tollgate(&["demo-load", "--http", "127.0.0.1:1", "--wait", "0"], b"");
    assert_eq!((output.code, &*output.out), (1, ""));
    assert!(output.err.contains("127.0.0.1:1 can't be reached"), "{}", output.err);
}
