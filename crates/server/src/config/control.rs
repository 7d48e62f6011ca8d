//! The settings of the control plane.

use std::path::PathBuf;

use tollgate_admin::guardrails::GuardedFiles;
use tollgate_control::DbLocation;
use tollgate_rules::problem::{TextFault, quoted};

use super::read::SettingsReader;
use super::settings::{ControlPlace, ControlSettings, GuardrailSettings};
use super::table::GUARDED_FILES;

impl SettingsReader<'_> {
    pub(super) fn control(&mut self) -> Option<ControlSettings> {
        let place = self.read("control", |text, _| parse_place(text));
        let snapshots = self.or("control_snapshots", "none", |text, _| Ok(PathBuf::from(text)));
        let required = self.switch("control_required");
        let guardrails = self.guardrails();
        Some(ControlSettings { place: place?, snapshots: snapshots?, required: required?, guardrails: guardrails? })
    }

    fn guardrails(&mut self) -> Option<GuardrailSettings> {
        let on = self.switch("guardrails");
        let confirm = self.percent("guardrail_confirm");
        let paid = self.percent("guardrail_paid");
        let approve = self.percent("guardrail_approve");
        let requests = self.count("guardrail_requests");
        let modes = [GuardedFiles::Warn, GuardedFiles::Hold, GuardedFiles::Off];
        let files = self.word("guardrail_files", GUARDED_FILES, &modes);
        Some(GuardrailSettings {
            on: on?,
            confirm: confirm?,
            paid: paid?,
            approve: approve?,
            requests: requests?,
            files: files?,
        })
    }
}

fn parse_place(text: &str) -> Result<ControlPlace, TextFault> {
    let fault = |shown: &str| {
        let remedy = "write auto, off, sqlite:PATH or postgres://user@host/database";
        TextFault::new(format!("{} is not the address of a store of record", quoted(shown)), remedy)
    };
    match text {
        "auto" => Ok(ControlPlace::Auto),
        "off" => Ok(ControlPlace::Off),
        text => match (text.split_once(':'), text.strip_prefix("sqlite:")) {
            (_, Some("")) => Err(fault(text)),
            (_, Some(path)) => Ok(ControlPlace::At(DbLocation::File(PathBuf::from(path)))),
            (Some(("postgres" | "postgresql", rest)), None) if rest.starts_with("//") => {
                Ok(ControlPlace::At(DbLocation::Postgres(text.to_owned())))
            }
            _ => Err(fault(super::text::without_password(text).as_ref())),
        },
    }
}
