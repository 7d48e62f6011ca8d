//! Boundaries of calendar periods, against dates that were worked out by hand.

use proptest::prelude::*;
use tollgate_core::calendar::{Calendar, CalendarPeriod, CalendarUnit};

fn second(moment: &str) -> u64 {
    u64::try_from(moment.parse::<jiff::Timestamp>().unwrap().as_second()).unwrap()
}

#[track_caller]
fn check(unit: CalendarUnit, zone: &str, moment: &str, start: &str, end: &str) {
    let calendar = Calendar::new(unit, zone).unwrap();
    assert_eq!(
        calendar.around(second(moment)),
        CalendarPeriod { start: second(start), end: second(end) },
        "{zone} {moment}"
    );
}

#[test]
fn days_are_as_long_as_the_zone_says() {
    let day = CalendarUnit::Day;
    check(day, "UTC", "2026-07-01T12:00:00Z", "2026-07-01T00:00:00Z", "2026-07-02T00:00:00Z");
    check(day, "Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z");
    check(day, "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z");
    check(day, "Asia/Kathmandu", "2026-07-01T18:15:00Z", "2026-07-01T18:15:00Z", "2026-07-02T18:15:00Z");
}

#[test]
fn a_day_whose_midnight_is_skipped_begins_after_the_gap() {
    // In Santiago clocks went from 00:00 to 01:00 on 2024-09-08.
    check(
        CalendarUnit::Day,
        "America/Santiago",
        "2024-09-08T12:00:00Z",
        "2024-09-08T04:00:00Z",
        "2024-09-09T03:00:00Z",
    );
}

#[test]
fn a_day_that_is_skipped_whole_is_nobodys() {
    // Apia went from the 29th to the 31st of December 2011, at 10:00 UTC on the 30th.
    check(CalendarUnit::Day, "Pacific/Apia", "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z");
    check(CalendarUnit::Day, "Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z");
}

#[test]
fn a_clock_set_back_over_midnight_begins_no_second_day() {
    // In St. John's clocks went from 00:01 on 2010-11-07 back to 23:01 on the 6th: the 7th began at 02:30 UTC and stays begun.
    let (day, zone) = (CalendarUnit::Day, "America/St_Johns");
    check(day, zone, "2010-11-07T02:29:59Z", "2010-11-06T02:30:00Z", "2010-11-07T02:30:00Z");
    check(day, zone, "2010-11-07T02:31:00Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z");
    check(day, zone, "2010-11-07T03:29:00Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z");
}

#[test]
fn weeks_months_and_years() {
    let berlin = "Europe/Berlin";
    check(CalendarUnit::Week, berlin, "2026-03-29T21:59:59Z", "2026-03-22T23:00:00Z", "2026-03-29T22:00:00Z");
    check(CalendarUnit::Week, berlin, "2026-03-29T22:00:00Z", "2026-03-29T22:00:00Z", "2026-04-05T22:00:00Z");
    let from = |from_day| CalendarUnit::Month { from_day };
    check(from(1), berlin, "2026-03-15T00:00:00Z", "2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z");
    check(from(17), berlin, "2026-03-16T22:59:59Z", "2026-02-16T23:00:00Z", "2026-03-16T23:00:00Z");
    check(from(31), "UTC", "2026-02-10T00:00:00Z", "2026-01-31T00:00:00Z", "2026-02-28T00:00:00Z");
    check(from(31), "UTC", "2026-02-28T00:00:00Z", "2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z");
    check(from(31), "UTC", "2024-02-28T12:00:00Z", "2024-01-31T00:00:00Z", "2024-02-29T00:00:00Z");
    check(from(30), "UTC", "2026-12-31T00:00:00Z", "2026-12-30T00:00:00Z", "2027-01-30T00:00:00Z");
    check(CalendarUnit::Year, "UTC", "2028-12-31T23:59:59Z", "2028-01-01T00:00:00Z", "2029-01-01T00:00:00Z");
}

#[test]
fn only_zones_that_exist() {
    assert!(Calendar::new(CalendarUnit::Day, "Europe/Atlantis").is_none());
    assert!(Calendar::new(CalendarUnit::Day, "").is_none());
    assert_eq!(
        Calendar::new(CalendarUnit::Day, "europe/berlin").unwrap().zone(),
        "Europe/Berlin",
        "one name for a zone"
    );
}

proptest! {
    /// Periods follow each other without gap or overlap, and none is longer than its bound.
    #[test]
    fn periods_tile_time(
        unit in prop_oneof![
            Just(CalendarUnit::Day),
            Just(CalendarUnit::Week),
            (1u8..=31).prop_map(|from_day| CalendarUnit::Month { from_day }),
            Just(CalendarUnit::Year),
        ],
        zone in prop::sample::select(vec![
            "UTC", "Europe/Berlin", "America/New_York", "America/St_Johns", "America/Santiago", "Pacific/Apia",
            "Asia/Kathmandu", "Australia/Lord_Howe", "Africa/Casablanca",
        ]),
        second in 0u64..9_007_199_254,
    ) {
        let calendar = Calendar::new(unit, zone).unwrap();
        let CalendarPeriod { start, end } = calendar.around(second);
        prop_assert!(start <= second && second < end);
        prop_assert!(end - start <= calendar.max_seconds());
        prop_assert_eq!(calendar.around(start), CalendarPeriod { start, end });
        prop_assert_eq!(calendar.around(end - 1), CalendarPeriod { start, end });
        prop_assert_eq!(calendar.around(end).start, end);
    }
}
