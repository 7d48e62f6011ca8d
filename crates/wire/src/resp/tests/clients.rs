//! Real clients: redis-cli, and a library in both versions of the protocol.

use std::process::{Command, Stdio};

use redis::{Client, ProtocolVersion, RedisError, Value};

use super::server::{Server, assert_close};

/// The output of redis-cli.
fn cli(server: &Server, options: &[&str], words: &[&str]) -> String {
    let port = server.address.port().to_string();
    let output = Command::new("redis-cli")
        .args(["-h", "127.0.0.1", "-p", &port, "--no-raw"])
        .args(options)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .expect("redis-cli is there: `make setup-tests` installs it");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn redis_cli_speaks_with_it() {
    let server = Server::start();
    for options in [&[][..], &["-3"]] {
        let key = format!("k{}", options.len());
        let throttle = cli(&server, options, &["CL.THROTTLE", &key, "1", "1", "86400"]);
        assert_eq!(throttle, "1) (integer) 0\n2) (integer) 2\n3) (integer) 1\n4) (integer) -1\n5) (integer) 86400\n");
        assert_eq!(cli(&server, options, &["PING"]), "PONG\n");
        assert_eq!(
            cli(&server, options, &["CL.THROTTLE", &key]).trim_end(),
            "(error) ERR wrong number of arguments for 'cl.throttle' command"
        );
        assert_eq!(
            cli(&server, options, &["NOSUCH", "x"]).trim_end(),
            "(error) ERR unknown command 'NOSUCH', with args beginning with: 'x'"
        );
        assert!(cli(&server, options, &["INFO", "server"]).contains("tollgate_version:"));
    }
    assert!(cli(&server, &["-3"], &["HELLO"]).contains("3# \"proto\" => (integer) 3"));
}

#[test]
fn redis_cli_reads_commands_from_its_input_and_knows_ours() {
    let server = Server::start();
    let port = server.address.port().to_string();
    // Without arguments it sends COMMAND DOCS first.
    let script = "printf 'THROTTLE a 2 1 60\\nhelp cl.throttle\\nquit\\n' | redis-cli -p \"$0\"";
    let output = Command::new("sh").args(["-c", script, &port]).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.starts_with("1\n2\n1\n60\n0\n"), "{printed}");
    let docs = cli(&server, &[], &["COMMAND", "DOCS", "cl.throttle"]);
    assert!(docs.contains("max_burst"), "{docs}");
}

fn client(server: &Server, protocol: ProtocolVersion) -> Client {
    let version = if protocol == ProtocolVersion::RESP3 { "?protocol=resp3" } else { "" };
    Client::open(format!("redis://default:any@{}/0{version}", server.address)).unwrap()
}

#[test]
fn a_library_speaks_with_it() {
    let server = Server::start();
    for protocol in [ProtocolVersion::RESP2, ProtocolVersion::RESP3] {
        let mut connection = client(&server, protocol).get_connection().unwrap();
        let key = format!("{protocol:?}");
        let mut throttle = |quantity: i64| -> Vec<i64> {
            redis::cmd("CL.THROTTLE").arg(&key).arg(4).arg(5).arg(86_400).arg(quantity).query(&mut connection).unwrap()
        };
        assert_close(&throttle(1), &[0, 5, 4, -1, 17_280]);
        assert_close(&throttle(4), &[0, 5, 0, -1, 86_400]);
        assert_close(&throttle(1), &[1, 5, 0, 17_280, 86_400]);
        let binary: Vec<i64> =
            redis::cmd("THROTTLE").arg(&b"\xff\0"[..]).arg(2).arg(1).arg(60).arg(0).query(&mut connection).unwrap();
        assert_eq!(binary, [1, 2, 2, 0, 0]);
        let hello: Value = redis::cmd("HELLO").query(&mut connection).unwrap();
        assert_eq!(matches!(hello, Value::Map(_)), protocol == ProtocolVersion::RESP3, "{hello:?}");
        let unknown: Result<Value, RedisError> = redis::cmd("NOSUCH").query(&mut connection);
        assert!(unknown.unwrap_err().to_string().contains("unknown command"));
        let name: Option<String> = redis::cmd("CLIENT").arg("GETNAME").query(&mut connection).unwrap();
        assert_eq!(name, None);
    }
}

#[test]
fn a_library_pipelines() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for protocol in [ProtocolVersion::RESP2, ProtocolVersion::RESP3] {
        runtime.block_on(async {
            let mut connection = client(&server, protocol).get_multiplexed_async_connection().await.unwrap();
            let mut pipeline = redis::pipe();
            for at in 0..1_000 {
                pipeline.cmd("CL.THROTTLE").arg(format!("{protocol:?}{}", at % 10)).arg(99).arg(1).arg(86_400);
            }
            let answers: Vec<Vec<i64>> = pipeline.query_async(&mut connection).await.unwrap();
            let left: Vec<i64> = answers.iter().map(|answer| answer[2]).collect();
            let expected: Vec<i64> = (0..1_000).map(|at| 99 - at / 10).collect();
            assert_eq!(left, expected);
        });
    }
}
