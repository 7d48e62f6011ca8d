//! Builds the gateway: its configuration from its file, and a listener for each of its addresses.

use std::sync::Arc;

use tollgate_gateway::model::ListenerConfig;
use tollgate_gateway::{Gateway, GatewayFile, GatewayParts};
use tollgate_http::response::ResponseStyle;
use tollgate_net::workers::Endpoint;
use tollgate_wire::Gate;

use super::component::{Foundation, Tasks};
use super::endpoints::EndpointBuilder;
use crate::config::{ClientAuthSettings, ListenSettings, TlsSettings};

/// A gateway, and where it listens.
pub(super) struct GatewayListeners {
    gateway: Arc<Gateway>,
    listeners: Vec<ListenerConfig>,
}

impl GatewayListeners {
    /// `None` if the settings name no file.
    ///
    /// # Errors
    /// All problems of the file, with line and remedy.
    pub(super) fn build(
        foundation: &Foundation<'_>,
        style: ResponseStyle,
        gate: impl FnOnce() -> Arc<Gate>,
        tasks: &mut Tasks,
    ) -> Result<Option<GatewayListeners>, Vec<String>> {
        let Some(path) = &foundation.settings.gateway else { return Ok(None) };
        let (file, plan, warnings) = GatewayFile::load(path)?;
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let listeners = plan.listeners().to_vec();
        let normalization = foundation.settings.http.normalization;
        let parts = GatewayParts { gate: gate(), style, normalization, workers: foundation.busy.clone() };
        let gateway = Arc::new(Gateway::new(parts, plan));
        let (running, followed, health) = (gateway.clone(), gateway.clone(), foundation.health.clone());
        let (watched, watching) = (gateway.clone(), health.clone());
        tasks.add(move |closing| tollgate_admin::gateway::follow_health(watched, watching, closing));
        tasks.add(move |mut closing| async move {
            tokio::select! {
                () = running.run() => {}
                () = closing.begun() => {}
            }
        });
        tasks.add(move |closing| file.follow(followed, health, closing));
        Ok(Some(GatewayListeners { gateway, listeners }))
    }

    /// What serves the clients.
    pub(super) fn gateway(&self) -> Arc<Gateway> {
        self.gateway.clone()
    }

    /// The connections that all listeners together allow.
    pub(super) fn max_connections(&self) -> usize {
        self.listeners.iter().map(|listener| listener.max_connections).fold(0, usize::saturating_add)
    }

    /// Binds all listeners.
    pub(super) fn bind(self, endpoints: &mut EndpointBuilder<'_>) -> Vec<Endpoint> {
        let bound = self.listeners.iter().map(|listener| {
            let tls = listener.tls.as_ref().map(|files| TlsSettings {
                cert: files.cert.clone(),
                key: files.key.clone(),
                clients: files.client_ca.clone().map(|ca| ClientAuthSettings {
                    ca,
                    sans: files.client_sans.clone(),
                    is_optional: files.are_clients_optional,
                }),
            });
            let listen =
                ListenSettings { address: listener.address.clone(), tls, max_connections: listener.max_connections };
            endpoints.bind("gateway", &listen, self.gateway.clone())
        });
        bound.flatten().collect()
    }
}
