//! The building blocks of the algorithms: time, calendars, keys, limits, the vote.

mod calendar;
mod key;
mod limit;
mod private;
mod time;
mod verdict;
