//! Parses traces.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_core::calendar::{Calendar, CalendarUnit};
use tollgate_core::key::Home;
use tollgate_core::{Algorithm, Ask, ClaimId, Limit, Mode, Period, Span, Timestamp, Wait};

use super::notation::{date, moment, span, units};
use super::{Case, ChargeRow, ExpectedReading, OnceRow, TraceRow};
use crate::conformance::world::{START, TestCounter};

type Limits = HashMap<String, Arc<TestCounter>>;

/// The cases of a trace. The error begins with the number of the invalid line.
pub fn parse(text: &str) -> Result<Vec<Case>, String> {
    let mut cases: Vec<Case> = Vec::new();
    let mut shared = Limits::new();
    let mut limits = Limits::new();
    let mut origin = START;
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let said = |problem: String| format!("{}: {problem}", index + 1);
        if line.is_empty() {
            continue;
        }
        match (line.split_once(' '), cases.last_mut()) {
            (Some(("case", name)), _) => {
                cases.push(Case { name: name.trim().to_owned(), rows: Vec::new() });
                limits = shared.clone();
                origin = START;
            }
            (Some(("origin", moment)), _) => origin = date(moment.trim()).map_err(said)?,
            (Some(("limit", declared)), case) => {
                let (name, counter) = limit(declared).map_err(said)?;
                let scope = if case.is_some() { &mut limits } else { &mut shared };
                scope.insert(name, Arc::new(counter));
            }
            (_, None) => return Err(said("a row before the first case".to_owned())),
            (_, Some(case)) => case.rows.push(row(line, index + 1, origin, &limits).map_err(said)?),
        }
    }
    Ok(cases)
}

/// `NAME = AMOUNT/PERIOD [from DAY] [in ZONE] ALGORITHM [burst N] [sub N] [own]`, or `NAME = AMOUNT concurrent hold SPAN`.
fn limit(declared: &str) -> Result<(String, TestCounter), String> {
    let (name, rest) = declared.split_once('=').ok_or("write: limit NAME = AMOUNT/PERIOD ALGORITHM")?;
    let mut words = rest.split_whitespace();
    let quota = words.next().ok_or("a limit needs an amount")?;
    let (amount, length) = quota.split_once('/').map_or((quota, None), |(amount, length)| (amount, Some(length)));
    let amount = units(amount)?;
    let mut given: HashMap<&str, &str> = HashMap::new();
    let mut machine = None;
    let mut home = Home::Caller(0);
    while let Some(word) = words.next() {
        match word {
            "burst" | "sub" | "from" | "in" | "hold" => {
                given.insert(word, words.next().ok_or_else(|| format!("\"{word}\" needs a value"))?);
            }
            "own" => home = Home::Own,
            _ => machine = Some(word),
        }
    }
    let number = |word: &str| given.get(word).map(|value| units(value)).transpose();
    let period = match length {
        None => fixed(given.get("hold").ok_or("a concurrent limit needs a hold")?)?,
        Some(length) => match given.get("in") {
            Some(zone) => calendar(length, number("from")?, zone)?,
            None => fixed(length)?,
        },
    };
    let burst = number("burst")?.unwrap_or(amount);
    let algorithm = match machine {
        Some("token_bucket" | "gcra") => Algorithm::Bucket { burst, paced: false },
        Some("leaky_bucket") => Algorithm::Bucket { burst, paced: true },
        Some("fixed_window") => Algorithm::FixedWindow,
        Some("sliding_window") => {
            let sub_windows = u16::try_from(number("sub")?.unwrap_or(1)).map_err(|_| "too many sub-windows")?;
            Algorithm::SlidingWindow { sub_windows }
        }
        Some("sliding_log") => Algorithm::SlidingLog,
        Some("concurrent") => Algorithm::Concurrency,
        other => return Err(format!("\"{}\" is not an algorithm", other.unwrap_or_default())),
    };
    let limit = Limit::new(amount, period, algorithm).map_err(|error| error.to_string())?;
    let name = name.trim().to_owned();
    let counter = TestCounter::new(&name, limit, home);
    Ok((name, counter))
}

fn fixed(length: &str) -> Result<Period, String> {
    Period::fixed(span(length)?).map_err(|error| error.to_string())
}

fn calendar(unit: &str, from_day: Option<u64>, zone: &str) -> Result<Period, String> {
    let unit = match unit {
        "day" => CalendarUnit::Day,
        "week" => CalendarUnit::Week,
        "month" => CalendarUnit::Month { from_day: u8::try_from(from_day.unwrap_or(1)).map_err(|_| "no such day")? },
        "year" => CalendarUnit::Year,
        _ => return Err(format!("\"{unit}\" is not a calendar period")),
    };
    Calendar::new(unit, zone).map(Period::calendar).ok_or_else(|| format!("there is no zone \"{zone}\""))
}

/// `TIME [id N] [once NAME [body N] keep SPAN] | CHARGE, … | [again] READING, …`
fn row(text: &str, line: usize, origin: Timestamp, limits: &Limits) -> Result<TraceRow, String> {
    let columns: Vec<&str> = text.split('|').map(str::trim).collect();
    let [head, charges, readings] = columns[..] else {
        return Err("write: TIME | CHARGE, … | READING, …".to_owned());
    };
    let charges: Vec<ChargeRow> =
        charges.split(',').map(|text| charge(text, origin, limits)).collect::<Result<_, String>>()?;
    let (again, readings) = match readings.split_once(' ') {
        Some(("again", rest)) => (true, rest),
        _ => (false, readings),
    };
    let readings: Vec<&str> = readings.split(',').collect();
    if readings.len() != charges.len() {
        return Err(format!("{} charges and {} readings", charges.len(), readings.len()));
    }
    let expected = charges
        .iter()
        .zip(readings)
        .map(|(charge, text)| reading(text, charge.units))
        .collect::<Result<Vec<ExpectedReading>, String>>()?;

    let mut words = head.split_whitespace();
    let at = moment(words.next().unwrap_or_default(), origin)?;
    // Each row is a claim of its own unless it says otherwise.
    let mut id = ClaimId((1 << 64) + line as u128);
    let mut once: Option<OnceRow> = None;
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("\"{word}\" needs a value"))?;
        match (word, &mut once) {
            ("id", _) => id = ClaimId(u128::from(units(value)?)),
            ("once", _) => once = Some(OnceRow { name: value.to_owned(), body: 0, keep: Span::ZERO }),
            ("body", Some(once)) => once.body = units(value)?,
            ("keep", Some(once)) => once.keep = span(value)?,
            _ => return Err(format!("\"{word}\" does not belong here")),
        }
    }
    Ok(TraceRow { line, at, id, once, charges, again, expected })
}

/// `LIMIT[/VALUE] [upto|debit|return|credit] UNITS [from TIME] [any|shadow|soft]`, where 0 units are written `look`;
/// or `LIMIT[/VALUE] reset`.
fn charge(text: &str, origin: Timestamp, limits: &Limits) -> Result<ChargeRow, String> {
    let mut words = text.split_whitespace();
    let key = words.next().ok_or("a charge names a limit")?;
    let (name, value) = key.split_once('/').unwrap_or((key, "caller"));
    let counter = limits.get(name).ok_or_else(|| format!("there is no limit \"{name}\""))?;
    let mut charge = ChargeRow {
        counter: Arc::clone(counter),
        value: value.to_owned(),
        ask: Ask::Exactly,
        units: 0,
        mode: Mode::Enforce,
    };
    let mut sized = false;
    while let Some(word) = words.next() {
        match word {
            "upto" => charge.ask = Ask::UpTo,
            "debit" => charge.ask = Ask::Regardless,
            "return" => charge.ask = Ask::Return { taken_at: origin },
            "from" => charge.ask = Ask::Return { taken_at: moment(words.next().unwrap_or_default(), origin)? },
            "credit" => charge.ask = Ask::Credit,
            "reset" => (charge.ask, sized) = (Ask::Reset, true),
            "any" => charge.mode = Mode::AnyOf,
            "shadow" => charge.mode = Mode::Shadow,
            "soft" => charge.mode = Mode::Soft,
            "look" => sized = true,
            number => (charge.units, sized) = (units(number)?, true),
        }
    }
    if !sized {
        return Err(format!("\"{}\" says nothing of units", text.trim()));
    }
    Ok(charge)
}

/// `ok|no [took N] left N [wait SPAN|forever] [reset SPAN] [delay SPAN]`
fn reading(text: &str, requested_units: u64) -> Result<ExpectedReading, String> {
    let mut words = text.split_whitespace();
    let admits = match words.next() {
        Some("ok") => true,
        Some("no") => false,
        _ => return Err(format!("\"{}\" begins with neither ok nor no", text.trim())),
    };
    let took = if admits { requested_units } else { 0 };
    let mut expected = ExpectedReading { admits, took, left: 0, wait: Wait::None, reset: None, delay: Span::ZERO };
    let mut has_left = false;
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("\"{word}\" needs a value"))?;
        match word {
            "took" => expected.took = units(value)?,
            "left" => (expected.left, has_left) = (units(value)?, true),
            "wait" if value == "forever" => expected.wait = Wait::Forever,
            "wait" => expected.wait = Wait::For(span(value)?),
            "reset" => expected.reset = Some(span(value)?),
            "delay" => expected.delay = span(value)?,
            _ => return Err(format!("\"{word}\" is no part of a reading")),
        }
    }
    match (has_left, admits, expected.wait) {
        (false, ..) => Err("a reading states what is left".to_owned()),
        (_, false, Wait::None) => Err("a refusal states its wait".to_owned()),
        _ => Ok(expected),
    }
}
