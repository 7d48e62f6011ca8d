//! Redis's own client and a library, as they are.

use std::process::Command;

use redis::{Client, Connection, RedisResult, cmd};
use tollgate_testing::{Server, programs};

use crate::new_server;

fn server() -> Server {
    new_server().listen(&["resp"]).start()
}

/// What a tool of Redis's says to these words.
#[track_caller]
fn tool(name: &str, server: &Server, words: &[&str]) -> String {
    let (host, port) = server.address("resp").split_once(':').unwrap();
    let ran = Command::new(programs::system(name)).args(["-h", host, "-p", port]).args(words).output().unwrap();
    assert!(ran.status.success(), "{name} {words:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn redis_cli() {
    let server = server();
    let cli = |words: &[&str]| tool("redis-cli", &server, words);
    assert_eq!(cli(&["PING"]), "PONG\n");
    // Of 3 at once (2 and one more), with 1 back every hour.
    assert_eq!(cli(&["CL.THROTTLE", "k", "2", "1", "3600"]), "0\n3\n2\n-1\n3600\n");
    let all = cli(&["CL.THROTTLE", "k", "2", "1", "3600", "2"]);
    assert!(all.starts_with("0\n3\n0\n-1\n"), "{all}");
    let refused = cli(&["CL.THROTTLE", "k", "2", "1", "3600"]);
    assert!(refused.starts_with("1\n3\n0\n"), "{refused}");
    // In the other version of the protocol.
    assert_eq!(cli(&["-3", "CL.THROTTLE", "other", "2", "1", "3600"]), "0\n3\n2\n-1\n3600\n");
    assert_eq!(cli(&["THROTTLE", "third", "3", "1", "3600"]), "1\n3\n2\n3600\n0\n");
    assert!(cli(&["GET", "k"]).starts_with("ERR unknown command"));
    assert!(cli(&["CL.THROTTLE", "k"]).starts_with("ERR wrong number of arguments"));
    assert!(cli(&["INFO"]).contains("# Server"));
}

fn throttle(connection: &mut Connection, key: &str, quantity: u64) -> RedisResult<[i64; 5]> {
    cmd("CL.THROTTLE").arg(key).arg(4).arg(5).arg(3600).arg(quantity).query(connection)
}

#[test]
fn a_library() {
    let server = server();
    for protocol in ["", "?protocol=resp3"] {
        let client = Client::open(format!("redis://{}/{protocol}", server.address("resp"))).unwrap();
        let mut connection = client.get_connection().unwrap();
        let key = format!("key{protocol}");
        assert_eq!(throttle(&mut connection, &key, 1).unwrap()[..3], [0, 5, 4]);
        assert_eq!(throttle(&mut connection, &key, 4).unwrap()[..3], [0, 5, 0]);
        let [limited, _, left, retry_after, _] = throttle(&mut connection, &key, 1).unwrap();
        assert_eq!((limited, left), (1, 0));
        assert!((1..=720).contains(&retry_after), "{retry_after}");

        // Many at once, and an error among them that leaves the others as they are.
        let mut pipe = redis::pipe();
        let keys = (0..500).map(|number| format!("many-{number}{protocol}"));
        for key in keys {
            pipe.cmd("CL.THROTTLE").arg(key).arg(4).arg(5).arg(3600);
        }
        let answers: Vec<[i64; 5]> = pipe.query(&mut connection).unwrap();
        assert!(answers.len() == 500 && answers.iter().all(|answer| answer[..3] == [0, 5, 4]), "{answers:?}");
        let error =
            cmd("CL.THROTTLE").arg("k").arg("many").arg(5).arg(60).query::<[i64; 5]>(&mut connection).unwrap_err();
        assert!(error.to_string().contains("not an integer"), "{error}");
        assert_eq!(throttle(&mut connection, "after", 0).unwrap()[0], 0);
    }
}

#[test]
fn redis_benchmark_ends_and_nothing_is_refused() {
    let server = server();
    let words = ["-n", "5000", "-c", "20", "-P", "16", "-r", "100000", "-q"];
    let said =
        tool("redis-benchmark", &server, &[&words[..], &["CL.THROTTLE", "__rand_int__", "9", "10", "60"]].concat());
    assert!(said.contains("requests per second"), "{said}");
}
