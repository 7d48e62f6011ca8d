//! The sinks of events, as the API shows and tests them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use tollgate_events::{Definition, EventFilter, Sending, Sink, SinkError, SinkLine};

use super::super::{Bench, SHOP};
use crate::scopes::AccessScope;

/// Takes events, or does not.
#[derive(Debug)]
struct Switched(Arc<AtomicBool>);

impl Sink for Switched {
    fn kind(&self) -> &'static str {
        "webhook"
    }

    fn max_lines(&self) -> usize {
        1
    }

    fn send<'a>(&'a self, lines: &'a [SinkLine]) -> Sending<'a> {
        let result = match self.0.load(Ordering::SeqCst) {
            true => Ok(lines.len()),
            false => Err(SinkError::Retry { why: "the receiver answered 503".to_owned(), after: None }),
        };
        Box::pin(async move { result })
    }
}

#[tokio::test]
async fn sinks_are_listed_and_tested() {
    let bench = Bench::new(SHOP).await;
    assert_eq!(bench.get("/admin/v1/events/sinks").await.ok(), json!({"items": []}));
    let takes = Arc::new(AtomicBool::new(false));
    let sink = Arc::new(Switched(takes.clone()));
    let (name, host, digest) = ("pager".to_owned(), Some("hooks.example.com".to_owned()), "1".to_owned());
    bench.sinks.replace(vec![Definition { name, host, digest, filter: EventFilter::ALL, sink }]).unwrap();

    const TEST: &str = "/admin/v1/events/sinks/pager/test";
    let failed = bench.post(TEST, &json!({})).await.ok();
    assert_eq!((&failed["result"], &failed["error"]), (&json!("failed"), &json!("the receiver answered 503")));
    takes.store(true, Ordering::SeqCst);
    assert_eq!(bench.post(TEST, &json!({})).await.ok()["result"], "taken");
    assert_eq!(bench.post("/admin/v1/events/sinks/other/test", &json!({})).await.code(404), "unknown_sink");
    assert_eq!(bench.ask_as(&[AccessScope::Read], ("POST", TEST), &[], "").await.status, 403);

    let items = bench.get("/admin/v1/events/sinks").await.ok()["items"].clone();
    let item = items[0].as_object().unwrap();
    let shown = ["name", "kind", "host", "state", "waiting", "error"].map(|member| item[member].clone());
    let expected = [json!("pager"), json!("webhook"), json!("hooks.example.com"), json!("ok"), json!(0), json!(null)];
    assert_eq!(shown, expected);
}
