//! Records as lines of JSON: a head, records, an end. Where a record comes twice, the later one counts.

use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};

use super::Record;

/// One line.
#[derive(Clone, Debug)]
pub enum Line {
    /// One record.
    Record(Record),
    /// The first line of a snapshot.
    Head(Head),
    /// The rule files that are in force under the records, all of them.
    Files(FilesLine),
    /// The last line of a snapshot.
    End(End),
    /// Who may ask, in a server's own copy: no follower is told.
    Token(TokenLine),
    /// Nothing happened: the watch is alive. As of this generation.
    Alive(Alive),
}

/// The first line of a snapshot.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// The version of what follows.
    pub format: u32,
    /// Of which store of record: the generations of two of them can't be compared.
    pub of: String,
    /// As of which write.
    pub as_of: u64,
}

/// Rule files.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FilesLine {
    /// Names and texts.
    pub files: Vec<FileText>,
    /// Whether files of the same domain are one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub merge_domains: bool,
}

/// A rule file.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FileText {
    /// What it is called in problems.
    pub name: String,
    /// What it says.
    pub text: String,
}

/// The last line of a snapshot: without it, it was cut short.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// How many records there were.
    pub records: u64,
}

/// Who may ask.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TokenLine {
    /// The token's name.
    pub token: String,
    /// What its record says; `None`: it is not there any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<String>,
}

/// A sign of life. In a watch it also ends what one write, or several, changed: who was cut off goes on after the last of them.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Alive {
    /// The generation that is in force.
    pub alive: u64,
}

/// Lines that are no records.
#[derive(Deserialize)]
#[serde(untagged)]
enum Other {
    Head(Head),
    Files(FilesLine),
    End(End),
    Token(TokenLine),
    Alive(Alive),
}

/// The version of the lines that this program writes and reads.
pub const FORMAT: u32 = 1;

/// The longest line.
pub const LONGEST: usize = 32 << 20;

/// The name of the snapshot in a directory of snapshots.
pub const SNAPSHOT_FILE: &str = "control-snapshot.jsonl";

/// Writes a line.
///
/// # Errors
/// If it can't be written.
pub fn write(out: &mut impl Write, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

/// Reads a line.
///
/// # Errors
/// If it is none.
pub fn parse(line: &[u8]) -> Result<Line, String> {
    // Nearly all are records.
    match serde_json::from_slice(line) {
        Ok(record) => Ok(Line::Record(record)),
        Err(error) => match serde_json::from_slice(line) {
            Ok(Other::Head(head)) => Ok(Line::Head(head)),
            Ok(Other::Files(files)) => Ok(Line::Files(files)),
            Ok(Other::End(end)) => Ok(Line::End(end)),
            Ok(Other::Token(token)) => Ok(Line::Token(token)),
            Ok(Other::Alive(alive)) => Ok(Line::Alive(alive)),
            Err(_) => Err(format!("not a line of a snapshot: {error}")),
        },
    }
}

/// Reads a snapshot to its end, record by record, and says what it is a snapshot of. A file to which records were added since has
/// them after its end: they are read too, as far as they are whole. Of the last write some may be missing, so it is as of the last
/// [`Alive`] that it is.
///
/// # Errors
/// If it is none, or was cut short.
pub fn read(mut input: impl BufRead, mut each: impl FnMut(Line)) -> io::Result<Head> {
    let bad = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let (mut head, mut ended, mut line): (Option<Head>, _, _) = (None, false, Vec::new());
    let mut records = 0;
    loop {
        line.clear();
        let length = io::Read::take(&mut input, LONGEST as u64).read_until(b'\n', &mut line)?;
        let is_whole = line.last() == Some(&b'\n');
        if length == 0 || !is_whole && ended {
            break;
        }
        if !is_whole {
            return Err(bad("the snapshot was cut short".to_owned()));
        }
        let parsed = match parse(&line) {
            Ok(parsed) => parsed,
            // Whoever added it was cut off, or the machine was.
            Err(_) if ended => break,
            Err(what) => return Err(bad(what)),
        };
        match (parsed, &mut head) {
            (Line::Head(first), None) if first.format == FORMAT => head = Some(first),
            (Line::Head(first), None) => return Err(bad(format!("snapshot format {} is not {FORMAT}", first.format))),
            (_, None) => return Err(bad("a snapshot begins with its head".to_owned())),
            (Line::Head(_), Some(_)) => {}
            (Line::Alive(alive), Some(head)) => head.as_of = head.as_of.max(alive.alive),
            (Line::End(end), Some(_)) if ended || end.records == records => ended = true,
            (Line::End(end), Some(_)) => {
                return Err(bad(format!("the snapshot has {records} records of {}", end.records)));
            }
            (Line::Record(record), Some(_)) => {
                records += 1;
                each(Line::Record(record));
            }
            (line @ (Line::Files(_) | Line::Token(_)), Some(_)) => each(line),
        }
    }
    match head {
        Some(head) if ended => Ok(head),
        _ => Err(bad("the snapshot was cut short".to_owned())),
    }
}
