//! Envoy as a reverse proxy: plain, with Tollgate as its rate limit service, and with adaptive concurrency.

use super::{File, Proxy};
use crate::server::SERVER_CORE;
use crate::server::process::{Server, free_address, on_server_core, with_many_files};
use crate::server::tollgate::{self, Rules};

/// What Envoy does with a request before it forwards it.
pub enum Filter<'a> {
    None,
    /// Calls this program as a rate limit service, with two descriptors: the key, and one for all.
    RateLimit(&'a str),
    /// The example of its documentation.
    AdaptiveConcurrency,
}

/// Limits that nobody reaches.
const RULES: &str = "
domain: api
rules:
  - {name: by-key, key: [api_key], limit: 1000000/hour}
  - {name: all, key: [generic_key], limit: 100000000/minute}
";

/// Starts it, if it is there.
pub fn start(upstream: &str, filter: &Filter<'_>) -> Option<Proxy> {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/venv/envoy");
    if !std::path::Path::new(program).exists() {
        println!("  without Envoy: it is not installed (make setup-tests installs it)");
        return None;
    }
    let mut files = Vec::new();
    let limiter = match filter {
        Filter::RateLimit(tollgate) => {
            let settings = ["--workers", "1"];
            let (server, rules) = tollgate::start_as(on_server_core(tollgate), RULES, &["grpc"], &settings);
            files.push(File::Rules(rules));
            Some(server)
        }
        Filter::None | Filter::AdaptiveConcurrency => None,
    };
    let address = free_address();
    let file =
        Rules::write(&config(&address, upstream, filter, limiter.as_ref().map(|limiter| limiter.address("grpc"))));
    let mut command = with_many_files(SERVER_CORE, program);
    command.arg("-c").arg(file.path()).args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "error"]);
    files.push(File::Rules(file));
    let server = Server::start_at(&address, &mut command);
    Some(Proxy { server, limiter, address, _files: files })
}

const RATE_LIMIT: &str = r#"
                  - name: envoy.filters.http.ratelimit
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
                      domain: api
                      timeout: 1s
                      failure_mode_deny: true
                      rate_limit_service:
                        transport_api_version: V3
                        grpc_service: {envoy_grpc: {cluster_name: tollgate}}"#;

const RATE_LIMITS: &str = r#"
                            rate_limits:
                              - actions: [{request_headers: {header_name: x-api-key, descriptor_key: api_key}}]
                              - actions: [{generic_key: {descriptor_value: all}}]"#;

const ADAPTIVE_CONCURRENCY: &str = r#"
                  - name: envoy.filters.http.adaptive_concurrency
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.adaptive_concurrency.v3.AdaptiveConcurrency
                      gradient_controller_config:
                        sample_aggregate_percentile: {value: 90}
                        concurrency_limit_params: {concurrency_update_interval: 0.1s}
                        min_rtt_calc_params: {jitter: {value: 10}, interval: 60s, request_count: 50}
                      enabled: {default_value: true, runtime_key: adaptive_concurrency.enabled}"#;

fn config(address: &str, upstream: &str, filter: &Filter<'_>, tollgate: Option<&str>) -> String {
    let port = |address: &str| address.rsplit(':').next().expect("a port").to_owned();
    let (filter, rate_limits) = match filter {
        Filter::None => ("", ""),
        Filter::RateLimit(_) => (RATE_LIMIT, RATE_LIMITS),
        Filter::AdaptiveConcurrency => (ADAPTIVE_CONCURRENCY, ""),
    };
    let tollgate = tollgate.map(|tollgate| {
        let options = r#"
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: {http2_protocol_options: {}}"#;
        cluster("tollgate", &port(tollgate), options)
    });
    format!(
        r#"
static_resources:
  listeners:
    - name: clients
      address: {{socket_address: {{address: 127.0.0.1, port_value: {}}}}}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: clients
                use_remote_address: true
                route_config:
                  virtual_hosts:
                    - name: application
                      domains: ["*"]
                      routes:
                        - match: {{prefix: /}}
                          route:
                            cluster: application{rate_limits}
                http_filters:{filter}
                  - name: envoy.filters.http.router
                    typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
  clusters:{}{}
"#,
        port(address),
        cluster("application", &port(upstream), ""),
        tollgate.unwrap_or_default(),
    )
}

/// Its default of 1,024 connections and requests is too few for an overload.
fn cluster(name: &str, port: &str, options: &str) -> String {
    format!(
        "
    - name: {name}
      type: STATIC
      connect_timeout: 1s
      circuit_breakers: {{thresholds: [{{max_connections: 10000, max_pending_requests: 10000, max_requests: 10000}}]}}{options}
      load_assignment:
        cluster_name: {name}
        endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}}}}}]}}]"
    )
}
