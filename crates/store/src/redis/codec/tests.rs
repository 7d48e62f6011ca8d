//! The script against the core: the same claims, the same readings.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

mod direct;
mod many;
mod random;

use tollgate_core::{Settlement, Span, Wait};
use tollgate_testing::Redis;

use crate::conformance::{self, Subject, reference::Reference};
use direct::Direct;
use random::Random;

/// How many claims are compared: one in a quick run is no proof, so this is what every run does.
const CLAIMS: usize = 120_000;

#[test]
fn slow_the_script_conforms() {
    conforms(&Redis::start());
}

#[test]
fn slow_the_script_conforms_in_valkey() {
    conforms(&Redis::start_valkey());
}

fn conforms(redis: &Redis) {
    let stores = std::cell::Cell::new(0);
    conformance::run(|| {
        stores.set(stores.get() + 1);
        Direct::new(redis.port(), &format!("t{}:", stores.get()))
    });
}

#[test]
fn slow_the_script_answers_like_the_core() {
    let redis = Redis::start();
    let mut claims = 0;
    for seed in 0.. {
        let direct = Direct::new(redis.port(), &format!("s{seed}:"));
        let reference = Reference::default();
        let mut random = Random::new(seed);
        for number in 0..60 {
            let now = random.step();
            direct.set_now(now);
            reference.set_now(now);
            let batch = random.batch();
            claims += batch.len();
            let answers = direct.settle_all(&batch.iter().map(|asked| asked.claim(&random)).collect::<Vec<_>>());
            for (asked, answer) in batch.iter().zip(answers) {
                let claim = asked.claim(&random);
                let expected = within_285_years(conformance::block_on(crate::Store::settle(&reference, &claim)));
                let mut actual = within_285_years(answer.unwrap());
                if actual.replay == tollgate_core::Replay::Conflict {
                    // What a conflict says of the counters is the store's own affair.
                    actual.readings.clone_from(&expected.readings);
                }
                let both = actual.readings.iter().zip(&expected.readings).zip(&claim.charges);
                if let Some(((actual, expected), charge)) = both.into_iter().find(|((one, other), _)| one != other) {
                    panic!(
                        "seed {seed}, batch {number} at {now:?}:\n{asked:?}\n{:?}\n {actual:?}\n {expected:?}",
                        charge.limit
                    );
                }
                assert_eq!(actual, expected, "seed {seed}, batch {number} at {now:?}: {asked:?}");
            }
        }
        if claims >= CLAIMS {
            break;
        }
    }
}

/// Whatever somebody else has written under our names: it counts as fresh, and nothing fails.
#[test]
fn slow_what_others_wrote_counts_as_fresh() {
    let redis = Redis::start();
    let direct = Direct::new(redis.port(), "x:");
    let mut rng = fastrand::Rng::with_seed(7);
    for seed in 0..300 {
        let mut random = Random::new(seed);
        direct.set_now(random.step());
        let batch = random.batch();
        let claims: Vec<_> = batch.iter().map(|asked| asked.claim(&random)).collect();
        direct.settle_all(&claims).into_iter().for_each(|answer| drop(answer.unwrap()));
        for key in direct.keys() {
            direct.damage(&key, &mut rng);
        }
        for answer in direct.settle_all(&claims) {
            let settlement = answer.unwrap();
            for reading in &settlement.readings {
                assert!(
                    reading.taken < tollgate_core::EXACT && reading.remaining < tollgate_core::EXACT,
                    "{reading:?}"
                );
            }
        }
        direct.command(&[b"FLUSHALL"]);
    }
    assert!(direct.unsound() > 100, "damage must be counted: {}", direct.unsound());
}

/// Spans past what is exact in Lua are as good as forever.
fn within_285_years(mut settlement: Settlement) -> Settlement {
    let most = Span::from_micros(tollgate_core::EXACT - 1);
    for reading in &mut settlement.readings {
        reading.reset_after = reading.reset_after.min(most);
        reading.wait = match reading.wait {
            Wait::For(span) => Wait::For(span.min(most)),
            other => other,
        };
    }
    settlement
}
