//! Only limits that can be counted exactly exist.

use tollgate_core::calendar::{Calendar, CalendarUnit};
use tollgate_core::{Algorithm, EXACT, Limit, LimitError, Period, Span};

fn minute() -> Period {
    Period::fixed(Span::from_secs(60)).unwrap()
}

fn day() -> Period {
    Period::calendar(Calendar::new(CalendarUnit::Day, "UTC").unwrap())
}

#[test]
fn the_largest_amounts() {
    let most = (EXACT - 1) / 60_000_000;
    let bucket = |amount, burst| Limit::new(amount, minute(), Algorithm::Bucket { burst, paced: false });
    assert!(bucket(most, most).is_ok());
    assert_eq!(bucket(most + 1, 1), Err(LimitError::TooLarge { max: most }));
    assert_eq!(bucket(1, most + 1), Err(LimitError::TooLarge { max: most }));
    assert!(Limit::new(most, minute(), Algorithm::FixedWindow).is_ok());
    assert_eq!(Limit::new(most + 1, minute(), Algorithm::FixedWindow), Err(LimitError::TooLarge { max: most }));
    for algorithm in [Algorithm::SlidingLog, Algorithm::Concurrency] {
        assert!(Limit::new(Limit::MAX_ENTRIES, minute(), algorithm).is_ok());
        assert_eq!(Limit::new(Limit::MAX_ENTRIES + 1, minute(), algorithm), Err(LimitError::TooManyEntries));
    }
}

#[test]
fn sub_windows_divide_the_period() {
    let sliding = |sub_windows| Limit::new(1, minute(), Algorithm::SlidingWindow { sub_windows });
    assert!(sliding(1).is_ok() && sliding(Limit::MAX_SUB_WINDOWS).is_ok());
    for wrong in [0, 7, Limit::MAX_SUB_WINDOWS + 1] {
        assert_eq!(sliding(wrong), Err(LimitError::SubWindows), "{wrong}");
    }
}

#[test]
fn only_windows_follow_a_calendar() {
    let of = |algorithm| Limit::new(1, day(), algorithm);
    assert!(of(Algorithm::FixedWindow).is_ok());
    assert!(of(Algorithm::SlidingWindow { sub_windows: 1 }).is_ok());
    let others = [
        Algorithm::SlidingWindow { sub_windows: 2 },
        Algorithm::SlidingLog,
        Algorithm::Concurrency,
        Algorithm::Bucket { burst: 1, paced: false },
    ];
    for algorithm in others {
        assert_eq!(of(algorithm), Err(LimitError::NotForCalendars), "{algorithm:?}");
    }
}

#[test]
fn periods_are_no_shorter_than_a_millisecond() {
    assert_eq!(Period::fixed(Span::from_micros(999)), Err(LimitError::TooShort));
    assert_eq!(Period::fixed(Period::MIN).unwrap().ticks(), 1_000);
    assert_eq!(Period::fixed(Span::from_micros(60_000_999)).unwrap().span(), Span::from_micros(60_000_000));
}

#[test]
fn another_amount_keeps_the_shape() {
    let bucket = Limit::new(10, minute(), Algorithm::Bucket { burst: 20, paced: true }).unwrap();
    let third = bucket.with_amount(3);
    assert_eq!((third.amount(), third.quota()), (3, 6));
    assert_eq!(third.algorithm(), Algorithm::Bucket { burst: 6, paced: true });
    let rounded = Limit::new(3, minute(), Algorithm::Bucket { burst: 4, paced: false }).unwrap().with_amount(1);
    assert_eq!(rounded.quota(), 2, "rounded up: a share of a burst is never nothing");
    let log = Limit::new(10, minute(), Algorithm::SlidingLog).unwrap();
    assert_eq!(log.with_amount(u64::MAX).amount(), Limit::MAX_ENTRIES);
    assert_eq!(bucket.with_amount(u64::MAX).quota(), minute().max_count());
}

#[test]
fn a_quota_of_nothing_has_no_burst() {
    let none = Limit::new(0, minute(), Algorithm::Bucket { burst: 5, paced: false }).unwrap();
    assert_eq!(none.quota(), 0);
}
