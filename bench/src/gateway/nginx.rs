//! nginx as a reverse proxy, with persistent connections on both sides.

use super::{File, Proxy};
use crate::server::SERVER_CORE;
use crate::server::peers::Folder;
use crate::server::process::{Server, free_address, with_many_files};

/// Limits that nobody reaches: of each key, and of all.
pub const TWO_LIMITS: &str = "limit_req zone=by_key burst=100000 nodelay; limit_req zone=all burst=100000 nodelay;";

/// Settings of a listener for HTTP/2 by prior knowledge alone.
pub const HTTP2: &str = "http2";

/// Starts it, if it is installed. `listen`: further settings of its listener.
pub fn start(upstream: &str, limits: &str, listen: &str) -> Option<Proxy> {
    let program = ["/usr/sbin/nginx", "/usr/bin/nginx"].into_iter().find(|path| std::path::Path::new(path).exists());
    let Some(program) = program else {
        println!("  without nginx: it is not installed (scripts/setup.sh tests installs it)");
        return None;
    };
    let folder = Folder::new();
    std::fs::create_dir_all(&folder.0).expect("room for a folder");
    let address = free_address();
    let file = folder.0.join("nginx.conf");
    let text = config(&folder.0.display().to_string(), &address, listen, upstream, limits);
    std::fs::write(&file, text).expect("room for a file");
    let mut command = with_many_files(SERVER_CORE, program);
    command.args(["-e", "stderr", "-p"]).arg(&folder.0).arg("-c").arg(&file);
    let server = Server::start_at(&address, &mut command);
    Some(Proxy { server, limiter: None, address, _files: vec![File::Folder(folder)] })
}

/// One process. No log of requests, as the others have none.
fn config(folder: &str, address: &str, listen: &str, upstream: &str, limits: &str) -> String {
    format!(
        "
daemon off;
master_process off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr crit;
events {{ worker_connections 15000; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    keepalive_requests 1000000000;
    keepalive_timeout 300s;
    limit_req_zone $http_x_api_key zone=by_key:64m rate=1000000r/s;
    limit_req_zone $server_name zone=all:1m rate=1000000r/s;
    upstream application {{
        server {upstream};
        keepalive 128;
        keepalive_requests 1000000000;
    }}
    server {{
        listen {address} backlog=4096 {listen};
        server_name bench;
        location / {{
            {limits}
            proxy_pass http://application;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_set_header X-Forwarded-Proto $scheme;
        }}
    }}
}}
"
    )
}
