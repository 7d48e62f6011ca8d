//! Other proxies, as plain reverse proxies, to compare ours with.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tollgate_testing::{Process, free_port, programs};

/// A running proxy: one address for each of its upstreams.
pub(crate) struct Peer {
    pub(crate) addresses: Vec<SocketAddr>,
    _process: Process,
    // Deleted after the process has ended.
    _home: TempDir,
}

/// How often other ports are tried if another process took one.
const MAX_STARTS: usize = 10;

impl Peer {
    /// nginx with its usual settings, but for the protocol to upstreams, which is HTTP/1.1 on connections that are used again.
    pub(crate) async fn nginx(upstreams: &[SocketAddr]) -> Peer {
        Peer::start("nginx", upstreams, |home, ports| {
            fs::write(home.join("nginx.conf"), nginx_config(upstreams, ports)).unwrap();
            let directory = format!("{}/", home.display());
            let mut command = owned(&programs::system("nginx"));
            command.args(["-p", &directory, "-c", "nginx.conf", "-e", "stderr"]);
            command
        })
        .await
    }

    /// Envoy with its usual settings.
    pub(crate) async fn envoy(upstreams: &[SocketAddr]) -> Peer {
        Peer::start("Envoy", upstreams, |home, ports| {
            fs::write(home.join("envoy.yaml"), envoy_config(upstreams, ports)).unwrap();
            let mut command = owned(&programs::in_environment("envoy"));
            let args = ["-c", "envoy.yaml", "--concurrency", "1", "--disable-hot-restart", "--log-level", "critical"];
            command.args(args).current_dir(home);
            command
        })
        .await
    }

    async fn start(name: &str, upstreams: &[SocketAddr], command: impl Fn(&Path, &[u16]) -> Command) -> Peer {
        for _ in 0..MAX_STARTS {
            let home = TempDir::new().unwrap();
            let ports: Vec<u16> = upstreams.iter().map(|_| free_port()).collect();
            let mut process = Process::start(&mut command(home.path(), &ports));
            let addresses: Vec<SocketAddr> = ports.iter().map(|port| ([127, 0, 0, 1], *port).into()).collect();
            if is_ready(&mut process, &addresses).await {
                return Peer { addresses, _process: process, _home: home };
            }
        }
        panic!("{name} did not start");
    }
}

/// A command that the kernel ends if the test is killed.
fn owned(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", "--"]).arg(program);
    command
}

/// Waits until every address answers a request.
async fn is_ready(process: &mut Process, addresses: &[SocketAddr]) -> bool {
    for address in addresses {
        let mut polls = 0;
        while !answers(*address).await {
            polls += 1;
            if !process.is_running() || polls > 600 {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    true
}

async fn answers(address: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(address).await else { return false };
    let request = b"GET /ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let mut answer = Vec::new();
    stream.write_all(request).await.is_ok()
        && stream.read_to_end(&mut answer).await.is_ok()
        && answer.starts_with(b"HTTP/1.1 200 ")
}

fn nginx_config(upstreams: &[SocketAddr], ports: &[u16]) -> String {
    let own = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|kind| format!("{kind}_temp_path {kind};"));
    let servers: String = upstreams
        .iter()
        .zip(ports)
        .enumerate()
        .map(|(number, (upstream, port))| {
            format!(
                "upstream u{number} {{ server {upstream}; keepalive 8; }}\n\
                 server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://u{number}; proxy_http_version 1.1;\n\
                 proxy_set_header Connection \"\"; proxy_set_header Host $http_host; proxy_next_upstream off; }} }}\n"
            )
        })
        .collect();
    format!(
        "daemon off; master_process off; pid nginx.pid; error_log stderr crit;\n\
         events {{ worker_connections 4096; }}\n\
         http {{ access_log off; {}\n{servers}}}\n",
        own.join(" ")
    )
}

fn envoy_config(upstreams: &[SocketAddr], ports: &[u16]) -> String {
    let (mut listeners, mut clusters) = (String::new(), String::new());
    for (number, (upstream, port)) in upstreams.iter().zip(ports).enumerate() {
        listeners += &format!(
            "    - name: l{number}
      address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: l{number}
                route_config:
                  virtual_hosts:
                    - {{name: all, domains: [\"*\"], routes: [{{match: {{prefix: /}}, route: {{cluster: u{number}}}}}]}}
                http_filters:
                  - name: envoy.filters.http.router
                    typed_config: {{\"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
"
        );
        let endpoint = format!("{{socket_address: {{address: 127.0.0.1, port_value: {}}}}}", upstream.port());
        clusters += &format!(
            "    - name: u{number}
      type: STATIC
      load_assignment:
        cluster_name: u{number}
        endpoints: [{{lb_endpoints: [{{endpoint: {{address: {endpoint}}}}}]}}]
"
        );
    }
    format!("static_resources:\n  listeners:\n{listeners}  clusters:\n{clusters}")
}
