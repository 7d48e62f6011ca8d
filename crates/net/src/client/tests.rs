//! Messages to listeners that answer, hang, or have the wrong certificate.

use std::fs;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

const LIMIT: Duration = Duration::from_secs(60);

/// Reads a request to its end, and writes a response.
async fn answer(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), response: &str) -> String {
    let (mut request, mut part) = (Vec::new(), [0; 1_024]);
    while !request.ends_with(b"{\"a\":1}") {
        let read = stream.read(&mut part).await.unwrap();
        assert_ne!(read, 0);
        request.extend_from_slice(&part[..read]);
    }
    stream.write_all(response.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    String::from_utf8(request).unwrap()
}

async fn post(url: &str, ca: Option<&Path>, limit: Duration) -> Result<PostAnswer, String> {
    let poster = Poster::new(PostTarget::parse(url).unwrap(), ca)?;
    let mut headers = HeaderMap::new();
    headers.insert("webhook-id", HeaderValue::from_static("e1"));
    poster.post(headers, Bytes::from_static(b"{\"a\":1}"), limit).await
}

#[test]
fn addresses_that_can_not_be_sent_to_are_errors() {
    let rows = [
        ("hooks.example.com", "it begins neither"),
        ("hooks.example.com/x", "it is not a URL"),
        ("ftp://hooks.example.com/x", "it begins neither"),
        ("https://user:secret@hooks.example.com/", "it has a user or a password"),
        ("https://hooks.example.com:99999/", "its port is not a number"),
        ("https://a b/", "it is not a URL"),
    ];
    for (text, error) in rows {
        let found = PostTarget::parse(text).unwrap_err();
        assert!(found.starts_with(error), "{text}: {found}");
    }
    let target = PostTarget::parse("https://[::1]/a?b=c").unwrap();
    assert_eq!((target.host.as_str(), target.port, target.path.as_str()), ("::1", 443, "/a?b=c"));
    assert_eq!(PostTarget::parse("http://hooks.example.com").unwrap().host(), "hooks.example.com");
}

#[tokio::test]
async fn a_message_is_sent_and_its_response_is_read() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook?key=x", listener.local_addr().unwrap());
    let (body, long) = ("Retry-After: 17\r\nContent-Length: 2\r\n\r\nok", "x".repeat(2 * MAX_RESPONSE_BYTES));
    let responses = [
        (format!("HTTP/1.1 503 Unavailable\r\n{body}"), 503, Some(17)),
        // Without a length, the end of the connection is the end of the body.
        ("HTTP/1.1 204 No Content\r\n\r\n".to_owned(), 204, None),
        ("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n".to_owned(), 302, None),
        (format!("HTTP/1.1 200 OK\r\n\r\n{long}"), 200, None),
    ];
    for (response, status, retry_after) in responses {
        let serving = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (mut request, mut part) = (Vec::new(), [0; 1_024]);
            while !request.ends_with(b"{\"a\":1}") {
                let read = stream.read(&mut part).await.unwrap();
                request.extend_from_slice(&part[..read]);
            }
            // A client that has read enough is gone.
            let _ = stream.write_all(response.as_bytes()).await;
            String::from_utf8(request).unwrap()
        };
        let (answer, request) = tokio::join!(post(&url, None, LIMIT), serving);
        let expected = PostAnswer { status: StatusCode::from_u16(status).unwrap(), retry_after: None };
        let retry_after = retry_after.map(Duration::from_secs);
        assert_eq!(answer, Ok(PostAnswer { retry_after, ..expected }));
        assert!(request.starts_with("POST /hook?key=x HTTP/1.1\r\n"), "{request}");
        for line in ["webhook-id: e1", "content-length: 7", "content-type: application/json", "host: 127.0.0.1:"] {
            assert!(request.contains(&format!("\r\n{line}")), "{line}: {request}");
        }
    }
}

#[tokio::test]
async fn a_receiver_that_hangs_or_is_gone_is_an_error_without_the_path() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let url = format!("http://{address}/secret");
    let error = post(&url, None, Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(error, "no response within 0 s");
    let closing = async {
        loop {
            drop(listener.accept().await.unwrap());
        }
    };
    let error = tokio::select! {
        answer = post(&url, None, LIMIT) => answer.unwrap_err(),
        () = closing => unreachable!(),
    };
    assert!(!error.contains("secret"), "{error}");
    drop(listener);
    let error = post(&url, None, LIMIT).await.unwrap_err();
    assert!(error.starts_with("no connection: ") && !error.contains("secret"), "{error}");
}

#[tokio::test]
async fn certificates_are_checked_against_the_cas() {
    let signer = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        (Issuer::new(params, key), pem)
    };
    let ((ca, pem), (_, other)) = (signer("ours"), signer("another"));
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![SanType::DnsName("localhost".try_into().unwrap())];
    let chain = vec![CertificateDer::from_pem_slice(params.signed_by(&key, &ca).unwrap().pem().as_bytes()).unwrap()];
    let private = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config.with_no_client_auth().with_single_cert(chain, private).unwrap()));

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/", listener.local_addr().unwrap().port());
    let directory = tempfile::tempdir().unwrap();
    let [right, wrong] = [("right.pem", &pem), ("wrong.pem", &other)].map(|(name, text)| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        path
    });
    let serving = async {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = acceptor.accept(stream).await.unwrap();
        answer(&mut stream, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await
    };
    let (sent, request) = tokio::join!(post(&url, Some(&right), LIMIT), serving);
    assert_eq!((sent.unwrap().status, request.contains("webhook-id: e1")), (StatusCode::OK, true));

    let serving = async {
        let (stream, _) = listener.accept().await.unwrap();
        acceptor.accept(stream).await.is_err()
    };
    let (sent, was_refused) = tokio::join!(post(&url, Some(&wrong), LIMIT), serving);
    assert!(sent.unwrap_err().starts_with("no TLS connection: ") && was_refused);

    let missing = post(&url, Some(&directory.path().join("none.pem")), LIMIT).await.unwrap_err();
    assert!(missing.contains("none.pem"), "{missing}");
    fs::write(&wrong, "no certificate").unwrap();
    assert!(post(&url, Some(&wrong), LIMIT).await.unwrap_err().contains("there is no CA"));
}
