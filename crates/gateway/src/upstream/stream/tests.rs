//! Tests of connections on which a server sends something that no request waits for.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::{TlsAcceptor, TlsConnector, server};

use super::*;

const SOON: Duration = Duration::from_secs(10);

async fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (client, listener.accept().await.unwrap().0)
}

async fn tls() -> (ServerStream, server::TlsStream<TcpStream>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let server = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
    let server = server.with_no_client_auth().with_single_cert(vec![certificate.clone()], key).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let connector = TlsConnector::from(Arc::new(client.with_root_certificates(roots).with_no_client_auth()));
    let (near, far) = tcp().await;
    let name = ServerName::try_from("localhost").unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(server));
    let (near, far) = tokio::join!(connector.connect(name, near), acceptor.accept(far));
    (ServerStream::TlsTcp(Box::new(near.unwrap())), far.unwrap())
}

/// What a server sends to change its keys.
fn new_keys(far: &mut server::TlsStream<TcpStream>) -> Vec<u8> {
    let (_, session) = far.get_mut();
    let mut update = Vec::new();
    session.refresh_traffic_keys().unwrap();
    session.write_tls(&mut update).unwrap();
    update
}

/// Waits until the server's bytes have arrived, and returns what is then said of the connection.
async fn is_quiet_after_arrival(stream: &mut ServerStream) -> bool {
    let socket = match stream {
        ServerStream::TlsTcp(stream) => stream.get_ref().0,
        ServerStream::Tcp(stream) => stream,
        ServerStream::Unix(_) | ServerStream::TlsUnix(_) => panic!("not a socket of these tests"),
    };
    // The runtime may still have noted what was read before.
    let arrived = async { while !matches!(socket.peek(&mut [0; 1]).await, Ok(0 | 1)) {} };
    tokio::time::timeout(SOON, arrived).await.unwrap();
    assert!(!stream.seems_quiet());
    stream.is_quiet()
}

/// Reads what is only for the session.
async fn settle(stream: &mut ServerStream, far: &mut server::TlsStream<TcpStream>) {
    far.write_all(b"x").await.unwrap();
    far.flush().await.unwrap();
    assert_eq!(tokio::time::timeout(SOON, stream.read_u8()).await.unwrap().unwrap(), b'x');
    assert!(stream.is_quiet());
}

#[tokio::test]
async fn bytes_and_the_end_are_seen() {
    for end in [false, true] {
        let (near, mut far) = tcp().await;
        let mut near = ServerStream::Tcp(near);
        assert!(near.is_quiet() && near.seems_quiet());
        if end {
            drop(far);
        } else {
            far.write_all(b"x").await.unwrap();
        }
        assert!(!is_quiet_after_arrival(&mut near).await);
    }
}

#[tokio::test]
async fn tickets_and_new_keys_of_tls_are_not_data() {
    let (mut near, mut far) = tls().await;
    // The tickets of the handshake.
    assert!(near.is_quiet());
    settle(&mut near, &mut far).await;
    for _ in 0..3 {
        let update = new_keys(&mut far);
        far.get_mut().0.write_all(&update).await.unwrap();
        assert!(is_quiet_after_arrival(&mut near).await);
        settle(&mut near, &mut far).await;
    }
}

#[tokio::test]
async fn data_and_the_end_of_tls_are_seen() {
    for end in [false, true] {
        let (mut near, mut far) = tls().await;
        settle(&mut near, &mut far).await;
        if end {
            far.shutdown().await.unwrap();
        } else {
            far.write_all(b"more").await.unwrap();
            far.flush().await.unwrap();
        }
        assert!(!is_quiet_after_arrival(&mut near).await);
    }
}

#[tokio::test]
async fn text_in_the_session_is_seen() {
    let (mut near, mut far) = tls().await;
    settle(&mut near, &mut far).await;
    // The session has all of it, of which a part is read.
    far.write_all(b"response and more").await.unwrap();
    far.flush().await.unwrap();
    let mut response = [0; 8];
    tokio::time::timeout(SOON, near.read_exact(&mut response)).await.unwrap().unwrap();
    assert!(!near.seems_quiet());
    assert!(!near.is_quiet());
}

#[tokio::test]
async fn a_connection_is_not_read_for_ever() {
    let (mut near, mut far) = tls().await;
    settle(&mut near, &mut far).await;
    // The session's bound on changes of keys may be reached before that on reads.
    let updates: Vec<u8> = (0..5_000).flat_map(|_| new_keys(&mut far)).collect();
    far.get_mut().0.write_all(&updates).await.unwrap();
    assert!(!is_quiet_after_arrival(&mut near).await);
}
