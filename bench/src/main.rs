//! Tollgate beside its peers.

mod decide;
mod workload;

fn main() {
    match std::env::args().nth(1).as_deref() { Some("profile") => decide::profile(), Some("small") => decide::profile_small(), Some("gov") => decide::profile_gov(), _ => decide::run() }
}
