//! Timeouts and retries, of all routes and of one.

use http::Method;
use tollgate_rules::problem::{TextFault, quoted};
use tollgate_rules::yaml::fields::{Fields, switch, text};
use tollgate_rules::yaml::{Yaml, YamlKind};

use super::super::values::{self, count, one_or_more, set, share, time};
use crate::model::{RetryConfig, Timeouts};

/// The most retries of a request.
const MAX_ATTEMPTS: u64 = 5;

/// The most reasons for a retry.
const MAX_REASONS: usize = 16;

pub(super) fn timeouts(map: &Fields<'_>, timeouts: &mut Timeouts) {
    set(&mut timeouts.connect, map.read("connect", time));
    set(&mut timeouts.tls, map.read("tls", time));
    set(&mut timeouts.request_idle, map.read("request_idle", time));
    set(&mut timeouts.response, map.read("response", time));
    set(&mut timeouts.response_idle, map.read("idle", time));
    let whole = map.read("whole", |value| match text(value)? {
        "none" => Ok(None),
        _ => time(value).map(Some),
    });
    set(&mut timeouts.whole, whole);
    map.finish();
}

/// `retries: off`, or their settings.
pub(super) fn retries(map: &Fields<'_>, retries: &mut RetryConfig) {
    let Some(entry) = map.entry("retries") else { return };
    if let YamlKind::Scalar(_) = &entry.value.kind {
        match map.read("retries", switch) {
            Some(true) => *retries = RetryConfig::default(),
            Some(false) => retries.attempts = 0,
            None => {}
        }
        return;
    }
    let Some(map) = map.map("retries") else { return };
    set(&mut retries.attempts, map.read("attempts", |value| count(value, 0..=MAX_ATTEMPTS)));
    if let Some(Reasons { on_connect, on_reset, on_timeout, on_status }) = map.read("on", reasons) {
        (retries.on_connect, retries.on_reset) = (on_connect, on_reset);
        (retries.on_timeout, retries.on_status) = (on_timeout, on_status);
    }
    set(&mut retries.methods, map.read("methods", methods));
    set(&mut retries.budget, map.read("budget", |value| share(value, 0..=100)));
    map.finish();
}

/// Why a request is sent again.
#[derive(Default)]
struct Reasons {
    on_connect: bool,
    on_reset: bool,
    on_timeout: bool,
    on_status: Vec<u16>,
}

fn reasons(value: &Yaml) -> Result<Reasons, TextFault> {
    let mut reasons = Reasons::default();
    for item in one_or_more(value, MAX_REASONS)? {
        match text(item)? {
            "connect" => reasons.on_connect = true,
            "reset" => reasons.on_reset = true,
            "timeout" => reasons.on_timeout = true,
            given => match given.parse() {
                Ok(status @ 500..=599) => reasons.on_status.push(status),
                _ => {
                    let message = format!("{} is not a reason to send a request again", quoted(given));
                    return Err(TextFault::new(message, "write connect, reset, timeout, or a status from 500 to 599"));
                }
            },
        }
    }
    Ok(reasons)
}

/// Methods that have the same effect when they are sent again. GET, HEAD and OPTIONS are always among them.
fn methods(value: &Yaml) -> Result<Vec<Method>, TextFault> {
    let methods = values::methods(value)?;
    match methods.iter().find(|method| !method.is_idempotent()) {
        Some(method) => Err(TextFault::new(
            format!("{method} may have its effect twice when it is sent again"),
            "write PUT or DELETE; GET, HEAD and OPTIONS are sent again without it",
        )),
        None => Ok(methods.into_iter().filter(|method| !method.is_safe()).collect()),
    }
}
