//! The client of a connection, as far as the connection itself says.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::net::IpAddr;

use http::HeaderValue;
use tollgate_net::Stream;
use tollgate_net::tls::sans::San;
use tollgate_net::tls::subject::subject;

use crate::forwarded::Peer;
use crate::identity::ConnectionFacts;

/// The client of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) facts: ConnectionFacts,
    pub(crate) peer: Peer,
    /// The text of its address, which every request needs.
    pub(crate) address: Option<HeaderValue>,
    pub(crate) is_tls: bool,
}

impl Client {
    pub(crate) fn of(stream: &Stream) -> Client {
        let certificate = stream.certificate();
        let address = stream.peer_address();
        let san = certificate.and_then(San::from_certificate).and_then(|names| names.into_iter().next());
        let facts = ConnectionFacts {
            peer: address,
            certificate_san: san.map(san_text),
            certificate_subject: certificate.and_then(|der| subject(der)).filter(|subject| !subject.is_empty()),
            certificate_fingerprint: certificate.map(|der| fingerprint(der)),
            tls_fingerprint: stream.tls_fingerprint().map(str::to_owned),
        };
        let is_tls = matches!(stream, Stream::TlsTcp(_) | Stream::TlsUnix(_));
        let text = address.and_then(|address| HeaderValue::try_from(address.to_canonical().to_string()).ok());
        Client { facts, peer: address.map_or(Peer::Unix, Peer::Address), address: text, is_tls }
    }

    /// The text of an address, which is nearly always this client's.
    pub(crate) fn address_text(&self, address: IpAddr) -> Cow<'_, str> {
        let own = self.address.as_ref().filter(|_| self.facts.peer.map(|peer| peer.to_canonical()) == Some(address));
        own.and_then(|own| own.to_str().ok()).map_or_else(|| Cow::Owned(address.to_string()), Cow::Borrowed)
    }
}

fn san_text(name: San) -> String {
    match name {
        San::Dns(text) | San::Uri(text) | San::Email(text) => text,
        San::Ip(address) => address.to_string(),
    }
}

fn fingerprint(certificate: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
    digest.as_ref().iter().fold(String::new(), |mut text, byte| {
        // Writing to a text can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
