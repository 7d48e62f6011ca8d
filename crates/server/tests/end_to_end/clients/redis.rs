//! Redis's own tools and a Redis library as clients.

use std::process::Command;

use redis::{Client, Connection, RedisResult, cmd};
use tollgate_testing::{Server, programs};

use crate::new_server;

fn server() -> Server {
    new_server().listen(&["resp"]).start()
}

/// Runs a tool of Redis with these arguments, and returns its output.
#[track_caller]
fn run_tool(name: &str, server: &Server, args: &[&str]) -> String {
    let (host, port) = server.address("resp").split_once(':').unwrap();
    let output = Command::new(programs::system(name)).args(["-h", host, "-p", port]).args(args).output().unwrap();
    assert!(output.status.success(), "{name} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn redis_cli_works() {
    let server = server();
    let cli = |args: &[&str]| run_tool("redis-cli", &server, args);
    assert_eq!(cli(&["PING"]), "PONG\n");
    // A burst of 3 (2 and one more), replenished by 1 every hour.
    assert_eq!(cli(&["CL.THROTTLE", "k", "2", "1", "3600"]), "0\n3\n2\n-1\n3600\n");
    let all = cli(&["CL.THROTTLE", "k", "2", "1", "3600", "2"]);
    assert!(all.starts_with("0\n3\n0\n-1\n"), "{all}");
    let refused = cli(&["CL.THROTTLE", "k", "2", "1", "3600"]);
    assert!(refused.starts_with("1\n3\n0\n"), "{refused}");
    // With version 3 of the protocol.
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
fn a_redis_library_works() {
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

        // A pipeline. An error does not affect other commands.
        let mut pipe = redis::pipe();
        let keys = (0..500).map(|number| format!("many-{number}{protocol}"));
        for key in keys {
            pipe.cmd("CL.THROTTLE").arg(key).arg(4).arg(5).arg(3600);
        }
        let replies: Vec<[i64; 5]> = pipe.query(&mut connection).unwrap();
        assert!(replies.len() == 500 && replies.iter().all(|reply| reply[..3] == [0, 5, 4]), "{replies:?}");
        let error =
            cmd("CL.THROTTLE").arg("k").arg("many").arg(5).arg(60).query::<[i64; 5]>(&mut connection).unwrap_err();
        assert!(error.to_string().contains("not an integer"), "{error}");
        assert_eq!(throttle(&mut connection, "after", 0).unwrap()[0], 0);
    }
}

#[test]
fn redis_benchmark_completes() {
    let server = server();
    let args = ["-n", "5000", "-c", "20", "-P", "16", "-r", "100000", "-q"];
    let output =
        run_tool("redis-benchmark", &server, &[&args[..], &["CL.THROTTLE", "__rand_int__", "9", "10", "60"]].concat());
    assert!(output.contains("requests per second"), "{output}");
}
