//! The supported variables of envoyproxy/ratelimit, with conversions of their values.

use std::time::Duration;

use tollgate_rules::problem::{TextFault, choose, quoted};

use super::text::format_time;
use crate::config::settings::Percent;

/// A variable that corresponds to one setting.
#[derive(Debug)]
pub(in crate::config) struct DirectVariable {
    pub(in crate::config) variable: &'static str,
    pub(in crate::config) setting: &'static str,
    /// The default of envoyproxy/ratelimit.
    pub(in crate::config) default: &'static str,
    /// Converts its value to the syntax of the setting.
    pub(in crate::config) convert: fn(&str) -> Result<String, TextFault>,
}

/// Variables that correspond to one setting each.
pub(in crate::config) const DIRECT_VARIABLES: &[DirectVariable] = &[
    direct("MERGE_DOMAIN_CONFIG", "merge_domains", "false", switch),
    direct("SHADOW_MODE", "shadow_mode", "false", switch),
    direct("GRPC_MAX_CONNECTION_AGE", "grpc_max_connection_age", "24h", time_or_off),
    direct("GRPC_MAX_CONNECTION_AGE_GRACE", "grpc_max_connection_age_grace", "1h", grace),
    direct("LIMIT_RESPONSE_HEADERS_ENABLED", "grpc_response_headers", "false", switch),
    direct("LIMIT_LIMIT_HEADER", "grpc_limit_header", "RateLimit-Limit", same),
    direct("LIMIT_REMAINING_HEADER", "grpc_remaining_header", "RateLimit-Remaining", same),
    direct("LIMIT_RESET_HEADER", "grpc_reset_header", "RateLimit-Reset", same),
    direct("RESPONSE_DYNAMIC_METADATA", "grpc_dynamic_metadata", "false", switch),
    direct("LOG_LEVEL", "log_level", "WARN", log_level),
    direct("LOG_FORMAT", "log_format", "text", same),
    direct("TRACING_SERVICE_NAME", "service_name", "RateLimit", same),
    direct("TRACING_SAMPLING_RATE", "otlp_sample", "1", share),
];

/// Variables that form a setting together: name, default, setting.
pub(in crate::config) const COMPOSED_VARIABLES: &[(&str, &str, &str)] = &[
    ("HOST", "0.0.0.0", "http"),
    ("PORT", "8080", "http"),
    ("GRPC_HOST", "0.0.0.0", "grpc"),
    ("GRPC_PORT", "8081", "grpc"),
    ("GRPC_UDS", "", "grpc"),
    ("DEBUG_HOST", "0.0.0.0", "admin"),
    ("DEBUG_PORT", "6070", "admin"),
    ("RUNTIME_ROOT", "/srv/runtime_data/current", "rules"),
    ("RUNTIME_SUBDIRECTORY", "", "rules"),
    ("RUNTIME_APPDIRECTORY", "config", "rules"),
    ("GRPC_SERVER_USE_TLS", "false", "grpc_tls_cert"),
    ("GRPC_SERVER_TLS_CERT", "", "grpc_tls_cert"),
    ("GRPC_SERVER_TLS_KEY", "", "grpc_tls_key"),
    ("GRPC_CLIENT_TLS_CACERT", "", "grpc_tls_client_ca"),
    ("GRPC_CLIENT_TLS_SAN", "", "grpc_tls_client_sans"),
    ("TRACING_ENABLED", "false", "otlp_endpoint"),
    ("TRACING_EXPORTER_PROTOCOL", "http", "otlp_endpoint"),
    ("BACKEND_TYPE", "redis", "store"),
    ("REDIS_URL", "", "store"),
    ("REDIS_TYPE", "SINGLE", "store"),
    ("REDIS_SOCKET_TYPE", "", "store"),
    ("REDIS_TLS", "false", "store"),
    ("REDIS_AUTH", "", "store_password"),
    ("REDIS_TLS_CACERT", "", "store_ca"),
    ("REDIS_TLS_CLIENT_CERT", "", "store_cert"),
    ("REDIS_TLS_CLIENT_KEY", "", "store_key"),
    ("REDIS_POOL_SIZE", "", "store_pool"),
    ("CACHE_KEY_PREFIX", "", "store_prefix"),
];

const fn direct(
    variable: &'static str,
    setting: &'static str,
    default: &'static str,
    convert: fn(&str) -> Result<String, TextFault>,
) -> DirectVariable {
    DirectVariable { variable, setting, default, convert }
}

fn same(text: &str) -> Result<String, TextFault> {
    Ok(text.to_owned())
}

/// A boolean as Go parses it.
pub(super) fn go_bool(text: &str) -> Result<bool, TextFault> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(TextFault::new(format!("{} is neither true nor false", quoted(text)), "write true or false")),
    }
}

fn switch(text: &str) -> Result<String, TextFault> {
    go_bool(text).map(|on| on.to_string())
}

/// In Go's gRPC an age of 0 means unlimited.
fn time_or_off(text: &str) -> Result<String, TextFault> {
    let time = go_duration(text)?;
    Ok(if time.is_zero() { "off".to_owned() } else { format_time(time) })
}

/// In Go's gRPC a grace of 0 means unlimited; the longest here is a day.
fn grace(text: &str) -> Result<String, TextFault> {
    let time = go_duration(text)?;
    Ok(if time.is_zero() { "24h".to_owned() } else { format_time(time) })
}

/// A duration as Go writes it: `24h`, `1h30m0s`, `1.5h`, `0`; rounded up to milliseconds.
fn go_duration(text: &str) -> Result<Duration, TextFault> {
    const UNITS: [(&str, u128); 7] = [
        ("ns", 1),
        ("us", 1_000),
        ("µs", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("m", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ];
    let fault =
        || TextFault::new(format!("{} is not a length of time", quoted(text)), "write for instance 24h or 1h30m");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let (mut rest, mut nanos) = (text, 0_u128);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(fault)?;
        let (count, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let (_, length) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(fault)?;
        nanos = nanos.checked_add(scaled(count, *length).ok_or_else(fault)?).ok_or_else(fault)?;
        rest = tail;
    }
    let millis = u64::try_from(nanos.div_ceil(1_000_000)).map_err(|_| fault())?;
    if text.is_empty() { Err(fault()) } else { Ok(Duration::from_millis(millis)) }
}

/// A decimal number of units.
fn scaled(count: &str, unit: u128) -> Option<u128> {
    let (whole, decimals) = count.split_once('.').unwrap_or((count, ""));
    // Further decimals are less than a nanosecond, even of an hour.
    let decimals = decimals.get(..decimals.len().min(15))?;
    if (whole.is_empty() && decimals.is_empty()) || whole.len() > 20 {
        return None;
    }
    let number = |digits: &str| if digits.is_empty() { Some(0) } else { digits.parse::<u128>().ok() };
    let power = 10_u128.checked_pow(u32::try_from(decimals.len()).ok()?)?;
    number(whole)?.checked_mul(unit)?.checked_add(number(decimals)?.checked_mul(unit)?.checked_div(power)?)
}

/// Converts a log level; `panic` and `fatal` become `error`.
fn log_level(text: &str) -> Result<String, TextFault> {
    const LEVELS: [&str; 8] = ["panic", "fatal", "error", "warn", "warning", "info", "debug", "trace"];
    let level = text.to_ascii_lowercase();
    match level.as_str() {
        "panic" | "fatal" => Ok("error".to_owned()),
        "warning" => Ok("warn".to_owned()),
        level if LEVELS.contains(&level) => Ok(level.to_owned()),
        level => Err(TextFault::new(format!("{} is not a level", quoted(text)), choose(level, LEVELS))),
    }
}

/// A share from 0 to 1, rounded up to the smallest percentage.
fn share(text: &str) -> Result<String, TextFault> {
    let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    let Some(share) = share else {
        let message = format!("{} is not a share", quoted(text));
        return Err(TextFault::new(message, "write a number from 0 to 1, for instance 0.01"));
    };
    let bps = (share * f64::from(Percent::WHOLE)).ceil().clamp(0.0, f64::from(Percent::WHOLE));
    // It is within the bounds of the type.
    Ok(Percent { bps: bps as u16 }.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations_are_read_as_go_does() {
        let rows = [
            ("24h", Some(86_400_000)),
            ("1h30m0s", Some(5_400_000)),
            ("1.5h", Some(5_400_000)),
            (".5s", Some(500)),
            ("1.s", Some(1_000)),
            ("0", Some(0)),
            ("0s", Some(0)),
            ("1ns", Some(1)),
            ("1500us", Some(2)),
            ("3µs", Some(1)),
            ("0.000000000000000000001h", Some(0)),
            ("", None),
            ("1", None),
            ("h", None),
            (".h", None),
            ("1.2.3s", None),
            ("-1h", None),
            ("1d", None),
            ("99999999999999999999999h", None),
            ("18446744073709551615h", None),
        ];
        for (text, millis) in rows {
            assert_eq!(go_duration(text).ok(), millis.map(Duration::from_millis), "{text}");
        }
    }

    #[test]
    fn values_are_converted() {
        type Convert = fn(&str) -> Result<String, TextFault>;
        let rows: [(Convert, &str, Result<&str, &str>); 18] = [
            (switch, "T", Ok("true")),
            (switch, "0", Ok("false")),
            (switch, "yes", Err("`yes` is neither true nor false; write true or false")),
            (time_or_off, "90m", Ok("1h30m")),
            (time_or_off, "0s", Ok("off")),
            (time_or_off, "48h", Ok("2d")),
            (grace, "0", Ok("24h")),
            (grace, "1m", Ok("1m")),
            (grace, "soon", Err("`soon` is not a length of time; write for instance 24h or 1h30m")),
            (log_level, "WARN", Ok("warn")),
            (log_level, "Warning", Ok("warn")),
            (log_level, "panic", Ok("error")),
            (log_level, "inof", Err("`inof` is not a level; did you mean `info`?")),
            (share, "1", Ok("100%")),
            (share, "0.125", Ok("12.5%")),
            (share, "0.0000001", Ok("0.01%")),
            (share, "0", Ok("0%")),
            (share, "NaN", Err("`NaN` is not a share; write a number from 0 to 1, for instance 0.01")),
        ];
        for (convert, text, expected) in rows {
            let converted = convert(text).map_err(|fault| fault.to_string());
            assert_eq!(converted.as_deref().map_err(String::as_str), expected, "{text}");
        }
    }
}
