//! What it costs to find the rules that apply: among ten and among ten thousand.

use std::fmt::Write as _;
use std::hint::black_box;

use crate::contenders::{check, tollgate};
use crate::rounds::{take_turns, verdict};

const REQUESTS: usize = 500_000;

pub fn run() {
    println!("matching, half of the rules exact, half prefixes, one of each applies");
    let (few, many) = (Endpoints::new(10), Endpoints::new(10_000));
    let times = take_turns(&mut [("10 rules", &mut || few.ask()), ("10,000 rules", &mut || many.ask())]);
    verdict("10,000 rules to 10", times[1].median() / times[0].median(), 2.0);
}

struct Endpoints {
    limiter: tollgate::Limiter<tollgate::MemoryStore>,
    requests: Vec<String>,
}

impl Endpoints {
    fn new(rules: usize) -> Endpoints {
        let mut text = "domain: api\nentity: api_key\nrules:\n".to_owned();
        let half = rules / 2;
        for n in 0..half {
            let endpoint = format!("GET /v1/{}/{n}", ["users", "orders", "invoices", "items"][n % 4]);
            let _ = writeln!(
                text,
                "  - {{name: exact-{n}, key: [api_key], match: {{endpoint: \"{endpoint}/list\"}}, limit: 1000000/day, algorithm: gcra}}"
            );
            let _ = writeln!(
                text,
                "  - {{name: prefix-{n}, key: [api_key], match: {{endpoint: \"{endpoint}/*\"}}, limit: 1000000/day, algorithm: gcra}}"
            );
        }
        let requests = (0..half).map(|n| {
            let n = n * 7919 % half;
            format!("GET /v1/{}/{n}/list", ["users", "orders", "invoices", "items"][n % 4])
        });
        Endpoints { limiter: tollgate(&text), requests: requests.collect() }
    }

    fn ask(&self) -> usize {
        for endpoint in self.requests.iter().cycle().take(REQUESTS) {
            black_box(check(&self.limiter, &[("api_key", "user-1"), ("endpoint", endpoint)]));
        }
        REQUESTS
    }
}
