//! What asks the servers, each a process of its own, on a core of its own.
//!
//! One thread and no runtime: what a server can do is only seen where the load costs clearly less than the answer.

mod blocks;
mod calls;
mod frame;
mod h2;
mod http;
pub mod proxied;
mod stock;
mod window;

pub use stock::Asking;

/// The argument with which this program becomes a load: `load NAME ADDRESS …`.
pub const CHILD: &str = "load";

/// How many callers there are.
pub const KEYS: usize = 100_000;
/// How many of them are busy.
pub const BUSY_KEYS: usize = 100;
/// Callers that are never leased.
pub const RARE_KEYS: usize = 1_000_000;
/// How many connections gRPC's load has, and how many calls at a time each of them.
pub const GRPC_CONNECTIONS: usize = 8;
pub const GRPC_STREAMS: usize = 100;
/// How many connections HTTP's load has, with one request at a time each.
pub const HTTP_CONNECTIONS: usize = 64;

/// Asks, and prints what came of it for the program that started it.
pub fn run(arguments: &[String]) {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["grpc", asking, address, servers, seconds] => {
            calls::flood(address, Asking::named(asking), &numbers(servers), number(seconds));
        }
        ["pace", address, rate, seconds] => calls::pace(address, number(rate), number(seconds)),
        ["proxied", protocol, status, bytes, address, servers, seconds] => {
            proxied::flood(protocol, number(status), number(bytes), address, &numbers(servers), number(seconds));
        }
        ["idle", count, bytes, address, servers, seconds] => {
            proxied::flood_with_idle(number(count), number(bytes), address, &numbers(servers), number(seconds));
        }
        ["open-loop", load, kinds, seed, seconds, addresses] => {
            let addresses: Vec<&str> = addresses.split(',').collect();
            proxied::open_loop(number(load), kinds, number(seed), number(seconds), &addresses);
        }
        ["http", api, address, servers, seconds] => http::flood(api, address, &numbers(servers), number(seconds)),
        _ => panic!("there is no load {arguments:?}"),
    }
}

fn numbers(text: &str) -> Vec<u32> {
    text.split(',').map(number).collect()
}

fn number<N: std::str::FromStr>(text: &str) -> N {
    text.parse().unwrap_or_else(|_| panic!("{text} is not a number"))
}
