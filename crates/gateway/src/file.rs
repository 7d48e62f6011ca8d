//! The configuration as a file that is watched: changes are put in force, unless they have errors.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tollgate_net::Closing;
use tollgate_telemetry::Health;

use crate::gateway::Gateway;
use crate::model::GatewayConfig;
use crate::plan::GatewayPlan;

/// The file of a gateway.
#[derive(Debug)]
pub struct GatewayFile {
    path: PathBuf,
    /// What was read last, whether it could be used or not; or why it could not be read.
    read: Result<String, String>,
}

/// How often the file is read.
const INTERVAL: Duration = Duration::from_millis(500);
/// The largest file.
const MAX_BYTES: u64 = 16 << 20;
/// The component whose health is degraded while a change can't be used.
const PART: &str = "gateway";

impl GatewayFile {
    /// Reads a file.
    ///
    /// # Errors
    /// All problems, with line and remedy.
    pub fn load(path: &Path) -> Result<(GatewayFile, GatewayPlan, Vec<String>), Vec<String>> {
        let text = read(path).map_err(|error| vec![error])?;
        let (config, warnings) = parse(path, &text)?;
        let plan = GatewayPlan::new(config, None)?;
        Ok((GatewayFile { path: path.to_owned(), read: Ok(text) }, plan, warnings))
    }

    /// Puts changes of the file in force, until shutdown.
    pub async fn follow(mut self, gateway: Arc<Gateway>, health: Arc<Health>, mut closing: Closing) {
        let mut changed: Option<Result<String, String>> = None;
        loop {
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                () = closing.begun() => return,
            }
            let path = self.path.clone();
            let Ok(read) = tokio::task::spawn_blocking(move || read(&path)).await else { continue };
            if read == self.read {
                changed = None;
                continue;
            }
            // A file that is being written, or replaced, is different the next time.
            if changed.as_ref() != Some(&read) {
                changed = Some(read);
                continue;
            }
            self.read = read;
            self.install(&gateway, &health).await;
        }
    }

    async fn install(&self, gateway: &Gateway, health: &Health) {
        let before = gateway.plan();
        let parsed = match &self.read {
            Ok(text) => parse(&self.path, text),
            Err(error) => Err(vec![error.clone()]),
        };
        let planned = parsed.and_then(|(config, warnings)| {
            let plan = GatewayPlan::new(config, Some(&before))?;
            Ok((plan, warnings))
        });
        match planned {
            Ok((plan, warnings)) => {
                warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
                if plan.config.listeners != before.config.listeners {
                    tracing::warn!("{}: listeners are changed by a restart only", self.path.display());
                }
                let (routes, upstreams) = (plan.config.routes.len(), plan.config.upstreams.len());
                tracing::info!(routes, upstreams, "the gateway's configuration was reloaded");
                plan.load_keys().await;
                gateway.install(plan);
                health.restore(PART);
            }
            Err(problems) => {
                problems.iter().for_each(|problem| tracing::error!("{problem}"));
                let more = problems.len().saturating_sub(1);
                let first = problems.first().map_or("", String::as_str);
                let reason = format!("the last good configuration is in use: {first}");
                health.degrade(PART, if more > 0 { format!("{reason}, and {more} more") } else { reason });
            }
        }
    }
}

fn read(path: &Path) -> Result<String, String> {
    let at = |error: std::io::Error| format!("{}: {error}", path.display());
    let length = std::fs::metadata(path).map_err(at)?.len();
    if length > MAX_BYTES {
        return Err(format!("{}: the file is larger than {} MiB", path.display(), MAX_BYTES >> 20));
    }
    std::fs::read_to_string(path).map_err(at)
}

fn parse(path: &Path, text: &str) -> Result<(GatewayConfig, Vec<String>), Vec<String>> {
    let (name, folder) = (path.display().to_string(), path.parent().unwrap_or(Path::new("")));
    match GatewayConfig::read(&name, text, folder) {
        Ok(read) => Ok((read.config, read.warnings.iter().map(ToString::to_string).collect())),
        Err(problems) => Err(problems.iter().map(ToString::to_string).collect()),
    }
}
