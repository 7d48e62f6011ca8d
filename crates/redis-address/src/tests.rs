//! Rows of valid addresses, and the errors of invalid ones.

use super::*;

fn parsed(text: &str) -> Address {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn addresses_are_read() {
    // The address as written, and as displayed.
    let rows = [
        ("redis://localhost", "redis://localhost:6379"),
        ("redis://127.0.0.1:7000/", "redis://127.0.0.1:7000"),
        ("redis://127.0.0.1:7000/0", "redis://127.0.0.1:7000"),
        ("rediss://redis.example.com", "rediss://redis.example.com:6379"),
        ("redis://[::1]:7000", "redis://[::1]:7000"),
        ("redis://[0:0::1]", "redis://[::1]:6379"),
        ("redis://me@host", "redis://me@host:6379"),
        ("redis://me:secret@host:1", "redis://me:***@host:1"),
        ("redis://:secret@host:1", "redis://:***@host:1"),
        ("redis://:@host:1", "redis://host:1"),
        ("unix:///run/redis.sock", "redis+unix:///run/redis.sock"),
        ("redis+unix:///run/a@b,c.sock", "redis+unix:///run/a@b,c.sock"),
        ("unix://me:secret@/run/redis.sock", "redis+unix://me:***@/run/redis.sock"),
        ("redis://a:7001,b:7002,c", "redis+cluster://a:7001,b:7002,c:6379"),
        ("redis://a:7001,redis://b:7002", "redis+cluster://a:7001,b:7002"),
        ("redis://u:p@a:7001,redis://u:p@b:7002", "redis+cluster://u:***@a:7001,b:7002"),
        ("rediss://u:p@a:7001,[::2]", "rediss+cluster://u:***@a:7001,[::2]:6379"),
        ("redis+cluster://seed", "redis+cluster://seed:6379"),
        ("rediss+cluster://seed:1", "rediss+cluster://seed:1"),
        ("redis+sentinel://s1,s2:1/mymaster", "redis+sentinel://s1:26379,s2:1/mymaster"),
        ("rediss+sentinel://u:p@s1/m-1", "rediss+sentinel://u:***@s1:26379/m-1"),
    ];
    for (text, expected) in rows {
        let address = parsed(text);
        assert_eq!(address.to_string(), expected, "{text}");
        assert_eq!(format!("{address:?}"), expected, "{text}");
    }
}

#[test]
fn what_is_shown_can_be_read_again() {
    for text in ["redis://a:1", "rediss://a:1,b:2", "redis+sentinel://s:1/m", "unix:///run/r.sock", "redis://[::1]:1"] {
        assert_eq!(parsed(&parsed(text).to_string()), parsed(text));
    }
}

#[test]
fn users_and_passwords_may_have_any_character() {
    let address = parsed("redis://m%40e:p%3A%2F%2c%25%c3%a9:x@host");
    assert_eq!(address.user.as_deref(), Some("m@e"));
    assert_eq!(address.password.unwrap().reveal(), "p:/,%é:x");
}

#[test]
fn errors_name_a_remedy() {
    let rows = [
        ("", "begins with redis://"),
        ("localhost:6379", "redis://localhost:6379"),
        ("http://localhost", "begins with redis://"),
        ("redis://", "a host is missing"),
        ("redis://a,,b", "a host is missing"),
        ("redis://:6379", "a host is missing"),
        ("redis://a:0", "a port from 1 to 65535"),
        ("redis://a:65536", "a port from 1 to 65535"),
        ("redis://a:+1", "a port from 1 to 65535"),
        ("redis://a:", "a port from 1 to 65535"),
        ("redis://::1", "a host is missing"),
        ("redis://fe80::1:6379", "in brackets"),
        ("redis://[::1", "in brackets"),
        ("redis://[::1]6379", "a port from 1"),
        ("redis://[host]:1", "in brackets"),
        ("redis://a b", "letters, digits"),
        ("redis://a?x=1", "letters, digits"),
        ("redis://a/3", "database 0"),
        ("redis://a,rediss://b", "one scheme"),
        ("redis://u:p@a,redis://u:q@b", "one user and password"),
        ("redis://u:p@a,u:p@b", "%40"),
        ("redis://a:1,u:p@b:2", "before the first host"),
        ("redis://%zz@a", "%25"),
        ("redis://%4@a", "%25"),
        ("redis://%ff@a", "UTF-8"),
        ("unix://run/redis.sock", "begins with a slash"),
        ("unix://", "has a path"),
        ("unix:///", "2 to 107 bytes"),
        ("redis+sentinel://s1", "mymaster"),
        ("redis+sentinel://s1/", "mymaster"),
        ("redis+sentinel://s1/a/b", "mymaster"),
    ];
    for (text, part) in rows {
        let error = text.parse::<Address>().expect_err(text).to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
    let long_path = format!("unix:///{}", "x".repeat(107));
    let many = format!("redis://{}", vec!["a"; Address::MAX_NODES + 1].join(","));
    let longest = format!("redis://{}", "a".repeat(20_000));
    for (text, part) in [(long_path, "107"), (many, "at most 64"), (longest, "at most 16384")] {
        let error = text.parse::<Address>().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    assert!(format!("redis://{}", vec!["a"; Address::MAX_NODES].join(",")).parse::<Address>().is_ok());
}

#[test]
fn no_error_tells_a_password() {
    let rows = [
        "redis://me:hunter2",
        "redis://:hunter2",
        "redis://me:hunter2@",
        "redis://me:hunter2@host:x",
        "redis://me:hun,hunter2@host:x",
        "redis://me:a@hunter2@host",
        "redis://me:a/hunter2@host",
        "redis://me:a:hunter2",
        "me:hunter2@host",
        "redis://a,redis://me:hunter2@b,rediss://c",
        "redis+sentinel://me:hunter2@s1",
        "unix://me:hunter2/run/x",
        "redis://me:%hunter2@host",
    ];
    for text in rows {
        let error = text.parse::<Address>().expect_err(text).to_string();
        assert!(!error.contains("hunter2"), "{text}: {error}");
    }
}

#[test]
fn garbage_never_panics() {
    let mut random = fastrand::Rng::with_seed(7);
    let pieces = [
        "redis",
        "rediss",
        "+cluster",
        "+sentinel",
        "unix",
        "://",
        ":",
        "@",
        ",",
        "/",
        "[",
        "]",
        "%",
        "%4",
        "é",
        "a",
        "1",
        "\0",
    ];
    for _ in 0..50_000 {
        let text: String = (0..random.usize(..12)).map(|_| pieces[random.usize(..pieces.len())]).collect();
        if let Ok(address) = text.parse::<Address>() {
            let shown = address.to_string();
            if address.password.is_none() {
                // Percent-encoded characters are displayed decoded, so such an address need not be parseable again.
                let again = shown.parse::<Address>();
                assert!(again.is_ok_and(|again| again == address) || text.contains('%'), "{text} {shown}");
            }
        }
    }
}
