//! Tokens, and the keys that they are verified with: from files and servers that change, and that are away.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tollgate_gateway::KeysStatus;
use tollgate_store::{Clock as _, SystemClock};

use crate::signer::{Signer, encode};
use crate::support::{App, NO_RULES, TestGateway, everything_to, read_message, scripted, within};
use crate::tls_upstreams::Identity;

/// The claims of a good token.
fn claims() -> Value {
    let now = SystemClock::default().now().as_micros() / 1_000_000;
    json!({"iss": "https://id.example", "aud": "api", "sub": "ada", "plan": "pro", "exp": now + 3600})
}

fn with(claim: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[claim] = value;
    claims
}

fn token(signer: &Signer, id: &str, algorithm: &str, claims: &Value) -> String {
    signer.sign(&json!({"alg": algorithm, "kid": id}), claims)
}

/// A good token of a key.
fn good(signer: &Signer, id: &str) -> String {
    token(signer, id, "ES256", &claims())
}

fn key_set(keys: &[(&Signer, &str)]) -> String {
    json!({"keys": keys.iter().map(|(signer, id)| signer.jwk(id)).collect::<Vec<_>>()}).to_string()
}

/// A configuration whose route requires a verified caller, with further attributes.
fn config(app: &App, keys: &str, more: &str) -> String {
    let attributes = format!(
        "issuers:\n  main: {{keys: {keys}, issuer: \"https://id.example\", audience: api}}\n\
         attributes:\n  caller: {{jwt: sub, issuer: main}}\n{more}upstreams:"
    );
    everything_to(&[app.address]).replace("upstreams:", &attributes).replace("app}\n", "app, require: caller}\n")
        + "to_upstream: [caller]\n"
}

/// The status of a request with a token.
async fn status(gateway: &TestGateway, token: &str) -> u16 {
    let request = format!("GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n");
    gateway.request(&request).await["HTTP/1.1 ".len()..][..3].parse().unwrap()
}

/// Sends requests until one has this status.
async fn until_status(gateway: &TestGateway, token: &str, expected: u16) {
    within(async {
        while status(gateway, token).await != expected {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

fn keys(gateway: &TestGateway) -> KeysStatus {
    gateway.gateway.status().keys.remove(0)
}

/// A server of a document that can be replaced, or be away.
#[derive(Clone, Default)]
struct Published {
    document: Arc<Mutex<Option<String>>>,
    fetched: Arc<AtomicUsize>,
}

impl Published {
    fn set(&self, document: Option<String>) {
        *self.document.lock().unwrap() = document;
    }

    fn response(&self) -> String {
        self.fetched.fetch_add(1, Ordering::Relaxed);
        match &*self.document.lock().unwrap() {
            Some(document) => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{document}", document.len()),
            None => "HTTP/1.1 503 Away\r\nContent-Length: 0\r\n\r\n".to_owned(),
        }
    }

    async fn serve(&self) -> SocketAddr {
        let published = self.clone();
        scripted(move |mut stream, _| {
            let published = published.clone();
            async move {
                read_message(&mut stream).await;
                let _ = stream.write_all(published.response().as_bytes()).await;
            }
        })
        .await
    }

    async fn serve_tls(&self, identity: &Identity) -> SocketAddr {
        let (published, acceptor) = (self.clone(), identity.acceptor.clone());
        scripted(move |stream, _| {
            let (published, acceptor) = (published.clone(), acceptor.clone());
            async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let Ok(byte) = stream.read_u8().await else { return };
                    head.push(byte);
                }
                let _ = stream.write_all(published.response().as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        })
        .await
    }
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
}

#[tokio::test]
async fn only_tokens_of_the_issuer_are_accepted() {
    let (app, file, signer) = (App::start().await, tempfile::NamedTempFile::new().unwrap(), Signer::es256());
    let public = key_set(&[(&signer, "a")]);
    write(file.path(), &public);
    let gateway = TestGateway::start(&config(&app, &file.path().display().to_string(), ""), NO_RULES).await;
    assert_eq!(status(&gateway, &good(&signer, "a")).await, 200, "the first request of all");
    assert!(app.seen()[0].contains("\nx-tollgate-caller: ada\n"), "{:?}", app.seen());
    let unsigned = |algorithm: &str| {
        let header = encode(json!({"alg": algorithm, "kid": "a"}).to_string());
        format!("{header}.{}.", encode(claims().to_string()))
    };
    // The public key as a secret, in the forms in which it is published.
    let secret = Signer::symmetric(public.as_bytes());
    let point = Signer::symmetric(signer.jwk("a")["x"].as_str().unwrap().as_bytes());
    let past = with("exp", json!(1_700_000_000));
    let lies = [
        (unsigned("none"), "algorithm"),
        (unsigned("None"), "algorithm"),
        (unsigned("ES256"), "signature"),
        (token(&secret, "a", "HS256", &claims()), "algorithm"),
        (token(&point, "a", "HS256", &claims()), "algorithm"),
        (token(&secret, "a", "ES256", &claims()), "signature"),
        (token(&Signer::rs256(), "a", "RS256", &claims()), "unknown_key"),
        (good(&Signer::es256(), "a"), "signature"),
        (good(&signer, "b"), "unknown_key"),
        (token(&signer, "a", "ES256", &with("iss", json!("https://evil.example"))), "issuer"),
        (token(&signer, "a", "ES256", &with("aud", json!("other"))), "audience"),
        (token(&signer, "a", "ES256", &past), "expired"),
        ("x".to_owned(), "malformed"),
    ];
    for (token, reason) in lies {
        let before = keys(&gateway).refused[reason];
        assert_eq!(status(&gateway, &token).await, 401, "{reason}: {token}");
        assert_eq!(keys(&gateway).refused[reason], before + 1, "{reason}: {token}");
    }
    assert_eq!(app.seen().len(), 1);
    assert_eq!(status(&gateway, &good(&signer, "a")).await, 200);
}

#[tokio::test]
async fn keys_come_from_a_server_with_tls_before_the_first_request() {
    let (app, signer, published, identity) =
        (App::start().await, Signer::es256(), Published::default(), Identity::make());
    published.set(Some(key_set(&[(&signer, "a")])));
    let port = published.serve_tls(&identity).await.port();
    let trusted = format!("\"https://localhost:{port}/keys?secret=1\", ca: {}", identity.ca.path().display());
    let gateway = TestGateway::start(&config(&app, &trusted, ""), NO_RULES).await;
    assert_eq!(status(&gateway, &good(&signer, "a")).await, 200);
    assert_eq!((keys(&gateway).source, keys(&gateway).keys), (format!("https://localhost:{port}/keys"), 1));
    // Whoever has no certificate of that CA is no issuer.
    let other = Identity::make();
    let wrong = format!("\"https://localhost:{port}/keys\", ca: {}", other.ca.path().display());
    let gateway = TestGateway::start(&config(&app, &wrong, ""), NO_RULES).await;
    assert_eq!(status(&gateway, &good(&signer, "a")).await, 401);
    assert!(keys(&gateway).error.is_some());
}

#[tokio::test]
async fn keys_outlast_a_reload_that_reads_other_claims() {
    let (app, signer, published) = (App::start().await, Signer::es256(), Published::default());
    published.set(Some(key_set(&[(&signer, "a")])));
    let url = format!("\"http://{}/keys\"", published.serve().await);
    let gateway = TestGateway::start(&config(&app, &url, ""), NO_RULES).await;
    assert_eq!(status(&gateway, &good(&signer, "a")).await, 200);
    published.set(None);
    gateway.reload(&config(&app, &url, "  plan: {jwt: plan, issuer: main}\n")).await;
    assert_eq!(status(&gateway, &good(&signer, "a")).await, 200);
    gateway.reload(&config(&app, &format!("{url}, every: 9m"), "")).await;
    assert_eq!(status(&gateway, &good(&signer, "a")).await, 200);
}

#[tokio::test]
async fn an_unknown_key_has_the_keys_fetched_but_not_all_the_time() {
    let (app, published) = (App::start().await, Published::default());
    let (first, second) = (Signer::es256(), Signer::es256());
    published.set(Some(key_set(&[(&first, "a")])));
    let url = format!("\"http://{}/keys\", every: 1h", published.serve().await);
    let gateway = TestGateway::start(&config(&app, &url, ""), NO_RULES).await;
    assert_eq!(status(&gateway, &good(&first, "a")).await, 200);
    published.set(Some(key_set(&[(&first, "a"), (&second, "b")])));
    until_status(&gateway, &good(&second, "b"), 200).await;
    assert_eq!(published.fetched.load(Ordering::Relaxed), 2);
    assert_eq!(status(&gateway, &good(&first, "a")).await, 200);
    // Anybody can name keys that nobody has.
    for number in 0..20 {
        assert_eq!(status(&gateway, &good(&second, &format!("c{number}"))).await, 401);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(published.fetched.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_source_that_is_away_at_the_start_is_used_when_it_comes() {
    let (app, signer, published) = (App::start().await, Signer::es256(), Published::default());
    let url = format!("\"http://{}/keys\"", published.serve().await);
    let gateway = TestGateway::start(&config(&app, &url, ""), NO_RULES).await;
    assert_eq!(status(&gateway, &good(&signer, "a")).await, 401);
    let away = keys(&gateway);
    assert!(away.keys == 0 && away.failures > 0 && away.error.unwrap().contains("503"));
    published.set(Some(key_set(&[(&signer, "a")])));
    until_status(&gateway, &good(&signer, "a"), 200).await;
    assert_eq!(keys(&gateway).error, None);
}

#[tokio::test]
async fn another_source_is_another_issuer_from_the_first_request_on() {
    let (app, folder) = (App::start().await, tempfile::tempdir().unwrap());
    let (first, second) = (Signer::es256(), Signer::es256());
    let paths = ["first.json", "second.json"].map(|name| folder.path().join(name));
    write(&paths[0], &key_set(&[(&first, "a")]));
    write(&paths[1], &key_set(&[(&second, "a")]));
    let [one, two] = paths.each_ref().map(|path| config(&app, &path.display().to_string(), ""));
    let gateway = TestGateway::start(&one, NO_RULES).await;
    let tokens = [good(&first, "a"), good(&second, "a")];
    assert_eq!([status(&gateway, &tokens[0]).await, status(&gateway, &tokens[1]).await], [200, 401]);
    gateway.reload(&two).await;
    assert_eq!([status(&gateway, &tokens[0]).await, status(&gateway, &tokens[1]).await], [401, 200]);
    // A file that is replaced is read again; one that is broken leaves the last keys in force.
    write(&paths[1], &key_set(&[(&first, "a")]));
    until_status(&gateway, &tokens[0], 200).await;
    assert_eq!(status(&gateway, &tokens[1]).await, 401);
    write(&paths[1], "{\"keys\": []}");
    within(async {
        while keys(&gateway).error.is_none() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!(status(&gateway, &tokens[0]).await, 200);
}
