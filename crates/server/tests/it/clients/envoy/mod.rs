//! Envoy in front of an application, asking a server whom to let pass: the configuration in `deploy/envoy/`.

mod channels;
mod costs;
mod in_flight;
mod limits;
mod model;
mod running;
mod tokens;
mod told;
mod without;

use std::fs;

use tempfile::TempDir;
use tollgate_testing::{Server, ServerBuilder, programs};

use crate::clients::application::application;
use crate::clients::http::{self, Answer, Headers};
use crate::clients::process::Process;
use crate::clients::tools;
use crate::new_server;

/// A running Envoy.
pub(crate) struct Envoy {
    process: Process,
    /// Where clients come to.
    address: String,
    /// Where it tells about itself.
    admin: String,
    // Deleted after the process has ended.
    _home: TempDir,
}

/// What is changed in a file of `deploy/envoy/` besides addresses.
pub(crate) struct Config {
    text: String,
    /// Merged with it, as `--config-yaml` does.
    more: String,
}

/// A server with the rules of `deploy/`.
fn server() -> Server {
    builder().start()
}

fn builder() -> ServerBuilder {
    new_server().rules(&tools::deployed("rules/envoy.yaml")).listen(&["grpc"])
}

impl Config {
    /// `envoy.yaml` as deployed, with Tollgate at this address.
    pub(crate) fn new(tollgate: &str) -> Config {
        Config::of("envoy.yaml", tollgate, &application())
    }

    /// A file as deployed, with Tollgate and the application at these addresses.
    fn of(file: &str, tollgate: &str, application: &str) -> Config {
        let mut config = Config { text: tools::deployed(&format!("envoy/{file}")), more: String::new() };
        // Envoy takes any free port itself, and tells.
        for port in ["9901", "10000"] {
            config = config.with(&format!("port_value: {port}}}"), "port_value: 0}");
        }
        // On a busy machine the time that is deployed may pass, and a request with it.
        let config = config.with("timeout: 0.05s", "timeout: 10s");
        config.with_port("8000", application).with_port("8081", tollgate)
    }

    pub(crate) fn with(self, old: &str, new: &str) -> Config {
        Config { text: tools::replaced(&self.text, old, new), ..self }
    }

    /// With this address in the place of the port that the file has.
    fn with_port(self, port: &str, address: &str) -> Config {
        let new = address.rsplit(':').next().unwrap();
        self.with(&format!("port_value: {port}}}"), &format!("port_value: {new}}}"))
    }

    /// With what fails refused, so that it is seen.
    fn fail_closed(self) -> Config {
        self.with("failure_mode_deny: false", "failure_mode_deny: true")
    }

    /// With the cluster of another file in the place of `tollgate`.
    fn with_cluster(self, name: &str, file: String) -> Config {
        let config = self.with("cluster_name: tollgate}}", &format!("cluster_name: {name}}}}}"));
        Config { more: file, ..config }
    }

    #[track_caller]
    pub(crate) fn start(self) -> Envoy {
        let home = TempDir::new().unwrap();
        fs::write(home.path().join("envoy.yaml"), self.text).unwrap();
        let args = [
            "-c",
            "envoy.yaml",
            "--config-yaml",
            &self.more,
            "--admin-address-path",
            "admin",
            "--concurrency",
            "1",
            "--disable-hot-restart",
            // Else the access log is written every ten seconds.
            "--file-flush-interval-msec",
            "50",
            "--log-level",
            "warning",
        ];
        let mut process = Process::start(&programs::in_environment("envoy"), &args, home.path());
        let admin = process.until(|| {
            let admin = fs::read_to_string(home.path().join("admin")).ok().filter(|admin| !admin.is_empty())?;
            (http::get(&admin, "/ready", &[]).status == 200).then_some(admin)
        });
        let admin = admin.unwrap_or_else(|why| panic!("Envoy: {why}"));
        let listeners = http::get(&admin, "/listeners", &[]).body;
        let address = listeners.trim().strip_prefix("clients::").expect("its listener is called clients").to_owned();
        Envoy { process, address, admin, _home: home }
    }
}

impl Envoy {
    /// In front of this server, with the configuration as it is deployed.
    #[track_caller]
    fn before(server: &Server) -> Envoy {
        Config::new(server.address("grpc")).start()
    }

    #[track_caller]
    fn get(&self, path: &str, headers: Headers<'_>) -> Answer {
        http::get(&self.address, path, headers)
    }

    /// A number of its own about Tollgate.
    #[track_caller]
    fn stat(&self, name: &str) -> u64 {
        let name = format!("cluster.tollgate.{name}");
        let stats = http::get(&self.admin, &format!("/stats?filter=^{name}$"), &[]).body;
        let number = stats.trim().strip_prefix(&format!("{name}: ")).and_then(|number| number.parse().ok());
        number.unwrap_or_else(|| panic!("{name}: {stats}"))
    }

    /// The statuses of so many requests, one after the other.
    #[track_caller]
    pub(crate) fn statuses(&self, count: usize, path: &str, headers: Headers<'_>) -> Vec<u16> {
        (0..count).map(|_| self.get(path, headers).status).collect()
    }
}
