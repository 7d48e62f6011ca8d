//! Binds the listeners, each with its protocol and its TLS.

use std::sync::Arc;

use tollgate_net::Address;
use tollgate_net::descriptors::{self, ConnectionShare};
use tollgate_net::listener::Listener;
use tollgate_net::tls::{self, Tls, TlsFiles};
use tollgate_net::workers::{Endpoint, Wire};

use super::component::{Foundation, Tasks};
use crate::config::{self, ListenSettings, ServerSettings};

/// Binds listeners and collects the errors.
pub(super) struct EndpointBuilder<'f> {
    foundation: &'f Foundation<'f>,
    addresses: Vec<(&'static str, String)>,
    errors: Vec<String>,
    secured: Vec<Arc<Tls>>,
    share: ConnectionShare,
}

impl<'f> EndpointBuilder<'f> {
    /// `of_gateway`: the connections that the listeners of the gateway allow.
    pub(super) fn new(foundation: &'f Foundation<'f>, of_gateway: usize) -> EndpointBuilder<'f> {
        let share = share(foundation.settings, of_gateway);
        EndpointBuilder { foundation, addresses: Vec::new(), errors: Vec::new(), secured: Vec::new(), share }
    }

    /// Binds a listener, unless it is off. [`finish`](EndpointBuilder::finish) reports the errors.
    pub(super) fn bind(
        &mut self,
        name: &'static str,
        listen: &ListenSettings,
        wire: Arc<dyn Wire>,
    ) -> Option<Endpoint> {
        let tls = match listen.tls.as_ref().map(|tls| Tls::load(tls_files(tls), protocols(name))).transpose() {
            Ok(tls) => tls.map(Arc::new),
            Err(error) => {
                self.errors.push(format!("{name}: TLS can't be set up: {error}"));
                return None;
            }
        };
        self.secured.extend(tls.clone());
        match Listener::bind(&listen.address) {
            Ok(None) => None,
            Ok(Some(listener)) => {
                self.addresses.push((name, listener.to_string()));
                let metrics = self.foundation.metrics.listener(name);
                let share = (name != "admin").then(|| self.share.clone());
                Some(Endpoint { listener, wire, tls, max_connections: listen.max_connections, share, metrics })
            }
            Err(error) => {
                let address = &listen.address;
                // A gateway's listeners are in its file.
                let setting =
                    if name == "gateway" { "`listen` of the gateway's file".to_owned() } else { format!("--{name}") };
                let remedy = format!("stop the program that listens there, or choose another address with {setting}");
                self.errors.push(format!("{name} can't listen on {address}: {error}; {remedy}"));
                None
            }
        }
    }

    /// The addresses of all listeners, in the order in which they were bound. Certificates are watched in the background.
    ///
    /// # Errors
    /// An error for every listener that could not be bound, with a remedy.
    pub(super) fn finish(self, tasks: &mut Tasks) -> Result<Vec<(&'static str, String)>, Vec<String>> {
        for tls in self.secured {
            let health = self.foundation.health.clone();
            tasks.add(move |closing| tls.watch(tls::POLL_INTERVAL, health, closing));
        }
        if self.errors.is_empty() { Ok(self.addresses) } else { Err(self.errors) }
    }
}

/// Raises the limit on open files, and returns the share of gateways and applications in it.
fn share(settings: &ServerSettings, of_gateway: usize) -> ConnectionShare {
    let connections = |listen: &ListenSettings| match listen.address {
        Address::Off => 0,
        _ => listen.max_connections,
    };
    let limit = descriptors::raise_limit();
    let share = ConnectionShare::new(limit, connections(&settings.admin.listen));
    let data = [&settings.grpc.listen, &settings.http.listen, &settings.resp.listen];
    let requested = data.into_iter().map(connections).fold(of_gateway, usize::saturating_add);
    if requested > share.max() {
        tracing::warn!(
            "this process may have {limit} open files: of the {requested} connections that grpc_max_connections, http_max_connections, \
             resp_max_connections and max_connections of the gateway's listeners allow, {} can be open at a time, as others are reserved for the admin listener, rules and \
             databases; raise the hard limit (LimitNOFILE, ulimit -Hn), or lower these settings",
            share.max()
        );
    }
    share
}

fn tls_files(tls: &config::TlsSettings) -> TlsFiles {
    let clients = tls.clients.as_ref();
    TlsFiles {
        cert: tls.cert.clone(),
        key: tls.key.clone(),
        client_ca: clients.map(|clients| clients.ca.clone()),
        are_clients_optional: clients.is_some_and(|clients| clients.is_optional),
        client_sans: clients.map(|clients| clients.sans.clone()).unwrap_or_default(),
    }
}

/// The protocols that ALPN offers to clients.
fn protocols(listener: &str) -> &'static [&'static [u8]] {
    match listener {
        "grpc" => &[b"h2"],
        "gateway" => &[b"h2", b"http/1.1"],
        "resp" => &[],
        _ => &[b"http/1.1"],
    }
}
