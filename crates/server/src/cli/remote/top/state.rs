//! What `tollgate top` knows and shows. Nothing is asked or drawn here: it is changed by what the server tells, and by keys.

use std::collections::{HashMap, VecDeque};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::Value;

/// What is known and shown.
#[derive(Debug)]
pub(super) struct State {
    /// As it came; `null` before the first.
    pub(super) overview: Value,
    /// Decisions a second, the oldest first.
    pub(super) rates: VecDeque<u64>,
    pub(super) link: Link,
    rules: HashMap<(String, String), RuleRow>,
    pub(super) sort: Sort,
    /// The other way round than usual.
    pub(super) reversed: bool,
    /// Part of the names of rules that are shown.
    pub(super) filter: String,
    /// Whether keys are letters of the filter.
    pub(super) typing: bool,
    pub(super) help: bool,
    /// How many rules are above the first that is shown.
    pub(super) scroll: usize,
    pub(super) wanted: Wanted,
    pub(super) keys: Keys,
}

/// Whether what is shown is of now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Connecting,
    Live,
    /// Why not.
    Lost(String),
}

/// A rule.
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
pub(super) enum Sort {
    Allow,
    Deny,
    WouldDeny,
    Utilisation,
    Name,
}

/// Which keys are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) by: By,
    pub(super) window: Window,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum By {
    Decisions,
    Refusals,
    Utilisation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Window {
    #[value(name = "1m")]
    Minute,
    #[value(name = "5m")]
    FiveMinutes,
    #[value(name = "1h")]
    Hour,
}

/// The keys that were told.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// As they came.
    pub(super) rows: Vec<Value>,
    /// Why there are none.
    pub(super) note: Option<String>,
}

/// What is heard of the server.
#[derive(Debug)]
pub(super) enum Heard {
    /// The whole overview, with its history.
    Overview(Value),
    /// An event of the live stream.
    Event(String, Value),
    /// All rules, as they are listed.
    Rules(Vec<Value>),
    /// Top keys, as they were wanted; or why there are none.
    Keys(Wanted, Result<Value, String>),
    /// The stream ended.
    Lost(String),
}

/// What is to be done after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Nothing,
    Quit,
    /// Other keys are wanted.
    AskKeys,
}

/// As long as the server's own history.
const MOST_RATES: usize = 300;
/// The longest filter.
const LONGEST_FILTER: usize = 64;
/// A page of rules.
const PAGE: usize = 10;

impl State {
    pub(super) fn new(wanted: Wanted) -> State {
        State {
            overview: Value::Null,
            rates: VecDeque::new(),
            link: Link::Connecting,
            rules: HashMap::new(),
            sort: Sort::Deny,
            reversed: false,
            filter: String::new(),
            typing: false,
            help: false,
            scroll: 0,
            wanted,
            keys: Keys::default(),
        }
    }

    /// Whether anything of the server is known.
    pub(super) fn is_empty(&self) -> bool {
        self.overview.is_null()
    }

    /// Takes what was heard.
    pub(super) fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::Overview(overview) => {
                self.rates = history(&overview);
                (self.overview, self.link) = (overview, Link::Live);
            }
            Heard::Event(name, data) => self.event(&name, data),
            Heard::Rules(rows) => {
                let rows = rows.iter().map(RuleRow::listed);
                self.rules = rows.map(|row| ((row.domain.clone(), row.rule.clone()), row)).collect();
            }
            Heard::Keys(wanted, told) if wanted == self.wanted => {
                self.keys = match told {
                    Ok(mut top) => {
                        Keys { rows: top["keys"].as_array_mut().map(std::mem::take).unwrap_or_default(), note: None }
                    }
                    Err(why) => Keys { rows: Vec::new(), note: Some(why) },
                };
            }
            // They were wanted, and are not any more.
            Heard::Keys(..) => {}
            Heard::Lost(why) => self.link = Link::Lost(why),
        }
    }

    fn event(&mut self, name: &str, data: Value) {
        match name {
            "overview" => {
                if self.rates.len() >= MOST_RATES {
                    self.rates.pop_front();
                }
                self.rates.push_back(whole(&data["rates"]["decisions"]));
                (self.overview, self.link) = (data, Link::Live);
            }
            "rules" => {
                for row in data["rows"].as_array().into_iter().flatten() {
                    let new = RuleRow::listed(row);
                    let known = self.rules.entry((new.domain.clone(), new.rule.clone())).or_default();
                    // Limits are not told again.
                    *known = RuleRow { limit: std::mem::take(&mut known.limit), ..new };
                }
            }
            _ => {}
        }
    }

    /// The rules that are shown, in their order.
    pub(super) fn rules(&self) -> Vec<&RuleRow> {
        let filter = self.filter.to_lowercase();
        let mut rows: Vec<_> = self.rules.values().filter(|row| row.has(&filter)).collect();
        // By name where they are even, so that they stand still.
        rows.sort_by(|one, other| {
            let by = self.sort.of(other).total_cmp(&self.sort.of(one));
            let by = if self.reversed { by.reverse() } else { by };
            by.then_with(|| match self.reversed && self.sort == Sort::Name {
                true => other.name().cmp(&one.name()),
                false => one.name().cmp(&other.name()),
            })
        });
        rows
    }

    /// How many rules there are.
    pub(super) fn all_rules(&self) -> usize {
        self.rules.len()
    }

    /// A key was pressed.
    pub(super) fn press(&mut self, key: KeyEvent) -> Then {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { Then::Quit } else { Then::Nothing };
        }
        if self.typing {
            self.letter(key.code);
            return Then::Nothing;
        }
        if std::mem::take(&mut self.help) {
            return if key.code == KeyCode::Char('q') { Then::Quit } else { Then::Nothing };
        }
        match key.code {
            KeyCode::Char('q') => return Then::Quit,
            KeyCode::Char('?' | 'h') => self.help = true,
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('a') => self.sort_by(Sort::Allow),
            KeyCode::Char('d') => self.sort_by(Sort::Deny),
            KeyCode::Char('w') => self.sort_by(Sort::WouldDeny),
            KeyCode::Char('u') => self.sort_by(Sort::Utilisation),
            KeyCode::Char('n') => self.sort_by(Sort::Name),
            KeyCode::Char('t') => {
                self.wanted.by = self.wanted.by.next();
                return Then::AskKeys;
            }
            KeyCode::Char('m') => {
                self.wanted.window = self.wanted.window.next();
                return Then::AskKeys;
            }
            KeyCode::Down | KeyCode::Char('j') => self.scroll_to(self.scroll.saturating_add(1)),
            KeyCode::Up | KeyCode::Char('k') => self.scroll_to(self.scroll.saturating_sub(1)),
            KeyCode::PageDown | KeyCode::Char(' ') => self.scroll_to(self.scroll.saturating_add(PAGE)),
            KeyCode::PageUp => self.scroll_to(self.scroll.saturating_sub(PAGE)),
            KeyCode::Home => self.scroll = 0,
            KeyCode::End => self.scroll_to(usize::MAX),
            _ => {}
        }
        Then::Nothing
    }

    fn letter(&mut self, code: KeyCode) {
        self.scroll = 0;
        match code {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(letter) if self.filter.chars().count() < LONGEST_FILTER => self.filter.push(letter),
            _ => {}
        }
    }

    /// Again by the same is the other way round.
    fn sort_by(&mut self, sort: Sort) {
        self.reversed = self.sort == sort && !self.reversed;
        (self.sort, self.scroll) = (sort, 0);
    }

    fn scroll_to(&mut self, to: usize) {
        self.scroll = to.min(self.rules().len().saturating_sub(1));
    }
}

impl RuleRow {
    /// A row of the list, or of an event.
    fn listed(row: &Value) -> RuleRow {
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

    fn has(&self, filter: &str) -> bool {
        filter.is_empty() || [&self.domain, &self.rule].into_iter().any(|name| name.to_lowercase().contains(filter))
    }
}

impl Sort {
    /// What goes first is the most.
    fn of(self, row: &RuleRow) -> f64 {
        match self {
            Sort::Allow => row.allow,
            Sort::Deny => row.deny,
            Sort::WouldDeny => row.would_deny,
            Sort::Utilisation => row.utilisation,
            Sort::Name => 0.0,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Sort::Allow => "allow",
            Sort::Deny => "deny",
            Sort::WouldDeny => "would deny",
            Sort::Utilisation => "utilisation",
            Sort::Name => "name",
        }
    }
}

impl By {
    fn next(self) -> By {
        match self {
            By::Decisions => By::Refusals,
            By::Refusals => By::Utilisation,
            By::Utilisation => By::Decisions,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            By::Decisions => "decisions",
            By::Refusals => "refusals",
            By::Utilisation => "utilisation",
        }
    }
}

impl Window {
    fn next(self) -> Window {
        match self {
            Window::Minute => Window::FiveMinutes,
            Window::FiveMinutes => Window::Hour,
            Window::Hour => Window::Minute,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Window::Minute => "1m",
            Window::FiveMinutes => "5m",
            Window::Hour => "1h",
        }
    }
}

/// Decisions of each second that the server knows of.
fn history(overview: &Value) -> VecDeque<u64> {
    let history = &overview["history"];
    let lines = ["allow", "deny", "shadow", "soft", "shed", "blocked", "assumed"];
    let lines: Vec<_> = lines.iter().filter_map(|outcome| history[outcome].as_array()).collect();
    let length = lines.iter().map(|line| line.len()).max().unwrap_or(0);
    let second = |at: usize| lines.iter().filter_map(|line| line.get(at)?.as_f64()).sum::<f64>();
    (length.saturating_sub(MOST_RATES)..length).map(|at| second(at).round() as u64).collect()
}

/// A rate as a whole number.
fn whole(rate: &Value) -> u64 {
    rate.as_f64().unwrap_or(0.0).round() as u64
}
