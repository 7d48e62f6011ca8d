//! Numbers and durations in the width of a column.

/// A count: `950`, `12.3k`, `4.5M`.
pub(super) fn count(number: u64) -> String {
    match number {
        0..10_000 => number.to_string(),
        _ => large(number as f64),
    }
}

/// A rate: `0`, `0.2`, `8.5`, `120`, `12.3k`.
pub(super) fn rate(rate: f64) -> String {
    match rate {
        none if none < 0.005 => "0".to_owned(),
        few if few < 0.095 => format!("{few:.2}"),
        some if some < 99.95 => format!("{some:.1}").trim_end_matches(".0").to_owned(),
        many if many < 9_999.5 => format!("{many:.0}"),
        more => large(more),
    }
}

fn large(number: f64) -> String {
    const UNITS: [(f64, &str); 4] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    // A value that would round to a thousand of a unit uses the next one.
    let unit = UNITS.into_iter().find(|(unit, _)| number >= unit * 0.99995);
    unit.map(|(unit, name)| format!("{:.1}{name}", number / unit)).unwrap_or_else(|| format!("{number:.0}"))
}

/// A ratio of 1: `0%`, `93%`, `>999%`.
pub(super) fn percent(ratio: f64) -> String {
    match ratio * 100.0 {
        much if much > 999.0 => ">999%".to_owned(),
        percent => format!("{percent:.0}%"),
    }
}

/// A duration in seconds: `850ns`, `12µs`, `3.4ms`, `1.2s`; `-` where there is none.
pub(super) fn duration(seconds: Option<f64>) -> String {
    let Some(seconds) = seconds else { return "-".to_owned() };
    const UNITS: [(f64, &str); 4] = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")];
    let (unit, name) = UNITS.into_iter().find(|(unit, _)| seconds >= *unit).unwrap_or(UNITS[3]);
    match seconds / unit {
        few if few < 10.0 => format!("{few:.1}{name}"),
        many => format!("{many:.0}{name}"),
    }
}

/// An uptime: `12s`, `5m`, `3h 20m`, `2d 4h`.
pub(super) fn uptime(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}m"),
        (0, hours, minutes) => format!("{hours}h {}m", minutes % 60),
        (days, hours, _) => format!("{days}d {}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fit_into_columns() {
        for (number, text) in [
            (0.0, "0"),
            (0.02, "0.02"),
            (0.2, "0.2"),
            (8.0, "8"),
            (8.46, "8.5"),
            (99.97, "100"),
            (9_999.4, "9999"),
            (12_345.0, "12.3k"),
            (999_999.0, "1.0M"),
            (5e9, "5.0G"),
        ] {
            assert_eq!(rate(number), text, "{number}");
        }
        for (number, text) in
            [(0, "0"), (9_999, "9999"), (10_000, "10.0k"), (4_500_000, "4.5M"), (u64::MAX, "18446744.1T")]
        {
            assert_eq!(count(number), text, "{number}");
        }
        for (ratio, text) in [(0.0, "0%"), (0.934, "93%"), (1.0, "100%"), (12.0, ">999%")] {
            assert_eq!(percent(ratio), text);
        }
    }

    #[test]
    fn durations_have_a_readable_unit() {
        for (seconds, text) in [
            (None, "-"),
            (Some(0.0), "0.0ns"),
            (Some(850e-9), "850ns"),
            (Some(12e-6), "12µs"),
            (Some(3.44e-3), "3.4ms"),
            (Some(1.2), "1.2s"),
        ] {
            assert_eq!(duration(seconds), text);
        }
        for (seconds, text) in [(12.9, "12s"), (300.0, "5m"), (12_000.0, "3h 20m"), (187_200.0, "2d 4h")] {
            assert_eq!(uptime(seconds), text);
        }
    }
}
