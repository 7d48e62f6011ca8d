//! A listener with TLS: both protocols by ALPN, and certificates that are swapped.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tollgate_testing::eventually;

use super::upstream::Upstream;
use super::{everything_to, with_gateway};

/// A new certificate of `localhost`, and its key.
struct Issued(rcgen::CertifiedKey<rcgen::KeyPair>);

impl Issued {
    fn new() -> Issued {
        Issued(rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap())
    }

    fn certificate(&self) -> CertificateDer<'static> {
        self.0.cert.der().clone()
    }

    fn write(&self, folder: &Path) {
        for (name, text) in [("tls.pem", self.0.cert.pem()), ("tls.key", self.0.signing_key.serialize_pem())] {
            let new = folder.join(format!("{name}.new"));
            fs::write(&new, text).unwrap();
            fs::rename(new, folder.join(name)).unwrap();
        }
    }
}

/// Writes a new certificate of `localhost` and its key to a folder.
fn write_certificate(folder: &Path) -> CertificateDer<'static> {
    let issued = Issued::new();
    issued.write(folder);
    issued.certificate()
}

/// Connects with one protocol. `None` if the server has another certificate.
async fn connect(address: &str, certificate: &CertificateDer<'static>, alpn: &[u8]) -> Option<TlsStream<TcpStream>> {
    let stream = connect_offering(address, std::slice::from_ref(certificate), &[alpn]).await?;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(alpn));
    Some(stream)
}

/// Connects to a server with one of these certificates, by one of these protocols.
async fn connect_offering(
    address: &str,
    certificates: &[CertificateDer<'static>],
    alpn: &[&[u8]],
) -> Option<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate.clone()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()
}

fn request(target: &str) -> http::Request<Empty<Bytes>> {
    http::Request::get(target).header("host", "localhost").body(Empty::new()).unwrap()
}

async fn text(response: http::Response<hyper::body::Incoming>) -> String {
    assert_eq!(response.status(), 200);
    String::from_utf8_lossy(&response.into_body().collect().await.unwrap().to_bytes()).into_owned()
}

/// A CA of client certificates.
struct ClientCa {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pem: String,
}

impl ClientCa {
    fn new() -> ClientCa {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        ClientCa { issuer: rcgen::Issuer::new(params, key), pem }
    }

    /// A certificate of a client, and its key.
    fn issue(&self, name: &str) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new([format!("{name}.example")]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "Example");
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.der().clone(), PrivateKeyDer::Pkcs8(key.serialize_der().into()))
    }
}

/// What the upstream sees of a request on a new connection, in lower case. `None` if the gateway does not accept the connection.
async fn seen_with(
    address: &str,
    server: &CertificateDer<'static>,
    own: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
    key: &str,
) -> Option<(u16, String)> {
    let mut roots = RootCertStore::empty();
    roots.add(server.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots);
    let config = match own {
        Some((certificate, key)) => config.with_client_auth_cert(vec![certificate], key).unwrap(),
        None => config.with_no_client_auth(),
    };
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
    tokio::spawn(connection);
    let mut request = request("/");
    request.headers_mut().insert("x-api-key", key.parse().unwrap());
    // With TLS 1.3 the server's alert comes after the client's handshake.
    let response = sender.send_request(request).await.ok()?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    Some((status, String::from_utf8_lossy(&body).to_ascii_lowercase()))
}

#[test]
fn a_client_certificate_is_one_of_several_identities() {
    let upstream = Upstream::start();
    let tls = "tls: {cert: tls.pem, key: tls.key, client_ca: ca.pem, client_certificates: optional}";
    let listen = format!("listen: {{address: 127.0.0.1:0, {tls}}}\nto_upstream: [caller]\n");
    let attributes = "caller: [{certificate: subject}, {header: X-Api-Key}], name: {certificate: san}";
    let file = everything_to(&[upstream.address()])
        .replace("listen: 127.0.0.1:0\n", &listen)
        .replace("api_key: {header: X-Api-Key}", attributes);
    let rules = "domain: api\nrules:\n  - {name: by-caller, key: [caller], limit: 3/hour, algorithm: sliding_log}\n  \
                 - {name: by-name, key: [name], limit: 2/hour, algorithm: sliding_log}\n";
    let builder = super::with_rules(&file, rules);
    let (ca, certificate) = (ClientCa::new(), write_certificate(builder.home()));
    fs::write(builder.home().join("ca.pem"), &ca.pem).unwrap();
    let server = builder.start();
    let address = server.address("gateway");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(1).build().unwrap();
    let seen = |own, key| runtime.block_on(seen_with(address, &certificate, own, key));
    let caller = |own, key| {
        let (status, seen) = seen(own, key).expect("an accepted connection");
        assert_eq!(status, 200, "{seen}");
        seen.lines().find_map(|line| line.strip_prefix("x-tollgate-caller: ").map(str::to_owned))
    };
    assert_eq!(caller(None, "k1").as_deref(), Some("k1"));
    // Limits go by the certificate, whatever key the client sends.
    let ada = ca.issue("ada");
    let own = || Some((ada.0.clone(), ada.1.clone_key()));
    assert_eq!(caller(own(), "k1").as_deref(), Some("cn=ada,o=example"));
    assert_eq!(caller(own(), "k2").as_deref(), Some("cn=ada,o=example"));
    assert_eq!(seen(own(), "k3").map(|(status, _)| status), Some(429), "2 an hour for the name in the certificate");
    assert_eq!(caller(Some(ca.issue("bob")), "k1").as_deref(), Some("cn=bob,o=example"));
    // A certificate of another CA is no certificate, and does not make its owner anonymous.
    assert_eq!(seen(Some(ClientCa::new().issue("ada")), "k1"), None);
}

#[test]
fn the_program_of_a_client_is_an_attribute() {
    let upstream = Upstream::start();
    let tls = "listen: {address: 127.0.0.1:0, tls: {cert: tls.pem, key: tls.key}}\nto_upstream: [caller]\n";
    let file = everything_to(&[upstream.address()]).replace("listen: 127.0.0.1:0\n", tls);
    let file = file.replace("api_key: {header: X-Api-Key}", "program: tls_fingerprint");
    let builder = with_gateway(&file);
    let certificate = write_certificate(builder.home());
    let server = builder.start();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(1).build().unwrap();
    let programs = [b"http/1.1".as_slice(), b"http/1.1", b"http/1.0"].map(|alpn| {
        runtime.block_on(async {
            let stream =
                connect_offering(server.address("gateway"), std::slice::from_ref(&certificate), &[alpn, b"http/1.1"])
                    .await
                    .unwrap();
            let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
            tokio::spawn(connection);
            let seen = text(sender.send_request(request("/")).await.unwrap()).await.to_ascii_lowercase();
            let caller = seen.lines().find_map(|line| line.strip_prefix("x-tollgate-caller: ")).unwrap_or("none");
            caller.to_owned()
        })
    });
    // The same program has the same fingerprint; what it offers first is a part of it.
    assert!(programs[0].starts_with("t13d") && programs[0].contains("h1_"), "{programs:?}");
    assert_eq!(programs[0], programs[1]);
    assert!(programs[2].contains("h0_"), "{programs:?}");
}

#[test]
fn both_protocols_work_and_certificates_are_swapped() {
    let upstream = Upstream::start();
    let tls = "listen: {address: 127.0.0.1:0, tls: {cert: tls.pem, key: tls.key}}\n";
    let file = everything_to(&[upstream.address()]).replace("listen: 127.0.0.1:0\n", tls);
    let builder = with_gateway(&file);
    let first = write_certificate(builder.home());
    let server = builder.start();
    let address = server.address("gateway").to_owned();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(1).build().unwrap();

    let stream = runtime.block_on(connect(&address, &first, b"http/1.1")).unwrap();
    let mut http1 = runtime.block_on(async {
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender
    });
    let seen = runtime.block_on(async { text(http1.send_request(request("/one")).await.unwrap()).await });
    let seen = seen.to_ascii_lowercase();
    assert!(seen.starts_with("get /one ") && seen.contains("x-forwarded-proto: https\n"), "{seen}");

    let stream = runtime.block_on(connect(&address, &first, b"h2")).unwrap();
    let seen = runtime.block_on(async {
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.unwrap();
        tokio::spawn(connection);
        text(sender.send_request(request("https://localhost/two")).await.unwrap()).await
    });
    assert!(seen.starts_with("GET /two HTTP/1.1\n"), "{seen}");

    let second = write_certificate(server.home());
    let is_swapped = || runtime.block_on(connect(&address, &second, b"h2")).map(drop);
    assert!(eventually(is_swapped).is_some(), "{}", server.log());
    // The connection of the certificate before goes on.
    let seen = runtime.block_on(async { text(http1.send_request(request("/three")).await.unwrap()).await });
    assert!(seen.starts_with("GET /three "), "{seen}");
}

#[test]
fn certificates_are_swapped_under_load_without_a_failure() {
    let upstream = Upstream::start();
    let tls = "listen: {address: 127.0.0.1:0, tls: {cert: tls.pem, key: tls.key}}\n";
    let file = everything_to(&[upstream.address()]).replace("listen: 127.0.0.1:0\n", tls);
    let builder = with_gateway(&file);
    let first = write_certificate(builder.home());
    let server = builder.start();
    let address = server.address("gateway").to_owned();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(1).build().unwrap();

    // New connections all the time, with the certificate before or the one after, and requests on each of them.
    let (is_over, requests) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let trusted = Arc::new(Mutex::new(vec![first]));
    let clients: Vec<_> = [&b"http/1.1"[..], b"http/1.1", b"h2"]
        .into_iter()
        .map(|alpn| {
            let (address, is_over, requests, trusted) =
                (address.clone(), is_over.clone(), requests.clone(), trusted.clone());
            runtime.spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let stream = {
                        let certificates = trusted.lock().unwrap().clone();
                        let connected = connect_offering(&address, &certificates, &[alpn]).await;
                        // There may be another one since.
                        let is_same = || certificates.len() == trusted.lock().unwrap().len();
                        match connected {
                            None if !is_same() => continue,
                            connected => connected.expect("the handshake"),
                        }
                    };
                    use_connection(stream, alpn).await;
                    requests.fetch_add(3, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for _ in 0..3 {
        let until = requests.load(Ordering::Relaxed) + 60;
        assert!(eventually(|| (requests.load(Ordering::Relaxed) >= until).then_some(())).is_some());
        let issued = Issued::new();
        let next = issued.certificate();
        trusted.lock().unwrap().push(next.clone());
        issued.write(server.home());
        let is_swapped = || runtime.block_on(connect(&address, &next, b"http/1.1")).map(drop);
        assert!(eventually(is_swapped).is_some(), "{}", server.log());
    }
    is_over.store(true, Ordering::Relaxed);
    for client in clients {
        runtime.block_on(client).unwrap();
    }
}

/// Three requests on a connection.
async fn use_connection(stream: TlsStream<TcpStream>, alpn: &[u8]) {
    if alpn == b"h2" {
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.unwrap();
        tokio::spawn(connection);
        for _ in 0..3 {
            text(sender.send_request(request("https://localhost/load")).await.unwrap()).await;
        }
    } else {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        for _ in 0..3 {
            sender.ready().await.unwrap();
            text(sender.send_request(request("/load")).await.unwrap()).await;
        }
    }
}
