//! Plain requests, which no HTTP library reads, next to the same requests read by hyper.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{RULES, Reply, Server, written};

/// Makes a request one that is not plain, without changing what it means.
const NOT_PLAIN: (&str, &str) = ("Trailer", "x");

/// A response without what depends on the moment.
fn essence(reply: &Reply) -> (u16, Vec<(String, String)>, String) {
    let mut headers = reply.headers.clone();
    headers.retain(|(name, _)| name != "date");
    headers.sort();
    (reply.status, headers, reply.body.clone())
}

#[tokio::test]
async fn responses_do_not_depend_on_who_reads_the_request() {
    let (plain, other) = (Server::new(RULES), Server::new(RULES));
    let allowed = r#"{"api_key": "k", "endpoint": "POST /orders"}"#;
    let rows: [(&[(&str, &str)], &str); 12] = [
        (&[], allowed),
        (&[], allowed),
        (&[], allowed),
        (&[], r#"{"api_key": "k"}"#),
        (&[], r#"{"api_key": "k"}"#),
        (&[("Idempotency-Key", "a")], r#"{"api_key": "l"}"#),
        (&[("Idempotency-Key", "a")], r#"{"api_key": "l"}"#),
        (&[], ""),
        (&[], "{"),
        (&[], r#"{"domain": "nowhere", "attributes": {"api_key": "k"}}"#),
        (&[], r#"{"other": "x"}"#),
        (&[("User-Agent", "x"), ("Accept", "*/*"), ("X-Other", "y")], r#"{"api_key": "m"}"#),
    ];
    for (headers, body) in rows {
        let one = plain.ask("POST", "/v1/ratelimit/check", headers, body).await;
        let headers: Vec<_> = headers.iter().copied().chain([NOT_PLAIN]).collect();
        let two = other.ask("POST", "/v1/ratelimit/check", &headers, body).await;
        assert_eq!(essence(&one), essence(&two), "{body}");
        // `Sun, 06 Nov 1994 08:49:37 GMT`
        for date in [one.header("date").unwrap(), two.header("date").unwrap()] {
            assert!(date.len() == 29 && date.ends_with(" GMT"), "{date}");
        }
    }
}

#[tokio::test]
async fn settlements_do_not_depend_on_who_reads_the_request() {
    const LLM: &str = "
domain: llm
rules:
  - {name: tokens, key: [key], limit: 1000/day, algorithm: fixed_window, cost: tokens, settle: true}
";
    let settlements = async |headers: &[(&str, &str)]| {
        let server = Server::new(LLM);
        let reply = server.ask("POST", "/v1/ratelimit/check", headers, r#"{"key": "k", "tokens": 400}"#).await;
        let receipt = reply.json()["receipt"].as_str().unwrap().to_owned();
        let mut responses = Vec::new();
        for rest in [r#", "cost": 150"#, r#", "cost": 150"#, r#", "cost": 151"#, r#", "outcome": "bad""#, ""] {
            let body = format!(r#"{{"receipt": "{receipt}"{rest}}}"#);
            responses.push(essence(&server.ask("POST", "/v1/ratelimit/settle", headers, &body).await));
        }
        for body in ["", "{", r#"{"receipt": "tgr_x"}"#] {
            responses.push(essence(&server.ask("POST", "/v1/ratelimit/settle", headers, body).await));
        }
        responses
    };
    let (plain, other) = (settlements(&[]).await, settlements(&[NOT_PLAIN]).await);
    assert_eq!(plain, other);
    let statuses: Vec<u16> = plain.iter().map(|(status, _, _)| *status).collect();
    assert_eq!(statuses, [200, 200, 409, 400, 409, 400, 400, 400]);
    let is_replay = |response: &(u16, Vec<(String, String)>, String)| {
        response.1.contains(&("idempotent-replayed".to_owned(), "true".to_owned()))
    };
    assert_eq!([is_replay(&plain[0]), is_replay(&plain[1])], [false, true]);
}

#[tokio::test]
async fn a_connection_goes_on_with_anything_else() {
    let server = Server::new(RULES);
    let mut connection = server.connect();
    let check = written("POST", "/v1/ratelimit/check", &[], r#"{"api_key": "k"}"#);
    // Two and a half requests in one write.
    let (half, rest) = check.split_at(check.len() / 2);
    connection.write_all(format!("{check}{check}{half}").as_bytes()).await.unwrap();
    for left in [2, 1] {
        assert_eq!(Reply::read(&mut connection, false).await.json()["remaining"], left);
    }
    connection.write_all(rest.as_bytes()).await.unwrap();
    assert_eq!(Reply::read(&mut connection, false).await.json()["remaining"], 0);
    connection.write_all(written("GET", "/livez", &[], "").as_bytes()).await.unwrap();
    assert_eq!(Reply::read(&mut connection, false).await.status, 200);
    connection.write_all(check.as_bytes()).await.unwrap();
    assert_eq!(Reply::read(&mut connection, false).await.status, 429);
}

#[tokio::test]
async fn a_connection_between_two_checks_ends_with_the_server() {
    let server = Server::new(RULES);
    let mut connection = server.connect();
    connection.write_all(written("POST", "/v1/ratelimit/check", &[], "{}").as_bytes()).await.unwrap();
    assert_eq!(Reply::read(&mut connection, false).await.header("connection"), None);
    server.closer.close();
    assert_eq!(connection.read(&mut [0; 1]).await.unwrap(), 0);
}
