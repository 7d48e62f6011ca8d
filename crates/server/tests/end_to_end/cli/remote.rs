//! Commands that call a running server: addresses, tokens and errors.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use serde_json::Value;

use crate::cli::server::CliServer;
use crate::cli::{directory, tollgate_with};

const SECRET: &str = "tg_not-to-be-seen";

/// Runs a command without a server.
fn run_without_server(args: &[&str], variables: &[(&str, &str)]) -> crate::cli::CommandOutput {
    tollgate_with(args, b"", variables)
}

#[test]
fn every_command_has_a_help_text_with_an_example() {
    let commands: [&[&str]; 40] = [
        &["quota", "get"],
        &["quota", "set"],
        &["quota", "delete"],
        &["quota", "list"],
        &["quota", "import"],
        &["quota", "export"],
        &["tier", "set"],
        &["tier", "get"],
        &["tier", "list"],
        &["usage"],
        &["counters", "show"],
        &["counters", "reset"],
        &["counters", "credit"],
        &["counters", "debit"],
        &["rule", "list"],
        &["rule", "get"],
        &["rule", "set"],
        &["rule", "delete"],
        &["rule", "versions"],
        &["rule", "diff"],
        &["rule", "rollback"],
        &["rule", "state"],
        &["switch", "list"],
        &["switch", "set"],
        &["switch", "clear"],
        &["block", "add"],
        &["block", "list"],
        &["block", "show"],
        &["block", "remove"],
        &["emergency", "list"],
        &["emergency", "set"],
        &["emergency", "renew"],
        &["emergency", "end"],
        &["audit"],
        &["token", "create"],
        &["token", "list"],
        &["token", "rotate"],
        &["token", "revoke"],
        &["top"],
        &["--help"],
    ];
    for command in commands {
        let output = run_without_server(&[command, &["--help"]].concat(), &[("TOLLGATE_TOKEN", SECRET)]);
        assert_eq!((output.code, &*output.err), (0, ""), "{command:?}");
        let name = command.join(" ");
        let example = format!("  tollgate {name} ");
        let has_example =
            name == "--help" || output.out.contains(&example) || output.out.contains(&format!("tollgate {name}\n"));
        assert!(has_example, "{command:?}: {}", output.out);
        assert!(!output.out.contains(SECRET), "{command:?}");
    }
}

#[test]
fn invalid_arguments_are_errors_without_a_request() {
    let rows: [(&[&str], &str); 25] = [
        (&["quota"], "Usage: tollgate quota"),
        (&["quota", "gett", "x"], "'get'"),
        (&["quota", "get"], "<CALLER>"),
        (&["quota", "get", ""], "a value is required"),
        (&["quota", "set", "x"], "write --tier, --override or --override-rule"),
        (&["quota", "set", "x", "--override", "default"], "has no limit; write for instance"),
        (&["quota", "set", "x", "--tier", "pro", "--for", "soon"], "--for: `soon` is not a length of time"),
        (&["quota", "set", "x", "--tier", "pro", "--for", "1h", "--effective-at", "soon"], "--effective-at: "),
        (&["quota", "set", "x", "--tier", "pro", "--for", "1h", "--expires-at", "y"], "cannot be used with"),
        (&["quota", "import", "no-such-file"], "no-such-file can't be read"),
        (&["quota", "get", "x", "--server", "ftp://x"], "--server: ftp://x is not an address; write http://HOST:PORT"),
        (&["quota", "get", "x", "--server", "http://x/y"], "is not an address"),
        (&["quota", "get", "x", "--server", "https://localhost"], "https needs --ca FILE"),
        (&["quota", "get", "x", "--token", "a", "--token-file", "b"], "either --token or --token-file"),
        (&["quota", "get", "x", "--token-file", "no-such-file"], "no-such-file can't be read"),
        (&["counters", "credit", "x"], "--units"),
        (&["counters", "reset", "x", "--attribute", "y"], "--attribute: y is not NAME=VALUE"),
        (&["switch", "set", "shop", "loud"], "[possible values: off, shadow, soft, enforce]"),
        (&["switch", "set", "shop/", "off"], "write everything, DOMAIN or DOMAIN/RULE"),
        (&["block", "add", "x"], "--reason"),
        (&["emergency", "set", "x", "--reason", "y"], "--limit"),
        (&["token", "create", "x", "--scope", "all"], "[possible values: read, quota"),
        (&["rule", "set", "x", "no-such-file"], "no-such-file can't be read"),
        (&["top"], "this is not a terminal; use `tollgate top --once`"),
        (&["top", "--window", "1d"], "[possible values: 1m, 5m, 1h]"),
    ];
    for (args, expected) in rows {
        let output = run_without_server(args, &[("TOLLGATE_SERVER", "http://127.0.0.1:1")]);
        assert_eq!((output.code, &*output.out), (2, ""), "{args:?}: {}", output.err);
        assert!(output.err.contains(expected), "{args:?}: {}", output.err);
    }
}

#[test]
fn tokens_are_never_shown() {
    let home = directory("remote-tokens");
    let (file, spaced) = (home.join("token"), home.join("spaced"));
    std::fs::write(&file, format!("{SECRET}\n")).unwrap();
    std::fs::write(&spaced, format!("{SECRET} {SECRET}\n")).unwrap();
    let (file, spaced) = (file.to_str().unwrap(), spaced.to_str().unwrap());
    let url = ("TOLLGATE_SERVER", "http://127.0.0.1:1");
    type Row<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a str);
    let rows: [Row<'_>; 6] = [
        (&["usage", "x", "--token", SECRET], &[url], "can't be reached"),
        (&["usage", "x", "--token-file", file], &[url], "can't be reached"),
        (&["usage", "x"], &[url, ("TOLLGATE_TOKEN", SECRET)], "can't be reached"),
        (&["usage", "x", "--token-file", spaced], &[url], "the token is empty or contains invalid characters"),
        (&["usage", "x", "--token", SECRET, "--token", SECRET], &[url], "cannot be used multiple times"),
        (&["usage", "x", "--server", &format!("http://me:{SECRET}@localhost")], &[], "the URL is not an address"),
    ];
    for (args, variables, expected) in rows {
        let output = run_without_server(args, variables);
        assert_eq!((output.code, &*output.out), (2, ""), "{args:?}");
        assert!(output.err.contains(expected) && !output.err.contains(SECRET), "{args:?}: {}", output.err);
    }
}

#[test]
fn an_unavailable_server_is_reported_with_a_remedy() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = run_without_server(&["usage", "x", "--server", &format!("http://{closed}")], &[]);
    assert_eq!((output.code, &*output.out), (2, ""));
    assert!(output.err.starts_with(&format!("error: http://{closed} can't be reached: ")), "{}", output.err);
    assert!(output.err.contains("set its address with --server URL or TOLLGATE_SERVER"), "{}", output.err);
    let output = run_without_server(&["usage", "x"], &[("TOLLGATE_SERVER", "unix:/no/such/socket")]);
    assert!(
        output.code == 2 && output.err.starts_with("error: unix:/no/such/socket can't be reached: "),
        "{}",
        output.err
    );
}

/// Starts a server that sends this response to one request. Returns its URL, and a thread that returns the request.
fn respond_once(response: &'static str) -> (String, std::thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let request = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut text, mut piece) = (Vec::new(), [0; 1024]);
        while !text.windows(4).any(|end| end == b"\r\n\r\n") {
            let length = stream.read(&mut piece).unwrap();
            text.extend_from_slice(&piece[..length]);
        }
        stream.write_all(response.as_bytes()).unwrap();
        String::from_utf8(text).unwrap()
    });
    (url, request)
}

#[test]
fn a_request_has_the_token_and_the_escaped_name_of_the_caller() {
    let (url, request) = respond_once("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
    let variables = [("TOLLGATE_SERVER", &*url), ("TOLLGATE_TOKEN", SECRET)];
    let output = run_without_server(&["usage", "größe 1/2?", "--domain", "a b", "--json"], &variables);
    assert_eq!((output.code, &*output.out, &*output.err), (0, "{}\n", ""));
    let request = request.join().unwrap();
    assert!(
        request.starts_with("GET /admin/v1/usage/gr%C3%B6%C3%9Fe%201%2F2%3F?domain=a%20b HTTP/1.1\r\n"),
        "{request}"
    );
    assert!(request.contains(&format!("authorization: Bearer {SECRET}\r\n")), "{request}");
    assert!(request.contains(&format!("host: {}\r\n", url.strip_prefix("http://").unwrap())), "{request}");
}

#[test]
fn invalid_responses_are_reported() {
    let rows = [
        (
            "HTTP/1.1 401 Unauthorized\r\nContent-Length: 41\r\n\r\n{\"detail\":\"this token is not known here\"}\n",
            1,
            "error: this token is not known here\nset a token with --token-file FILE",
        ),
        (
            "HTTP/1.1 404 Not Found\r\nContent-Length: 6\r\n\r\nno way",
            1,
            "error: the server answered 404: no way\nis --server the admin listener",
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nno way", 2, "error: the response is not JSON"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", 2, "the request may have taken effect"),
        ("SSH-2.0-x\r\n", 2, "ended early"),
    ];
    for (response, code, expected) in rows {
        let (url, request) = respond_once(response);
        let output = run_without_server(&["usage", "x", "--server", &url], &[]);
        request.join().unwrap();
        assert_eq!((output.code, &*output.out), (code, ""), "{response}: {}", output.err);
        assert!(output.err.contains(expected), "{response}: {}", output.err);
    }
}

#[test]
fn commands_work_over_a_unix_socket() {
    let home = directory("remote-unix");
    let socket = home.join("admin.sock");
    let address = format!("unix:{}", socket.to_str().unwrap());
    let server = CliServer::with_flags(&["--admin", &address], "");
    assert_eq!(server.url, address);
    assert!(server.run_ok(&["tier", "list"]).contains("shop    api_key      free, pro, enterprise, custom"));
}

#[test]
fn an_https_server_is_verified_by_its_certificate() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let home = directory("remote-https");
    let file = |name: &str, text: String| {
        std::fs::write(home.join(name), text).unwrap();
        home.join(name).to_str().unwrap().to_owned()
    };
    let (cert, key) = (file("cert.pem", made.cert.pem()), file("key.pem", made.signing_key.serialize_pem()));
    let wrong = file("other.pem", other.cert.pem());
    let flags = ["--admin", "127.0.0.1:0", "--admin-tls-cert", &cert, "--admin-tls-key", &key];
    let server = CliServer::with_flags(&flags, "https://");
    assert!(server.run_ok(&["tier", "list", "--ca", &cert]).contains("shop"));
    let output = server.run(&["tier", "list", "--ca", &wrong]);
    assert!(output.code == 2 && output.err.contains("can't be reached: invalid peer certificate"), "{}", output.err);
    let output = server.run(&["tier", "list", "--ca", &key]);
    assert!(output.code == 2 && output.err.contains("contains no certificate"), "{}", output.err);
}

#[test]
fn the_json_of_an_error_is_the_servers_problem() {
    let server = CliServer::start();
    let output = server.run(&["quota", "set", "x", "--tier", "gold", "--override", "nothing:here=5/minute", "--json"]);
    let problem: Value = serde_json::from_str(&output.err).unwrap();
    assert_eq!((output.code, &*output.out, &problem["status"]), (1, "", &422.into()), "{}", output.err);
    assert_eq!(problem["faults"].as_array().unwrap().len(), 2, "{problem}");
}
