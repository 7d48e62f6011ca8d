//! Envoy in front of an application, with a server as its rate limit service: the configuration in `deploy/envoy/`.

mod channels;
mod costs;
mod hostile;
mod in_flight;
mod limits;
mod model;
mod responses;
mod tokens;
mod unavailable;
mod under_load;

use std::fs;

use tempfile::TempDir;
use tollgate_testing::{Server, ServerBuilder, programs};

use crate::clients::application::start_application;
use crate::clients::deploy;
use crate::clients::http::{self, Headers, RawResponse};
use crate::clients::process::ClientProcess;
use crate::new_server;

/// A running Envoy.
pub(crate) struct Envoy {
    process: ClientProcess,
    /// The address for clients.
    address: String,
    /// The address of its admin interface.
    admin: String,
    // Deleted after the process has ended.
    _home: TempDir,
}

/// A configuration of `deploy/envoy/`, with changes.
pub(crate) struct EnvoyConfig {
    text: String,
    /// Another configuration to merge, by `--config-yaml`.
    overlay: String,
}

/// A server with the rules of `deploy/`.
fn server() -> Server {
    builder().start()
}

fn builder() -> ServerBuilder {
    new_server().rules(&deploy::read("rules/envoy.yaml")).listen(&["grpc"])
}

impl EnvoyConfig {
    /// `envoy.yaml` as deployed, with Tollgate at this address.
    pub(crate) fn new(tollgate: &str) -> EnvoyConfig {
        EnvoyConfig::from_file("envoy.yaml", tollgate, &start_application())
    }

    /// A file as deployed, with Tollgate and the application at these addresses.
    fn from_file(file: &str, tollgate: &str, application: &str) -> EnvoyConfig {
        let mut config = EnvoyConfig { text: deploy::read(&format!("envoy/{file}")), overlay: String::new() };
        // Envoy chooses free ports and reports them.
        for port in ["9901", "10000"] {
            config = config.with(&format!("port_value: {port}}}"), "port_value: 0}");
        }
        // A busy machine may exceed the timeout of the deployed configuration.
        let config = config.with("timeout: 0.05s", "timeout: 10s");
        config.with_port("8000", application).with_port("8081", tollgate)
    }

    pub(crate) fn with(self, old: &str, new: &str) -> EnvoyConfig {
        EnvoyConfig { text: deploy::replace(&self.text, old, new), ..self }
    }

    /// Replaces a port of the file by that of this address.
    fn with_port(self, port: &str, address: &str) -> EnvoyConfig {
        let new = address.rsplit(':').next().unwrap();
        self.with(&format!("port_value: {port}}}"), &format!("port_value: {new}}}"))
    }

    /// Refuses requests if the check fails, so that failures show.
    fn fail_closed(self) -> EnvoyConfig {
        self.with("failure_mode_deny: false", "failure_mode_deny: true")
    }

    /// Replaces the cluster `tollgate` by that of another file.
    fn with_cluster(self, name: &str, file: String) -> EnvoyConfig {
        let config = self.with("cluster_name: tollgate}}", &format!("cluster_name: {name}}}}}"));
        EnvoyConfig { overlay: file, ..config }
    }

    #[track_caller]
    pub(crate) fn start(self) -> Envoy {
        let home = TempDir::new().unwrap();
        fs::write(home.path().join("envoy.yaml"), self.text).unwrap();
        let args = [
            "-c",
            "envoy.yaml",
            "--config-yaml",
            &self.overlay,
            "--admin-address-path",
            "admin",
            "--concurrency",
            "1",
            "--disable-hot-restart",
            // By default the access log is flushed every ten seconds.
            "--file-flush-interval-msec",
            "50",
            "--log-level",
            "warning",
        ];
        let mut process = ClientProcess::start(&programs::in_environment("envoy"), &args, home.path());
        let admin = process.wait_for(|| {
            let admin = fs::read_to_string(home.path().join("admin")).ok().filter(|admin| !admin.is_empty())?;
            (http::get(&admin, "/ready", &[]).status == 200).then_some(admin)
        });
        let admin = admin.unwrap_or_else(|error| panic!("Envoy: {error}"));
        let listeners = http::get(&admin, "/listeners", &[]).body;
        let address = listeners.trim().strip_prefix("clients::").expect("the listener is called clients").to_owned();
        Envoy { process, address, admin, _home: home }
    }
}

impl Envoy {
    /// Starts Envoy with the deployed configuration and this server.
    #[track_caller]
    fn start(server: &Server) -> Envoy {
        EnvoyConfig::new(server.address("grpc")).start()
    }

    /// The address for clients.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    #[track_caller]
    fn get(&self, path: &str, headers: Headers<'_>) -> RawResponse {
        http::get(&self.address, path, headers)
    }

    /// A statistic of Envoy about the cluster `tollgate`.
    #[track_caller]
    fn stat(&self, name: &str) -> u64 {
        let name = format!("cluster.tollgate.{name}");
        let stats = http::get(&self.admin, &format!("/stats?filter=^{name}$"), &[]).body;
        let number = stats.trim().strip_prefix(&format!("{name}: ")).and_then(|number| number.parse().ok());
        number.unwrap_or_else(|| panic!("{name}: {stats}"))
    }

    /// How many checks failed, for whatever reason.
    #[track_caller]
    fn failed_checks(&self) -> u64 {
        // The statistic exists once a check has failed.
        let stats = http::get(&self.admin, "/stats?filter=ratelimit", &[]).body;
        assert!(stats.contains("ratelimit.ok: "), "{stats}");
        let failed = stats.lines().filter_map(|line| line.split_once("ratelimit.error: "));
        failed.map(|(_, count)| count.trim().parse::<u64>().unwrap()).sum()
    }

    /// The statuses of this many sequential requests.
    #[track_caller]
    pub(crate) fn statuses(&self, count: usize, path: &str, headers: Headers<'_>) -> Vec<u16> {
        (0..count).map(|_| self.get(path, headers).status).collect()
    }
}
