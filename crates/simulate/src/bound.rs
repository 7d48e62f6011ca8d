//! How many calls any scheme needs that never exceeds a limit.

use crate::random::Zipf;
use crate::scenario::Scenario;
use crate::traffic::servers_of_a_key;

/// The most times that calls can be fewer than requests.
///
/// A server must have called for a key once in a period before it may admit a request of it, so there are at least as many
/// calls as there are pairs of a server and a key that meet in a period.
pub fn most_requests_for_a_call(scenario: &Scenario) -> f64 {
    let Some(planned) = scenario.limits.first() else { return 1.0 };
    let traffic = &scenario.traffic;
    let keys = if planned.is_global { 1 } else { traffic.keys };
    let period = planned.limit.period().span().as_micros() as f64 / 1e6;
    let requests = traffic.rate * period;
    let servers = f64::from(servers_of_a_key(scenario));
    let pairs = Zipf::sum(traffic.exponent, keys, |share| servers * -(-requests * share / servers).exp_m1());
    requests / pairs.max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use tollgate_core::{Algorithm, Limit, Period, Span};

    use super::*;

    fn bound(rate: f64, keys: u64, exponent: f64, servers: u32) -> f64 {
        let minute = Period::fixed(Span::from_secs(60)).unwrap();
        let mut scenario = Scenario::new("test", Limit::new(1_000, minute, Algorithm::FixedWindow).unwrap());
        scenario.servers = servers;
        (scenario.traffic.rate, scenario.traffic.keys, scenario.traffic.exponent) = (rate, keys, exponent);
        most_requests_for_a_call(&scenario)
    }

    #[test]
    fn pairs_are_counted() {
        // Every server meets the only key: a call of each of the 10 in a minute of 6,000 requests.
        assert!((bound(100.0, 1, 0.0, 10) - 600.0).abs() < 1e-6);
        // Hardly any request meets a key again.
        assert!((bound(1.0, 1_000_000, 0.0, 10) - 1.0).abs() < 0.001);
        // 5M keys by Zipf's law over 500 servers.
        let many = bound(1e6, 5_000_000, 1.0, 500);
        assert!((2.2..2.4).contains(&many), "{many}");
    }
}
