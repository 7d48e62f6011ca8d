//! The demo: its traffic against a real server, and its script, which ends with all that it started.

use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tollgate_testing::{eventually, free_port};

use crate::cli::{root, tollgate};

/// A process that is ended with this, by its id.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn overview(admin: &str) -> Option<Value> {
    let mut answer = ureq::get(format!("http://{admin}/admin/v1/overview")).call().ok()?;
    serde_json::from_str(&answer.body_mut().read_to_string().ok()?).ok()
}

#[test]
fn the_script_shows_a_story_and_ends_with_all_that_it_started() {
    let [http, admin] = [free_port(), free_port()].map(|port| format!("127.0.0.1:{port}"));
    let mut demo = Command::new(root().join("demo/run.sh"));
    demo.env("TOLLGATE", env!("CARGO_BIN_EXE_tollgate")).env("DEMO_RATE", "600");
    demo.env("DEMO_HTTP", &http).env("DEMO_ADMIN", &admin);
    let demo = demo.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut demo = Ended(demo);
    // The noisy neighbour is refused, and what is tried would refuse others.
    let told = eventually(|| {
        let told = overview(&admin)?;
        let total = |outcome: &str| told["totals"][outcome].as_u64().unwrap();
        (total("allow") > 100 && total("shadow") > 10 && total("deny") > 0).then_some(told)
    });
    let told = told.expect("no traffic that tells a story");
    assert!(told["rates"]["decisions"].as_f64().unwrap() < 700.0, "{told}");
    let children = format!("/proc/{0}/task/{0}/children", demo.0.id());
    let started = std::fs::read_to_string(children).unwrap();
    assert_eq!(started.split_whitespace().count(), 2, "{started}");
    let asked = Command::new("kill").args(["-INT", &demo.0.id().to_string()]).status().unwrap();
    assert!(asked.success());
    let code = eventually(|| demo.0.try_wait().unwrap()).expect("it did not end").code();
    assert_eq!(code, Some(130));
    for id in started.split_whitespace() {
        assert!(!std::path::Path::new(&format!("/proc/{id}")).exists(), "{id} goes on");
    }
}

#[test]
fn traffic_for_a_server_that_is_gone_ends() {
    let ran = tollgate(&["demo-load", "--http", "127.0.0.1:1", "--wait", "0"], b"");
    assert_eq!((ran.code, &*ran.out), (1, ""));
    assert!(ran.err.contains("127.0.0.1:1 can't be reached"), "{}", ran.err);
}
