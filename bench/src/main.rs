//! Tollgate next to its peers: contenders take turns in one run, and what counts is the ratio of their medians.
//!
//! `tollgate-bench [decide|observe|rules|memory|replay|tenants|grpc|http|receipts|resp|latency|control|redis|fleet|leases|gateway|adaptive]…`: without a name, all of them. `ROUNDS=n` for more or
//! fewer rounds than 9 in process and 5 with servers.

mod contenders;
mod decide;
mod empty;
mod gateway;
mod load;
mod memory;
mod observe;
mod replay;
mod rounds;
mod rules;
mod server;
mod store;
mod tenants;
mod workload;

/// The benchmarks that can be run, in the order in which it runs.
const ALL: [(&str, fn()); 17] = [
    ("decide", decide::run),
    ("observe", observe::run),
    ("rules", rules::run),
    ("memory", memory::run),
    ("replay", replay::run),
    ("tenants", tenants::run),
    ("grpc", server::grpc),
    ("http", server::http),
    ("receipts", server::receipts),
    ("resp", server::resp),
    ("latency", server::latency),
    ("control", server::control),
    ("redis", store::run),
    ("fleet", server::fleet),
    ("leases", server::leases),
    ("gateway", gateway::cost),
    ("adaptive", gateway::adaptive),
];

fn main() {
    let requested: Vec<String> = std::env::args().skip(1).collect();
    match &requested[..] {
        [child, contender, keys] if child == memory::CHILD => {
            return memory::fill(contender, keys.parse().expect("a number of keys"));
        }
        [child, requested @ ..] if child == empty::CHILD => return empty::run(requested),
        [child, requested @ ..] if child == load::CHILD => return load::run(requested),
        [child] if child == store::CHILD => return store::drive(),
        [child, path] if child == tenants::CHILD => return tenants::loaded(path),
        _ => {}
    }
    if let Some(unknown) = requested.iter().find(|requested| ALL.iter().all(|(name, _)| name != requested)) {
        let names: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
        eprintln!("there is no benchmark {unknown}; there are {}", names.join(", "));
        std::process::exit(2);
    }
    for (name, run) in ALL {
        if requested.is_empty() || requested.iter().any(|requested| requested == name) {
            run();
        }
    }
}
