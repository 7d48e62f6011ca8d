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
    /// As of which write.
    pub as_of: u64,
}

/// Rule files.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FilesLine {
    /// Names and texts.
    pub files: Vec<FileText>,
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

/// A sign of life.
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

/// Reads a snapshot to its end, record by record; says as of which generation it is. A file to which records were added since has
/// them after its end: they are read too, as far as they are whole.
///
/// # Errors
/// If it is none, or was cut short.
pub fn read(mut input: impl BufRead, mut each: impl FnMut(Line)) -> io::Result<u64> {
    let bad = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let (mut as_of, mut ended, mut line) = (None, false, Vec::new());
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
        match (parse(&line).map_err(bad)?, as_of) {
            (Line::Head(head), None) if head.format == FORMAT => as_of = Some(head.as_of),
            (Line::Head(head), None) => return Err(bad(format!("snapshot format {} is not {FORMAT}", head.format))),
            (_, None) => return Err(bad("a snapshot begins with its head".to_owned())),
            (Line::Head(_) | Line::Alive(_), Some(_)) => {}
            (Line::End(end), Some(_)) if ended || end.records == records => ended = true,
            (Line::End(end), Some(_)) => {
                return Err(bad(format!("the snapshot has {records} records of {}", end.records)));
            }
            (Line::Record(record), Some(before)) => {
                records += 1;
                as_of = Some(before.max(record.generation));
                each(Line::Record(record));
            }
            (line @ (Line::Files(_) | Line::Token(_)), Some(_)) => each(line),
        }
    }
    match as_of {
        Some(as_of) if ended => Ok(as_of),
        _ => Err(bad("the snapshot was cut short".to_owned())),
    }
}
