//! Replies, byte by byte: compared with a real Redis where it has the command, and with expected rows where it does
//! not.

use super::server::{Redis, Server, assert_close, exchange, fives, sent};

/// Commands to which both servers must reply the same.
const SAME: &[&[u8]] = &[
    b"PING\r\n",
    b"ping hello\r\nPiNg \"a b\"\r\nPING 'a\\'b' \r\n",
    b"PING \"\\x41\\x4g\\n\\q\"\r\nPING \"\"\r\n",
    b"\r\n\r\nPING\n",
    b"PING a b\r\n",
    b"ECHO\r\nECHO a b\r\nECHO \xff\xfe\r\n",
    b"FOO\r\nfoo a b\r\n",
    b"*3\r\n$3\r\nFOO\r\n$4\r\na\r\nb\r\n$1\r\nc\r\n",
    b"*1\r\n$5\r\nF\r\nOO\r\n",
    b"*0\r\n*-1\r\nPING\r\n",
    b"*1\r\n$4\r\nPINGxx*1\r\n$4\r\nPING\r\n",
    b"PING\r\n*abc\r\nPING\r\n",
    b"*\r\n",
    b"* 1\r\n",
    b"*+1\r\n",
    b"*2147483648\r\n",
    b"*1\r\n+PING\r\n",
    b"*1\r\n:1\r\n",
    b"*1\r\n$-1\r\n",
    b"*1\r\n$abc\r\n",
    b"*1\r\n$04\r\nPING\r\n",
    b"*1\r\n$600000000\r\n",
    b"PING \"a\r\n",
    b"PING \"a\"b\r\nPING\r\n",
    b"QUIT\r\nPING\r\n",
    b"QUIT now\r\n",
    b"RESET\r\nRESET x\r\n",
    b"SELECT 0\r\nSELECT x\r\nSELECT 99\r\nSELECT\r\n",
    b"AUTH x\r\nAUTH a b\r\nAUTH default b\r\nAUTH\r\nAUTH a b c\r\n",
    b"HELLO 4\r\nHELLO x\r\nHELLO 3 FOO\r\nHELLO 2 SETNAME\r\nHELLO 2 AUTH x\r\nHELLO 2 AUTH x y\r\n",
    b"HELLO 2 SETNAME \"a b\"\r\n",
    b"CLIENT\r\nCLIENT FOO\r\nCLIENT SETNAME\r\nCLIENT SETNAME \"a b\"\r\nCLIENT ID x\r\n",
    b"CLIENT SETNAME me\r\nCLIENT GETNAME\r\nCLIENT SETNAME \"\"\r\nCLIENT GETNAME\r\n",
    b"CLIENT NO-EVICT on\r\nCLIENT NO-EVICT maybe\r\nCLIENT NO-EVICT\r\n",
    b"COMMAND FOO\r\nCOMMAND COUNT x\r\nCOMMAND DOCS nosuch\r\nCOMMAND INFO nosuch nosuch\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\nPING\r\n",
];

#[test]
fn what_redis_knows_is_answered_in_its_own_words() {
    let (ours, redis) = (Server::start(), Redis::start());
    for bytes in SAME {
        let (reply, expected) = (exchange(ours.address, bytes), exchange(redis.address, bytes));
        assert_eq!(
            reply.escape_ascii().to_string(),
            expected.escape_ascii().to_string(),
            "to {}",
            bytes.escape_ascii()
        );
    }
    let long = |start: &str, length: usize| [start.as_bytes(), &vec![b'1'; length]].concat();
    let unknown = sent(&[&[b'f'; 200], &[b'a'; 100], &[b'b'; 100], b"c"]);
    for bytes in [unknown, long("", 70_000), long("*", 70_000), long("*1\r\n$", 70_000)] {
        let (reply, expected) = (exchange(ours.address, &bytes), exchange(redis.address, &bytes));
        assert_eq!(reply.escape_ascii().to_string(), expected.escape_ascii().to_string(), "{} bytes", bytes.len());
    }
}

fn check(rows: &[(&str, &str)]) {
    let server = Server::start();
    for (line, expected) in rows {
        let reply = exchange(server.address, format!("{line}\r\n").as_bytes());
        assert_eq!(String::from_utf8(reply).unwrap(), *expected, "to {line}");
    }
}

#[test]
fn throttles_answer_five_integers() {
    let server = Server::start();
    // A unit is replenished every day.
    let rows: [(&str, [i64; 5]); 12] = [
        ("CL.THROTTLE a 15 30 2592000", [0, 16, 15, -1, 86_400]),
        ("cl.throttle a 15 30 2592000 5", [0, 16, 10, -1, 6 * 86_400]),
        ("CL.THROTTLE a 15 30 2592000 0", [0, 16, 10, -1, 6 * 86_400]),
        ("CL.THROTTLE a 15 30 2592000 16", [1, 16, 10, 6 * 86_400, 6 * 86_400]),
        ("CL.THROTTLE a 15 30 2592000 17", [1, 16, 10, -1, 6 * 86_400]),
        ("CL.THROTTLE b 0 1 86400", [0, 1, 0, -1, 86_400]),
        ("CL.THROTTLE b 0 1 86400 0", [0, 1, 0, -1, 86_400]),
        ("THROTTLE c 10 100 60", [1, 10, 9, 1, 0]),
        ("THROTTLE d 1 1 86400", [1, 1, 0, 86_400, 0]),
        ("THROTTLE d 1 1 86400", [0, 1, 0, 86_400, 86_400]),
        ("THROTTLE d 1 1 86400 2", [0, 1, 0, 86_400, -1]),
        ("CL.THROTTLE d 0 1 86400", [1, 1, 0, 86_400, 86_400]),
    ];
    for (line, expected) in rows {
        assert_close(&fives(&exchange(server.address, format!("{line}\r\n").as_bytes()))[0], &expected);
    }
}

#[test]
fn bad_throttles_are_errors() {
    let integer = "-ERR value is not an integer or out of range\r\n";
    let positive = "-ERR value is out of range, must be positive\r\n";
    let large = |most: &str| {
        format!("-ERR value is out of range, max_burst and count may be at most {most} in a period of this length\r\n")
    };
    check(&[
        ("CL.THROTTLE", "-ERR wrong number of arguments for 'cl.throttle' command\r\n"),
        ("CL.THROTTLE a 1 1", "-ERR wrong number of arguments for 'cl.throttle' command\r\n"),
        ("THROTTLE a 1 1 1 1 1", "-ERR wrong number of arguments for 'throttle' command\r\n"),
        ("CL.THROTTLE a x 1 1", integer),
        ("CL.THROTTLE a 1 1.5 1", integer),
        ("CL.THROTTLE a 1 1 9223372036854775808", integer),
        ("CL.THROTTLE a 1 1 1 \"\"", integer),
        ("CL.THROTTLE a -1 1 1", positive),
        ("CL.THROTTLE a 1 0 1", positive),
        ("CL.THROTTLE a 1 1 0", positive),
        ("CL.THROTTLE a 1 1 1 -1", positive),
        ("THROTTLE a 0 1 1", positive),
        ("CL.THROTTLE a 9223372036854775807 1 60", &large("150119986")),
        ("CL.THROTTLE a 150119987 1 60", &large("150119986")),
        ("CL.THROTTLE a 150119986 1 60", "*5\r\n:0\r\n:150119987\r\n:150119986\r\n:-1\r\n:60\r\n"),
        ("THROTTLE a 1 150119988 60", &large("150119987")),
        ("CL.THROTTLE a 0 1 3153600000", "*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:3153600000\r\n"),
        ("CL.THROTTLE a 0 1 3153600001", "-ERR value is out of range, period may be at most 3153600000\r\n"),
        ("CL.THROTTLE a 0 1 9223372036854775807", "-ERR value is out of range, period may be at most 3153600000\r\n"),
        ("CL.THROTTLE a 0 1 1 9223372036854775807", "*5\r\n:1\r\n:1\r\n:1\r\n:-1\r\n:0\r\n"),
    ]);
}

#[test]
fn other_answers() {
    let name = "n".repeat(257);
    check(&[
        ("HELLO", &hello("*14", 2, 1)),
        ("HELLO 3", &hello("%7", 3, 2)),
        ("HELLO 3 AUTH default x SETNAME me\nCLIENT GETNAME", &format!("{}$2\r\nme\r\n", hello("%7", 3, 3))),
        (
            "CLIENT SETNAME me\nHELLO 3\nRESET\nCLIENT GETNAME\nCLIENT ID",
            &format!("+OK\r\n{}+RESET\r\n$-1\r\n:4\r\n", hello("%7", 3, 4)),
        ),
        ("HELLO 3\nCLIENT GETNAME", &format!("{}_\r\n", hello("%7", 3, 5))),
        ("CLIENT SETINFO LIB-NAME x\nCLIENT SETINFO lib-ver 1", "+OK\r\n+OK\r\n"),
        ("CLIENT SETINFO other 1", "-ERR Unrecognized option 'other'\r\n"),
        ("CLIENT SETNAME x\nCLIENT INFO", "+OK\r\n$24\r\nid=8 name=x db=0 resp=2\n\r\n"),
        (&format!("CLIENT SETNAME {name}"), "-ERR Client names cannot be longer than 256 bytes.\r\n"),
        ("INFO clients", "$32\r\n# Clients\r\nconnected_clients:1\r\n\r\n"),
        ("PING\nHost: localhost\nPING", "+PONG\r\n"),
        ("INFO nosuch", "$0\r\n\r\n"),
        ("COMMAND COUNT", ":12\r\n"),
        (
            "COMMAND INFO ping",
            "*1\r\n*10\r\n$4\r\nping\r\n:-1\r\n*1\r\n+fast\r\n:0\r\n:0\r\n:0\r\n*0\r\n*0\r\n*0\r\n*0\r\n",
        ),
    ]);
}

/// The reply to HELLO on a connection with this number.
fn hello(begins: &str, version: u8, id: u64) -> String {
    let ours = env!("CARGO_PKG_VERSION");
    format!(
        "{begins}\r\n$6\r\nserver\r\n$8\r\ntollgate\r\n$7\r\nversion\r\n${}\r\n{ours}\r\n$5\r\nproto\r\n:{version}\r\n\
         $2\r\nid\r\n:{id}\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n",
        ours.len()
    )
}
