//! Grafana's dashboard.

use std::sync::atomic::AtomicBool;

use serde_json::Value;
use tollgate_testing::{Server, eventually};

use crate::new_server;
use crate::observability::alerts::are_sound;
use crate::observability::prometheus::Prometheus;
use crate::observability::read;
use crate::observability::traffic::{RULES, Traffic, agent};

/// A query, and the panel that shows it.
struct Query {
    panel: String,
    expr: String,
}

fn board() -> Value {
    serde_json::from_str(&read("deploy/observability/grafana/tollgate.json")).unwrap()
}

fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value[name].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_default()
}

/// Every query of the dashboard: of panels, and of the lists to choose from.
fn queries(board: &Value) -> Vec<Query> {
    let of_panels = list(board, "panels").iter().flat_map(|panel| {
        let query = |target| Query { panel: text(panel, "title").to_owned(), expr: text(target, "expr").to_owned() };
        list(panel, "targets").iter().map(query).collect::<Vec<_>>()
    });
    let of_lists = list(&board["templating"], "list").iter().filter(|list| text(list, "type") == "query").map(|list| {
        let expr = text(&list["query"], "query").strip_prefix("label_values(").and_then(|rest| rest.split_once(','));
        Query { panel: text(list, "name").to_owned(), expr: expr.unwrap().0.to_owned() }
    });
    of_panels.chain(of_lists).collect()
}

/// As Grafana sends it, with all chosen.
fn sent(expr: &str) -> String {
    let sent = expr.replace("$__rate_interval", "5s").replace("$instance", ".*").replace("$domain", ".*");
    assert!(!sent.contains('$'), "{sent} has something in it that this test does not know");
    sent
}

#[test]
fn it_can_be_imported_as_it_is() {
    let board = board();
    assert!(board["id"].is_null(), "an id is of one Grafana");
    assert_eq!((text(&board, "uid"), text(&board, "title")), ("tollgate", "Tollgate"));
    assert!(board.get("__inputs").is_none(), "nothing has to be answered");
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
        assert!(!places.iter().any(meets), "{} lies on another", text(panel, "title"));
        places.push((x, y, w, h));
        if text(panel, "type") != "row" {
            assert!(!list(panel, "targets").is_empty() && !text(panel, "description").is_empty(), "{panel}");
        }
        for asked in
            std::iter::once(panel).chain(list(panel, "targets")).filter(|asked| asked.get("datasource").is_some())
        {
            assert_eq!(text(&asked["datasource"], "uid"), "${datasource}", "{asked}");
        }
    }
    for title in
        ["Decisions per second", "Top 10 limited keys", "Utilisation by tier", "Latency of a check", "Circuit state"]
    {
        assert!(panels.iter().any(|panel| text(panel, "title") == title), "{title}");
    }
}

#[test]
fn every_query_has_an_answer_from_a_prometheus_that_scrapes_a_server_with_traffic() {
    let server = new_server().rules(RULES).listen(&["http", "resp", "admin"]).start();
    let prometheus = Prometheus::scraping(server.address("admin"));
    let stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let traffic = Traffic::start(scope, &server, &stopped);
        let up = || prometheus.numbers("up{job=\"tollgate\"}").contains(&1.0).then_some(());
        eventually(up).expect("Prometheus does not scrape");
        let mut empty = queries(&board());
        assert!(empty.len() > 30);
        eventually(|| {
            empty.retain(|query| prometheus.numbers(&sent(&query.expr)).is_empty());
            empty.is_empty().then_some(())
        });
        let empty: Vec<_> = empty.iter().map(|query| format!("{}: {}", query.panel, query.expr)).collect();
        assert!(empty.is_empty(), "these have no answer:\n{}", empty.join("\n"));

        for outcome in ["allow", "deny", "shadow", "soft"] {
            let counted = prometheus.numbers(&format!("sum(ratelimit_decisions_total{{outcome=\"{outcome}\"}})"));
            assert!(counted[0] > 0.0, "{outcome}: {counted:?}");
        }
        let are_well =
            |alerts: &[(String, String)]| alerts.len() >= 8 && alerts.iter().all(|(_, health)| health == "ok");
        let evaluated = eventually(|| are_well(&prometheus.alerts()).then_some(()));
        assert!(evaluated.is_some(), "{:?}", prometheus.alerts());
        every_decision_is_counted_once(&server, traffic.stop());
        let (sound, said) = are_sound(&scraped(&server));
        assert!(sound, "{said}");
    });
}

fn scraped(server: &Server) -> String {
    agent().get(server.url("admin", "/metrics")).call().unwrap().body_mut().read_to_string().unwrap()
}

/// By the rules and by the wires.
fn every_decision_is_counted_once(server: &Server, sent: u64) {
    let counted = || {
        let text = scraped(server);
        ["ratelimit_decisions_total", "tollgate_decisions_total"].map(|family| {
            let samples = text.lines().filter(|line| line.starts_with(&format!("{family}{{")));
            samples.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum::<u64>()
        })
    };
    // Throttles are counted when their batch ends, which may be after they are answered.
    let all = eventually(|| (counted() == [sent; 2]).then_some(()));
    assert!(all.is_some(), "{:?} of {sent}", counted());
}
