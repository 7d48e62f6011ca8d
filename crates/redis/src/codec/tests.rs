//! The script compared with the core: the same claims, the same readings.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

mod direct;
mod logs;
mod many;
mod random;

use tollgate_core::{Settlement, Span, Wait};
use tollgate_testing::{Redis, number_from_env};

use direct::Direct;
use random::Random;
use tollgate_store::conformance::{self, Subject, reference::Reference};

/// How many claims are compared, unless `SCRIPT_CLAIMS` says otherwise. `make test-long` compares more.
const CLAIMS: u64 = 20_000;

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
    let (mut claims, most) = (0, number_from_env("SCRIPT_CLAIMS").unwrap_or(CLAIMS));
    for seed in 0.. {
        let direct = Direct::new(redis.port(), &format!("s{seed}:"));
        let reference = Reference::default();
        let mut random = Random::new(seed);
        for number in 0..60 {
            let now = random.step();
            direct.set_now(now);
            reference.set_now(now);
            let batch = random.batch();
            claims += batch.len() as u64;
            let answers = direct.settle_all(&batch.iter().map(|sent| sent.claim(&random)).collect::<Vec<_>>());
            for (sent, answer) in batch.iter().zip(answers) {
                let claim = sent.claim(&random);
                let expected =
                    within_285_years(conformance::block_on(tollgate_store::Store::settle(&reference, &claim)));
                let actual = within_285_years(answer.unwrap());
                let both = actual.readings.iter().zip(&expected.readings).zip(&claim.charges);
                if let Some(((actual, expected), charge)) = both.into_iter().find(|((one, other), _)| one != other) {
                    panic!(
                        "seed {seed}, batch {number} at {now:?}:\n{sent:?}\n{:?}\n {actual:?}\n {expected:?}",
                        charge.limit
                    );
                }
                assert_eq!(actual, expected, "seed {seed}, batch {number} at {now:?}: {sent:?}");
            }
        }
        if claims >= most {
            break;
        }
    }
}

/// Corrupted values count as fresh, and nothing fails.
#[test]
fn slow_what_others_wrote_counts_as_fresh() {
    let redis = Redis::start();
    let direct = Direct::new(redis.port(), "x:");
    let mut rng = fastrand::Rng::with_seed(7);
    for seed in 0..300 {
        let mut random = Random::new(seed);
        direct.set_now(random.step());
        let batch = random.batch();
        let claims: Vec<_> = batch.iter().map(|sent| sent.claim(&random)).collect();
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

/// Spans beyond the exact integers of Lua are equivalent to forever.
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
