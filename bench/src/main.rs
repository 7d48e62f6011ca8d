//! Tollgate beside its peers: contenders take turns in one run, and what counts is the ratio of their medians.
//!
//! `tollgate-bench [decide|rules|memory|replay]`: without a name, all of them. `ROUNDS=n` for more or fewer than 9 rounds.

mod contenders;
mod decide;
mod memory;
mod replay;
mod rounds;
mod rules;
mod workload;

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    if let [child, contender, keys] = &asked[..]
        && child == memory::CHILD
    {
        return memory::fill(contender, keys.parse().expect("a number of keys"));
    }
    let all: [(&str, fn()); 4] =
        [("decide", decide::run), ("rules", rules::run), ("memory", memory::run), ("replay", replay::run)];
    if let Some(unknown) = asked.iter().find(|asked| all.iter().all(|(name, _)| name != asked)) {
        eprintln!("there is no benchmark {unknown}; there are decide, rules, memory and replay");
        std::process::exit(2);
    }
    for (name, run) in all {
        if asked.is_empty() || asked.iter().any(|asked| asked == name) {
            run();
        }
    }
}
