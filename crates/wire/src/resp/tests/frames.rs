//! Frames: the result does not depend on how they are split, and no input makes the parser fail or grow.

use proptest::prelude::*;

use super::super::frame::{
    MAX_ARGUMENT_BYTES, MAX_ARGUMENTS, MAX_COMMAND_BYTES, MAX_LINE_BYTES, Parser, ProtocolError, integer,
};
use super::server::sent;

type Commands = Vec<Vec<Vec<u8>>>;

/// The commands in bytes that arrive in these pieces, and the end.
fn read(pieces: &[&[u8]]) -> (Commands, Result<usize, ProtocolError>) {
    let (mut parser, mut inbox, mut commands) = (Parser::default(), Vec::new(), Vec::new());
    for piece in pieces {
        inbox.extend_from_slice(piece);
        loop {
            match parser.next(&inbox) {
                Ok(Some(length)) => {
                    commands.push(parser.arguments(&inbox).iter().map(<[u8]>::to_vec).collect());
                    inbox.drain(..length);
                }
                Ok(None) => break,
                Err(malformed) => return (commands, Err(malformed)),
            }
        }
    }
    (commands, Ok(inbox.len()))
}

fn whole(bytes: &[u8]) -> (Commands, Result<usize, ProtocolError>) {
    read(&[bytes])
}

fn words(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

const ROWS: [&[u8]; 14] = [
    b"*1\r\n$4\r\nPING\r\n",
    b"*6\r\n$11\r\nCL.THROTTLE\r\n$3\r\nkey\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n$1\r\n1\r\n*1\r\n$4\r\nPING\r\n",
    b"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n*2\r\n$4\r\nECHO\r\n$4\r\n\r\n\r\n\r\n",
    b"*0\r\n*-1\r\n*1\r\n$4\r\nPING\r\n",
    b"PING\r\n  PING  x \n\r\n\nECHO \"a b\\x41\\n\\\"\" 'c\\'d' e\"f\"\r\n",
    b"PING\r\n*1\r\n$4\r\nPING\r\nPING\n",
    b"PING \"open\r\n",
    b"PING 'a'b\r\n",
    b"*1\r\n+PING\r\n",
    b"*x\r\n",
    b"*1\r\n$-1\r\n",
    b"*1\r\n$04\r\nPING\r\n",
    b"*1025\r\n",
    b"*1\r\n$65537\r\n",
];

#[test]
fn a_frame_is_the_same_wherever_it_is_split() {
    for row in ROWS {
        let expected = whole(row);
        for at in 0..=row.len() {
            assert_eq!(read(&[&row[..at], &row[at..]]), expected, "{} at {at}", row.escape_ascii());
        }
        let bytes: Vec<&[u8]> = row.chunks(1).collect();
        assert_eq!(read(&bytes), expected, "{} byte by byte", row.escape_ascii());
    }
}

#[test]
fn commands_are_read() {
    assert_eq!(whole(ROWS[0]), (vec![words(&["PING"])], Ok(0)));
    let throttle = words(&["CL.THROTTLE", "key", "15", "30", "60", "1"]);
    assert_eq!(whole(ROWS[1]), (vec![throttle, words(&["PING"])], Ok(0)));
    assert_eq!(whole(ROWS[2]), (vec![words(&["ECHO", ""]), words(&["ECHO", "\r\n\r\n"])], Ok(0)));
    assert_eq!(whole(ROWS[3]), (vec![vec![], vec![], words(&["PING"])], Ok(0)));
    let inline =
        vec![words(&["PING"]), words(&["PING", "x"]), vec![], vec![], words(&["ECHO", "a bA\n\"", "c'd", "ef"])];
    assert_eq!(whole(ROWS[4]), (inline, Ok(0)));
    assert_eq!(whole(b"*1\r\n$4\r\nPIN").1, Ok(11), "what is not whole stays");
}

#[test]
fn invalid_frames_are_errors() {
    let ends = |row: &[u8]| whole(row).1.unwrap_err();
    assert_eq!(ends(ROWS[6]), ProtocolError::UnbalancedQuotes);
    assert_eq!(ends(ROWS[7]), ProtocolError::UnbalancedQuotes);
    assert_eq!(ends(ROWS[8]), ProtocolError::NotBulk(b'+'));
    assert_eq!(ends(ROWS[9]), ProtocolError::ArrayLength);
    assert_eq!(ends(ROWS[10]), ProtocolError::BulkLength);
    assert_eq!(ends(ROWS[11]), ProtocolError::BulkLength);
}

#[test]
fn every_bound_is_one() {
    let ends = |bytes: &[u8]| whole(bytes).1;
    let argument = vec![b'a'; MAX_ARGUMENT_BYTES];
    assert_eq!(ends(&sent(&[&argument])), Ok(0));
    assert_eq!(ends(ROWS[13]), Err(ProtocolError::BulkLength));

    let many = vec![&b"a"[..]; MAX_ARGUMENTS];
    assert_eq!(whole(&sent(&many)).0[0].len(), MAX_ARGUMENTS);
    assert_eq!(ends(ROWS[12]), Err(ProtocolError::ArrayLength));
    assert_eq!(whole(format!("{}\n", "a ".repeat(MAX_ARGUMENTS)).as_bytes()).0[0].len(), MAX_ARGUMENTS);
    assert_eq!(ends(format!("{}\n", "a ".repeat(MAX_ARGUMENTS + 1)).as_bytes()), Err(ProtocolError::LongInline));

    let long = vec![&argument[..]; MAX_COMMAND_BYTES / MAX_ARGUMENT_BYTES];
    assert_eq!(ends(&sent(&long)), Err(ProtocolError::LongCommand));
    assert_eq!(ends(&sent(&long[1..])), Ok(0));

    let line = |start: &str, length| [start.as_bytes(), &vec![b'1'; length]].concat();
    assert_eq!(ends(&line("", MAX_LINE_BYTES)), Ok(MAX_LINE_BYTES), "it may still end");
    assert_eq!(ends(&line("", MAX_LINE_BYTES + 1)), Err(ProtocolError::LongInline));
    assert_eq!(ends(&line("*", MAX_LINE_BYTES + 1)), Err(ProtocolError::LongArrayLength));
    assert_eq!(ends(&line("*1\r\n$", MAX_LINE_BYTES + 1)), Err(ProtocolError::LongBulkLength));
    assert_eq!(ends(&[line("", MAX_LINE_BYTES + 1), b"\n".to_vec()].concat()), Err(ProtocolError::LongInline));
}

#[test]
fn numbers_are_read_as_redis_reads_them() {
    let rows: [(&str, Option<i64>); 18] = [
        ("0", Some(0)),
        ("7", Some(7)),
        ("60", Some(60)),
        ("-1", Some(-1)),
        ("9223372036854775807", Some(i64::MAX)),
        ("-9223372036854775808", Some(i64::MIN)),
        ("9223372036854775808", None),
        ("-9223372036854775809", None),
        ("99999999999999999999", None),
        ("", None),
        ("-", None),
        ("-0", None),
        ("00", None),
        ("01", None),
        ("+1", None),
        (" 1", None),
        ("1 ", None),
        ("1.0", None),
    ];
    for (text, number) in rows {
        assert_eq!(integer(text.as_bytes()), number, "{text:?}");
    }
}

/// Bytes that are often almost a command.
fn almost() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"*1\r\n".to_vec()),
        Just(b"*2\r\n$4\r\nECHO\r\n".to_vec()),
        Just(b"$3\r\nabc\r\n".to_vec()),
        Just(b"$0\r\n\r\n".to_vec()),
        Just(b"PING \"x\"\r\n".to_vec()),
        Just(b"\r\n".to_vec()),
        (-3i64..70_000).prop_map(|n| format!("*{n}\r\n").into_bytes()),
        (-3i64..70_000).prop_map(|n| format!("${n}\r\n").into_bytes()),
        prop::collection::vec(any::<u8>(), 0..8),
        prop::collection::vec(prop_oneof![Just(b'"'), Just(b'\''), Just(b'\\'), Just(b' '), Just(b'x')], 0..6),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_bytes_in_any_pieces_read_the_same(bytes in almost(), cuts in prop::collection::vec(0usize..200, 0..6)) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        prop_assert_eq!(read(&pieces), whole(&bytes));
    }

    #[test]
    fn whatever_is_sent_comes_out(commands in prop::collection::vec(
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..8), 0..5,
    )) {
        let bytes: Vec<u8> = commands.iter().flat_map(|command| {
            sent(&command.iter().map(Vec::as_slice).collect::<Vec<_>>())
        }).collect();
        prop_assert_eq!(whole(&bytes), (commands, Ok(0)));
    }
}
