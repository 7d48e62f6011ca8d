//! Import and export of quotas as lines of JSON: `{"api_key": "abc123", "tier": "pro", …}`.
//!
//! An import is validated completely before anything is written: one invalid line rejects all of it. Then it is written in
//! batches of a thousand, each in one transaction. An import can be repeated.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{BufRead, BufReader, BufWriter, Seek as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Query, State};
use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde_json::json;
use siphasher::sip128::Hasher128 as _;
use tokio::sync::{Semaphore, mpsc};
use tollgate::Ruleset;
use tollgate_control::{Change, MAX_CHANGES, MAX_LISTED_RECORDS, Precondition, RecordFilter, RecordName, WriteError};
use tollgate_records::FieldFault;
use tollgate_records::RecordKind;
use tollgate_records::documents::{FieldFaults, QuotaDocument};
use tollgate_rules::pattern::Pattern;

use super::context::digest_hasher;
use super::guarded::{self, JudgedWrite, Passage};
use super::records::db;
use super::stream::{LineSender, lines};
use super::{Api, ApiProblem, ApiResult, RequestContext, names, quotas};
use crate::plan::PlannedRecord;
use crate::scopes::AccessScope;
use crate::store_of_record::{Author, ControlWriteError};

/// Selects quotas for an export, or the default domain of an import.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BulkQuery {
    domain: Option<String>,
    tier: Option<String>,
    prefix: Option<String>,
    /// Validate only.
    dry_run: Option<String>,
}

/// A validated import.
struct ValidatedImport {
    file: File,
    lines: u64,
    /// A digest of the lines.
    digest: u128,
}

/// The faults of an import.
#[derive(Default)]
struct ImportFaults {
    faults: Vec<FieldFault>,
    /// The number of further faults.
    more: u64,
}

/// The size of an import.
const MAX_BYTES: u64 = 2 << 30;
/// Time limit for the next piece of an import.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Concurrent imports: each may need its size on disk.
static IMPORTS: Semaphore = Semaphore::const_new(2);
/// The length of a line.
const MAX_LINE_BYTES: usize = 256 << 10;
/// Faults that are reported.
const MAX_FAULTS: usize = 100;
/// The length of a caller's name.
const MAX_NAME_BYTES: usize = tollgate_control::MAX_NAME_BYTES;

#[utoipa::path(
    get, path = "/admin/v1/export", operation_id = "quotas_export", tag = "quotas",
    params(
        ("domain" = Option<String>, Query), ("tier" = Option<String>, Query), ("prefix" = Option<String>, Query),
    ),
    responses(
        (status = 200, body = String, content_type = "application/jsonl", description = "One quota per line"),
        (status = "default", response = super::description::Failed)
    )
)]
pub(super) async fn export(
    State(api): State<Api>,
    context: RequestContext,
    Query(query): Query<BulkQuery>,
) -> ApiResult {
    context.require_list(AccessScope::Quota)?;
    let db = db(&api)?.clone();
    let rules = api.limiter().rules();
    let domain = names::domain(&rules, query.domain.as_deref())?.name().to_owned();
    let member = query.tier.map(|tier| ("tier".to_owned(), tier));
    let filter =
        RecordFilter { domain: Some(domain), prefix: query.prefix, member, ..RecordFilter::new(RecordKind::Quota) };
    // Read the first page before responding: an unavailable database is a 503.
    let mut page = db.list(&filter, None, MAX_LISTED_RECORDS).await?;
    let (out, response) = lines();
    tokio::spawn(async move {
        loop {
            let mut text = Vec::new();
            for stored in &page {
                let quota = stored.document.as_deref().and_then(|text| serde_json::from_str(text).ok());
                let mut line = quota.unwrap_or_else(|| json!({}));
                line["api_key"] = json!(stored.name.name);
                line["domain"] = json!(stored.name.domain);
                text.extend_from_slice(line.to_string().as_bytes());
                text.push(b'\n');
            }
            if out.send(text).await.is_err() || page.len() < MAX_LISTED_RECORDS {
                return;
            }
            let last = page.last().map(|last| last.name.clone());
            match db.list(&filter, last.as_ref(), MAX_LISTED_RECORDS).await {
                Ok(next) => page = next,
                Err(error) => {
                    let _ = out.line(&json!({"error": error.to_string(), "after": last.map(|last| last.name)})).await;
                    return;
                }
            }
        }
    });
    Ok(response)
}

#[utoipa::path(
    post, path = "/admin/v1/import", operation_id = "quotas_import", tag = "quotas",
    params(
        ("domain" = Option<String>, Query, description = "The domain of quotas without one"),
        ("dry_run" = Option<bool>, Query, description = "Validate only"),
    ),
    request_body(content = String, content_type = "application/jsonl", description = "One quota per line, as exported"),
    responses(
        (status = 200, body = String, content_type = "application/jsonl", description = "Progress, line by line; the last line says whether everything is written"),
        (status = "default", response = super::description::Failed)
    )
)]
pub(super) async fn import(
    State(api): State<Api>,
    context: RequestContext,
    Query(query): Query<BulkQuery>,
    sent: axum::extract::Request,
) -> ApiResult {
    context.require(AccessScope::Quota)?;
    db(&api)?;
    let kind = sent.headers().get(http::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !["application/jsonl", "application/x-ndjson"].contains(&kind.split(';').next().unwrap_or_default().trim()) {
        let detail = "use Content-Type: application/jsonl, and one quota per line";
        return Err(ApiProblem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_jsonl", detail));
    }
    let Ok(permit) = IMPORTS.try_acquire() else {
        let detail = "other imports are running; try again later";
        return Err(ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail));
    };
    let rules = api.limiter().rules();
    let may_use_patterns = context.principal.scopes.contains(AccessScope::Emergency);
    let import = spool(sent.into_body(), rules.clone(), query.domain.clone(), may_use_patterns).await?;
    if query.dry_run.is_some_and(|dry_run| dry_run != "false") {
        let (out, response) = lines();
        let _ = out.line(&json!({"done": true, "dry_run": true, "read": import.lines, "written": 0})).await;
        return Ok(response);
    }
    let (import, passage) = judge(&api, &context, import, &rules, query.domain.as_deref()).await?;
    let author = context.principal.author();
    if let Some(plan) = &passage.plan {
        let id = plan.name.name.clone();
        match api.write(&author, vec![plan.clone()], None).await {
            Err(ControlWriteError::Refused(WriteError::PreconditionFailed { .. })) => {
                return Err(guarded::used_up(&id));
            }
            written => drop(written?),
        }
    }
    let (out, mut response) = lines();
    passage.annotate(&mut response);
    tokio::spawn(async move {
        write(api, author, import, rules, query.domain, out).await;
        drop(permit);
    });
    Ok(response)
}

/// Spools the body to a private file and validates each line.
async fn spool(
    mut body: Body,
    rules: Arc<Ruleset>,
    domain: Option<String>,
    may_use_patterns: bool,
) -> Result<ValidatedImport, ApiProblem> {
    let (sender, receiver) = mpsc::channel::<Bytes>(16);
    let checking = tokio::task::spawn_blocking(move || check(receiver, &rules, domain.as_deref(), may_use_patterns));
    let mut length = 0;
    let mut broken = None;
    loop {
        let Ok(frame) = tokio::time::timeout(READ_TIMEOUT, body.frame()).await else {
            let detail = format!("no data arrived for {READ_TIMEOUT:?}");
            broken = Some(ApiProblem::new(StatusCode::REQUEST_TIMEOUT, "slow_body", detail));
            break;
        };
        let Some(frame) = frame else { break };
        let Ok(frame) = frame else {
            broken = Some(ApiProblem::bad_request("broken_body", "the body is incomplete; send all of it"));
            break;
        };
        let Ok(piece) = frame.into_data() else { continue };
        length += piece.len() as u64;
        if length > MAX_BYTES {
            let detail = format!("the body is longer than {MAX_BYTES} bytes; split it");
            broken = Some(ApiProblem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail));
            break;
        }
        if sender.send(piece).await.is_err() {
            break;
        }
    }
    drop(sender);
    let checked = checking.await.map_err(|error| failed(&error.to_string()))?;
    match broken {
        Some(problem) => Err(problem),
        None => checked,
    }
}

fn failed(why: &str) -> ApiProblem {
    ApiProblem::new(StatusCode::INTERNAL_SERVER_ERROR, "import_failed", why.to_owned())
}

fn check(
    pieces: mpsc::Receiver<Bytes>,
    rules: &Ruleset,
    domain: Option<&str>,
    may_use_patterns: bool,
) -> Result<ValidatedImport, ApiProblem> {
    let io_failed = |error: std::io::Error| failed(&format!("the lines can't be stored on disk: {error}"));
    let mut out = BufWriter::new(tempfile::tempfile().map_err(io_failed)?);
    let mut digest = digest_hasher();
    let (mut faults_found, mut first_lines) = (ImportFaults::default(), HashMap::new());
    let (hasher, mut number, mut lines) = (RandomState::new(), 0, 0);
    let mut input = BufReader::new(BodyReader { pieces, rest: Bytes::new() });
    let mut line = Vec::new();
    loop {
        line.clear();
        number += 1;
        let length = std::io::Read::take(&mut input, MAX_LINE_BYTES as u64 + 1).read_until(b'\n', &mut line);
        if length.map_err(io_failed)? == 0 {
            break;
        }
        if line.len() > MAX_LINE_BYTES {
            faults_found.add(number, "", format!("the line is longer than {MAX_LINE_BYTES} bytes"));
            // The start of the next line is unknown.
            break;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        match change(&line, rules, domain) {
            Err(faults) => faults.into_iter().for_each(|fault| faults_found.add(number, &fault.at, fault.what)),
            Ok((name, _)) => {
                if !may_use_patterns && Pattern::new(&name.name).is_wild() {
                    let what =
                        format!("{:?} stands for many callers: its import needs the scope `emergency`", name.name);
                    faults_found.add(number, "api_key", what);
                }
                if let Some(first) = first_lines.insert(hasher.hash_one((&name.domain, &name.name)), number) {
                    faults_found.add(number, "api_key", format!("{:?} is also in line {first}", name.name));
                }
                lines += 1;
            }
        }
        digest.write(line.trim_ascii_end());
        digest.write(b"\n");
        if faults_found.faults.is_empty() {
            out.write_all(line.trim_ascii_end()).and_then(|()| out.write_all(b"\n")).map_err(io_failed)?;
        }
    }
    if !faults_found.faults.is_empty() {
        return Err(faults_found.problem());
    }
    let mut file = out.into_inner().map_err(|error| io_failed(error.into_error()))?;
    file.rewind().map_err(io_failed)?;
    Ok(ValidatedImport { file, lines, digest: digest.finish128().as_u128() })
}

/// Judges an import as a whole, by the lines that may change what is decided about recorded requests.
async fn judge(
    api: &Api,
    context: &RequestContext,
    mut import: ValidatedImport,
    rules: &Arc<Ruleset>,
    domain: Option<&str>,
) -> Result<(ValidatedImport, Passage), ApiProblem> {
    let Some(guardrails) = context.guardrails() else { return Ok((import, Passage::default())) };
    let (is_relevant, rules, domain) = (guardrails.relevant(), rules.clone(), domain.map(str::to_owned));
    let reading = tokio::task::spawn_blocking(move || {
        let mut records = Vec::new();
        for line in BufReader::new(&import.file).split(b'\n') {
            // It was validated by the same rules.
            let Ok((name, document)) = change(&line?, &rules, domain.as_deref()) else { continue };
            if is_relevant(&name) {
                records.push(PlannedRecord::new(name.kind, &name.domain, &name.name, Some(&document)));
            }
        }
        import.file.rewind()?;
        Ok((import, records))
    });
    let read = reading.await.map_err(|error| failed(&error.to_string()))?;
    let (import, records) = read.map_err(|error: std::io::Error| failed(&error.to_string()))?;
    let name = RecordName::new(RecordKind::Quota, "", format!("{} quotas", import.lines));
    let digest = context.digest(&import.digest.to_le_bytes());
    let write = JudgedWrite { context, name, action: "quota.import", reason: "", digest };
    let passage = write.pass(api, guardrails, records).await?;
    Ok((import, passage))
}

/// The record of a line, if it is valid.
fn change(line: &[u8], rules: &Ruleset, domain: Option<&str>) -> Result<(RecordName, String), Vec<FieldFault>> {
    let fault = |what: String| vec![FieldFault { at: String::new(), what }];
    let mut members: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(line).map_err(|error| fault(format!("it is not a JSON object: {error}")))?;
    let mut text = |name: &str| match members.remove(name) {
        None | Some(serde_json::Value::Null) => Ok(None),
        Some(serde_json::Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(vec![FieldFault { at: name.to_owned(), what: "it must be a string".to_owned() }]),
    };
    let (caller, own) = (text("api_key")?, text("domain")?);
    let caller = caller.filter(|caller| !caller.is_empty());
    let caller =
        caller.ok_or_else(|| vec![FieldFault { at: "api_key".to_owned(), what: "it is missing".to_owned() }])?;
    let domain = names::domain(rules, own.as_deref().or(domain)).map_err(|problem| fault(problem.detail))?;
    let document: QuotaDocument = serde_json::from_value(members.into()).map_err(|error| fault(error.to_string()))?;
    let mut faults = FieldFaults::default();
    if caller.len() > MAX_NAME_BYTES {
        faults.add("api_key", format!("it is longer than {MAX_NAME_BYTES} bytes"));
    }
    quotas::check(&document, domain, &mut faults);
    // An export may contain the time of a reset, which must not be repeated.
    let document = QuotaDocument { reset_by: None, ..document };
    let document = serde_json::to_string(&document).unwrap_or_default();
    faults.into_result((RecordName::new(RecordKind::Quota, domain.name(), caller), document))
}

/// Writes a validated import in batches.
async fn write(
    api: Api,
    author: Author,
    import: ValidatedImport,
    rules: Arc<Ruleset>,
    domain: Option<String>,
    out: LineSender,
) {
    let (sender, mut batches) = mpsc::channel::<Vec<Change>>(2);
    let lines = import.lines;
    let reading = tokio::task::spawn_blocking(move || batch(import.file, &rules, domain.as_deref(), &sender));
    let mut written = 0;
    while let Some(changes) = batches.recv().await {
        let count = changes.len() as u64;
        if let Err(why) = api.write(&author, changes, None).await {
            let problem = ApiProblem::from(why);
            let report = json!({"done": false, "read": lines, "written": written, "code": problem.code, "detail": problem.detail});
            let _ = out.line(&report).await;
            return;
        }
        written += count;
        // The import continues if the client disconnects.
        let _ = out.line(&json!({"read": lines, "written": written})).await;
    }
    let is_whole = reading.await.is_ok_and(|read| read.is_ok()) && written == lines;
    let _ = out.line(&json!({"done": is_whole, "read": lines, "written": written})).await;
}

fn batch(
    file: File,
    rules: &Ruleset,
    domain: Option<&str>,
    batches: &mpsc::Sender<Vec<Change>>,
) -> std::io::Result<()> {
    let mut changes = Vec::new();
    for line in BufReader::new(file).split(b'\n') {
        // It was validated by the same rules.
        let Ok((name, document)) = change(&line?, rules, domain) else { continue };
        let (action, reason) = ("quota.import".to_owned(), String::new());
        changes.push(Change { name, expect: Precondition::Any, document: Some(document), action, reason });
        if changes.len() == MAX_CHANGES && batches.blocking_send(std::mem::take(&mut changes)).is_err() {
            return Ok(());
        }
    }
    if !changes.is_empty() {
        let _ = batches.blocking_send(changes);
    }
    Ok(())
}

impl ImportFaults {
    fn add(&mut self, line: u64, at: &str, what: String) {
        if self.faults.len() >= MAX_FAULTS {
            self.more += 1;
            return;
        }
        let at = if at.is_empty() { format!("line {line}") } else { format!("line {line}: {at}") };
        self.faults.push(FieldFault { at, what });
    }

    fn problem(self) -> ApiProblem {
        let all = self.faults.len() as u64 + self.more;
        let detail = format!("nothing was written: {all} faults, of which {} are listed", self.faults.len());
        ApiProblem { detail, ..ApiProblem::invalid(self.faults) }
    }
}

/// Reads the pieces of a body.
struct BodyReader {
    pieces: mpsc::Receiver<Bytes>,
    rest: Bytes,
}

impl std::io::Read for BodyReader {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        while self.rest.is_empty() {
            match self.pieces.blocking_recv() {
                Some(piece) => self.rest = piece,
                None => return Ok(0),
            }
        }
        let count = into.len().min(self.rest.len());
        into[..count].copy_from_slice(&self.rest.split_to(count));
        Ok(count)
    }
}
