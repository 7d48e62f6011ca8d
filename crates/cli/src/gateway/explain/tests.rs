//! Tests of the arguments of `tollgate gateway explain`.

use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    explain: ExplainRequest,
}

fn parts(args: &[&str]) -> Result<Parts, String> {
    Line::try_parse_from([&["x", "gateway.yaml"], args].concat()).unwrap().explain.parts()
}

#[test]
fn requests_are_read() {
    let rows: [(&[&str], &str, &str, &str); 6] = [
        (&["/a?b=c"], "GET", "/a?b=c", "localhost"),
        (&["POST  /a"], "POST", "/a", "localhost"),
        (&["PUT /a", "--host", "b.example"], "PUT", "/a", "b.example"),
        (&["/a", "-H", "Host: c.example"], "GET", "/a", "c.example"),
        (&["GET https://d.example/a"], "GET", "https://d.example/a", "d.example"),
        (&["OPTIONS *"], "OPTIONS", "*", "localhost"),
    ];
    for (args, method, target, host) in rows {
        let parts = parts(args).unwrap();
        assert_eq!((parts.method.as_str(), &*parts.uri.to_string()), (method, target), "{args:?}");
        assert_eq!(parts.headers[header::HOST], host, "{args:?}");
    }
    let parts = parts(&["/", "-H", "A: 1", "-H", "a:2", "--body", "abc"]).unwrap();
    assert_eq!(parts.headers.get_all("a").iter().collect::<Vec<_>>(), ["1", "2"]);
    assert_eq!(parts.headers[header::CONTENT_LENGTH], "3");
}

#[test]
fn what_is_no_request_is_refused() {
    let rows: [(&[&str], &str); 7] = [
        (&["orders"], "does not begin with a slash"),
        (&["GET orders"], "does not begin with a slash"),
        (&["G(T /a"], "the method"),
        (&["GET /a b"], "not a path"),
        (&[""], "not a path"),
        (&["/a", "-H", "X-Api-Key"], "is not a header"),
        (&["/a", "-H", "a b: c"], "is not a header"),
    ];
    for (args, expected) in rows {
        let error = parts(args).unwrap_err();
        assert!(error.contains(expected), "{args:?}: {error}");
    }
    assert!(parts(&["/a", "--host", "a\nb"]).unwrap_err().contains("is not a host"));
}

#[test]
fn durations_are_short() {
    for (milliseconds, text) in [(0, "0s"), (1, "1ms"), (1_500, "1500ms"), (15_000, "15s"), (300_000, "5m")] {
        assert_eq!(duration(milliseconds), text);
    }
}
