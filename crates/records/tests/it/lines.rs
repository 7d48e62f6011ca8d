//! Snapshots: written and read again, truncated anywhere, and those of older versions.

use tollgate_core::Timestamp;
use tollgate_records::lines::{self, ControlLine, Heartbeat, SnapshotEnd, SnapshotHead};
use tollgate_records::{Controls, RecordKind};

use super::record;

/// The copy of a server before records were a crate of their own: a snapshot with files and a token, the lines of later writes, and
/// one more line that was not written to its end.
const OLD: &str = include_str!("snapshot-format-1.jsonl");

#[test]
fn an_old_snapshot_is_read_as_before() {
    let (mut controls, mut records, mut tokens, mut files) = (Controls::default(), Vec::new(), Vec::new(), Vec::new());
    let head = lines::read_snapshot(OLD.as_bytes(), |line| match line {
        ControlLine::Record(record) => {
            controls.apply(&record).unwrap();
            records.push((record.generation, record.kind.name(), record.domain.into_owned(), record.name.into_owned()));
        }
        ControlLine::Token(token) => tokens.push((token.token.into_owned(), token.document.map(String::from))),
        ControlLine::Files(line) => files = line.files,
        line => panic!("{line:?}"),
    });
    let head = head.unwrap();
    assert_eq!((head.format, &*head.identity, head.as_of), (1, "a7885e1767df9d06c5da5b06f5f71f43", 12));
    let shown: Vec<_> = records.iter().map(|(at, kind, domain, name)| (*at, *kind, &**domain, &**name)).collect();
    let expected = [
        (1, "quota", "shop", "ada"),
        (2, "quota", "shop", "acme-*"),
        (3, "quota", "shop", "Jürgen \"Q\"/x"),
        (4, "emergency", "", "flood"),
        (6, "block", "", "10.0.0.0/8"),
        (7, "switch", "", ""),
        (8, "switch", "shop", ""),
        (9, "rule", "shop", "burst"),
        (11, "quota", "shop", "bob"),
        (12, "quota", "shop", "ada"),
    ];
    assert_eq!(shown, expected);
    assert_eq!(lines::read_position(OLD.as_bytes()).unwrap(), head);
    let first = OLD.lines().next().unwrap();
    for truncated in ["", "{}", first, &format!("{first}\n")] {
        assert!(lines::read_position(truncated.as_bytes()).is_err(), "{truncated}");
    }
    let document = r#"{"scopes":["read"],"hash":"6f"}"#.to_owned();
    assert_eq!(tokens, [("ops".to_owned(), Some(document)), ("ops".to_owned(), None)]);
    assert_eq!(files.iter().map(|file| &*file.name).collect::<Vec<_>>(), ["rules.yaml"]);
    // Two callers have an entry: ada was deleted, acme-* is a glob.
    assert_eq!((controls.generation(), controls.tenants().len()), (12, 2));
    let layer = controls.layer(Timestamp::from_secs(0));
    assert_eq!((layer.rules.len(), layer.switches.len()), (1, 2));
    assert_eq!(layer.rules[0].rule, r#"{"key": ["api_key"], "limit": "7/hour"}"#);
}

#[test]
fn lines_are_written_as_older_versions_wrote_them() {
    let (whole, _) = OLD.rsplit_once('\n').unwrap();
    for text in whole.lines() {
        let mut written = Vec::new();
        match lines::parse(text.as_bytes()).unwrap() {
            ControlLine::Record(record) => lines::write(&mut written, &record),
            ControlLine::Head(head) => lines::write(&mut written, &head),
            ControlLine::Files(files) => lines::write(&mut written, &files),
            ControlLine::End(end) => lines::write(&mut written, &end),
            ControlLine::Token(token) => lines::write(&mut written, &token),
            ControlLine::Heartbeat(heartbeat) => lines::write(&mut written, &heartbeat),
        }
        .unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), format!("{text}\n"));
    }
}

#[test]
fn snapshots_there_and_back_and_cut_anywhere() {
    let records = [
        record(3, RecordKind::Quota, "api", "a", Some(r#"{"tier":"pro"}"#)),
        record(5, RecordKind::Switch, "", "", Some(r#"{"mode":"off"}"#)),
        record(6, RecordKind::Quota, "api", "a", None),
    ];
    let mut text = Vec::new();
    let head = SnapshotHead { format: lines::FORMAT_VERSION, identity: "a".to_owned(), as_of: 5 };
    lines::write(&mut text, &head).unwrap();
    for record in &records[..2] {
        lines::write(&mut text, record).unwrap();
    }
    lines::write(&mut text, &SnapshotEnd { records: 2 }).unwrap();
    let whole = text.len();
    lines::write(&mut text, &records[2]).unwrap();
    let added = text.len();
    lines::write(&mut text, &Heartbeat { generation: 7 }).unwrap();

    let read = |bytes: &[u8]| {
        let mut lines = Vec::new();
        let head = lines::read_snapshot(bytes, |line| match line {
            ControlLine::Record(record) => lines.push((record.generation, record.document.is_some())),
            other => panic!("{other:?}"),
        });
        head.map(|head| (head.as_of, lines)).map_err(|error| error.to_string())
    };
    assert_eq!(read(&text), Ok((7, vec![(3, true), (5, true), (6, false)])));
    for cut in 0..text.len() {
        match read(&text[..cut]) {
            Ok((as_of, lines)) => {
                assert!(cut >= whole);
                let expected = if cut < added { 2 } else { 3 };
                assert_eq!((as_of, lines.len()), (5, expected), "what was added is read if it is whole");
            }
            Err(error) => assert!(cut < whole, "{error}"),
        }
    }
    // A line of which half was on the disk when the power failed.
    let torn = [&text[..added], &[0; 20], b"\n", &text[added..]].concat();
    assert_eq!(read(&torn), Ok((5, vec![(3, true), (5, true), (6, false)])));
    let newer = b"{\"format\":2,\"of\":\"a\",\"as_of\":1}\n";
    assert_eq!(read(newer).unwrap_err(), "snapshot format 2 is not 1");
}
