//! Handshakes with certificates that the tests generate.

use std::fs;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType, date_time_ymd};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_rustls::{TlsConnector, client};

use super::sans::San;
use super::*;
use crate::closing::Closer;

/// Signs certificates.
struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key, as text.
#[derive(Clone)]
struct Pair {
    cert: String,
    key: String,
}

impl Ca {
    fn new(name: &str) -> Ca {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Ca { issuer: Issuer::new(params, key), pem }
    }

    fn sign(&self, sans: &[SanType]) -> Pair {
        self.sign_until(sans, 2100)
    }

    fn sign_until(&self, sans: &[SanType], year: i32) -> Pair {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.subject_alt_names = sans.to_vec();
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        Pair { cert: params.signed_by(&key, &self.issuer).unwrap().pem(), key: key.serialize_pem() }
    }

    fn server(&self) -> Pair {
        self.sign(&[dns("localhost")])
    }
}

fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().unwrap())
}

fn uri(name: &str) -> SanType {
    SanType::URI(name.try_into().unwrap())
}

/// A directory with the files of a server.
struct Folder(TempDir);

impl Folder {
    fn new(pair: &Pair, client_ca: Option<&Ca>) -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        folder.put(pair);
        if let Some(ca) = client_ca {
            fs::write(folder.path("ca.pem"), &ca.pem).unwrap();
        }
        folder
    }

    fn put(&self, pair: &Pair) {
        fs::write(self.path("cert.pem"), &pair.cert).unwrap();
        fs::write(self.path("key.pem"), &pair.key).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn files(&self, client_sans: &[&str]) -> TlsFiles {
        let ca = self.path("ca.pem");
        TlsFiles {
            cert: self.path("cert.pem"),
            key: self.path("key.pem"),
            client_ca: ca.exists().then_some(ca),
            are_clients_optional: false,
            client_sans: client_sans.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    fn tls(&self, client_sans: &[&str]) -> Tls {
        Tls::load(self.files(client_sans), &[b"h2", b"http/1.1"]).unwrap()
    }

    /// The error from loading the files.
    fn error(&self, client_sans: &[&str]) -> String {
        let error = Tls::load(self.files(client_sans), &[]).unwrap_err().to_string();
        error.replace(&format!("{}/", self.0.path().display()), "")
    }
}

/// A client that trusts this CA and presents this certificate.
fn client(trusts: &Ca, shows: Option<&Pair>) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusts.pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    let mut config = match shows {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            let cert = CertificateDer::from_pem_slice(pair.cert.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![cert], key).unwrap()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsConnector::from(Arc::new(config))
}

type Handshake = (io::Result<TlsStream<DuplexStream>>, io::Result<client::TlsStream<DuplexStream>>);

async fn handshake(tls: &Tls, client: &TlsConnector) -> Handshake {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let name = ServerName::try_from("localhost").unwrap();
    tokio::join!(tls.accept(near), client.connect(name, far))
}

/// Exchanges data after the handshake, or returns the errors of server and client.
async fn talk(tls: &Tls, client: &TlsConnector) -> Result<Vec<u8>, (Option<String>, Option<String>)> {
    let text = |error: &io::Error| error.to_string();
    match handshake(tls, client).await {
        (Ok(mut server), Ok(mut client)) => {
            let mut received = [0; 5];
            client.write_all(b"hello").await.unwrap();
            server.read_exact(&mut received).await.unwrap();
            server.write_all(&received).await.unwrap();
            client.read_exact(&mut received).await.unwrap();
            assert_eq!(&received, b"hello");
            Ok(server.get_ref().1.alpn_protocol().unwrap_or_default().to_vec())
        }
        // In TLS 1.3 a client completes before the server has checked its certificate; it gets the alert when it reads.
        (Err(server), Ok(mut client)) => Err((Some(text(&server)), client.read_u8().await.err().as_ref().map(text))),
        (server, client) => Err((server.err().as_ref().map(text), client.err().as_ref().map(text))),
    }
}

async fn refusal(tls: &Tls, client: &TlsConnector) -> (String, String) {
    let (server, client) = talk(tls, client).await.unwrap_err();
    (server.unwrap(), client.unwrap())
}

/// The certificate that the server presents.
async fn presented(tls: &Tls, client: &TlsConnector) -> CertificateDer<'static> {
    let (_, client) = handshake(tls, client).await;
    client.unwrap().get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

#[tokio::test]
async fn plain_tls() {
    let ca = Ca::new("ca");
    let folder = Folder::new(&ca.server(), None);
    let tls = folder.tls(&[]);
    assert_eq!(talk(&tls, &client(&ca, None)).await.unwrap(), b"h2");
    assert_eq!(
        talk(&tls, &client(&ca, Some(&ca.sign(&[])))).await.unwrap(),
        b"h2",
        "a certificate that is not required"
    );
    let (server, client) = refusal(&tls, &client(&Ca::new("another"), None)).await;
    assert!(server.contains("UnknownCA"), "{server}");
    assert!(client.contains("UnknownIssuer"), "{client}");
}

#[tokio::test]
async fn connections_of_both_kinds() {
    let ca = Ca::new("ca");
    let tls = Folder::new(&ca.server(), None).tls(&[]);
    let name = || ServerName::try_from("localhost").unwrap();
    let connector = client(&ca, None);

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let far = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let near = Stream::Tcp(listener.accept().await.unwrap().0);
    let (server, client) = tokio::join!(tls.secure(near), connector.connect(name(), far));
    let (mut server, mut client) = (server.unwrap(), client.unwrap());
    // Version 1.3, a name, no protocol: what this client offers.
    let fingerprint = server.tls_fingerprint().unwrap();
    assert!(fingerprint.starts_with("t13d") && fingerprint.len() == 36, "{fingerprint}");
    client.write_u8(7).await.unwrap();
    assert_eq!(server.read_u8().await.unwrap(), 7);

    let (near, far) = UnixStream::pair().unwrap();
    let (server, client) = tokio::join!(tls.secure(Stream::Unix(near)), connector.connect(name(), far));
    let (Stream::TlsUnix(mut server), mut client) = (server.unwrap(), client.unwrap()) else { panic!() };
    server.write_u8(8).await.unwrap();
    assert_eq!(client.read_u8().await.unwrap(), 8);
}

#[tokio::test]
async fn clients_must_show_a_certificate_of_the_ca() {
    let (ca, clients) = (Ca::new("ca"), Ca::new("clients"));
    let folder = Folder::new(&ca.server(), Some(&clients));
    let tls = folder.tls(&[]);
    assert!(talk(&tls, &client(&ca, Some(&clients.sign(&[])))).await.is_ok(), "any name");

    let (server, alert) = refusal(&tls, &client(&ca, None)).await;
    assert!(server.contains("no certificates"), "{server}");
    assert!(alert.contains("CertificateRequired"), "{alert}");

    // The same name, another key.
    let (server, alert) = refusal(&tls, &client(&ca, Some(&Ca::new("clients").sign(&[])))).await;
    assert!(server.contains("invalid peer certificate"), "{server}");
    assert!(alert.contains("DecryptError") || alert.contains("UnknownCA"), "{alert}");

    let (server, alert) = refusal(&tls, &client(&ca, Some(&clients.sign_until(&[], 2020)))).await;
    assert!(server.contains("expired"), "{server}");
    assert!(alert.contains("CertificateExpired"), "{alert}");
}

#[tokio::test]
async fn clients_must_have_an_allowed_name() {
    let (ca, clients) = (Ca::new("ca"), Ca::new("clients"));
    let folder = Folder::new(&ca.server(), Some(&clients));
    let names = ["Gateway.example", "spiffe://example/gateway", "192.0.2.7", "2001:db8::7", "ops@example"];
    let tls = folder.tls(&names);
    let email = |name: &str| SanType::Rfc822Name(name.try_into().unwrap());
    let ip = |name: &str| SanType::IpAddress(name.parse().unwrap());
    let rows = [
        (vec![dns("gateway.example")], true),
        (vec![dns("GATEWAY.example")], true),
        (vec![dns("other.example"), dns("gateway.example")], true),
        (vec![uri("spiffe://example/gateway")], true),
        (vec![ip("192.0.2.7")], true),
        (vec![ip("2001:db8:0::7")], true),
        (vec![email("ops@example")], true),
        (vec![], false),
        (vec![dns("other.example")], false),
        (vec![dns("a.gateway.example")], false),
        (vec![uri("spiffe://example/other")], false),
        (vec![uri("spiffe://example/Gateway")], false),
        (vec![ip("192.0.2.8")], false),
        (vec![uri("gateway.example")], false),
        (vec![email("gateway.example")], false),
        (vec![dns("192.0.2.7")], false),
    ];
    for (sans, allowed) in rows {
        let talked = talk(&tls, &client(&ca, Some(&clients.sign(&sans)))).await;
        match talked {
            Ok(_) => assert!(allowed, "{sans:?}"),
            Err((_, Some(alert))) => assert!(!allowed && alert.contains("AccessDenied"), "{sans:?}: {alert}"),
            Err(other) => panic!("{sans:?}: {other:?}"),
        }
    }
    let stranger = Ca::new("clients").sign(&[dns("gateway.example")]);
    assert!(talk(&tls, &client(&ca, Some(&stranger))).await.is_err(), "the right name of the wrong CA");
}

#[tokio::test]
async fn sessions_of_known_clients_are_not_resumed() {
    let (ca, clients) = (Ca::new("ca"), Ca::new("clients"));
    let (open, known) = (Folder::new(&ca.server(), None), Folder::new(&ca.server(), Some(&clients)));
    for (tls, resumes) in [(open.tls(&[]), true), (known.tls(&[]), false)] {
        let connector = client(&ca, Some(&clients.sign(&[])));
        talk(&tls, &connector).await.unwrap();
        let (server, _) = handshake(&tls, &connector).await;
        let kind = server.unwrap().get_ref().1.handshake_kind();
        assert_eq!(kind == Some(rustls::HandshakeKind::Resumed), resumes, "{kind:?}");
    }
}

#[test]
fn names_of_settings_are_parsed() {
    let rows = [
        ("a.Example", San::Dns("a.example".to_owned())),
        ("spiffe://a@b/c", San::Uri("spiffe://a@b/c".to_owned())),
        ("urn:x:y", San::Uri("urn:x:y".to_owned())),
        ("::1", San::Ip("::1".parse().unwrap())),
        ("127.0.0.1", San::Ip("127.0.0.1".parse().unwrap())),
        ("a@b", San::Email("a@b".to_owned())),
    ];
    for (text, san) in rows {
        assert_eq!(San::parse(text), san, "{text}");
    }
}

#[tokio::test]
async fn new_files_are_loaded_and_connections_stay_open() {
    let ca = Ca::new("ca");
    let folder = Folder::new(&ca.server(), None);
    let tls = folder.tls(&[]);
    let connector = client(&ca, None);
    let (mut server, mut old) = match handshake(&tls, &connector).await {
        (Ok(server), Ok(client)) => (server, client),
        other => panic!("{other:?}"),
    };
    let before = presented(&tls, &connector).await;
    assert!(matches!(tls.reload_if_changed(), Reload::Unchanged));

    let renewed = ca.server();
    folder.put(&renewed);
    assert!(matches!(tls.reload_if_changed(), Reload::Renewed));
    assert!(matches!(tls.reload_if_changed(), Reload::Unchanged));
    let after = presented(&tls, &connector).await;
    assert_ne!(after, before);
    assert_eq!(after, CertificateDer::from_pem_slice(renewed.cert.as_bytes()).unwrap());

    old.write_u8(9).await.unwrap();
    assert_eq!(server.read_u8().await.unwrap(), 9);
}

#[tokio::test]
async fn invalid_files_are_not_loaded() {
    let ca = Ca::new("ca");
    let good = ca.server();
    let folder = Folder::new(&good, None);
    let tls = folder.tls(&[]);
    let connector = client(&ca, None);
    let before = presented(&tls, &connector).await;
    let other = ca.server();
    let bad: [&dyn Fn(); 4] = [
        &|| fs::write(folder.path("cert.pem"), &other.cert).unwrap(),
        &|| fs::write(folder.path("cert.pem"), "").unwrap(),
        &|| fs::write(folder.path("key.pem"), "nothing").unwrap(),
        &|| fs::remove_file(folder.path("key.pem")).unwrap(),
    ];
    for spoil in bad {
        folder.put(&good);
        tls.reload_if_changed();
        spoil();
        assert!(matches!(tls.reload_if_changed(), Reload::Refused(_)));
        assert!(matches!(tls.reload_if_changed(), Reload::Unchanged), "reported once");
        assert_eq!(presented(&tls, &connector).await, before);
    }
    folder.put(&other);
    assert!(matches!(tls.reload_if_changed(), Reload::Renewed));
    assert_ne!(presented(&tls, &connector).await, before);
}

#[tokio::test]
async fn another_client_ca_is_loaded() {
    let (ca, first, second) = (Ca::new("ca"), Ca::new("first"), Ca::new("second"));
    let folder = Folder::new(&ca.server(), Some(&first));
    let tls = folder.tls(&[]);
    let connector = client(&ca, Some(&second.sign(&[])));
    refusal(&tls, &connector).await;
    fs::write(folder.path("ca.pem"), &second.pem).unwrap();
    assert!(matches!(tls.reload_if_changed(), Reload::Renewed));
    talk(&tls, &connector).await.unwrap();
}

/// The clock advances only in `sleep`.
#[tokio::test(start_paused = true)]
async fn files_are_polled() {
    let ca = Ca::new("ca");
    let folder = Folder::new(&ca.server(), None);
    let (tls, health) = (Arc::new(folder.tls(&[])), Arc::new(Health::default()));
    let (closer, closing) = Closer::new();
    let watching = tokio::spawn(Arc::clone(&tls).watch(POLL_INTERVAL, Arc::clone(&health), closing));
    let connector = client(&ca, None);
    let before = presented(&tls, &connector).await;

    fs::write(folder.path("key.pem"), ca.server().key).unwrap();
    tokio::time::sleep(3 * POLL_INTERVAL).await;
    let conditions = health.conditions();
    assert!(conditions.len() == 1 && conditions[0].0 == "tls", "{conditions:?}");
    assert!(conditions[0].1.contains("does not match"), "{conditions:?}");
    assert_eq!(presented(&tls, &connector).await, before);

    folder.put(&ca.server());
    tokio::time::sleep(2 * POLL_INTERVAL).await;
    assert_eq!(health.conditions(), []);
    assert_ne!(presented(&tls, &connector).await, before);
    closer.close();
    watching.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_silent_client_times_out() {
    let tls = Folder::new(&Ca::new("ca").server(), None).tls(&[]);
    let (near, _far) = tokio::io::duplex(1024);
    let accepting = tokio::spawn(async move { tls.accept(near).await });
    tokio::time::sleep(HANDSHAKE_TIMEOUT - Duration::from_millis(1)).await;
    assert!(!accepting.is_finished());
    tokio::time::sleep(Duration::from_millis(2)).await;
    let error = accepting.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert_eq!(error.to_string(), "the TLS handshake took longer than 10 s");
}

#[test]
fn errors_name_the_file_and_a_remedy() {
    let ca = Ca::new("ca");
    let (good, other) = (ca.server(), ca.server());
    let folder = Folder::new(&good, None);
    let with = |name: &str, text: &str| {
        folder.put(&good);
        let _ = fs::remove_file(folder.path("ca.pem"));
        fs::write(folder.path(name), text).unwrap();
        folder.error(&[])
    };
    let broken = good.cert.replacen("-----END", "----END", 1);
    let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let unusable = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let rows = [
        ("cert.pem", "", "cert.pem: contains no certificate: use a PEM file with at least one BEGIN CERTIFICATE"),
        ("cert.pem", &good.key, "cert.pem: contains no certificate"),
        ("cert.pem", &broken, "cert.pem: invalid PEM"),
        ("cert.pem", garbage, "cert.pem: contains a certificate that can't be used: "),
        ("key.pem", "", "key.pem: contains no private key: use a PEM file with a BEGIN PRIVATE KEY"),
        ("key.pem", &good.cert, "key.pem: contains no private key"),
        ("key.pem", encrypted, "key.pem: the private key is encrypted: "),
        ("key.pem", unusable, "key.pem: the key can't be used: "),
        ("key.pem", &other.key, "key.pem: the key does not match the first certificate in cert.pem"),
        ("ca.pem", "", "ca.pem: contains no certificate"),
        ("ca.pem", garbage, "ca.pem: contains a certificate that can't be used: "),
    ];
    for (name, text, expected) in rows {
        let error = with(name, text);
        assert!(error.starts_with(expected), "{error}");
        assert!(!error.contains("AAAA"), "{error}");
    }
    let error = with("key.pem", &"x".repeat(5 << 20));
    assert!(error.starts_with("key.pem: is larger than 4194304 bytes"), "{error}");
    assert!(with("key.pem", &good.key.replacen("-----END", "-", 1)).starts_with("key.pem: invalid PEM"));

    folder.put(&good);
    let error = folder.error(&["a.example"]);
    assert!(error.contains("without a client CA"), "{error}");
    fs::remove_file(folder.path("cert.pem")).unwrap();
    assert!(folder.error(&[]).starts_with("cert.pem: can't be read: "), "{}", folder.error(&[]));
}

#[test]
fn names_of_certificates_are_read_and_malformed_ones_are_none() {
    let ca = Ca::new("ca");
    let sans = [
        dns("A.example"),
        uri("spiffe://a/b"),
        SanType::Rfc822Name("a@b".try_into().unwrap()),
        SanType::IpAddress("192.0.2.7".parse().unwrap()),
        SanType::IpAddress("2001:db8::7".parse().unwrap()),
    ];
    let names = ["a.example", "spiffe://a/b", "a@b", "192.0.2.7", "2001:db8::7"].map(San::parse);
    let pem = ca.sign(&sans).cert;
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    assert_eq!(San::from_certificate(&certificate), Some(names.to_vec()));
    let without = CertificateDer::from_pem_slice(ca.sign(&[]).cert.as_bytes()).unwrap().into_owned();
    assert_eq!(San::from_certificate(&without), Some(Vec::new()));
    for length in 0..certificate.len() {
        assert_eq!(San::from_certificate(&certificate[..length].to_vec().into()), None, "{length}");
    }
    // Damage is never more than another list of names, or none.
    for at in 0..certificate.len() {
        for damage in [0, 0x7f, 0x80, 0x84, 0xff] {
            let mut bytes = certificate.to_vec();
            bytes[at] = damage;
            let read = San::from_certificate(&bytes.into()).unwrap_or_default();
            assert!(read.len() <= sans.len(), "{at}: {read:?}");
        }
    }
}
