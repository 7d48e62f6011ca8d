//! Connections from Envoy to Tollgate other than plain TCP.

use std::fs;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

use super::{EnvoyConfig, builder};
use crate::clients::deploy;

#[test]
fn envoy_connects_over_a_unix_socket() {
    let builder = builder();
    let socket = builder.home().join("grpc.sock").display().to_string();
    let _server = builder.args(&["--grpc", &format!("unix:{socket}")]).start();
    let cluster = deploy::replace(&deploy::read("envoy/cluster-unix.yaml"), "/run/tollgate/grpc.sock", &socket);
    let envoy = EnvoyConfig::new("127.0.0.1:1").with_cluster("tollgate_unix", cluster).start();
    assert_eq!(envoy.statuses(4, "/public", &[]), [200, 200, 200, 429]);
}

/// A certificate authority and certificates that it signed, as files.
struct Certificates(TempDir);

impl Certificates {
    fn new() -> Certificates {
        let directory = TempDir::new().unwrap();
        let mut authority = CertificateParams::default();
        // The name must differ from those of the signed certificates.
        authority.distinguished_name.push(DnType::CommonName, "the authority");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        fs::write(directory.path().join("ca.pem"), authority.pem()).unwrap();
        for name in ["tollgate", "envoy", "stranger"] {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new([format!("{name}.internal")]).unwrap();
            let certificate = params.signed_by(&key, &authority).unwrap();
            fs::write(directory.path().join(format!("{name}.pem")), certificate.pem()).unwrap();
            fs::write(directory.path().join(format!("{name}-key.pem")), key.serialize_pem()).unwrap();
        }
        Certificates(directory)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }
}

/// The cluster configuration of Envoy, with the certificate of this name.
fn cluster(certificates: &Certificates, name: &str, address: &str) -> String {
    let port = address.rsplit(':').next().unwrap();
    let text = deploy::read("envoy/cluster-mtls.yaml");
    let text = deploy::replace(&text, "port_value: 8081}", &format!("port_value: {port}}}"));
    let text = deploy::replace(&text, "/etc/envoy/envoy", &certificates.path(name));
    deploy::replace(&text, "/etc/envoy/", &format!("{}/", Path::new(&certificates.path("")).display()))
}

#[test]
fn envoy_connects_with_mutual_tls() {
    let certificates = Certificates::new();
    let [cert, key, ca] = ["tollgate.pem", "tollgate-key.pem", "ca.pem"].map(|name| certificates.path(name));
    let server = builder()
        .args(&["--grpc-tls-cert", &cert, "--grpc-tls-key", &key])
        .args(&["--grpc-tls-client-ca", &ca, "--grpc-tls-client-sans", "envoy.internal"])
        .start();
    let address = server.address("grpc");
    let known =
        EnvoyConfig::new(address).fail_closed().with_cluster("tollgate_mtls", cluster(&certificates, "envoy", address));
    let known = known.start();
    assert_eq!(known.statuses(4, "/public", &[]), [200, 200, 200, 429]);

    // A certificate of the same authority for another name.
    let other = cluster(&certificates, "stranger", address);
    let other = EnvoyConfig::new(address).fail_closed().with_cluster("tollgate_mtls", other).start();
    assert_eq!(other.statuses(2, "/public", &[]), [503; 2]);
    // No certificate.
    let plain = EnvoyConfig::new(address).fail_closed().start();
    assert_eq!(plain.statuses(2, "/public", &[]), [503; 2]);
}
