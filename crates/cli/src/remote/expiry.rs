//! The options `--for` and `--expires-at`.

use clap::Args;

use super::resource::RequestBody;

/// When something ends.
#[derive(Debug, Args)]
pub(crate) struct ExpiryArgs {
    /// How long from now: 30m, 1h, 30d
    #[arg(long, value_name = "TIME")]
    r#for: Option<String>,
    /// Or until when: 2026-12-01T00:00:00Z
    #[arg(long, value_name = "MOMENT", conflicts_with = "for")]
    expires_at: Option<String>,
}

impl ExpiryArgs {
    /// Adds the options to a request.
    pub(super) fn add_to(&self, body: RequestBody) -> RequestBody {
        body.with_texts(&[("for", &self.r#for), ("expires_at", &self.expires_at)])
    }
}
