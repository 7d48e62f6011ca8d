//! Many quotas at once, as lines of JSON: `{"api_key": "abc123", "tier": "pro", …}`.
//!
//! An import is read to its end and checked before anything is written: one bad line, and nothing is. Then it is written a
//! thousand quotas at a time, each thousand whole or not at all. Sent again, it says the same again.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
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
use tokio::sync::{Semaphore, mpsc};
use tollgate::Ruleset;
use tollgate::control::Fault;
use tollgate::control::documents::{Faults, QuotaDocument};
use tollgate_control::{Change, Expect, Filter, Kind, MOST_CHANGES, MOST_LISTED, Name};

use super::records::db;
use super::stream::{Lines, lines};
use super::{Answer, Api, Asked, Problem, names, quotas};
use crate::admin::who::Scope;
use crate::control::Author;

/// Which quotas are told, or where they belong.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bulk {
    domain: Option<String>,
    tier: Option<String>,
    prefix: Option<String>,
    /// Nothing is written.
    dry_run: Option<String>,
}

/// Lines that were read and are sound.
struct Sound {
    file: File,
    lines: u64,
}

/// What is wrong with an import.
#[derive(Default)]
struct Wrong {
    faults: Vec<Fault>,
    /// How many there are besides.
    more: u64,
}

/// The longest import.
const MOST_BYTES: u64 = 2 << 30;
/// How long the next piece of an import may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Imports at a time: each may take its length on disk.
static IMPORTS: Semaphore = Semaphore::const_new(2);
/// The longest line.
const LONGEST_LINE: usize = 256 << 10;
/// The most faults that are named.
const MOST_FAULTS: usize = 100;
/// The longest name of a caller.
const LONGEST_NAME: usize = tollgate_control::LONGEST_NAME;

#[utoipa::path(
    get, path = "/admin/v1/export", operation_id = "quotas_export", tag = "quotas",
    params(
        ("domain" = Option<String>, Query), ("tier" = Option<String>, Query), ("prefix" = Option<String>, Query),
    ),
    responses(
        (status = 200, body = String, content_type = "application/jsonl", description = "A quota a line"),
        (status = "default", response = super::openapi::Failed)
    )
)]
pub(crate) async fn export(State(api): State<Api>, asked: Asked, Query(bulk): Query<Bulk>) -> Answer {
    asked.may(Scope::Read)?;
    let db = db(&api)?.clone();
    let rules = api.limiter().rules();
    let domain = names::domain(&rules, bulk.domain.as_deref())?.name().to_owned();
    let member = bulk.tier.map(|tier| ("tier".to_owned(), tier));
    let filter = Filter { domain: Some(domain), prefix: bulk.prefix, member, ..Filter::of(Kind::Quota) };
    // The first page before the answer begins: a database that is away is a 503.
    let mut page = db.list(&filter, None, MOST_LISTED).await?;
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
            if out.put(text).await.is_err() || page.len() < MOST_LISTED {
                return;
            }
            let last = page.last().map(|last| last.name.clone());
            match db.list(&filter, last.as_ref(), MOST_LISTED).await {
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
        ("domain" = Option<String>, Query, description = "Where those belong that do not say"),
        ("dry_run" = Option<bool>, Query, description = "Nothing is written"),
    ),
    request_body(content = String, content_type = "application/jsonl", description = "A quota a line, as they are exported"),
    responses(
        (status = 200, body = String, content_type = "application/jsonl", description = "How far it is, line by line; the last says whether all is written"),
        (status = "default", response = super::openapi::Failed)
    )
)]
pub(crate) async fn import(
    State(api): State<Api>,
    asked: Asked,
    Query(bulk): Query<Bulk>,
    sent: axum::extract::Request,
) -> Answer {
    asked.may(Scope::Quota)?;
    db(&api)?;
    let kind = sent.headers().get(http::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !["application/jsonl", "application/x-ndjson"].contains(&kind.split(';').next().unwrap_or_default().trim()) {
        let detail = "write Content-Type: application/jsonl, and one quota a line";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_jsonl", detail));
    }
    let Ok(turn) = IMPORTS.try_acquire() else {
        let detail = "others are importing at this moment; try again";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail));
    };
    let rules = api.limiter().rules();
    let sound = spool(sent.into_body(), rules.clone(), bulk.domain.clone()).await?;
    if bulk.dry_run.is_some_and(|dry_run| dry_run != "false") {
        let (out, response) = lines();
        let _ = out.line(&json!({"done": true, "dry_run": true, "read": sound.lines, "written": 0})).await;
        return Ok(response);
    }
    let (out, response) = lines();
    let author = asked.who.author();
    tokio::spawn(async move {
        write(api, author, sound, rules, bulk.domain, out).await;
        drop(turn);
    });
    Ok(response)
}

/// Reads the body to a file that nobody else sees, and checks each line on the way.
async fn spool(mut body: Body, rules: Arc<Ruleset>, domain: Option<String>) -> Result<Sound, Problem> {
    let (sender, receiver) = mpsc::channel::<Bytes>(16);
    let checking = tokio::task::spawn_blocking(move || check(receiver, &rules, domain.as_deref()));
    let mut length = 0;
    let mut broken = None;
    loop {
        let Ok(frame) = tokio::time::timeout(PATIENCE, body.frame()).await else {
            let detail = format!("nothing of the body arrived for {PATIENCE:?}");
            broken = Some(Problem::new(StatusCode::REQUEST_TIMEOUT, "slow_body", detail));
            break;
        };
        let Some(frame) = frame else { break };
        let Ok(frame) = frame else {
            broken = Some(Problem::bad_request("broken_body", "the body ended before its end; send all of it"));
            break;
        };
        let Ok(piece) = frame.into_data() else { continue };
        length += piece.len() as u64;
        if length > MOST_BYTES {
            let detail = format!("the body is longer than {MOST_BYTES} bytes; split it");
            broken = Some(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail));
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

fn failed(why: &str) -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "import_failed", why.to_owned())
}

fn check(pieces: mpsc::Receiver<Bytes>, rules: &Ruleset, domain: Option<&str>) -> Result<Sound, Problem> {
    let unable = |error: std::io::Error| failed(&format!("the lines can't be kept on disk: {error}"));
    let mut out = BufWriter::new(tempfile::tempfile().map_err(unable)?);
    let (mut wrong, mut seen) = (Wrong::default(), HashMap::new());
    let (hasher, mut number, mut lines) = (RandomState::new(), 0, 0);
    let mut input = BufReader::new(Pieces { pieces, rest: Bytes::new() });
    let mut line = Vec::new();
    loop {
        line.clear();
        number += 1;
        let length = std::io::Read::take(&mut input, LONGEST_LINE as u64 + 1).read_until(b'\n', &mut line);
        if length.map_err(unable)? == 0 {
            break;
        }
        if line.len() > LONGEST_LINE {
            wrong.add(number, "", format!("the line is longer than {LONGEST_LINE} bytes"));
            // Where the next one begins is not known without reading on; the rest would be told as nonsense.
            break;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        match change(&line, rules, domain) {
            Err(faults) => faults.into_iter().for_each(|fault| wrong.add(number, &fault.at, fault.what)),
            Ok((name, _)) => {
                if let Some(first) = seen.insert(hasher.hash_one((&name.domain, &name.name)), number) {
                    wrong.add(number, "api_key", format!("{:?} is also in line {first}", name.name));
                }
                lines += 1;
            }
        }
        if wrong.faults.is_empty() {
            out.write_all(line.trim_ascii_end()).and_then(|()| out.write_all(b"\n")).map_err(unable)?;
        }
    }
    if !wrong.faults.is_empty() {
        return Err(wrong.problem());
    }
    let mut file = out.into_inner().map_err(|error| unable(error.into_error()))?;
    file.rewind().map_err(unable)?;
    Ok(Sound { file, lines })
}

/// The record that a line means, if it makes sense.
fn change(line: &[u8], rules: &Ruleset, domain: Option<&str>) -> Result<(Name, String), Vec<Fault>> {
    let fault = |what: String| vec![Fault { at: String::new(), what }];
    let mut members: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(line).map_err(|error| fault(format!("it is not a JSON object: {error}")))?;
    let mut text = |name: &str| match members.remove(name) {
        None | Some(serde_json::Value::Null) => Ok(None),
        Some(serde_json::Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(vec![Fault { at: name.to_owned(), what: "it is no text".to_owned() }]),
    };
    let (caller, own) = (text("api_key")?, text("domain")?);
    let caller = caller.filter(|caller| !caller.is_empty());
    let caller = caller.ok_or_else(|| vec![Fault { at: "api_key".to_owned(), what: "it is missing".to_owned() }])?;
    let domain = names::domain(rules, own.as_deref().or(domain)).map_err(|problem| fault(problem.detail))?;
    let document: QuotaDocument = serde_json::from_value(members.into()).map_err(|error| fault(error.to_string()))?;
    let mut faults = Faults::default();
    if caller.len() > LONGEST_NAME {
        faults.add("api_key", format!("it is longer than {LONGEST_NAME} bytes"));
    }
    quotas::check(&document, domain, &mut faults);
    // What was exported may say when counters were reset: that is not to happen again.
    let document = QuotaDocument { reset_by: None, ..document };
    let document = serde_json::to_string(&document).unwrap_or_default();
    faults.unless((Name::new(Kind::Quota, domain.name(), caller), document))
}

/// Writes what was read, a thousand at a time.
async fn write(api: Api, author: Author, sound: Sound, rules: Arc<Ruleset>, domain: Option<String>, out: Lines) {
    let (sender, mut batches) = mpsc::channel::<Vec<Change>>(2);
    let lines = sound.lines;
    let reading = tokio::task::spawn_blocking(move || batch(sound.file, &rules, domain.as_deref(), &sender));
    let mut written = 0;
    while let Some(changes) = batches.recv().await {
        let count = changes.len() as u64;
        if let Err(why) = api.write(&author, changes, None).await {
            let problem = Problem::from(why);
            let told = json!({"done": false, "read": lines, "written": written, "code": problem.code, "detail": problem.detail});
            let _ = out.line(&told).await;
            return;
        }
        written += count;
        // Whoever sent it may go; it is written all the same.
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
        // It was sound before, by the same rules.
        let Ok((name, document)) = change(&line?, rules, domain) else { continue };
        let (action, reason) = ("quota.import".to_owned(), String::new());
        changes.push(Change { name, expect: Expect::Anything, document: Some(document), action, reason });
        if changes.len() == MOST_CHANGES && batches.blocking_send(std::mem::take(&mut changes)).is_err() {
            return Ok(());
        }
    }
    if !changes.is_empty() {
        let _ = batches.blocking_send(changes);
    }
    Ok(())
}

impl Wrong {
    fn add(&mut self, line: u64, at: &str, what: String) {
        if self.faults.len() >= MOST_FAULTS {
            self.more += 1;
            return;
        }
        let at = if at.is_empty() { format!("line {line}") } else { format!("line {line}: {at}") };
        self.faults.push(Fault { at, what });
    }

    fn problem(self) -> Problem {
        let all = self.faults.len() as u64 + self.more;
        let detail = format!("nothing was written: {all} faults, of which {} are named", self.faults.len());
        Problem { detail, ..Problem::invalid(self.faults) }
    }
}

/// Pieces of a body, as something to read from.
struct Pieces {
    pieces: mpsc::Receiver<Bytes>,
    rest: Bytes,
}

impl std::io::Read for Pieces {
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
