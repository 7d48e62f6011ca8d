//! `tollgate plan`: what a change would do to recorded requests, those of a running server or those of a file.

mod local;
mod text;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use tollgate::RuleFiles;

use super::client::ApiRequest;
use super::path::ApiPath;
use super::server::ServerArgs;
use super::{CommandError, show};
use crate::replay::{InputFormat, MappedField};
use crate::rules_args::RulesArgs;
use crate::spelling_args::SpellingArgs;
use crate::{EXIT_USAGE, print_error};

/// Show what a change of rules would do to recent traffic: requests and callers newly refused or admitted
///
/// Without --against, a running server tries the change on the requests that it recorded in the last minutes. With --against, the
/// rules are compared with others on requests from standard input.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    tollgate plan rules/                                # these files in place of those of the server\n  \
    tollgate plan --records import.jsonl                # records, in the form of `tollgate quota export`\n  \
    tollgate plan new/ --against rules/ < requests.jsonl\n  \
    tollgate plan new/ --against rules/ --format nginx --map api_key=query.key < access.log\n\n\
Nothing is changed. Numbers are estimates if the server recorded a sample. Requests have the format of `tollgate replay`.")]
pub(crate) struct PlanCommand {
    /// Rule files, or directories of them, after the change; the same as --rules
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Compare with these rule files, on requests from standard input, without a server; may be repeated
    #[arg(long, value_name = "PATH", conflicts_with_all = ["records", "minutes"])]
    against: Vec<PathBuf>,
    /// Records that the change writes: a file of JSON lines with kind, domain, name and document
    #[arg(long, value_name = "FILE")]
    records: Option<PathBuf>,
    /// Try it on the requests of the last so many minutes
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=60))]
    minutes: u64,
    /// The format of the requests on standard input
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "tollgate", requires = "against")]
    format: InputFormat,
    /// The field of an attribute in logs and JSON: api_key=query.key, at=time, cost=tokens; may be repeated
    #[arg(long, value_name = "ATTRIBUTE=FIELD", value_parser = MappedField::parse, requires = "against")]
    map: Vec<MappedField>,
    #[command(flatten)]
    spelling: SpellingArgs,
    #[command(flatten)]
    rules: RulesArgs,
    #[command(flatten)]
    server: ServerArgs,
}

/// The records of a file, which the server bounds as well.
const MAX_RECORDS: usize = 10_000;

impl PlanCommand {
    pub(crate) fn run(&self) -> ExitCode {
        let paths = self.rules.paths(self.paths.iter().map(PathBuf::as_path));
        if !self.against.is_empty() {
            if paths.is_empty() {
                print_error(
                    "error: write the rule files after the change, as in `tollgate plan new/ --against rules/`",
                );
                return ExitCode::from(EXIT_USAGE);
            }
            return local::run(self, &paths);
        }
        if paths.is_empty() && self.records.is_none() {
            print_error("error: write what changes: rule files, or --records FILE");
            return ExitCode::from(EXIT_USAGE);
        }
        // Errors of rules have their lines, which the server knows only by name.
        if !paths.is_empty()
            && let Err(code) = self.rules.load(&paths)
        {
            return code;
        }
        super::run(&self.server, |client| {
            let change = self.change(&paths)?;
            let path = ApiPath::new(&["admin", "v1", "plan"]).with("minutes", Some(&self.minutes.to_string()));
            show::print(client, &client.send(ApiRequest::post(path).json(change))?, text::report)
        })
    }

    /// The body of the request.
    fn change(&self, paths: &[&Path]) -> Result<Value, CommandError> {
        let mut change = json!({});
        if !paths.is_empty() {
            let files = RuleFiles::read(paths, &self.rules.options());
            let files = files.sources.iter().map(|file| json!({"name": file.name, "text": file.text}));
            change["files"] = files.collect();
        }
        if let Some(path) = &self.records {
            let text = fs::read_to_string(path)
                .map_err(|error| CommandError::Failed(format!("{} can't be read: {error}", path.display())))?;
            change["records"] = read_records(&text).map_err(CommandError::Usage)?.into();
        }
        Ok(change)
    }
}

/// The records of a file, one in a line.
fn read_records(text: &str) -> Result<Vec<Value>, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let mut records = Vec::new();
    for (number, line) in lines {
        let number = number + 1;
        let line: Value = serde_json::from_str(line).map_err(|error| format!("line {number}: {error}"))?;
        if !line["kind"].is_string() {
            return Err(format!("line {number}: it has no `kind`; write rule, quota, switch or emergency"));
        }
        if records.len() == MAX_RECORDS {
            return Err(format!("there are more than {MAX_RECORDS} records; plan them in parts"));
        }
        let members = ["kind", "domain", "name", "document"].into_iter();
        let members = members.filter(|name| !line[*name].is_null()).map(|name| (name.to_owned(), line[name].clone()));
        records.push(Value::Object(members.collect()));
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_lines_of_json() {
        let text = "{\"generation\": 7, \"kind\": \"quota\", \"domain\": \"shop\", \"name\": \"ada\", \"document\": {\"tier\": \"pro\"}}\n\n\
                    {\"kind\": \"rule\", \"domain\": \"shop\", \"name\": \"a\", \"document\": null}\n";
        let records = read_records(text).unwrap();
        let first = json!({"kind": "quota", "domain": "shop", "name": "ada", "document": {"tier": "pro"}});
        assert_eq!(records, [first, json!({"kind": "rule", "domain": "shop", "name": "a"})]);
        assert!(read_records("{}").unwrap_err().starts_with("line 1: it has no `kind`"));
        assert!(read_records("\n?").unwrap_err().starts_with("line 2: "));
        assert!(read_records(&"{\"kind\":\"rule\"}\n".repeat(MAX_RECORDS + 1)).is_err());
    }
}
