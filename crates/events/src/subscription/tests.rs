//! Sinks whose receivers answer as a script says.

use std::collections::VecDeque;

use tokio::sync::mpsc;
use tollgate_store::ManualClock;
use tollgate_testing::TIMEOUT;

use super::*;
use crate::event::{EventSeverity, EventType};

use crate::sink::Sending;
use crate::stream::EventStream;
use crate::subscriptions::Subscriptions;

const START: Timestamp = Timestamp::from_secs(1_700_000_000);

/// Answers in turn, then takes everything; reports what it was sent.
#[derive(Debug)]
struct Scripted {
    answers: Mutex<VecDeque<Result<usize, SinkError>>>,
    max_lines: usize,
    sent: mpsc::UnboundedSender<Vec<String>>,
}

impl Sink for Scripted {
    fn kind(&self) -> &'static str {
        "scripted"
    }

    fn max_lines(&self) -> usize {
        self.max_lines
    }

    fn send<'a>(&'a self, lines: &'a [SinkLine]) -> Sending<'a> {
        let ids = lines.iter().map(|line| line.id.to_string()).collect();
        let _ = self.sent.send(ids);
        let answer = self.answers.lock().unwrap().pop_front().unwrap_or(Ok(lines.len()));
        Box::pin(async move { answer })
    }
}

struct World {
    journal: Arc<Journal>,
    clock: ManualClock,
    sinks: Subscriptions,
    sent: mpsc::UnboundedReceiver<Vec<String>>,
    sender: mpsc::UnboundedSender<Vec<String>>,
    stream: EventStream,
}

impl World {
    fn new() -> World {
        let clock = ManualClock::default();
        clock.set(START);
        let journal = Arc::new(Journal::in_memory());
        let sinks = Subscriptions::new(journal.clone(), Arc::new(clock.clone()));
        let (sender, sent) = mpsc::unbounded_channel();
        World { journal, clock, sinks, sent, sender, stream: EventStream::new("a") }
    }

    fn definition(&self, max_lines: usize, answers: Vec<Result<usize, SinkError>>) -> Definition {
        let filter = EventFilter::new(vec!["rules.*".to_owned()]).unwrap();
        let sink = Scripted { answers: Mutex::new(answers.into()), max_lines, sent: self.sender.clone() };
        let (name, digest) = ("pager".to_owned(), format!("{answers:?}", answers = sink.answers));
        Definition { name, host: None, digest, filter, sink: Arc::new(sink) }
    }

    fn append(&self, id: &str, kind: EventType) {
        let event = self.stream.event(self.clock.now(), kind, EventSeverity::Info, "text");
        let event = CloudEvent { id: id.to_owned(), ..event };
        self.journal.append(&[event.to_line()], self.clock.now()).unwrap();
    }

    async fn next(&mut self) -> Vec<String> {
        tokio::time::timeout(TIMEOUT, self.sent.recv()).await.unwrap().unwrap()
    }

    fn status(&self) -> SinkStatus {
        self.sinks.status(self.clock.now()).remove(0)
    }

    /// Waits until a sink is in this state.
    async fn until(&self, is: impl Fn(&SinkStatus) -> bool) -> SinkStatus {
        let waiting = async {
            while !is(&self.status()) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(TIMEOUT, waiting).await.unwrap_or_else(|_| panic!("{:?}", self.status()));
        self.status()
    }
}

fn failed() -> Result<usize, SinkError> {
    Err(SinkError::Retry { why: "no connection".to_owned(), after: None })
}

#[tokio::test]
async fn a_sink_gets_its_events_in_order_and_failed_ones_again() {
    let mut world = World::new();
    world.append("before", EventType::RulesReloaded);
    world.sinks.replace(vec![world.definition(1, vec![failed(), Ok(1)])]).unwrap();
    world.append("e1", EventType::RulesReloaded);
    assert_eq!(world.next().await, ["e1"]);
    let status = world.until(|status| status.failures == 1).await;
    assert_eq!((status.counts.retry, status.error.as_deref()), (1, Some("no connection")));
    world.append("ignored", EventType::StoreLevel);
    world.append("e2", EventType::RulesRejected);
    world.clock.set(START.after(Span::from_secs(1)));
    let status = world.status();
    assert_eq!((status.waiting, status.oldest), (3, Some(Span::from_secs(1))));
    // The wait ends by the machine's clock; what is due, by the clock of the test.
    world.clock.set(START.after(Span::from_secs(10)));
    assert_eq!([world.next().await, world.next().await], [["e1"], ["e2"]]);
    let status = world.until(|status| status.waiting == 0 && status.oldest.is_none()).await;
    assert_eq!((status.counts.ok, status.counts.dropped, status.failures, status.error), (2, 0, 0, None));
}

#[tokio::test]
async fn a_batch_is_taken_in_parts() {
    let mut world = World::new();
    world
        .sinks
        .replace(vec![world.definition(3, vec![Ok(2), Err(SinkError::Permanent("too large".to_owned()))])])
        .unwrap();
    let kinds = [EventType::RulesReloaded, EventType::StoreLevel, EventType::RulesReloaded, EventType::RulesRejected];
    let lines: Vec<_> = kinds
        .iter()
        .enumerate()
        .map(|(n, kind)| {
            let event = world.stream.event(START, *kind, EventSeverity::Info, "text");
            CloudEvent { id: format!("e{n}"), ..event }.to_line()
        })
        .collect();
    world.journal.append(&lines, START).unwrap();
    assert_eq!(world.next().await, ["e0", "e2", "e3"]);
    assert_eq!(world.next().await, ["e3"]);
    let status = world.until(|status| status.waiting == 0).await;
    assert_eq!((status.counts.ok, status.counts.dropped), (2, 1));
}

#[tokio::test]
async fn a_receiver_that_is_gone_gets_no_more_until_it_takes_a_test() {
    let mut world = World::new();
    world.sinks.replace(vec![world.definition(1, vec![Err(SinkError::Gone)])]).unwrap();
    world.append("e1", EventType::RulesReloaded);
    assert_eq!(world.next().await, ["e1"]);
    let status = world.until(|status| status.is_gone).await;
    assert_eq!((status.counts.gone, status.waiting), (1, 0));
    world.append("e2", EventType::RulesReloaded);
    // The same definition goes on as it is.
    world.sinks.replace(vec![world.definition(1, vec![Err(SinkError::Gone)])]).unwrap();
    let test = world.stream.event(START, EventType::Test, EventSeverity::Info, "a test");
    let pager = world.sinks.find("pager").unwrap();
    pager.try_out(&CloudEvent { id: "t".to_owned(), ..test }).await.unwrap();
    assert_eq!([world.next().await, world.next().await, world.next().await], [["t"], ["e1"], ["e2"]]);

    // A changed definition begins where the last one was.
    world.sinks.replace(vec![world.definition(1, vec![Ok(1), Ok(1)])]).unwrap();
    world.append("e3", EventType::RulesReloaded);
    assert_eq!(world.next().await, ["e3"]);
    world.sinks.replace(Vec::new()).unwrap();
    assert!(world.sinks.status(START).is_empty());
}

#[tokio::test]
async fn events_of_a_long_outage_are_given_up_and_counted() {
    let mut world = World::new();
    world.sinks.replace(vec![world.definition(1, vec![failed()])]).unwrap();
    world.append("e1", EventType::RulesReloaded);
    world.append("e2", EventType::RulesReloaded);
    assert_eq!(world.next().await, ["e1"]);
    world.until(|status| status.failures == 1).await;
    world.clock.set(START.after(Span::from_secs(300_000)));
    world.append("e3", EventType::RulesReloaded);
    assert_eq!(world.next().await, ["e3"]);
    let status = world.until(|status| status.waiting == 0).await;
    assert_eq!((status.counts.ok, status.counts.dropped), (1, 2));
}
