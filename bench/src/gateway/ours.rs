//! Tollgate's gateway.

use super::{File, Proxy};
use crate::server::SERVER_CORE;
use crate::server::process::with_many_files;
use crate::server::tollgate::{self, Rules};

/// No rule applies to a request.
pub const NO_RATES: &str = "
domain: api
rules:
  - {name: by-customer, key: [customer], limit: 1000000/hour}
";

/// Limits that nobody reaches: of each key, and of all.
pub const TWO_RATES: &str = "
domain: api
rules:
  - {name: by-key, key: [api_key], limit: 1000000/hour}
  - {name: all, key: [], limit: 100000000/minute}
";

/// The same, and the requests in flight of each key.
pub const IN_FLIGHT: &str = "
domain: api
rules:
  - {name: by-key, key: [api_key], limit: 1000000/hour}
  - {name: all, key: [], limit: 100000000/minute}
  - {name: in-flight, key: [api_key], limit: 1000 concurrent}
";

/// The second limit refuses everything.
pub const REFUSING: &str = "
domain: api
rules:
  - {name: by-key, key: [api_key], limit: 1000000/hour}
  - {name: all, key: [], limit: 1/day}
";

/// The defaults.
pub const PLAIN: &str = "";

/// Classes, the cap of the upstream and the shedder of the process, all in force. The clients of a flood are a fixed number, so the cap
/// would take the queue in the proxy itself for one of the upstream: its limit stays above their number, and nothing is refused.
pub const SHEDDERS: &str = "
shedding: {worker: {mode: enforce}}
priority: {critical: [{route: charges}], test: [{header: {X-Mode: test}}]}
adaptive: {mode: enforce, min: 200}
";

/// The cap as users have it, with classes.
pub const ADAPTIVE: &str = "
priority: {critical: [{route: charges}], test: [{header: {X-Mode: test}}]}
adaptive: enforce
";

/// Starts it with these rules and settings. A setting `adaptive` is its upstream's.
pub fn start(program: &str, upstream: &str, rules: &str, settings: &str) -> Proxy {
    let (of_upstream, others): (Vec<&str>, Vec<&str>) =
        settings.lines().filter(|line| !line.is_empty()).partition(|line| line.starts_with("adaptive:"));
    let of_upstream: String = of_upstream.iter().map(|line| format!(", {line}")).collect();
    let file = Rules::write(&format!(
        "
listen: [{{address: 127.0.0.1:0, max_connections: 15000}}]
domain: api
attributes: {{api_key: {{header: X-Api-Key}}}}
{}
upstreams: {{application: {{servers: [{upstream}], connections: {{most: 5000, waiting: 5000}}{of_upstream}}}}}
routes:
  - {{name: charges, match: \"POST /v1/{{world}}/charges\", upstream: application}}
  - {{name: orders, match: \"/v1/*\", upstream: application}}
",
        others.join("\n")
    ));
    let path = file.path().display().to_string();
    let (server, rules) =
        tollgate::start_as(with_many_files(SERVER_CORE, program), rules, &[], &["--workers", "1", "--gateway", &path]);
    let address = server.address("gateway").to_owned();
    Proxy { server, limiter: None, address, _files: vec![File::Rules(file), File::Rules(rules)] }
}
