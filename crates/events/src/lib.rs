//! What matters to operators, as one stream of typed events: CloudEvents in JSON, to sinks.
//!
//! ```text
//! EventStream::emit ─▶ bounded queue ─ collect ─▶ Journal: lines of JSON in the data directory
//!                                                    └─ Subscription, one for each sink: cursor ─▶ Sink::send, retries ─▶ cursor
//! ```
//!
//! The journal is the outbox of all sinks: a line is read by each of them until its receiver has it, also after a restart. It is
//! bounded; what a sink did not send before a line is removed is counted as dropped. Nothing that emits waits.

#![allow(missing_docs, reason = "internal to the server")]

mod collect;
mod delivery;
mod event;
mod files;
mod filter;
mod journal;
mod sink;
mod stdout;
mod stream;
mod subscription;
mod subscriptions;
mod webhook;

pub use collect::{COMPONENT, collect};
pub use event::{CloudEvent, EventSeverity, EventType, FLEET};
pub use files::{FileSink, FilesConfig, LogFiles};
pub use filter::EventFilter;
pub use journal::{Journal, JournalConfig};
pub use sink::{Sending, Sink, SinkError, SinkLine};
pub use stdout::StdoutSink;
pub use stream::{EventCounts, EventStream, RecentEvent};
pub use subscription::{Definition, SinkCounts, SinkStatus, Subscription};
pub use subscriptions::Subscriptions;
pub use webhook::{Secret, Webhook};
