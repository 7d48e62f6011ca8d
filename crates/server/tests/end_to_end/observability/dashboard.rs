//! The Grafana dashboard.

use std::sync::atomic::AtomicBool;

use serde_json::Value;
use tollgate_testing::{Server, eventually};

use crate::new_server;
use crate::observability::alerts::lint_metrics;
use crate::observability::prometheus::Prometheus;
use crate::observability::read;
use crate::observability::traffic::{RULES, ServerTraffic};

/// A query, and the panel that shows it.
struct Query {
    panel: String,
    expr: String,
}

/// The row of panels that have nothing to show in one region, and that of panels that have nothing to show without a gateway.
const REGIONS_ROW: &str = "Regions";
const GATEWAY_ROW: &str = "Gateway";

fn board() -> Value {
    serde_json::from_str(&read("deploy/observability/grafana/tollgate.json")).unwrap()
}

fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value[name].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_default()
}

/// The queries of a panel.
fn panel_queries(panel: &Value) -> Vec<Query> {
    let query = |target| Query { panel: text(panel, "title").to_owned(), expr: text(target, "expr").to_owned() };
    list(panel, "targets").iter().map(query).collect()
}

/// The panels of the rows that this holds for.
fn panels(board: &Value, is_shown: impl Fn(&str) -> bool) -> Vec<&Value> {
    let mut row = "";
    let panels = list(board, "panels").iter().filter(|panel| {
        if text(panel, "type") == "row" {
            row = text(panel, "title");
        }
        is_shown(row)
    });
    panels.collect()
}

/// The queries of panels of other regions.
pub(crate) fn region_queries() -> Vec<(String, String)> {
    queries_of(REGIONS_ROW)
}

/// The queries of panels of the gateway.
pub(crate) fn gateway_queries() -> Vec<(String, String)> {
    queries_of(GATEWAY_ROW)
}

/// The queries of a row, and the panels that show them.
fn queries_of(row: &str) -> Vec<(String, String)> {
    let board = board();
    let queries = panels(&board, |of| of == row).into_iter().flat_map(panel_queries);
    queries.map(|Query { panel, expr }| (panel, expand(&expr))).collect()
}

/// Every other query of the dashboard: of panels and of variables.
fn queries(board: &Value) -> Vec<Query> {
    let is_usual = |row: &str| ![REGIONS_ROW, GATEWAY_ROW].contains(&row);
    let of_panels = panels(board, is_usual).into_iter().flat_map(panel_queries);
    let of_lists = list(&board["templating"], "list").iter().filter(|list| text(list, "type") == "query").map(|list| {
        let expr = text(&list["query"], "query").strip_prefix("label_values(").and_then(|rest| rest.split_once(','));
        Query { panel: text(list, "name").to_owned(), expr: expr.unwrap().0.to_owned() }
    });
    of_panels.chain(of_lists).collect()
}

/// The query that Grafana sends, with all values selected.
fn expand(expr: &str) -> String {
    let sent = expr.replace("$__rate_interval", "5s").replace("$instance", ".*").replace("$domain", ".*");
    assert!(!sent.contains('$'), "{sent} has something in it that this test does not know");
    sent
}

#[test]
fn the_dashboard_can_be_imported_unchanged() {
    let board = board();
    assert!(board["id"].is_null(), "an id belongs to one Grafana");
    assert_eq!((text(&board, "uid"), text(&board, "title")), ("tollgate", "Tollgate"));
    assert!(board.get("__inputs").is_none(), "an import asks for no inputs");
    assert_eq!(text(&list(&board["templating"], "list")[0], "type"), "datasource");
    let panels = list(&board, "panels");
    let mut ids: Vec<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), panels.len());
    let mut places: Vec<(u64, u64, u64, u64)> = Vec::new();
    for panel in panels {
        let place = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
        let [x, y, w, h] = place;
        assert!(x + w <= 24, "{panel}");
        let meets = |other: &(u64, u64, u64, u64)| {
            x < other.0 + other.2 && other.0 < x + w && y < other.1 + other.3 && other.1 < y + h
        };
        assert!(!places.iter().any(meets), "{} overlaps another panel", text(panel, "title"));
        places.push((x, y, w, h));
        if text(panel, "type") != "row" {
            assert!(!list(panel, "targets").is_empty() && !text(panel, "description").is_empty(), "{panel}");
        }
        for query in
            std::iter::once(panel).chain(list(panel, "targets")).filter(|query| query.get("datasource").is_some())
        {
            assert_eq!(text(&query["datasource"], "uid"), "${datasource}", "{query}");
        }
    }
    for title in
        ["Decisions per second", "Top 10 limited keys", "Utilisation by tier", "Latency of a check", "Circuit state"]
    {
        assert!(panels.iter().any(|panel| text(panel, "title") == title), "{title}");
    }
}

#[test]
fn every_query_has_a_result_for_a_server_with_traffic() {
    let server = new_server().rules(RULES).listen(&["http", "resp", "admin"]).start();
    let prometheus = Prometheus::start(server.address("admin"));
    let stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let traffic = ServerTraffic::start(scope, &server, &stopped);
        let up = || prometheus.numbers("up{job=\"tollgate\"}").contains(&1.0).then_some(());
        eventually(up).expect("Prometheus does not scrape");
        // A change, for the panels about changes.
        server.write_rules(&RULES.replace("free: 5/second", "free: 6/second"));
        let mut empty = queries(&board());
        assert!(empty.len() > 30);
        eventually(|| {
            empty.retain(|query| prometheus.numbers(&expand(&query.expr)).is_empty());
            empty.is_empty().then_some(())
        });
        let empty: Vec<_> = empty.iter().map(|query| format!("{}: {}", query.panel, query.expr)).collect();
        assert!(empty.is_empty(), "these queries have no result:\n{}", empty.join("\n"));

        for outcome in ["allow", "deny", "shadow", "soft"] {
            let counted = prometheus.numbers(&format!("sum(ratelimit_decisions_total{{outcome=\"{outcome}\"}})"));
            assert!(counted[0] > 0.0, "{outcome}: {counted:?}");
        }
        let are_well =
            |alerts: &[(String, String)]| alerts.len() >= 8 && alerts.iter().all(|(_, health)| health == "ok");
        let evaluated = eventually(|| are_well(&prometheus.alerts()).then_some(()));
        assert!(evaluated.is_some(), "{:?}", prometheus.alerts());
        assert_every_decision_is_counted_once(&server, traffic.stop());
        let (sound, output) = lint_metrics(&scrape(&server));
        assert!(sound, "{output}");
    });
}

fn scrape(server: &Server) -> String {
    crate::http::get(&server.url("admin", "/metrics")).body
}

/// Both by rule and by wire.
fn assert_every_decision_is_counted_once(server: &Server, sent: u64) {
    let counted = || {
        let text = scrape(server);
        ["ratelimit_decisions_total", "tollgate_decisions_total"].map(|family| {
            let samples = text.lines().filter(|line| line.starts_with(&format!("{family}{{")));
            samples.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum::<u64>()
        })
    };
    // Throttles are counted when their batch ends, which may be after their replies.
    let all = eventually(|| (counted() == [sent; 2]).then_some(()));
    assert!(all.is_some(), "{:?} of {sent}", counted());
}
