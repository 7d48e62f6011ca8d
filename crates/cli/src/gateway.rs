//! `tollgate gateway`: checks the file of a gateway, and explains what it does with a request.

mod check;
mod explain;

use std::process::ExitCode;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(super) struct GatewayCommand {
    #[command(subcommand)]
    action: GatewayAction,
}

#[derive(Debug, Subcommand)]
enum GatewayAction {
    /// Check the file of a gateway: every error and warning, with its line and a remedy
    Check(check::Check),
    /// Show what a gateway does with a request: its route, attributes, priority, upstream, costs, and the rules that apply
    Explain(explain::ExplainRequest),
}

impl GatewayCommand {
    pub(super) fn run(&self) -> ExitCode {
        match &self.action {
            GatewayAction::Check(check) => check.run(),
            GatewayAction::Explain(explain) => explain.run(),
        }
    }
}
