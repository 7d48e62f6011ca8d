//! Snapshots and feeds of records: lines of JSON.
//!
//! A snapshot is a head, lines, and an end. Lines may be appended after the end as records change, each write followed by a
//! heartbeat. Of two lines of the same record the later one counts. A feed is the lines without head and end.

use std::borrow::Cow;
use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};

use crate::Record;

/// One line of a snapshot or a feed.
#[derive(Clone, Debug)]
pub enum ControlLine<'l> {
    /// A record.
    Record(Record<'l>),
    /// The first line of a snapshot.
    Head(SnapshotHead),
    /// The rule files that are in force under the records, all of them.
    Files(FilesLine),
    /// The last line of a snapshot.
    End(SnapshotEnd),
    /// A token of the admin API. Only a server's own copy has these lines: they are never sent.
    Token(TokenLine<'l>),
    /// Everything up to a generation was sent.
    Heartbeat(Heartbeat),
}

/// The first line of a snapshot.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotHead {
    /// The version of the format: [`FORMAT_VERSION`].
    pub format: u32,
    /// The identity of the database. Generations of two databases can't be compared.
    #[serde(rename = "of")]
    pub identity: String,
    /// The generation of the last write that it includes.
    pub as_of: u64,
}

/// The rule files that are in force.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FilesLine {
    /// The files in the order in which they are loaded.
    pub files: Vec<FileText>,
    /// Whether files of the same domain are merged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub merge_domains: bool,
}

/// A rule file.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FileText {
    /// The file's name in problem reports.
    pub name: String,
    /// The file's content.
    pub text: String,
}

/// The last line of a snapshot. A snapshot without it is truncated.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotEnd {
    /// The number of records in the snapshot.
    pub records: u64,
}

/// A token of the admin API.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TokenLine<'l> {
    /// The token's name.
    #[serde(borrow)]
    pub token: Cow<'l, str>,
    /// The document of its record as a JSON string; `None` if the token was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<Cow<'l, str>>,
}

/// A sign of life, which also ends the records of one or several writes: a reader that was cut off continues after the last one.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Heartbeat {
    /// The generation that is in force.
    #[serde(rename = "alive")]
    pub generation: u64,
}

/// Lines other than records.
#[derive(Deserialize)]
#[serde(untagged)]
enum OtherLine<'l> {
    Head(SnapshotHead),
    Files(FilesLine),
    End(SnapshotEnd),
    #[serde(borrow)]
    Token(TokenLine<'l>),
    Heartbeat(Heartbeat),
}

/// The version of the format that this version writes and reads.
pub const FORMAT_VERSION: u32 = 1;

/// The longest line, in bytes.
pub const MAX_LINE_BYTES: usize = 32 << 20;

/// The file name of the snapshot in a directory of snapshots.
pub const SNAPSHOT_FILE: &str = "control-snapshot.jsonl";

/// Writes a line.
///
/// # Errors
/// If the writer fails, or if the document of a record is not JSON: a part of the line may be written then.
pub fn write(out: &mut impl Write, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

/// Parses a line.
///
/// # Errors
/// If it is not a line of a snapshot or a feed.
pub fn parse(line: &[u8]) -> Result<ControlLine<'_>, String> {
    // Nearly all lines are records.
    match serde_json::from_slice(line) {
        Ok(record) => Ok(ControlLine::Record(record)),
        Err(error) => match serde_json::from_slice(line) {
            Ok(OtherLine::Head(head)) => Ok(ControlLine::Head(head)),
            Ok(OtherLine::Files(files)) => Ok(ControlLine::Files(files)),
            Ok(OtherLine::End(end)) => Ok(ControlLine::End(end)),
            Ok(OtherLine::Token(token)) => Ok(ControlLine::Token(token)),
            Ok(OtherLine::Heartbeat(heartbeat)) => Ok(ControlLine::Heartbeat(heartbeat)),
            Err(_) => Err(format!("not a line of a snapshot: {error}")),
        },
    }
}

/// Reads the position of a snapshot: its head, with the generation of the last [`Heartbeat`]. It is much faster than reading the
/// records, and does not check them.
///
/// # Errors
/// If it is not a snapshot, or is truncated.
pub fn read_position(mut input: impl BufRead) -> io::Result<SnapshotHead> {
    let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let (mut line, mut ended) = (Vec::new(), false);
    let mut next = |line: &mut Vec<u8>| {
        line.clear();
        io::Read::take(&mut input, MAX_LINE_BYTES as u64).read_until(b'\n', line)
    };
    next(&mut line)?;
    let Ok(ControlLine::Head(mut head)) = parse(&line) else {
        return Err(bad("a snapshot begins with its head"));
    };
    while next(&mut line)? > 0 {
        if line.starts_with(b"{\"records\":") {
            ended = true;
        } else if line.starts_with(b"{\"alive\":")
            && let Ok(ControlLine::Heartbeat(heartbeat)) = parse(&line)
        {
            head.as_of = head.as_of.max(heartbeat.generation);
        }
    }
    if ended { Ok(head) } else { Err(bad("the snapshot was cut short")) }
}

/// Reads a snapshot, passes its records, tokens and files to `each`, and returns its head.
///
/// Lines that were appended after the end are read as far as they are complete. The last write among them may be incomplete, so the
/// generation in the returned head is that of the last [`Heartbeat`].
///
/// # Errors
/// If it is not a snapshot, or is truncated.
pub fn read_snapshot(mut input: impl BufRead, mut each: impl FnMut(ControlLine<'_>)) -> io::Result<SnapshotHead> {
    let bad = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let (mut head, mut ended, mut line): (Option<SnapshotHead>, _, _) = (None, false, Vec::new());
    let mut records = 0;
    loop {
        line.clear();
        let length = io::Read::take(&mut input, MAX_LINE_BYTES as u64).read_until(b'\n', &mut line)?;
        let is_whole = line.last() == Some(&b'\n');
        if length == 0 || !is_whole && ended {
            break;
        }
        if !is_whole {
            return Err(bad("the snapshot was cut short".to_owned()));
        }
        let parsed = match parse(&line) {
            Ok(parsed) => parsed,
            // Appending was interrupted.
            Err(_) if ended => break,
            Err(what) => return Err(bad(what)),
        };
        match (parsed, &mut head) {
            (ControlLine::Head(first), None) if first.format == FORMAT_VERSION => head = Some(first),
            (ControlLine::Head(first), None) => {
                return Err(bad(format!("snapshot format {} is not {FORMAT_VERSION}", first.format)));
            }
            (_, None) => return Err(bad("a snapshot begins with its head".to_owned())),
            (ControlLine::Head(_), Some(_)) => {}
            (ControlLine::Heartbeat(heartbeat), Some(head)) => head.as_of = head.as_of.max(heartbeat.generation),
            (ControlLine::End(end), Some(_)) if ended || end.records == records => ended = true,
            (ControlLine::End(end), Some(_)) => {
                return Err(bad(format!("the snapshot has {records} records of {}", end.records)));
            }
            (line @ ControlLine::Record(_), Some(_)) => {
                records += 1;
                each(line);
            }
            (line @ (ControlLine::Files(_) | ControlLine::Token(_)), Some(_)) => each(line),
        }
    }
    match head {
        Some(head) if ended => Ok(head),
        _ => Err(bad("the snapshot was cut short".to_owned())),
    }
}
