//! The state of `tollgate top`. Updates from the server and key presses change it; it does no I/O.

use std::collections::{HashMap, VecDeque};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::Value;

use super::keys::{HotKeys, KeyList, TopKeys, TopKeysQuery};

/// The state of the screen.
#[derive(Debug)]
pub(super) struct TopState {
    /// The JSON of the last overview; `null` before the first.
    pub(super) overview: Value,
    /// Refusals per second, the oldest first.
    pub(super) refusals: VecDeque<u64>,
    pub(super) link: LinkState,
    rules: HashMap<(String, String), RuleRow>,
    pub(super) sort: RuleOrder,
    /// Whether the order is reversed.
    pub(super) reversed: bool,
    /// The filter on the names of rules.
    pub(super) filter: String,
    /// Whether the user is typing the filter.
    pub(super) typing: bool,
    pub(super) help: bool,
    /// The number of rules above the first line.
    pub(super) scroll: usize,
    pub(super) query: TopKeysQuery,
    pub(super) keys: TopKeys,
    pub(super) hot: HotKeys,
    pub(super) list: KeyList,
}

/// The state of the live stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LinkState {
    Connecting,
    Live,
    /// Disconnected, with the reason.
    Lost(String),
}

/// A line of the rule table.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RuleRow {
    pub(super) domain: String,
    pub(super) rule: String,
    pub(super) mode: String,
    pub(super) limit: String,
    pub(super) utilisation: f64,
    pub(super) allow: f64,
    pub(super) deny: f64,
    pub(super) would_deny: f64,
}

/// By what rules are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleOrder {
    Allow,
    Deny,
    WouldDeny,
    Utilisation,
    Name,
}

/// An update from the server.
#[derive(Debug)]
pub(super) enum ServerUpdate {
    /// The full overview, with its history.
    Overview(Value),
    /// An event of the live stream.
    Event(String, Value),
    /// The list of all rules.
    Rules(Vec<Value>),
    /// Top keys for a query, or the reason why there are none.
    TopKeys(TopKeysQuery, Result<Value, String>),
    /// What the server leases, or the reason why that is unknown.
    Leases(Result<Value, String>),
    /// The stream ended.
    Lost(String),
}

/// The effect of a key press outside the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyAction {
    Nothing,
    Quit,
    /// Fetch top keys for the new query.
    FetchKeys,
}

/// The length of the server's history.
const MAX_REFUSALS: usize = 300;
/// The longest filter.
const MAX_FILTER_CHARS: usize = 64;
/// Lines of a page.
const PAGE_LINES: usize = 10;

impl TopState {
    pub(super) fn new(query: TopKeysQuery) -> TopState {
        TopState {
            overview: Value::Null,
            refusals: VecDeque::new(),
            link: LinkState::Connecting,
            rules: HashMap::new(),
            sort: RuleOrder::Deny,
            reversed: false,
            filter: String::new(),
            typing: false,
            help: false,
            scroll: 0,
            query,
            keys: TopKeys::default(),
            hot: HotKeys::default(),
            list: KeyList::default(),
        }
    }

    /// Whether there is no overview yet.
    pub(super) fn is_empty(&self) -> bool {
        self.overview.is_null()
    }

    /// Applies an update.
    pub(super) fn apply(&mut self, update: ServerUpdate) {
        match update {
            ServerUpdate::Overview(overview) => {
                self.refusals = history(&overview);
                (self.overview, self.link) = (overview, LinkState::Live);
            }
            ServerUpdate::Event(name, data) => self.event(&name, data),
            ServerUpdate::Rules(rows) => {
                let rows = rows.iter().map(RuleRow::from_json);
                self.rules = rows.map(|row| ((row.domain.clone(), row.rule.clone()), row)).collect();
            }
            ServerUpdate::TopKeys(query, result) if query == self.query => {
                self.keys = TopKeys::new(result);
            }
            // The query has changed meanwhile.
            ServerUpdate::TopKeys(..) => {}
            ServerUpdate::Leases(result) => self.hot = HotKeys::new(result),
            ServerUpdate::Lost(why) => self.link = LinkState::Lost(why),
        }
    }

    fn event(&mut self, name: &str, data: Value) {
        match name {
            "overview" => {
                if self.refusals.len() >= MAX_REFUSALS {
                    self.refusals.pop_front();
                }
                self.refusals.push_back(refused(&data["rates"]));
                (self.overview, self.link) = (data, LinkState::Live);
            }
            "rules" => {
                for row in data["rows"].as_array().into_iter().flatten() {
                    let new = RuleRow::from_json(row);
                    let rule = self.rules.entry((new.domain.clone(), new.rule.clone())).or_default();
                    // Events do not have limits.
                    *rule = RuleRow { limit: std::mem::take(&mut rule.limit), ..new };
                }
            }
            _ => {}
        }
    }

    /// The filtered rules, in their order.
    pub(super) fn rules(&self) -> Vec<&RuleRow> {
        let filter = self.filter.to_lowercase();
        let mut rows: Vec<_> = self.rules.values().filter(|row| row.matches(&filter)).collect();
        // By name where they are even, so that they stand still.
        rows.sort_by(|one, other| {
            let by = self.sort.value(other).total_cmp(&self.sort.value(one));
            let by = if self.reversed { by.reverse() } else { by };
            by.then_with(|| match self.reversed && self.sort == RuleOrder::Name {
                true => other.name().cmp(&one.name()),
                false => one.name().cmp(&other.name()),
            })
        });
        rows
    }

    /// The number of all rules.
    pub(super) fn all_rules(&self) -> usize {
        self.rules.len()
    }

    /// Handles a key press.
    pub(super) fn handle_key(&mut self, key: KeyEvent) -> KeyAction {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { KeyAction::Quit } else { KeyAction::Nothing };
        }
        if self.typing {
            self.edit_filter(key.code);
            return KeyAction::Nothing;
        }
        if std::mem::take(&mut self.help) {
            return if key.code == KeyCode::Char('q') { KeyAction::Quit } else { KeyAction::Nothing };
        }
        match key.code {
            KeyCode::Char('q') => return KeyAction::Quit,
            KeyCode::Char('?' | 'h') => self.help = true,
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('a') => self.sort_by(RuleOrder::Allow),
            KeyCode::Char('r' | 'd') => self.sort_by(RuleOrder::Deny),
            KeyCode::Char('w') => self.sort_by(RuleOrder::WouldDeny),
            KeyCode::Char('u') => self.sort_by(RuleOrder::Utilisation),
            KeyCode::Char('n') => self.sort_by(RuleOrder::Name),
            KeyCode::Char('l') => self.list = if self.list == KeyList::Top { KeyList::Hot } else { KeyList::Top },
            KeyCode::Char('t') => {
                self.list = KeyList::Top;
                self.query.by = self.query.by.next();
                return KeyAction::FetchKeys;
            }
            KeyCode::Char('m') => {
                self.list = KeyList::Top;
                self.query.window = self.query.window.next();
                return KeyAction::FetchKeys;
            }
            KeyCode::Down | KeyCode::Char('j') => self.scroll_to(self.scroll.saturating_add(1)),
            KeyCode::Up | KeyCode::Char('k') => self.scroll_to(self.scroll.saturating_sub(1)),
            KeyCode::PageDown | KeyCode::Char(' ') => self.scroll_to(self.scroll.saturating_add(PAGE_LINES)),
            KeyCode::PageUp => self.scroll_to(self.scroll.saturating_sub(PAGE_LINES)),
            KeyCode::Home => self.scroll = 0,
            KeyCode::End => self.scroll_to(usize::MAX),
            _ => {}
        }
        KeyAction::Nothing
    }

    fn edit_filter(&mut self, code: KeyCode) {
        self.scroll = 0;
        match code {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(letter) if self.filter.chars().count() < MAX_FILTER_CHARS => self.filter.push(letter),
            _ => {}
        }
    }

    /// Sorting by the same column again reverses the order.
    fn sort_by(&mut self, sort: RuleOrder) {
        self.reversed = self.sort == sort && !self.reversed;
        (self.sort, self.scroll) = (sort, 0);
    }

    fn scroll_to(&mut self, to: usize) {
        self.scroll = to.min(self.rules().len().saturating_sub(1));
    }
}

impl RuleRow {
    /// A row of the list or of an event.
    fn from_json(row: &Value) -> RuleRow {
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        let rate = |name: &str| row["rates"][name].as_f64().unwrap_or(0.0);
        let limits = row["limits"].as_array().map(Vec::as_slice).unwrap_or_default();
        let limit = match limits {
            [] => String::new(),
            [one] => one["limit"].as_str().unwrap_or_default().to_owned(),
            [first, others @ ..] => format!("{} (+{})", first["limit"].as_str().unwrap_or_default(), others.len()),
        };
        RuleRow {
            domain: text("domain"),
            rule: text("rule"),
            mode: text("mode"),
            limit,
            utilisation: row["utilisation"].as_f64().unwrap_or(0.0),
            allow: rate("allow"),
            deny: rate("deny"),
            would_deny: rate("would_deny"),
        }
    }

    fn name(&self) -> (&str, &str) {
        (&self.domain, &self.rule)
    }

    fn matches(&self, filter: &str) -> bool {
        filter.is_empty() || [&self.domain, &self.rule].into_iter().any(|name| name.to_lowercase().contains(filter))
    }
}

impl RuleOrder {
    /// The value to sort by, the largest first.
    fn value(self, row: &RuleRow) -> f64 {
        match self {
            RuleOrder::Allow => row.allow,
            RuleOrder::Deny => row.deny,
            RuleOrder::WouldDeny => row.would_deny,
            RuleOrder::Utilisation => row.utilisation,
            RuleOrder::Name => 0.0,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            RuleOrder::Allow => "allowed",
            RuleOrder::Deny => "refused",
            RuleOrder::WouldDeny => "would refuse",
            RuleOrder::Utilisation => "used",
            RuleOrder::Name => "name",
        }
    }
}

/// The outcomes that are refusals.
const REFUSALS: [&str; 2] = ["deny", "blocked"];

/// Refusals per second, from the server's history.
fn history(overview: &Value) -> VecDeque<u64> {
    let history = &overview["history"];
    let series: Vec<_> = REFUSALS.iter().filter_map(|outcome| history[outcome].as_array()).collect();
    let length = series.iter().map(|series| series.len()).max().unwrap_or(0);
    let second = |at: usize| series.iter().filter_map(|series| series.get(at)?.as_f64()).sum::<f64>();
    (length.saturating_sub(MAX_REFUSALS)..length).map(|at| visible(second(at))).collect()
}

/// Refusals per second, of the current rates.
fn refused(rates: &Value) -> u64 {
    visible(REFUSALS.iter().filter_map(|outcome| rates[outcome].as_f64()).sum())
}

/// A rate as a whole number. A single refusal is not rounded away.
fn visible(rate: f64) -> u64 {
    rate.ceil() as u64
}
