//! A witness records every decision, whichever function made it, and nothing else.

use std::sync::{Arc, Mutex};

use tollgate::{Ask, DecisionEvent, Descriptor, Request, Witness, poll_once};

use crate::support::{ManualLimiter, manual_limiter};

const RULES: &str = "
domain: d
rules:
  - {name: first, key: [k], limit: 2/minute, algorithm: fixed_window}
  - {name: second, key: [k], limit: 5/minute, algorithm: fixed_window}
";

/// Records each event as a line.
#[derive(Debug, Default)]
struct LineRecorder {
    lines: Mutex<Vec<String>>,
    timed: bool,
}

impl Witness for LineRecorder {
    fn should_time(&self) -> bool {
        self.timed
    }

    fn record(&self, event: &DecisionEvent<'_, '_>) {
        let limits: Vec<_> = event
            .limits()
            .map(|limit| {
                format!("{} {:?} left {}", limit.rule.name(), limit.charge.key.values(), limit.reading.remaining)
            })
            .collect();
        let timing = match event.timing {
            None => "",
            Some(timing) if timing.store.is_some_and(|store| store <= timing.total) => ", timed with the store",
            Some(_) => ", timed",
        };
        let (word, source) = (if event.verdict.allowed { "passed" } else { "refused" }, event.verdict.source.name());
        self.lines.lock().unwrap().push(format!("{word} by {source}: {}{timing}", limits.join("; ")));
    }
}

fn witnessed_limiter(timed: bool) -> (ManualLimiter, Arc<LineRecorder>) {
    let recorder = Arc::new(LineRecorder { timed, ..LineRecorder::default() });
    (manual_limiter(RULES).0.with_witness(recorder.clone()), recorder)
}

fn request<'a>(descriptors: &'a [Descriptor<'a>]) -> Request<'a> {
    Request { descriptors, ..Request::default() }
}

#[test]
fn every_way_to_check_is_recorded() {
    let (limiter, recorder) = witnessed_limiter(false);
    let descriptors = [Descriptor::new(&[("k", "a")])];
    let request = request(&descriptors);
    poll_once(limiter.check_request(&request)).unwrap().unwrap();
    poll_once(limiter.session().check_request(&request)).unwrap().unwrap();
    poll_once(limiter.session().check_request(&request)).unwrap().unwrap();
    limiter.shed(&request, &mut limiter.decision()).unwrap();
    let lines = recorder.lines.lock().unwrap().clone();
    assert_eq!(
        lines,
        [
            r#"passed by store: first [Text("a")] left 1; second [Text("a")] left 4"#,
            r#"passed by store: first [Text("a")] left 0; second [Text("a")] left 3"#,
            r#"refused by store: first [Text("a")] left 0; second [Text("a")] left 3"#,
            r#"passed by shed: first [Text("a")] left 2; second [Text("a")] left 5"#,
        ]
    );
}

#[test]
fn only_sampled_checks_are_timed() {
    let (limiter, recorder) = witnessed_limiter(true);
    let descriptors = [Descriptor::new(&[("k", "a")])];
    poll_once(limiter.check_request(&request(&descriptors))).unwrap().unwrap();
    let nothing = [Descriptor::new(&[("other", "a")])];
    poll_once(limiter.check_request(&request(&nothing))).unwrap().unwrap();
    let lines = recorder.lines.lock().unwrap().clone();
    assert!(lines[0].ends_with(", timed with the store"), "{lines:?}");
    assert_eq!(lines[1], "passed by store: , timed", "without the store");
}

#[test]
fn undecided_requests_are_not_recorded() {
    let (limiter, recorder) = witnessed_limiter(false);
    let descriptors = [Descriptor::new(&[("k", "a")])];
    let unknown = Request { domain: Some("elsewhere"), ..request(&descriptors) };
    assert!(poll_once(limiter.check_request(&unknown)).unwrap().is_err());
    let once = Request { once: Some("one"), ..request(&descriptors) };
    poll_once(limiter.check_request(&once)).unwrap().unwrap();
    // Another request under the same idempotency key: nothing is decided.
    poll_once(limiter.check_request(&Request { cost: 2, ..once })).unwrap().unwrap();
    poll_once(limiter.explain(&request(&descriptors))).unwrap().unwrap();
    assert_eq!(recorder.lines.lock().unwrap().len(), 1);
    // The same request again is a replay, which is recorded.
    poll_once(limiter.check_request(&once)).unwrap().unwrap();
    poll_once(limiter.check_request(&Request { ask: Ask::Regardless, ..request(&descriptors) })).unwrap().unwrap();
    assert_eq!(recorder.lines.lock().unwrap().len(), 3);
}
