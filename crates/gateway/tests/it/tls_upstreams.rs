//! Upstreams with TLS: connections are reused, whatever their sessions exchange besides.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::support::{NO_RULES, TestGateway, everything_to, scripted, within};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A certificate for `localhost`, and a server that has it.
pub(crate) struct Identity {
    pub(crate) ca: tempfile::NamedTempFile,
    pub(crate) acceptor: TlsAcceptor,
    chain: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    pub(crate) fn make() -> Identity {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let ca = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(ca.path(), made.cert.pem()).unwrap();
        let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config =
            config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key.clone_key()).unwrap();
        let chain = made.cert.der().clone();
        Identity { ca, acceptor: TlsAcceptor::from(Arc::new(config)), chain, key }
    }

    /// A server that negotiates one of these protocols.
    fn negotiating(&self, protocols: &[&str]) -> TlsAcceptor {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let (chain, key) = (vec![self.chain.clone()], self.key.clone_key());
        let mut config = config.with_no_client_auth().with_single_cert(chain, key).unwrap();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }

    /// A configuration that uses these servers with TLS.
    pub(crate) fn config(&self, servers: &[SocketAddr]) -> String {
        let tls = format!("tls: {{server_name: localhost, ca: {}}}, servers:", self.ca.path().display());
        everything_to(servers).replace("servers:", &tls)
    }
}

/// Reads a request without a body.
async fn read_head(stream: &mut TlsStream<TcpStream>) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(())
}

/// A server that sends this after each response: none, other keys, or text that nobody requested. Returns the number of its
/// connections.
pub(crate) async fn server(identity: &Identity, more: More) -> (SocketAddr, Arc<AtomicUsize>) {
    let connections = Arc::<AtomicUsize>::default();
    let (counted, acceptor) = (connections.clone(), identity.acceptor.clone());
    let address = scripted(move |stream, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        let acceptor = acceptor.clone();
        async move {
            stream.set_nodelay(true).unwrap();
            let mut stream = acceptor.accept(stream).await.unwrap();
            while read_head(&mut stream).await.is_some() {
                stream.write_all(OK).await.unwrap();
                stream.flush().await.unwrap();
                match more {
                    More::Nothing => {}
                    More::Keys => {
                        // After the response has been read.
                        tokio::time::sleep(Duration::from_millis(2)).await;
                        let (stream, session) = stream.get_mut();
                        let mut update = Vec::new();
                        session.refresh_traffic_keys().unwrap();
                        session.write_tls(&mut update).unwrap();
                        stream.write_all(&update).await.unwrap();
                    }
                    More::Text => stream.write_all(OK).await.unwrap(),
                }
                if stream.flush().await.is_err() {
                    return;
                }
            }
        }
    });
    (address.await, connections)
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum More {
    Nothing,
    Keys,
    Text,
}

#[tokio::test]
async fn a_connection_serves_many_requests() {
    for more in [More::Nothing, More::Keys] {
        let identity = Identity::make();
        let (address, connections) = server(&identity, more).await;
        let gateway = TestGateway::start(&identity.config(&[address]), NO_RULES).await;
        let mut client = gateway.connect().await;
        for method in ["GET", "POST"].repeat(15) {
            client.send(&format!("{method} / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")).await;
            let response = client.response().await;
            assert!(response.starts_with("HTTP/1.1 200 "), "{more:?}: {response}");
            // What the server sends after its response has arrived before the next request.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(connections.load(Ordering::Relaxed) <= 2, "{more:?}: {connections:?}");
    }
}

#[tokio::test]
async fn a_connection_with_more_text_is_not_used_again() {
    let identity = Identity::make();
    let (address, connections) = server(&identity, More::Text).await;
    let gateway = TestGateway::start(&identity.config(&[address]), NO_RULES).await;
    for number in 1..=5 {
        assert!(gateway.get("/").await.starts_with("HTTP/1.1 200 "));
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(connections.load(Ordering::Relaxed), number);
    }
}

/// A certificate that clients may present, as files.
struct ClientIdentity {
    folder: tempfile::TempDir,
}

impl ClientIdentity {
    fn new() -> ClientIdentity {
        ClientIdentity { folder: tempfile::tempdir().unwrap() }
    }

    /// Writes another certificate, and returns it.
    fn renew(&self) -> CertificateDer<'static> {
        let made = rcgen::generate_simple_self_signed(["gateway".to_owned()]).unwrap();
        std::fs::write(self.path("key.pem"), made.signing_key.serialize_pem()).unwrap();
        std::fs::write(self.path("cert.pem"), made.cert.pem()).unwrap();
        made.cert.der().clone()
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }
}

/// A server that requires a certificate, and shows in its response how it accepts those of clients: by their bytes.
async fn requiring(identity: &Identity, clients: &[CertificateDer<'static>]) -> SocketAddr {
    let mut roots = rustls::RootCertStore::empty();
    clients.iter().for_each(|client| roots.add(client.clone()).unwrap());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let (chain, key) = (vec![identity.chain.clone()], identity.key.clone_key());
    let config = config.with_client_cert_verifier(verifier).with_single_cert(chain, key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    scripted(move |stream, _| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            while read_head(&mut stream).await.is_some() {
                let own = stream.get_ref().1.peer_certificates().unwrap()[0].clone();
                let shown = format!("{:02x?}", &own.as_ref()[own.as_ref().len() - 8..]);
                let response =
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{shown}", shown.len());
                stream.write_all(response.as_bytes()).await.unwrap();
                let _ = stream.shutdown().await;
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_gateways_own_certificate_is_swapped_without_a_failure() {
    let identity = Identity::make();
    let own = ClientIdentity::new();
    let (first, spare) = (own.renew(), ClientIdentity::new());
    let second = spare.renew();
    let address = requiring(&identity, &[first.clone(), second.clone()]).await;
    let shown =
        |certificate: &CertificateDer<'_>| format!("{:02x?}", &certificate.as_ref()[certificate.as_ref().len() - 8..]);
    let (cert, key) = (own.path("cert.pem"), own.path("key.pem"));
    let with_own = format!("tls: {{cert: {}, key: {}, ", cert.display(), key.display());
    let config = identity.config(&[address]).replace("tls: {", &with_own);
    let gateway = TestGateway::start(&config, NO_RULES).await;
    let response = gateway.get("/").await;
    assert!(response.ends_with(&shown(&first)), "{response}");
    // Half of a change can't be used, and changes nothing.
    std::fs::copy(spare.path("cert.pem"), &cert).unwrap();
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(gateway.get("/").await.ends_with(&shown(&first)));
    std::fs::copy(spare.path("key.pem"), &key).unwrap();
    for _ in 0..200 {
        let response = gateway.get("/").await;
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
        if response.ends_with(&shown(&second)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the new certificate is not used");
}

#[tokio::test]
async fn without_a_certificate_that_the_server_requires_nothing_is_forwarded() {
    let identity = Identity::make();
    let other = ClientIdentity::new().renew();
    let address = requiring(&identity, &[other]).await;
    let gateway = TestGateway::start(&identity.config(&[address]), NO_RULES).await;
    let response = gateway.get("/").await;
    assert!(response.starts_with("HTTP/1.1 502 "), "{response}");
}

/// A server that says in which version it was called. Returns the number of its connections.
async fn versioned(acceptor: TlsAcceptor) -> (SocketAddr, Arc<AtomicUsize>) {
    let connections = Arc::<AtomicUsize>::default();
    let counted = connections.clone();
    let address = scripted(move |stream, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        let acceptor = acceptor.clone();
        async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(async |request: Request<Incoming>| {
                let version = format!("over {:?}", request.version());
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(version))))
            });
            let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        }
    });
    (address.await, connections)
}

#[tokio::test]
async fn the_protocol_is_negotiated_unless_the_file_names_one() {
    let (both, old, new): (&[&str], &[&str], &[&str]) = (&["h2", "http/1.1"], &["http/1.1"], &["h2"]);
    let rows = [
        ("auto", both, "over HTTP/2.0"),
        ("auto", new, "over HTTP/2.0"),
        ("auto", old, "over HTTP/1.1"),
        ("auto", &[], "over HTTP/1.1"),
        ("http1", both, "over HTTP/1.1"),
        ("http1", &[], "over HTTP/1.1"),
        ("http2", both, "over HTTP/2.0"),
        // It has no choice.
        ("http2", &[], "over HTTP/2.0"),
        ("http2", old, "connect_failed"),
        ("http1", new, "connect_failed"),
    ];
    let identity = Identity::make();
    for (protocol, offered, expected) in rows {
        let (address, connections) = versioned(identity.negotiating(offered)).await;
        let config = identity.config(&[address]).replace("tls:", &format!("protocol: {protocol}, tls:"));
        let gateway = TestGateway::start(&config, NO_RULES).await;
        for _ in 0..5 {
            let response = gateway.request("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab").await;
            assert!(response.contains(expected), "{protocol}, {offered:?}: {response}");
        }
        if expected == "over HTTP/2.0" {
            assert_eq!(connections.load(Ordering::Relaxed), 1, "{protocol}, {offered:?}");
        }
    }
}

#[tokio::test]
async fn requests_at_the_same_time_share_a_connection_once_http2_is_negotiated() {
    let identity = Identity::make();
    let (address, connections) = versioned(identity.negotiating(&["h2", "http/1.1"])).await;
    let gateway = Arc::new(TestGateway::start(&identity.config(&[address]), NO_RULES).await);
    assert!(gateway.get("/").await.ends_with("over HTTP/2.0"));
    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let gateway = gateway.clone();
        requests.spawn(async move { gateway.get("/").await });
    }
    while let Some(response) = within(requests.join_next()).await {
        let response = response.unwrap();
        assert!(response.ends_with("over HTTP/2.0"), "{response}");
    }
    assert_eq!(connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_websocket_reaches_a_server_with_tls() {
    let identity = Identity::make();
    let acceptor = identity.negotiating(&["http/1.1"]);
    let address = scripted(move |stream, _| {
        let acceptor = acceptor.clone();
        async move {
            let mut stream = acceptor.accept(stream).await.unwrap();
            read_head(&mut stream).await.unwrap();
            let response = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
            stream.write_all(response.as_bytes()).await.unwrap();
            let (mut from, mut to) = tokio::io::split(stream);
            let _ = tokio::io::copy(&mut from, &mut to).await;
        }
    })
    .await;
    let gateway = TestGateway::start(&identity.config(&[address]), NO_RULES).await;
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n").await;
    assert!(client.response().await.starts_with("HTTP/1.1 101 "));
    let mut echoed = [0; 5];
    client.send("hello").await;
    within(client.0.read_exact(&mut echoed)).await.unwrap();
    assert_eq!(&echoed, b"hello");
}
