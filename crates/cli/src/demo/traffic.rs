//! The traffic of the demo, deterministic for a seed.

/// A check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DemoRequest {
    pub(super) caller: String,
    pub(super) plan: &'static str,
    pub(super) endpoint: &'static str,
    /// Whether it is only a test, which matters least.
    pub(super) is_test: bool,
}

/// Many callers, of which a few send most requests; one far above its limit; and sometimes a deploy that retries whatever is denied.
#[derive(Debug)]
pub(super) struct Traffic {
    rng: fastrand::Rng,
    /// Cumulative shares of the callers.
    shares: Vec<u64>,
    deploy_after: u64,
}

/// Callers.
const CALLERS: u64 = 500;
/// Callers of the first two plans, by rank.
const ENTERPRISE: usize = 5;
const PRO: usize = 50;
/// The percentage of checks of the noisy neighbour.
const NOISY_PERCENT: u64 = 8;
/// The percentage of tests among the requests of the others.
const TEST_PERCENT: u64 = 10;
/// The percentage of checks of the bad deploy while it runs.
const RETRY_PERCENT: u64 = 40;
/// How long the bad deploy runs, and how often it happens.
const DEPLOY_LASTS: u64 = 60;
const DEPLOY_EVERY: u64 = 180;

/// Endpoints with their percentages.
const ENDPOINTS: [(u64, &str); 4] =
    [(70, "GET /products"), (20, "GET /orders"), (9, "POST /orders"), (1, "POST /login")];

impl DemoRequest {
    fn new(caller: &str, plan: &'static str, endpoint: &'static str) -> DemoRequest {
        DemoRequest { caller: caller.to_owned(), plan, endpoint, is_test: false }
    }
}

impl Traffic {
    pub(super) fn new(rng: fastrand::Rng, deploy_after: u64) -> Traffic {
        const MILLION: u64 = 1_000_000;
        let shares = (1..=CALLERS).scan(0, |sum, rank| {
            // Zipf's law: the second caller sends half as many requests as the first, the third a third.
            *sum += MILLION / rank;
            Some(*sum)
        });
        Traffic { rng, shares: shares.collect(), deploy_after }
    }

    /// The next check of this second.
    pub(super) fn next(&mut self, second: u64) -> DemoRequest {
        let percentile = self.rng.u64(0..100);
        if self.is_deployed(second) && percentile < RETRY_PERCENT {
            return DemoRequest::new("checkout-v2", "pro", "POST /orders");
        }
        if percentile >= 100 - NOISY_PERCENT {
            return DemoRequest::new("noisy-neighbour", "free", "GET /products");
        }
        let part = self.rng.u64(0..self.shares.last().copied().unwrap_or(1));
        let rank = self.shares.partition_point(|end| *end <= part) + 1;
        let plan = match rank {
            enterprise if enterprise <= ENTERPRISE => "enterprise",
            pro if pro <= PRO => "pro",
            _ => "free",
        };
        let is_test = self.rng.u64(0..100) < TEST_PERCENT;
        DemoRequest { is_test, ..DemoRequest::new(&format!("user_{rank}"), plan, self.endpoint()) }
    }

    fn endpoint(&mut self) -> &'static str {
        let mut left = self.rng.u64(0..100);
        for (share, endpoint) in ENDPOINTS {
            match left.checked_sub(share) {
                Some(rest) => left = rest,
                None => return endpoint,
            }
        }
        ENDPOINTS[0].1
    }

    fn is_deployed(&self, second: u64) -> bool {
        second.checked_sub(self.deploy_after).is_some_and(|since| since % DEPLOY_EVERY < DEPLOY_LASTS)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// The number of checks per caller, of ten thousand.
    fn callers(second: u64) -> HashMap<String, usize> {
        let mut traffic = Traffic::new(fastrand::Rng::with_seed(7), 45);
        let mut callers = HashMap::new();
        (0..10_000).for_each(|_| *callers.entry(traffic.next(second).caller).or_default() += 1);
        callers
    }

    #[test]
    fn a_few_callers_send_most_and_one_is_noisy() {
        let callers = callers(0);
        let count = |caller: &str| callers.get(caller).copied().unwrap_or(0);
        assert!((700..900).contains(&count("noisy-neighbour")), "{}", count("noisy-neighbour"));
        assert!(count("user_1") > 3 * count("user_4") / 2 && count("user_4") > count("user_40"), "{callers:?}");
        assert!(callers.len() > 300 && callers.len() <= 501);
        assert_eq!(count("checkout-v2"), 0);
    }

    #[test]
    fn a_bad_deploy_recurs() {
        let retries = |second| callers(second).get("checkout-v2").copied().unwrap_or(0);
        let is_deployed: Vec<_> =
            [44, 45, 104, 105, 224, 225].into_iter().map(|second| retries(second) > 3_500).collect();
        assert_eq!(is_deployed, [false, true, true, false, false, true]);
    }
}
