//! `tollgate plan`: what a change would do to recorded requests, those of a running server or those of a file.

mod local;
mod text;

pub(super) use text::report;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use tollgate::RuleFiles;

use super::client::{ApiRequest, input};
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
    tollgate plan --import quotas.jsonl                 # an import, in the form of `tollgate quota export`\n  \
    tollgate plan --records changes.jsonl               # records of any kind\n  \
    tollgate plan new/ --against rules/ < requests.jsonl\n  \
    tollgate plan new/ --against rules/ --format nginx --map api_key=query.key < access.log\n\n\
Nothing is changed. Numbers are estimates if the server recorded a sample. Requests have the format of `tollgate replay`.")]
pub(crate) struct PlanCommand {
    /// Rule files, or directories of them, after the change; the same as --rules
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Compare with these rule files, on requests from standard input, without a server; may be repeated
    #[arg(long, value_name = "PATH", conflicts_with_all = ["import", "records", "minutes"])]
    against: Vec<PathBuf>,
    /// Quotas that an import writes: a file as `tollgate quota import` takes it
    #[arg(long, value_name = "FILE")]
    import: Option<PathBuf>,
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
        if paths.is_empty() && self.import.is_none() && self.records.is_none() {
            print_error("error: write what changes: rule files, --import FILE or --records FILE");
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
        let mut records = Vec::new();
        let files = [(&self.import, imported as fn(Value) -> Result<Value, String>), (&self.records, record)];
        for (path, read) in files.iter().filter_map(|(path, read)| Some((path.as_ref()?, read))) {
            let mut text = String::new();
            input(path)?
                .read_to_string(&mut text)
                .map_err(|error| CommandError::Failed(format!("{} can't be read: {error}", path.display())))?;
            records.extend(read_lines(&text, read).map_err(CommandError::Usage)?);
        }
        if records.len() > MAX_RECORDS {
            return Err(CommandError::Usage(format!("there are more than {MAX_RECORDS} records; plan them in parts")));
        }
        if !records.is_empty() {
            change["records"] = records.into();
        }
        Ok(change)
    }
}

/// The records of a file, one in a line.
fn read_lines(text: &str, read: impl Fn(Value) -> Result<Value, String>) -> Result<Vec<Value>, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let records = lines.map(|(number, line)| {
        let parsed: Result<Value, _> = serde_json::from_str(line);
        let record = parsed.map_err(|error| error.to_string()).and_then(&read);
        record.map_err(|why| format!("line {}: {why}", number + 1))
    });
    records.collect()
}

/// A record of any kind. Members that a plan does not need are omitted.
fn record(line: Value) -> Result<Value, String> {
    if !line["kind"].is_string() {
        let remedy = "write rule, quota, switch or emergency, or plan an exported file with --import";
        return Err(format!("it has no `kind`; {remedy}"));
    }
    let members = ["kind", "domain", "name", "document"].into_iter();
    let members = members.filter(|name| !line[*name].is_null()).map(|name| (name.to_owned(), line[name].clone()));
    Ok(Value::Object(members.collect()))
}

/// A quota of an import.
fn imported(line: Value) -> Result<Value, String> {
    let Value::Object(mut document) = line else { return Err("it is not a JSON object".to_owned()) };
    let Some(name) = document.remove("api_key").filter(Value::is_string) else {
        return Err("it has no `api_key`; plan records of other kinds with --records".to_owned());
    };
    let domain = document.remove("domain");
    // The import does not repeat it, either.
    document.remove("reset_by");
    let mut record = json!({"kind": "quota", "name": name, "document": document});
    if let Some(domain) = domain.filter(|domain| !domain.is_null()) {
        record["domain"] = domain;
    }
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_lines_of_json() {
        let text = "{\"generation\": 7, \"kind\": \"quota\", \"domain\": \"shop\", \"name\": \"ada\", \"document\": {\"tier\": \"pro\"}}\n\n\
                    {\"kind\": \"rule\", \"domain\": \"shop\", \"name\": \"a\", \"document\": null}\n";
        let records = read_lines(text, record).unwrap();
        let first = json!({"kind": "quota", "domain": "shop", "name": "ada", "document": {"tier": "pro"}});
        assert_eq!(records, [first, json!({"kind": "rule", "domain": "shop", "name": "a"})]);
        assert!(read_lines("{}", record).unwrap_err().starts_with("line 1: it has no `kind`"));
        assert!(read_lines("\n?", record).unwrap_err().starts_with("line 2: "));
    }

    #[test]
    fn lines_of_an_export_are_quotas() {
        let text = "{\"api_key\": \"ada\", \"domain\": \"shop\", \"tier\": \"pro\", \"reset_by\": 7}\n{\"api_key\": \"bob\"}\n";
        let ada = json!({"kind": "quota", "domain": "shop", "name": "ada", "document": {"tier": "pro"}});
        assert_eq!(read_lines(text, imported).unwrap(), [ada, json!({"kind": "quota", "name": "bob", "document": {}})]);
        assert!(read_lines("{\"kind\": \"rule\"}", imported).unwrap_err().starts_with("line 1: it has no `api_key`"));
        assert!(read_lines("[]", imported).is_err());
    }
}
