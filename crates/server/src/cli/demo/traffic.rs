//! Who asks for what: pure, so that the story is the same each time.

/// A check that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) caller: String,
    pub(super) plan: &'static str,
    pub(super) endpoint: &'static str,
}

/// Many callers, of whom few ask most; one far above its limit; and now and then a deploy that retries whatever is refused.
#[derive(Debug)]
pub(super) struct Traffic {
    rng: fastrand::Rng,
    /// The end of each caller's share of all, in parts of the last.
    shares: Vec<u64>,
    deploy_after: u64,
}

/// Callers.
const CALLERS: u64 = 500;
/// Callers of the first plans, by rank.
const ENTERPRISE: usize = 5;
const PRO: usize = 50;
/// Of a hundred checks so many are the noisy neighbour's.
const NOISY: u64 = 8;
/// And while the bad deploy runs, so many are its own.
const RETRIES: u64 = 40;
/// How long it runs until somebody takes it back, and how often that happens.
const DEPLOY_LASTS: u64 = 60;
const DEPLOY_EVERY: u64 = 180;

/// What is asked for, each by so many of a hundred.
const ENDPOINTS: [(u64, &str); 4] =
    [(70, "GET /products"), (20, "GET /orders"), (9, "POST /orders"), (1, "POST /login")];

impl Traffic {
    pub(super) fn new(rng: fastrand::Rng, deploy_after: u64) -> Traffic {
        const MILLION: u64 = 1_000_000;
        let shares = (1..=CALLERS).scan(0, |sum, rank| {
            // Zipf's law: the second asks half as often as the first, the third a third.
            *sum += MILLION / rank;
            Some(*sum)
        });
        Traffic { rng, shares: shares.collect(), deploy_after }
    }

    /// The next check of this second.
    pub(super) fn next(&mut self, second: u64) -> Call {
        let of_100 = self.rng.u64(0..100);
        if self.is_deployed(second) && of_100 < RETRIES {
            return Call { caller: "checkout-v2".to_owned(), plan: "pro", endpoint: "POST /orders" };
        }
        if of_100 >= 100 - NOISY {
            return Call { caller: "noisy-neighbour".to_owned(), plan: "free", endpoint: "GET /products" };
        }
        let part = self.rng.u64(0..self.shares.last().copied().unwrap_or(1));
        let rank = self.shares.partition_point(|end| *end <= part) + 1;
        let plan = match rank {
            enterprise if enterprise <= ENTERPRISE => "enterprise",
            pro if pro <= PRO => "pro",
            _ => "free",
        };
        Call { caller: format!("user_{rank}"), plan, endpoint: self.endpoint() }
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

    /// How many of ten thousand checks of a second each caller sends.
    fn callers(second: u64) -> HashMap<String, usize> {
        let mut traffic = Traffic::new(fastrand::Rng::with_seed(7), 45);
        let mut callers = HashMap::new();
        (0..10_000).for_each(|_| *callers.entry(traffic.next(second).caller).or_default() += 1);
        callers
    }

    #[test]
    fn few_ask_most_and_one_is_noisy() {
        let callers = callers(0);
        let of = |caller: &str| callers.get(caller).copied().unwrap_or(0);
        assert!((700..900).contains(&of("noisy-neighbour")), "{}", of("noisy-neighbour"));
        assert!(of("user_1") > 3 * of("user_4") / 2 && of("user_4") > of("user_40"), "{callers:?}");
        assert!(callers.len() > 300 && callers.len() <= 501);
        assert_eq!(of("checkout-v2"), 0);
    }

    #[test]
    fn a_bad_deploy_comes_is_taken_back_and_comes_again() {
        let retries = |second| callers(second).get("checkout-v2").copied().unwrap_or(0);
        let told: Vec<_> = [44, 45, 104, 105, 224, 225].into_iter().map(|second| retries(second) > 3_500).collect();
        assert_eq!(told, [false, true, true, false, false, true]);
    }
}
