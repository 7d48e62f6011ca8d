//! The text of the `Date` header, formatted once a second by each worker.

use std::cell::RefCell;
use std::time::{Duration, UNIX_EPOCH};

use tollgate_store::Clock;

/// The date of a second.
struct DateText {
    second: u64,
    text: String,
}

thread_local! {
    static DATE: RefCell<DateText> = const { RefCell::new(DateText { second: u64::MAX, text: String::new() }) };
}

/// Calls `write` with the current date. It must not call this function.
pub fn with_text<T>(clock: &impl Clock, write: impl FnOnce(&[u8]) -> T) -> T {
    let second = clock.now().as_micros() / 1_000_000;
    DATE.with_borrow_mut(|date| {
        if date.second != second {
            date.second = second;
            date.text = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
        }
        write(date.text.as_bytes())
    })
}
