//! Three regions on this machine: a Redis in each, and relays between them that take their time.

mod figures;
mod global;
mod home;
mod moving;
mod quota_home;
mod seen;
mod split;
mod urgent;

use std::time::Duration;

use tollgate_testing::{Redis, Relay, Server};

use crate::fleet::load::{Check, CheckResult, check_once};
use crate::new_server;

const REGIONS: [&str; 3] = ["eu-west", "us-east", "us-west"];
/// How long a message is under way between two regions: a round trip takes 40 ms.
const DELAY: Duration = Duration::from_millis(20);

/// Three regions with servers.
struct World {
    /// In the order of [`REGIONS`].
    redis: [Redis; 3],
    /// The way from other regions to each.
    relays: [Relay; 3],
    servers: Vec<Server>,
}

impl World {
    /// Starts this many servers in each region, region by region.
    fn start(rules: &str, servers: usize, args: &[&str]) -> World {
        let redis = REGIONS.map(|_| Redis::start());
        let relays = [0, 1, 2].map(|at: usize| Relay::far_from(redis[at].port(), DELAY));
        let mut world = World { redis, relays, servers: Vec::new() };
        for region in 0..REGIONS.len() {
            for _ in 0..servers {
                let server = world.server(region, rules, args);
                world.servers.push(server);
            }
        }
        world
    }

    fn server(&self, region: usize, rules: &str, args: &[&str]) -> Server {
        let own = self.args_of(region);
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        new_server().rules(rules).listen(&["http", "admin"]).args(&own).args(args).start()
    }

    /// The arguments that say where a server of a region is.
    fn args_of(&self, region: usize) -> Vec<String> {
        let urls = REGIONS.iter().zip(&self.relays);
        let regions: Vec<String> =
            urls.map(|(name, relay)| format!("{name}=redis://127.0.0.1:{}", relay.port())).collect();
        let (store, regions) = (self.redis[region].url(), regions.join(","));
        ["--store", &store, "--region", REGIONS[region], "--regions", &regions].map(str::to_owned).to_vec()
    }

    /// The addresses of the HTTP listeners.
    fn addresses(&self) -> Vec<String> {
        self.servers.iter().map(|server| server.address("http").to_owned()).collect()
    }

    /// What a server decides.
    fn check(&self, server: usize, user: &str, kind: &'static str) -> CheckResult {
        check_once(self.servers[server].address("http"), &Check { user: user.to_owned(), kind })
    }
}
