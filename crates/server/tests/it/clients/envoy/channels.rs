//! Ways from Envoy to Tollgate other than plain TCP.

use std::fs;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

use super::{Config, builder};
use crate::clients::tools;

#[test]
fn a_unix_socket() {
    let builder = builder();
    let socket = builder.home().join("grpc.sock").display().to_string();
    let _server = builder.args(&["--grpc", &format!("unix:{socket}")]).start();
    let cluster = tools::replaced(&tools::deployed("envoy/cluster-unix.yaml"), "/run/tollgate/grpc.sock", &socket);
    let envoy = Config::new("127.0.0.1:1").with_cluster("tollgate_unix", cluster).start();
    assert_eq!(envoy.statuses(4, "/public", &[]), [200, 200, 200, 429]);
}

/// A certificate authority and what it signed, as files.
struct Certificates(TempDir);

impl Certificates {
    fn new() -> Certificates {
        let folder = TempDir::new().unwrap();
        let mut authority = CertificateParams::default();
        // One that is called like what it signs would be taken for that.
        authority.distinguished_name.push(DnType::CommonName, "the authority");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        fs::write(folder.path().join("ca.pem"), authority.pem()).unwrap();
        for name in ["tollgate", "envoy", "stranger"] {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new([format!("{name}.internal")]).unwrap();
            let certificate = params.signed_by(&key, &authority).unwrap();
            fs::write(folder.path().join(format!("{name}.pem")), certificate.pem()).unwrap();
            fs::write(folder.path().join(format!("{name}-key.pem")), key.serialize_pem()).unwrap();
        }
        Certificates(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }
}

/// Envoy's side, with the certificate of `who`.
fn cluster(certificates: &Certificates, who: &str, address: &str) -> String {
    let port = address.rsplit(':').next().unwrap();
    let text = tools::deployed("envoy/cluster-mtls.yaml");
    let text = tools::replaced(&text, "port_value: 8081}", &format!("port_value: {port}}}"));
    let text = tools::replaced(&text, "/etc/envoy/envoy", &certificates.path(who));
    tools::replaced(&text, "/etc/envoy/", &format!("{}/", Path::new(&certificates.path("")).display()))
}

#[test]
fn tls_with_certificates_on_both_sides() {
    let certificates = Certificates::new();
    let [cert, key, ca] = ["tollgate.pem", "tollgate-key.pem", "ca.pem"].map(|name| certificates.path(name));
    let server = builder()
        .args(&["--grpc-tls-cert", &cert, "--grpc-tls-key", &key])
        .args(&["--grpc-tls-client-ca", &ca, "--grpc-tls-client-sans", "envoy.internal"])
        .start();
    let address = server.address("grpc");
    let known =
        Config::new(address).fail_closed().with_cluster("tollgate_mtls", cluster(&certificates, "envoy", address));
    let known = known.start();
    assert_eq!(known.statuses(4, "/public", &[]), [200, 200, 200, 429]);

    // A certificate of the same authority, for somebody else.
    let other = cluster(&certificates, "stranger", address);
    let other = Config::new(address).fail_closed().with_cluster("tollgate_mtls", other).start();
    assert_eq!(other.statuses(2, "/public", &[]), [503; 2]);
    // And none.
    let plain = Config::new(address).fail_closed().start();
    assert_eq!(plain.statuses(2, "/public", &[]), [503; 2]);
}
