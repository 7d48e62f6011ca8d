//! Draws the screen. 80 columns and 24 lines are enough; more are used.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Sparkline, Table, Wrap};
use serde_json::Value;

use super::keys::KeyList;
use super::state::{LinkState, RuleOrder, RuleRow, TopState};
use super::units::{count, duration, percent, rate, uptime};
use crate::remote::show::clean;

/// The colours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Palette {
    pub(super) is_coloured: bool,
}

/// Lines of a list of keys, including the heading.
const KEYS: u16 = 6;
/// From this height on there is room for both lists of keys.
const BOTH_LISTS: u16 = 32;

const HELP: &str = "\
 a r w u n   sort by allowed, refused, would refuse, used,
             name; again: reverse the order
 /           filter rules by name; Esc: clear the filter
 j k PgDn…   scroll the rules
 t           top keys by decisions, refusals, utilisation
 m           time window of top keys: 1m, 5m, 1h
 l           hot keys: those of which units are leased
 q, Ctrl-C   quit

 The bars are refusals per second. ALLOWED, REFUSED and
 WOULD are requests per second of a rule over the last
 10 s. WOULD counts what a rule in shadow mode would
 refuse, also if another rule refused it; at the top it is
 only what passed. USED is the fullest counter of the last
 minute.";

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, state: &TopState, palette: Palette) {
    let has_both = frame.area().height >= BOTH_LISTS;
    let (top_lines, hot_lines) = match state.list {
        _ if has_both => (KEYS, KEYS),
        KeyList::Top => (KEYS, 0),
        KeyList::Hot => (0, KEYS),
    };
    let [head, rates, line, times, store, rules_state, rules, keys, hot, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(2),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(top_lines),
        Constraint::Length(hot_lines),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    header(frame, head, state, palette);
    let overview = &state.overview;
    frame.render_widget(outcomes(overview, palette), rates);
    sparkline(frame, line, state, palette);
    frame.render_widget(latency(overview), times);
    frame.render_widget(store_line(overview, palette), store);
    frame.render_widget(rules_line(overview, palette), rules_state);
    frame.render_widget(rule_table(state, rules.height, palette), rules);
    frame.render_widget(key_table(state, palette), keys);
    if state.keys.rows.is_empty() {
        note(frame, keys, state.keys.note.as_deref());
    }
    frame.render_widget(hot_table(state), hot);
    if state.hot.rows.is_empty() {
        note(frame, hot, state.hot.note.as_deref());
    }
    frame.render_widget(footer(state), foot);
    if state.help {
        help(frame);
    }
}

impl Palette {
    fn colour(self, color: Color) -> Style {
        if self.is_coloured { Style::new().fg(color) } else { Style::new() }
    }

    fn good(self) -> Style {
        self.colour(Color::Green)
    }

    /// Bold, to be visible without colours.
    fn bad(self) -> Style {
        self.colour(Color::Red).add_modifier(Modifier::BOLD)
    }

    fn unusual(self) -> Style {
        self.colour(Color::Yellow)
    }
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);

fn text(value: &Value) -> String {
    clean(value.as_str().unwrap_or_default())
}

fn header(frame: &mut Frame<'_>, area: Rect, state: &TopState, palette: Palette) {
    let server = &state.overview["server"];
    let mut left = vec![Span::styled("tollgate top", BOLD)];
    if !state.is_empty() {
        let up = uptime(server["uptime_seconds"].as_f64().unwrap_or(0.0));
        let place = server["region"].as_str().map(|region| format!(" · {}", clean(region))).unwrap_or_default();
        let info = format!("  {}{place} · {} · up {up}", text(&server["name"]), text(&server["version"]));
        left.push(Span::raw(info));
    }
    frame.render_widget(Line::from(left), area);
    let right = match &state.link {
        LinkState::Live => Span::styled("live", palette.good()),
        LinkState::Connecting => Span::raw("connecting…"),
        LinkState::Lost(_) => Span::styled("connection lost, retrying…", palette.bad()),
    };
    frame.render_widget(Line::from(right).alignment(Alignment::Right), area);
}

fn outcomes(overview: &Value, palette: Palette) -> Line<'static> {
    let rates = &overview["rates"];
    let value = |outcome: &str| rates[outcome].as_f64().unwrap_or(0.0);
    let mut spans = vec![Span::styled(format!("{} decisions/s", rate(value("decisions"))), BOLD)];
    let always = [("allow", "allowed", palette.good()), ("deny", "refused", palette.bad())];
    let if_present = [
        ("blocked", "blocked"),
        ("shadow", "would refuse"),
        ("soft", "over a soft limit"),
        ("shed", "shed"),
        ("assumed", "assumed"),
    ];
    let if_present = if_present.map(|(outcome, word)| (outcome, word, palette.unusual()));
    let present = if_present.into_iter().filter(|(outcome, ..)| value(outcome) > 0.0);
    for (outcome, word, style) in always.into_iter().chain(present) {
        spans.push(Span::raw(format!("  {word} ")));
        spans.push(Span::styled(rate(value(outcome)), style));
    }
    spans.push(Span::raw(format!("  in flight {}", count(overview["in_flight"].as_u64().unwrap_or(0)))));
    Line::from(spans)
}

/// Refusals, the newest at the right. Decisions as a whole are a wall in which refusals can't be seen.
fn sparkline(frame: &mut Frame<'_>, area: Rect, state: &TopState, palette: Palette) {
    let width = usize::from(area.width);
    let shown = state.refusals.iter().skip(state.refusals.len().saturating_sub(width)).copied();
    let before = std::iter::repeat_n(0, width.saturating_sub(state.refusals.len()));
    let data: Vec<u64> = before.chain(shown).collect();
    let most = data.iter().copied().max().unwrap_or(0);
    frame.render_widget(Sparkline::default().data(data).style(palette.colour(Color::Red)), area);
    let title = match most {
        0 => "no refusals in this time".to_owned(),
        most => format!("refused/s, up to {}", count(most)),
    };
    frame.render_widget(Line::styled(title, DIM), Rect { height: area.height.min(1), ..area });
}

fn latency(overview: &Value) -> Line<'static> {
    let quantiles = |part: &str| {
        let times = &overview["latency"][part];
        let time = |name: &str| duration(times[name].as_f64());
        format!("p50 {} p99 {} p99.9 {}", time("p50"), time("p99"), time("p999"))
    };
    Line::from(format!("decision {}   store {}", quantiles("decision"), quantiles("store")))
}

fn store_line(overview: &Value, palette: Palette) -> Line<'static> {
    let store = &overview["store"];
    let level = text(&store["level"]);
    let style = if level == "normal" { palette.good() } else { palette.bad() };
    let mut spans = vec![Span::raw(format!("store {} ", text(&store["kind"]))), Span::styled(level, style)];
    if let Some(since) = store["since"].as_str() {
        spans.push(Span::styled(format!(" since {}", clean(since)), style));
    }
    let circuits = store["circuits"].as_array().map(Vec::as_slice).unwrap_or_default();
    let open = circuits.iter().filter(|circuit| circuit["state"] != "closed");
    let named: Vec<_> = open.map(|one| format!("{} {}", text(&one["shard"]), text(&one["state"]))).collect();
    spans.push(match named.len() {
        0 => Span::raw(format!(" · circuits closed · {} counters", count(store["keys"].as_u64().unwrap_or(0)))),
        _ => Span::styled(format!(" · {}", named.join(", ")), palette.bad()),
    });
    Line::from(spans)
}

fn rules_line(overview: &Value, palette: Palette) -> Line<'static> {
    let rules = &overview["rules"];
    let (number, generation) = (rules["rules"].as_u64().unwrap_or(0), rules["generation"].as_u64().unwrap_or(0));
    let mut spans = vec![Span::raw(format!("{} rules, generation {generation}", count(number)))];
    if let Some(error) = rules["last_error"].as_str() {
        spans.push(Span::styled(format!(" · rule files not in force: {}", clean(error)), palette.bad()));
    }
    let parts = overview["health"].as_array().map(Vec::as_slice).unwrap_or_default();
    let others =
        parts.iter().filter(|part| part["degraded"] == true && part["part"] != "rules" && part["part"] != "store");
    for part in others {
        spans.push(Span::styled(format!(" · {}: {}", text(&part["part"]), text(&part["why"])), palette.bad()));
    }
    Line::from(spans)
}

fn rule_table(state: &TopState, height: u16, palette: Palette) -> Table<'static> {
    let rows = state.rules();
    let several = rows.iter().any(|row| rows.first().is_some_and(|first| first.domain != row.domain));
    let name = |row: &RuleRow| match several {
        true => format!("{}/{}", clean(&row.domain), clean(&row.rule)),
        false => clean(&row.rule),
    };
    let right = |text: String| Line::from(text).alignment(Alignment::Right);
    let number = |value: f64, style: Style| {
        let style = if value > 0.0 { style } else { DIM };
        Cell::from(right(rate(value))).style(style)
    };
    let shown = rows.iter().skip(state.scroll).take(usize::from(height.saturating_sub(1)));
    let lines = shown.map(|row| {
        let used = match row.utilisation {
            full if full >= 1.0 => palette.bad(),
            near if near >= 0.8 => palette.unusual(),
            _ => Style::new(),
        };
        Row::new([
            Cell::from(name(row)),
            Cell::from(clean(&row.mode)),
            Cell::from(clean(&row.limit)),
            Cell::from(right(percent(row.utilisation))).style(used),
            number(row.allow, palette.good()),
            number(row.deny, palette.bad()),
            number(row.would_deny, palette.unusual()),
        ])
    });
    let heading = |text: &'static str, sort: Option<RuleOrder>| {
        let mark = match sort == Some(state.sort) {
            true if state.reversed => "↑",
            true => "↓",
            false => "",
        };
        format!("{text}{mark}")
    };
    let title = match rows.len() == state.all_rules() {
        true => format!("RULE ({})", rows.len()),
        false => format!("RULE ({} of {})", rows.len(), state.all_rules()),
    };
    let mark = if state.sort == RuleOrder::Name { heading("", Some(RuleOrder::Name)) } else { String::new() };
    let head = Row::new([
        Cell::from(format!("{title}{mark}")),
        Cell::from("MODE"),
        Cell::from("LIMIT"),
        Cell::from(right(heading("USED", Some(RuleOrder::Utilisation)))),
        Cell::from(right(heading("ALLOWED/s", Some(RuleOrder::Allow)))),
        Cell::from(right(heading("REFUSED/s", Some(RuleOrder::Deny)))),
        Cell::from(right(heading("WOULD/s", Some(RuleOrder::WouldDeny)))),
    ]);
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(11),
        Constraint::Fill(1),
        Constraint::Length(5),
        Constraint::Length(10),
        Constraint::Length(10),
        Constraint::Length(8),
    ];
    Table::new(lines, widths).header(head.style(Style::new().add_modifier(Modifier::REVERSED)))
}

fn key_table(state: &TopState, palette: Palette) -> Table<'static> {
    let query = state.query;
    let head = format!("TOP KEYS by {}, {}", query.by.name(), query.window.name());
    let head = Row::new([head, "RULE".to_owned(), "DECISIONS".to_owned(), "REFUSED".to_owned(), "USED".to_owned()]);
    let number = |value: &Value| value.as_u64().map(count).unwrap_or_default();
    let rows: Vec<Row<'_>> = state
        .keys
        .rows
        .iter()
        .take(usize::from(KEYS) - 1)
        .map(|key| {
            Row::new([
                Cell::from(format!("{:>2} {}", key["rank"].as_u64().unwrap_or(0), text(&key["key"]))),
                Cell::from(text(&key["rule"])),
                Cell::from(number(&key["decisions"])),
                Cell::from(number(&key["refusals"])).style(palette.bad()),
                Cell::from(key["utilisation"].as_f64().map(percent).unwrap_or_default()),
            ])
        })
        .collect();
    let widths = [
        Constraint::Fill(3),
        Constraint::Fill(2),
        Constraint::Length(10),
        Constraint::Length(9),
        Constraint::Length(6),
    ];
    Table::new(rows, widths).header(head.style(Style::new().add_modifier(Modifier::REVERSED)))
}

fn hot_table(state: &TopState) -> Table<'static> {
    let hot = &state.hot;
    let title = match &*hot.summary {
        "" => "HOT KEYS".to_owned(),
        summary => format!("HOT KEYS {summary}"),
    };
    let head =
        [title, "RULE".to_owned(), "UNITS/s".to_owned(), "CHUNK".to_owned(), "HELD".to_owned(), "LOCAL".to_owned()];
    let number = |value: &Value| value.as_u64().map(count).unwrap_or_default();
    let share = |value: &Value| value.as_f64().map(percent).unwrap_or_default();
    let row = |key: &Value| {
        let name = match &*text(&key["key"]) {
            "" => "shared by all callers".to_owned(),
            name => name.to_owned(),
        };
        let units = key["units_per_second"].as_f64().map(rate).unwrap_or_default();
        let (chunk, held) = (number(&key["chunk"]), number(&key["units_held"]));
        Row::new([name, text(&key["rule"]), units, chunk, held, share(&key["local_share"])])
    };
    let rows: Vec<Row<'_>> = hot.rows.iter().take(usize::from(KEYS) - 1).map(row).collect();
    let widths = [
        Constraint::Fill(5),
        Constraint::Fill(3),
        Constraint::Length(8),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(6),
    ];
    Table::new(rows, widths).header(Row::new(head).style(Style::new().add_modifier(Modifier::REVERSED)))
}

/// Why a list is empty, below its heading. A cell of the list would be too narrow.
fn note(frame: &mut Frame<'_>, list: Rect, why: Option<&str>) {
    let below = Rect { y: list.y.saturating_add(1), height: 1, ..list };
    if list.height > 1 {
        frame.render_widget(Line::styled(clean(why.unwrap_or("none yet")), DIM), below);
    }
}

fn footer(state: &TopState) -> Line<'static> {
    if state.typing {
        return Line::from(format!("/{}_   Enter: apply  Esc: clear", clean(&state.filter)));
    }
    if let LinkState::Lost(why) = &state.link {
        return Line::from(clean(why));
    }
    let filter = match &*state.filter {
        "" => String::new(),
        filter => format!("[{}] ", clean(filter)),
    };
    let sort = state.sort.name();
    Line::from(format!("{filter}sorted by {sort}   a r w u n sort  / filter  t m l keys  ? help  q quit"))
}

fn help(frame: &mut Frame<'_>) {
    let (width, height) = (62, HELP.lines().count() as u16 + 2);
    let area = frame.area();
    let [area] = Layout::horizontal([Constraint::Length(width)]).flex(ratatui::layout::Flex::Center).areas(area);
    let [area] = Layout::vertical([Constraint::Length(height)]).flex(ratatui::layout::Flex::Center).areas(area);
    frame.render_widget(Clear, area);
    let block = Block::bordered().title(" keys (any key closes) ");
    frame.render_widget(Paragraph::new(HELP).wrap(Wrap { trim: false }).block(block), area);
}
