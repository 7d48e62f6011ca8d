//! The manifest in `deploy/kubernetes/`.

use std::fs;

use tollgate_testing::Server;

use crate::clients::deploy;
use crate::http::get;
use crate::repository_path;

/// The arguments of the container, after `serve`.
fn arguments(manifest: &str) -> Vec<&str> {
    let list = manifest.split_once("args:\n").unwrap().1.split("ports:").next().unwrap();
    let args = list.lines().filter_map(|line| line.trim().strip_prefix("- "));
    let (command, args) = args.collect::<Vec<_>>().split_first().map(|(first, rest)| (*first, rest.to_vec())).unwrap();
    assert_eq!(command, "serve");
    args
}

fn seconds(args: &[&str], flag: &str) -> u64 {
    let value = args.iter().find_map(|arg| arg.strip_prefix(flag)).unwrap();
    value.strip_prefix('=').unwrap().strip_suffix('s').unwrap().parse().unwrap()
}

#[test]
fn the_server_runs_with_the_manifest_and_answers_its_probes() {
    let manifest = deploy::read("kubernetes/tollgate.yaml");
    let args = arguments(&manifest);
    let grace = manifest.split_once("terminationGracePeriodSeconds: ").unwrap().1.lines().next().unwrap();
    let stopping = seconds(&args, "--shutdown-delay") + seconds(&args, "--shutdown-timeout");
    assert!(grace.parse::<u64>().unwrap() > stopping, "{grace} s, and the server may take {stopping} s");

    let builder = Server::builder(env!("CARGO_BIN_EXE_tollgate"));
    let rules = builder.home().join("rules");
    fs::create_dir(&rules).unwrap();
    fs::copy(repository_path("deploy/rules/envoy.yaml"), rules.join("envoy.yaml")).unwrap();
    let data = builder.home().join("data").display().to_string();
    let local: Vec<String> = args
        .iter()
        .map(|arg| arg.replace("/etc/tollgate/rules", &rules.display().to_string()).replace("/var/lib/tollgate", &data))
        .map(|arg| arg.replace("0.0.0.0:8080", "127.0.0.1:0").replace("0.0.0.0:8081", "127.0.0.1:0"))
        .filter(|arg| !arg.starts_with("--data="))
        .collect();
    let local: Vec<&str> = local.iter().map(String::as_str).collect();
    let server = builder.without_flag("http").without_flag("grpc").args(&local).start();
    for probe in ["readinessProbe:\n", "livenessProbe:\n"] {
        let get_line = manifest.split_once(probe).unwrap().1.lines().next().unwrap();
        let path = get_line.trim().strip_prefix("httpGet: {path: ").unwrap().strip_suffix(", port: http}").unwrap();
        assert_eq!(get(&server.url("http", path)).status, 200, "{path}");
    }
}
