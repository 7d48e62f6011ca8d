//! Tollgate beside its peers: contenders take turns in one run, and what counts is the ratio of their medians.
//!
//! `tollgate-bench [decide|observe|rules|memory|replay|tenants|grpc|http|receipts|resp|latency|control|redis|fleet]…`: without a name, all of them. `ROUNDS=n` for more or
//! fewer rounds than 9 in process and 5 with servers.

mod contenders;
mod decide;
mod empty;
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

/// What can be asked for, in the order in which it runs.
const ALL: [(&str, fn()); 14] = [
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
];

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    match &asked[..] {
        [child, contender, keys] if child == memory::CHILD => {
            return memory::fill(contender, keys.parse().expect("a number of keys"));
        }
        [child, asked @ ..] if child == empty::CHILD => return empty::run(asked),
        [child, asked @ ..] if child == load::CHILD => return load::run(asked),
        [child] if child == store::CHILD => return store::drive(),
        [child, path] if child == tenants::CHILD => return tenants::loaded(path),
        _ => {}
    }
    if let Some(unknown) = asked.iter().find(|asked| ALL.iter().all(|(name, _)| name != asked)) {
        let names: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
        eprintln!("there is no benchmark {unknown}; there are {}", names.join(", "));
        std::process::exit(2);
    }
    for (name, run) in ALL {
        if asked.is_empty() || asked.iter().any(|asked| asked == name) {
            run();
        }
    }
}
