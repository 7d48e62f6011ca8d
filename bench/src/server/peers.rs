//! The servers of others.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::process::{Server, free_address, on_cores, on_server_core};
use super::{BOTH_CORES, SERVER_CORE};

/// Redis that keeps nothing, on the server's core.
pub fn redis() -> Server {
    redis_on(SERVER_CORE)
}

/// Redis that keeps nothing.
pub fn redis_on(cores: &str) -> Server {
    let address = free_address();
    let (_, port) = address.rsplit_once(':').expect("host and port");
    let mut command = on_cores(cores, "redis-server");
    Server::start_at(
        &address,
        command.args(["--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]),
    )
}

/// throttlecrab's server with one of its wires, if it is known where it is.
pub fn throttlecrab(wire: &str) -> Option<Server> {
    let Ok(program) = std::env::var("THROTTLECRAB") else {
        println!("  without throttlecrab-server: THROTTLECRAB does not name the program (make bench does)");
        return None;
    };
    let address = free_address();
    let (host, port) = address.rsplit_once(':').expect("host and port");
    let mut command = on_server_core(program);
    command.args([&format!("--{wire}"), &format!("--{wire}-host"), host, &format!("--{wire}-port"), port]);
    Some(Server::start_at(&address, command.args(["--log-level", "error"])))
}

/// envoyproxy/ratelimit with these rules and this Redis, if it could be built; and its folder, there as long as it is.
pub fn ratelimit(rules: &str, redis: &Server) -> Option<(Server, Folder)> {
    let Some(program) = std::env::var("RATELIMIT").ok().filter(|program| Path::new(program).exists()) else {
        println!("  without envoyproxy/ratelimit, skipped: no go, or it could not be built (make bench does that)");
        return None;
    };
    let folder = Folder::new();
    let config = folder.0.join("ratelimit/config");
    std::fs::create_dir_all(&config)
        .and_then(|()| std::fs::write(config.join("api.yaml"), rules))
        .expect("room for the rules");
    let [grpc, http, debug] = [(); 3].map(|()| free_address());
    let port = |address: &str| address.rsplit(':').next().expect("a port").to_owned();
    let mut command = on_cores(BOTH_CORES, program);
    command.env("RUNTIME_ROOT", &folder.0).env("RUNTIME_SUBDIRECTORY", "ratelimit").env("RUNTIME_WATCH_ROOT", "false");
    command.env("GRPC_HOST", "127.0.0.1").env("GRPC_PORT", port(&grpc));
    command.env("HOST", "127.0.0.1").env("PORT", port(&http));
    command.env("DEBUG_HOST", "127.0.0.1").env("DEBUG_PORT", port(&debug));
    command.env("REDIS_SOCKET_TYPE", "tcp").env("REDIS_URL", redis.address("redis"));
    // What it offers for speed: no statistics, few words, and the window that its documentation recommends.
    command.env("DISABLE_STATS", "true").env("LOG_LEVEL", "error").env("REDIS_PIPELINE_WINDOW", "150us");
    Some((Server::start_at(&grpc, command.stderr(Stdio::null())), folder))
}

/// A folder that ends with this.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Folder {
        Folder(std::env::temp_dir().join(format!("tollgate-bench-{}-{}", std::process::id(), free_address())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
