//! The lists of keys: top keys of a query, and hot keys.

use serde_json::Value;

use super::units::count;

/// Which list is shown, if there is no room for both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum KeyList {
    #[default]
    Top,
    Hot,
}

/// The selection of top keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TopKeysQuery {
    pub(super) by: KeyOrder,
    pub(super) window: KeyWindow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum KeyOrder {
    Decisions,
    Refusals,
    Utilisation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum KeyWindow {
    #[value(name = "1m")]
    Minute,
    #[value(name = "5m")]
    FiveMinutes,
    #[value(name = "1h")]
    Hour,
}

/// The top keys.
#[derive(Debug, Default)]
pub(super) struct TopKeys {
    /// The JSON of each key.
    pub(super) rows: Vec<Value>,
    /// Why there are none.
    pub(super) note: Option<String>,
}

/// The keys of which the server leases units.
#[derive(Debug, Default)]
pub(super) struct HotKeys {
    /// The JSON of each key.
    pub(super) rows: Vec<Value>,
    /// What is leased in all; empty before the first answer.
    pub(super) summary: String,
    /// Why there are none.
    pub(super) note: Option<String>,
}

impl TopKeys {
    pub(super) fn new(top: Result<Value, String>) -> TopKeys {
        match top {
            Ok(mut top) => TopKeys { rows: take_keys(&mut top), note: None },
            Err(why) => TopKeys { rows: Vec::new(), note: Some(why) },
        }
    }
}

impl HotKeys {
    pub(super) fn new(leases: Result<Value, String>) -> HotKeys {
        let mut leases = match leases {
            Ok(leases) => leases,
            Err(why) => return HotKeys { note: Some(why), ..HotKeys::default() },
        };
        if leases["available"] == false {
            let note = "none: counters are in memory, and need no calls".to_owned();
            return HotKeys { note: Some(note), ..HotKeys::default() };
        }
        if leases["enabled"] == false {
            let note = "leases are off: Redis decides every request; `tollgate leases on` switches them on".to_owned();
            return HotKeys { note: Some(note), ..HotKeys::default() };
        }
        let number = |name: &str| leases[name].as_u64().unwrap_or(0);
        let summary = format!("{} leased, {} held", count(number("leased_keys")), count(number("units_held")));
        let note = Some("none: no key is busy enough on this server".to_owned());
        HotKeys { rows: take_keys(&mut leases), summary, note }
    }
}

/// The keys of a list of the API.
fn take_keys(list: &mut Value) -> Vec<Value> {
    list["keys"].as_array_mut().map(std::mem::take).unwrap_or_default()
}

impl KeyOrder {
    pub(super) fn next(self) -> KeyOrder {
        match self {
            KeyOrder::Decisions => KeyOrder::Refusals,
            KeyOrder::Refusals => KeyOrder::Utilisation,
            KeyOrder::Utilisation => KeyOrder::Decisions,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            KeyOrder::Decisions => "decisions",
            KeyOrder::Refusals => "refusals",
            KeyOrder::Utilisation => "utilisation",
        }
    }
}

impl KeyWindow {
    pub(super) fn next(self) -> KeyWindow {
        match self {
            KeyWindow::Minute => KeyWindow::FiveMinutes,
            KeyWindow::FiveMinutes => KeyWindow::Hour,
            KeyWindow::Hour => KeyWindow::Minute,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            KeyWindow::Minute => "1m",
            KeyWindow::FiveMinutes => "5m",
            KeyWindow::Hour => "1h",
        }
    }
}
