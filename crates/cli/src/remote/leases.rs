//! `tollgate leases`: the hot keys of a server.

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::client::ApiRequest;
use super::path::ApiPath;
use super::server::ServerArgs;
use super::show::{self, Columns, TextTable};
use crate::pluralize;

/// The keys in Redis of which a server takes units ahead of requests
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  tollgate leases --keys 50")]
pub(crate) struct Leases {
    /// The number of keys, the busiest first
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=200))]
    keys: u64,
    #[command(flatten)]
    server: ServerArgs,
}

const COLUMNS: Columns = &[
    ("DOMAIN", |item| show::text(&item["domain"])),
    ("RULE", |item| show::text(&item["rule"])),
    ("KEY", |item| show::text(&item["key"])),
    ("UNITS/S", |item| show::text(&item["units_per_second"])),
    ("CHUNK", |item| show::text(&item["chunk"])),
    ("HELD", |item| show::text(&item["units_held"])),
    ("LOCAL", |item| format!("{:.0} %", item["local_share"].as_f64().unwrap_or_default() * 100.0)),
];

impl Leases {
    pub(crate) fn run(&self) -> ExitCode {
        super::run(&self.server, |client| {
            let path = ApiPath::new(&["admin", "v1", "leases"]).with("limit", Some(&self.keys.to_string()));
            show::print(client, &client.send(ApiRequest::get(path))?, report)
        })
    }
}

/// The leases of a server, for people.
fn report(leases: &Value) -> String {
    let number = |value: &Value| show::text(value);
    let count = |value: &Value, noun: &str| pluralize(value.as_u64().unwrap_or(0) as usize, noun);
    if leases["enabled"] == false {
        return "nothing is leased: counters are in memory, or `leases` is off\n".to_owned();
    }
    let (units, calls) = (&leases["units"], &leases["calls"]);
    let mut text = format!(
        "{} leased, {} held\n\
         units: {} taken, {} spent, {} returned, {} expired\n\
         calls: {} for requests without units, {} ahead of requests, {} to give back; {} refusals without a call\n",
        count(&leases["leased_keys"], "key"),
        count(&leases["units_held"], "unit"),
        number(&units["taken"]),
        number(&units["spent"]),
        number(&units["returned"]),
        number(&units["expired"]),
        number(&calls["miss"]),
        number(&calls["ahead"]),
        number(&calls["back"]),
        number(&leases["refusals"]),
    );
    if let Some(keys) = leases["keys"].as_array().filter(|keys| !keys.is_empty()) {
        text.push('\n');
        text.push_str(&TextTable::new(COLUMNS).lines(keys));
    }
    text
}
