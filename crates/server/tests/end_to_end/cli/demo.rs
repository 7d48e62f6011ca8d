//! The demo: its traffic on a real server, and its script, which ends all processes that it started.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tollgate_testing::{eventually, free_port, until};

use crate::cli::tollgate;
use crate::repository_path;

/// The script, which is ended when this is dropped, together with what it started.
struct RunningDemo(Child);

impl RunningDemo {
    fn signal(&self, name: &str) -> bool {
        Command::new("kill").args(["-s", name, &self.0.id().to_string()]).status().is_ok_and(|sent| sent.success())
    }
}

impl Drop for RunningDemo {
    fn drop(&mut self) {
        let has_ended = |script: &mut Child| script.try_wait().ok().flatten();
        if has_ended(&mut self.0).is_none() && self.signal("TERM") {
            eventually(|| has_ended(&mut self.0));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn get_overview(admin: &str) -> Option<Value> {
    let mut response = ureq::get(format!("http://{admin}/admin/v1/overview")).call().ok()?;
    serde_json::from_str(&response.body_mut().read_to_string().ok()?).ok()
}

/// Starts a script of the demo.
fn start(script: &str, environment: &[(&str, &str)]) -> RunningDemo {
    // A shell can't trap a signal that was ignored when it started, and tests in the background of a script start with SIGINT ignored.
    let mut demo = Command::new("env");
    demo.arg("--default-signal=INT").arg(repository_path(script)).env("TOLLGATE", env!("CARGO_BIN_EXE_tollgate"));
    demo.envs(environment.iter().copied()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    RunningDemo(demo.spawn().unwrap())
}

/// Interrupts a demo, and checks that all of its processes end, of which there are so many.
fn interrupt(mut demo: RunningDemo, processes: usize) {
    let children = format!("/proc/{0}/task/{0}/children", demo.0.id());
    let started = std::fs::read_to_string(children).unwrap();
    assert_eq!(started.split_whitespace().count(), processes, "{started}");
    assert!(demo.signal("INT"));
    let code = eventually(|| demo.0.try_wait().unwrap()).expect("it did not end").code();
    assert_eq!(code, Some(130));
    for id in started.split_whitespace() {
        assert!(!std::path::Path::new(&format!("/proc/{id}")).exists(), "process {id} still runs");
    }
}

#[test]
fn the_script_generates_traffic_and_ends_all_its_processes() {
    let [http, admin] = [free_port(), free_port()].map(|port| format!("127.0.0.1:{port}"));
    let environment = [("DEMO_RATE", "600"), ("DEMO_HTTP", &*http), ("DEMO_ADMIN", &*admin)];
    let demo = start("demo/run.sh", &environment);
    // The noisy neighbour is refused, and the shadow rule would refuse others.
    let overview = eventually(|| {
        let overview = get_overview(&admin)?;
        let total = |outcome: &str| overview["totals"][outcome].as_u64().unwrap();
        (total("allow") > 100 && total("shadow") > 10 && total("deny") > 0).then_some(overview)
    });
    let overview = overview.expect("the traffic has refusals and shadow refusals");
    assert!(overview["rates"]["decisions"].as_f64().unwrap() < 700.0, "{overview}");
    interrupt(demo, 2);
}

fn get_gateway(admin: &str) -> Option<Value> {
    let mut response = ureq::get(format!("http://{admin}/admin/v1/gateway")).call().ok()?;
    serde_json::from_str(&response.body_mut().read_to_string().ok()?).ok()
}

#[test]
fn the_gateway_sheds_the_least_important_requests_of_a_slow_upstream() {
    let [gateway, upstream, admin] = [(); 3].map(|()| format!("127.0.0.1:{}", free_port()));
    let addresses = [("DEMO_GATEWAY", &*gateway), ("DEMO_UPSTREAM", &*upstream), ("DEMO_ADMIN", &*admin)];
    // From the start, the upstream can serve 16 requests in 60 ms.
    let demo = start("demo/gateway.sh", &[&addresses[..], &[("DEMO_RATE", "600"), ("DEMO_SLOW_AFTER", "0")]].concat());
    // Requests that are shed are not charged, so the traffic reaches its limits only after a while.
    let refused = eventually(|| {
        let status = get_gateway(&admin)?;
        let successful = |route: &Value| route["successful"].as_u64().unwrap();
        let successful: u64 = status["routes"].as_array().unwrap().iter().map(successful).sum();
        let refused = &status["upstreams"][0]["cap"]["refused"];
        (successful > 50 && refused["get"].as_u64()? > 50).then(|| refused.clone())
    });
    let refused = refused.expect("requests are served and shed");
    assert!(refused["critical"].as_u64() < refused["get"].as_u64(), "{refused}");
    // Orders of one caller are limited while reads are shed.
    let order_is_limited = || {
        let agent = ureq::Agent::new_with_config(ureq::Agent::config_builder().http_status_as_error(false).build());
        let order = agent.post(format!("http://{gateway}/orders")).header("X-Api-Key", "eager").send_empty();
        order.unwrap().status() == 429
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| until("orders are limited", order_is_limited));
        }
    });
    interrupt(demo, 3);
}

/// What a demo has printed so far, and what it prints at its end.
fn read_lines(demo: &mut RunningDemo) -> std::sync::mpsc::Receiver<String> {
    let (sender, lines) = std::sync::mpsc::channel();
    let output = BufReader::new(demo.0.stdout.take().unwrap());
    std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    lines
}

#[test]
fn regions_are_cut_off_and_found_again() {
    let admin = format!("127.0.0.1:{}", free_port());
    let environment = [("DEMO_ADMIN", &*admin), ("DEMO_SERVERS", "1"), ("DEMO_RATE", "300"), ("DEMO_CUT_AFTER", "5")];
    let mut demo = start("demo/regions.sh", &environment);
    let lines = read_lines(&mut demo);
    let link = |region: &str| {
        let mut response = ureq::get(format!("http://{admin}/admin/v1/regions")).call().ok()?;
        let regions: Value = serde_json::from_str(&response.body_mut().read_to_string().ok()?).ok()?;
        let regions = regions["regions"].as_array()?.iter().find(|other| other["name"] == region)?.clone();
        Some((regions["link"].as_str()?.to_owned(), regions["units"]["sent"].as_u64()?))
    };
    let is_apart = || (link("eu-west")?.0 == "apart").then_some(());
    until("eu-west is cut off", || is_apart().is_some());
    let (link, sent) = link("us-west").unwrap();
    assert!(link == "together" && sent > 0, "{link}, {sent}");
    // A whole period is over.
    let report: Vec<String> = lines.iter().skip_while(|line| !line.contains("of the limit")).take(7).collect();
    assert_eq!(report[1].split_whitespace().next(), Some("requests"), "{report:?}");
    // Three Redis, six relays, three servers, the traffic, and what waits for the end of the cut.
    interrupt(demo, 14);
    let summary: Vec<String> = lines.iter().skip_while(|line| !line.contains("Most in 10 s")).collect();
    assert_eq!(summary.len(), 6, "{summary:?}");
    for mode in ["split", "home"] {
        let line = summary.iter().find(|line| line.trim_start().starts_with(mode)).unwrap();
        let percent: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        assert!(percent.iter().all(|percent| *percent <= 100), "{line}");
    }
}

#[test]
fn traffic_ends_if_the_server_is_unavailable() {
    let output = tollgate(&["demo-load", "--http", "127.0.0.1:1", "--wait", "0"], b"");
    assert_eq!((output.code, &*output.out), (1, ""));
    assert!(output.err.contains("127.0.0.1:1 can't be reached"), "{}", output.err);
}
