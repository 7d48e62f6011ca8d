//! How long something holds.

use clap::Args;
use serde_json::{Map, Value};

/// Until when.
#[derive(Debug, Args)]
pub(super) struct UntilArgs {
    /// For how long from now: 30m, 1h, 30d
    #[arg(long, value_name = "TIME")]
    r#for: Option<String>,
    /// Or until when: 2026-12-01T00:00:00Z
    #[arg(long, value_name = "MOMENT", conflicts_with = "for")]
    expires_at: Option<String>,
}

impl UntilArgs {
    /// Says it in a body.
    pub(super) fn put(&self, body: &mut Map<String, Value>) {
        put(body, "for", self.r#for.as_deref());
        put(body, "expires_at", self.expires_at.as_deref());
    }
}

/// A member of a body, if it was told.
pub(super) fn put(body: &mut Map<String, Value>, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        body.insert(name.to_owned(), value.into());
    }
}
