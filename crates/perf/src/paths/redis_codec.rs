//! A claim encoded for the script, and the script's answer decoded.

use std::hint::black_box;

use tollgate::{Descriptor, Request, Ruleset, Timestamp};
use tollgate_redis::perf::Codec;

use super::Iteration;
use super::decisions::{FOUR_LIMITS, ONE_LIMIT, callers, ruleset};

pub(super) fn one_limit() -> Iteration {
    rounds(ruleset(ONE_LIMIT))
}

pub(super) fn four_limits() -> Iteration {
    rounds(ruleset(FOUR_LIMITS))
}

/// The claims of callers in turn. Resolving them is counted, too.
fn rounds(rules: Ruleset) -> Iteration {
    let (callers, mut next) = (callers(), 0);
    let codec = Codec::new("tg:", Timestamp::from_secs(1_800_000_000));
    Box::new(move || {
        next = (next + 1) % callers.len();
        let entries = [("api_key", &*callers[next])];
        let descriptors = [Descriptor::new(&entries)];
        let request = Request { domain: Some("api"), descriptors: &descriptors, cost: 1, ..Request::default() };
        let Ok(resolved) = rules.resolve(&request, tollgate::ClaimId(1)) else { unreachable!("the request is sound") };
        assert!(codec.round(&resolved.claim).is_some(), "the answer is read");
        black_box(&codec);
    })
}
