//! Access: passwords, users, certificates, sockets.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tollgate_redis::ClientCert;
use tollgate_store::sharded::{Failure, Sharded};
use tollgate_testing::Redis;
use tollgate_testing::redis::Certificate;

use crate::{Rule, RunningStore, TIMEOUT, config, until};

/// The error of a server that refuses access.
async fn refusal(running: &RunningStore) -> String {
    match running.take(&Rule::new(1), "me", 1, TIMEOUT).await {
        Err(Failure::Refused(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_password_is_in_the_address_or_separate() {
    let redis = Redis::start_with(&["--requirepass", "hunter2"]);
    let port = redis.port();
    let rule = Rule::new(10);
    let by_address = RunningStore::at(&format!("redis://:hunter2@127.0.0.1:{port}"));
    assert!(by_address.take(&rule, "me", 1, TIMEOUT).await.is_ok());
    let mut separate = config(&format!("redis://:wrong@127.0.0.1:{port}"));
    separate.password = Some("hunter2".into());
    assert!(!format!("{separate:?}").contains("hunter2"));
    let separate = RunningStore::new(separate);
    assert!(separate.take(&rule, "me", 1, TIMEOUT).await.is_ok());
    assert!(!format!("{:?}", separate.store).contains("hunter2"));

    let wrong = refusal(&RunningStore::at(&format!("redis://:hunter3@127.0.0.1:{port}"))).await;
    assert!(wrong.contains("WRONGPASS") && !wrong.contains("hunter"), "{wrong}");
    let none = refusal(&RunningStore::at(&redis.url())).await;
    assert!(none.contains("NOAUTH"), "{none}");
}

#[tokio::test]
async fn a_user_may_do_what_the_server_lets_them() {
    let redis = Redis::start();
    let port = redis.port();
    redis.inline("ACL SETUSER tolls on >s%cret ~tg:* +eval +evalsha +script|load +role +@read +@write +@fast -@admin");
    redis.inline("ACL SETUSER looks on >secret ~* +@read +script|load");
    let tolls = RunningStore::at(&format!("redis://tolls:s%25cret@127.0.0.1:{port}"));
    assert!(tolls.take(&Rule::new(10), "me", 1, TIMEOUT).await.is_ok());
    assert_eq!(tolls.store.heartbeat(TIMEOUT).await, Ok(1));
    let looks = refusal(&RunningStore::at(&format!("redis://looks:secret@127.0.0.1:{port}"))).await;
    assert!(looks.contains("NOPERM"), "{looks}");
    let nobody = refusal(&RunningStore::at(&format!("redis://nobody:secret@127.0.0.1:{port}"))).await;
    assert!(nobody.contains("WRONGPASS"), "{nobody}");
}

#[tokio::test]
async fn a_socket_is_as_good_as_a_port() {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let path = directory.join(format!("redis-{}.sock", std::process::id()));
    let _redis = Redis::start_with(&["--unixsocket", path.to_str().unwrap()]);
    let running = RunningStore::at(&format!("unix://{}", path.display()));
    assert_eq!(running.take(&Rule::new(10), "me", 1, TIMEOUT).await.unwrap().remaining, 9);
    assert_eq!(running.store.shards()[0].name, path.display().to_string());
}

/// Certificates of a test authority, as files.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    directory: PathBuf,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // With the default name it would seem to be self-signed.
        parameters.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.self_signed(&key).unwrap().pem();
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("ca.pem"), &certificate).unwrap();
        Authority { issuer: Issuer::new(parameters, key), certificate, directory }
    }

    fn sign(&self, name: &str) -> ClientCert {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &self.issuer).unwrap();
        ClientCert { certificate: certificate.pem().into_bytes(), key: key.serialize_pem().into_bytes() }
    }

    /// A server whose certificate is for this name, and its TLS port. It accepts clients with a certificate of this
    /// authority.
    fn server(&self, name: &str) -> (Redis, u16) {
        let ClientCert { certificate, key } = self.sign(name);
        let path = |file: &str| self.directory.join(format!("{name}-{file}"));
        std::fs::write(path("cert.pem"), certificate).unwrap();
        std::fs::write(path("key.pem"), key).unwrap();
        let ca = self.directory.join("ca.pem");
        Redis::start_tls(Certificate { cert: &path("cert.pem"), key: &path("key.pem"), authority: &ca })
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

#[tokio::test]
async fn tls_proves_who_both_sides_are() {
    let authority = Authority::new("tls");
    let (redis, port) = authority.server("localhost");
    redis.inline("CONFIG SET tls-auth-clients yes");
    let known = |ca: &Authority, host: &str, client: Option<ClientCert>| {
        let mut config = config(&format!("rediss://{host}:{port}"));
        config.ca = Some(ca.certificate.clone().into_bytes());
        config.client_cert = client;
        RunningStore::new(config)
    };
    let rule = Rule::new(10);
    let good = known(&authority, "localhost", Some(authority.sign("client")));
    // A handshake may take longer than its timeout on a busy machine. A peek takes nothing.
    until(|| async { good.take(&rule, "me", 0, TIMEOUT).await.is_ok() }).await;
    assert_eq!(good.take(&rule, "me", 1, TIMEOUT).await.unwrap().remaining, 9);
    let stranger = Authority::new("stranger");
    for (bad, why) in [
        (known(&authority, "localhost", None), "no certificate of ours"),
        (known(&authority, "localhost", Some(stranger.sign("client"))), "one that the server does not know"),
        (known(&stranger, "localhost", Some(authority.sign("client"))), "a server that we do not know"),
        (known(&authority, "127.0.0.1", Some(authority.sign("client"))), "a server by another name"),
    ] {
        let settled = bad.take(&rule, "me", 1, TIMEOUT).await;
        assert!(matches!(settled, Err(Failure::Unreachable(_))), "{why}: {settled:?}");
    }
    let plain = RunningStore::at(&format!("redis://localhost:{port}"));
    assert!(matches!(plain.take(&rule, "me", 1, TIMEOUT).await, Err(Failure::Unreachable(_))));
    assert_eq!(good.taken(&rule, "me").await, 1);
}
