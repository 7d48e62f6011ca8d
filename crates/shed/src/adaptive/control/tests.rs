//! The algorithm window by window, against upstreams of a formula.

use super::*;

const MILLI: f64 = 1e6;

/// A control and the time.
struct Loop {
    control: Control,
    next: Next,
    now: Monotonic,
}

impl Loop {
    fn new(settings: CapSettings) -> Loop {
        let now = Monotonic::from_nanos(0);
        let mut control = Control::new(settings, 3);
        let next = control.begin(now);
        Loop { control, next, now }
    }

    /// A control that knows an idle latency of 20 ms, with this limit.
    fn steady(limit: u32) -> Loop {
        let mut looped = Loop::new(CapSettings { initial: limit, ..CapSettings::default() });
        looped.window(20.0, 1, 0, Some(20.0));
        looped.window(20.0, 1, 0, Some(20.0));
        assert_eq!(looped.control.min_rtt(), Some(20.0 * MILLI));
        looped
    }

    /// Ends a window of 100 samples.
    fn window(&mut self, millis: f64, peak: u32, refused: u64, idle: Option<f64>) -> f64 {
        self.now = self.next.ends.max(self.now);
        let latencies = |millis: f64| Latencies { count: 100, typical: millis * MILLI };
        let (latencies, idle) = (Some(latencies(millis)), idle.map(latencies));
        let observed = Observed { ended: self.now, latencies, idle, peak, refused, is_enforced: true };
        self.next = self.control.end_window(&observed);
        self.next.limit
    }

    /// Runs windows until a condition holds, which it must within half an hour.
    fn until(&mut self, mut window: impl FnMut(&mut Loop), holds: impl Fn(&Control) -> bool) {
        for _ in 0..18_000 {
            if holds(&self.control) {
                return;
            }
            window(self);
        }
        panic!("still not: {:?}", self.control);
    }

    /// A window in which the limit was used up, in front of an upstream of `servers` that take `millis`.
    fn overloaded(&mut self, servers: f64, millis: f64) -> f64 {
        let limit = self.next.limit;
        let rtt = millis * (limit / servers).max(1.0);
        let idle = self.control.is_probing().then_some(rtt);
        self.window(rtt, limit as u32, 10, idle)
    }
}

#[test]
fn the_gradient_is_the_idle_latency_with_a_buffer_over_the_latency() {
    // Latency in ms, gradient.
    let rows = [(20.0, 1.0), (22.0, 1.0), (27.5, 0.8), (44.0, 0.5), (500.0, 0.5)];
    for (millis, gradient) in rows {
        let mut looped = Loop::steady(100);
        looped.window(millis, 100, 1, None);
        assert!((looped.control.gradient() - gradient).abs() < 1e-9, "{millis}: {}", looped.control.gradient());
    }
}

#[test]
fn a_limit_rests_where_the_allowed_queue_is() {
    // From far above and far below, for servers that take 20 ms: (1 + buffer) × servers and the queue.
    for (servers, from) in [(16.0, 200), (16.0, 5), (64.0, 500), (64.0, 5), (4.0, 100), (4.0, 2)] {
        let mut looped = Loop::steady(from);
        for _ in 0..300 {
            looped.overloaded(servers, 20.0);
        }
        let limit = looped.control.limit();
        let allowed = 1.1 * servers + looped.control.queue();
        assert!((limit / allowed - 1.0).abs() < 0.02, "{servers} from {from}: {limit}, allowed {allowed}");
    }
}

#[test]
fn nothing_changes_without_samples_and_without_use() {
    let mut looped = Loop::steady(100);
    looped.now = looped.next.ends;
    let none = Observed { ended: looped.now, latencies: None, idle: None, peak: 100, refused: 5, is_enforced: true };
    assert_eq!(looped.control.end_window(&none).limit, 100.0);
    assert_eq!(looped.window(500.0, 49, 0, None), 100.0);
    assert_eq!(looped.window(20.0, 49, 0, None), 100.0);
}

#[test]
fn a_limit_that_refuses_nothing_does_not_fall() {
    let mut looped = Loop::steady(100);
    assert_eq!(looped.window(60.0, 80, 0, None), 100.0);
    assert!(looped.window(60.0, 100, 1, None) < 100.0);
}

#[test]
fn the_limit_stays_between_its_bounds() {
    let settings = CapSettings { min: 5, initial: 10, max: 30, ..CapSettings::default() };
    let mut looped = Loop::new(settings);
    looped.window(20.0, 1, 0, Some(20.0));
    looped.window(20.0, 1, 0, Some(20.0));
    for _ in 0..100 {
        assert!(looped.window(20.0, 30, 1, None) <= 30.0);
    }
    for _ in 0..100 {
        looped.window(10_000.0, 30, 1, None);
        assert!(looped.control.limit() >= 5.0);
    }
}

#[test]
fn idle_requests_correct_the_idle_latency_and_put_off_the_probe() {
    let mut looped = Loop::steady(100);
    for _ in 0..1_000 {
        looped.window(40.0, 80, 0, Some(40.0));
        assert!(!looped.control.is_probing());
    }
    assert!((looped.control.min_rtt().unwrap() / MILLI - 40.0).abs() < 0.1);
}

#[test]
fn a_probe_comes_after_the_interval_and_its_jitter() {
    for seed in 0..50 {
        let mut control = Control::new(CapSettings::default(), seed);
        let delay = control.probe_delay();
        assert!((Duration::from_secs(60)..=Duration::from_secs(66)).contains(&delay), "{delay:?}");
    }
    let mut looped = Loop::steady(20);
    let begun = looped.now;
    // Exactly at capacity the latency says nothing new.
    looped.until(
        |looped| {
            let limit = looped.next.limit as u32;
            looped.window(26.0, limit, 1, None);
        },
        Control::is_probing,
    );
    let waited = looped.now.nanos_since(begun) as f64 / 1e9;
    assert!((60.0..=66.5).contains(&waited), "{waited}");
}

#[test]
fn a_probe_puts_the_limit_back() {
    let mut looped = Loop::steady(25);
    looped.until(|looped| _ = looped.overloaded(16.0, 20.0), Control::is_probing);
    let before = looped.control.limit();
    assert!(looped.next.limit < 16.0, "a probe is below the capacity: {:?}", looped.next);
    assert_eq!(looped.next.samples_since, looped.now);
    looped.until(|looped| _ = looped.overloaded(16.0, 20.0), |control| !control.is_probing());
    assert!((looped.next.limit / before - 1.0).abs() < 0.05, "{before} then {}", looped.next.limit);
    assert!((looped.control.min_rtt().unwrap() / MILLI - 20.0).abs() < 0.01);
}

#[test]
fn an_upstream_that_became_slower_is_found_by_an_early_probe() {
    let mut looped = Loop::steady(75);
    for _ in 0..200 {
        looped.overloaded(64.0, 20.0);
    }
    let (before, begun) = (looped.control.limit(), looped.now);
    let is_found = |control: &Control| (control.min_rtt().unwrap() / MILLI - 30.0).abs() < 1.0;
    looped.until(|looped| _ = looped.overloaded(64.0, 30.0), is_found);
    let seconds = looped.now.nanos_since(begun) as f64 / 1e9;
    assert!(seconds < 15.0, "found after {seconds} s");
    for _ in 0..100 {
        looped.overloaded(64.0, 30.0);
    }
    assert!((looped.control.limit() / before - 1.0).abs() < 0.05, "{before} then {}", looped.control.limit());
}

#[test]
fn a_start_in_overload_finds_the_capacity() {
    for servers in [4.0, 16.0, 64.0, 200.0] {
        let mut looped = Loop::new(CapSettings::default());
        let rests = |control: &Control| {
            control.min_rtt().is_some() && (control.limit() / (1.1 * servers + control.queue()) - 1.0).abs() < 0.1
        };
        looped.until(|looped| _ = looped.overloaded(servers, 20.0), rests);
        assert!(looped.now.nanos_since(Monotonic::default()) < 6_000_000_000, "{servers}: {:?}", looped.now);
        assert!((looped.control.min_rtt().unwrap() / MILLI - 20.0).abs() < 1.0, "{servers}");
    }
}

#[test]
fn a_probe_without_samples_ends() {
    let mut looped = Loop::steady(25);
    looped.until(|looped| _ = looped.overloaded(16.0, 20.0), Control::is_probing);
    looped.overloaded(16.0, 20.0);
    let expires = looped.next.expires.unwrap();
    assert!(expires.nanos_since(looped.now) <= 10_000_000_000);
    let observed = Observed { ended: expires, latencies: None, idle: None, peak: 9, refused: 3, is_enforced: true };
    looped.next = looped.control.end_window(&observed);
    assert!(!looped.control.is_probing());
    assert!((looped.control.min_rtt().unwrap() / MILLI - 20.0).abs() < 0.01);
}

#[test]
fn in_shadow_mode_there_are_no_probes_and_the_limit_is_that_of_the_requests_in_flight() {
    let mut looped = Loop::steady(20);
    for _ in 0..3_000 {
        looped.now = looped.next.ends;
        // 160 in flight on 16 servers: nothing is refused.
        let latencies = Some(Latencies { count: 100, typical: 200.0 * MILLI });
        let observed =
            Observed { ended: looped.now, latencies, idle: None, peak: 160, refused: 50, is_enforced: false };
        looped.next = looped.control.end_window(&observed);
        assert!(!looped.control.is_probing());
    }
    let limit = looped.control.limit();
    assert!((16.0..30.0).contains(&limit), "{limit}");
}

#[test]
fn a_window_is_as_long_as_a_request() {
    let mut looped = Loop::steady(20);
    looped.window(700.0, 20, 1, None);
    assert_eq!(looped.next.ends.nanos_since(looped.now), 700_000_000);
    looped.window(60_000.0, 20, 1, None);
    assert_eq!(looped.next.ends.nanos_since(looped.now), 5_000_000_000);
}
