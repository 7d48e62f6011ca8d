//! Where the gateway listens, and whom it trusts.

use std::net::IpAddr;

use tollgate_net::Address;
use tollgate_net::tls::TlsFiles;
use tollgate_rules::model::Network;
use tollgate_rules::problem::TextFault;
use tollgate_rules::yaml::fields::{Fields, text};
use tollgate_rules::yaml::{Yaml, YamlKind};

use super::values::{self, one_or_more};
use super::{Context, defaults};
use crate::model::{ListenerConfig, TrustedProxies};

/// The most listeners.
const MAX_LISTENERS: usize = 64;

/// The most networks of trusted proxies.
const MAX_NETWORKS: usize = 256;

/// The most names that clients' certificates may have.
const MAX_SANS: usize = 256;

/// The port in remedies.
const EXAMPLE_PORT: u16 = 8000;

pub(super) fn listeners(map: &Fields<'_>, context: &Context<'_>) -> Vec<ListenerConfig> {
    map.require("listen", "write for instance `listen: 127.0.0.1:8000`");
    let items = map.read("listen", |value| one_or_more(value, MAX_LISTENERS)).unwrap_or_default();
    if map.has("listen") && items.is_empty() {
        map.fault_at("listen", "there is no listener", "write for instance `listen: 127.0.0.1:8000`");
    }
    let mut listeners: Vec<ListenerConfig> = Vec::new();
    for item in items {
        let Some(listener) = listener(item, map, context) else { continue };
        let is_fixed = !matches!(listener.address, Address::Tcp { port: 0, .. });
        if is_fixed && listeners.iter().any(|other| other.address == listener.address) {
            let message = format!("the address {} is here twice", listener.address);
            map.faults().push(item.line, TextFault::new(message, "remove one of the two"));
        }
        if listener.tls.is_none() && is_public(&listener.address) {
            let message = format!("{} is open to other machines, and has no TLS", listener.address);
            let remedy = "write `tls: {cert: …, key: …}`, or a loopback or private address";
            context.warnings.push(item.line, TextFault::new(message, remedy));
        }
        listeners.push(listener);
    }
    listeners
}

/// An address, or a map with its settings.
fn listener(item: &Yaml, outer: &Fields<'_>, context: &Context<'_>) -> Option<ListenerConfig> {
    let max_connections = defaults::MAX_CONNECTIONS;
    if let YamlKind::Scalar(_) = &item.kind {
        let address = outer.faults().sound(item.line, address(item, context))?;
        return Some(ListenerConfig { address, tls: None, max_connections });
    }
    let map = Fields::of(item, "a listener", outer.faults())?;
    map.require("address", "write for instance `address: 127.0.0.1:8000`");
    let address = map.read("address", |value| address(value, context));
    let tls = map.map("tls").map(|map| tls(&map, context));
    let most = map.read("max_connections", |value| values::count(value, 1..=1_000_000));
    map.finish();
    Some(ListenerConfig { address: address?, tls: tls.flatten(), max_connections: most.unwrap_or(max_connections) })
}

/// An address. A port alone is one of this machine only.
fn address(value: &Yaml, context: &Context<'_>) -> Result<Address, TextFault> {
    let given = text(value)?;
    let port = given.strip_prefix(':').unwrap_or(given);
    let address = match port.parse::<u16>() {
        Ok(port) => Ok(Address::Tcp { host: "127.0.0.1".to_owned(), port }),
        Err(_) => Address::parse(given, EXAMPLE_PORT),
    };
    match address.map_err(values::address_fault)? {
        Address::Off => Err(TextFault::new("a listener can't be off", "remove it")),
        Address::Unix(path) => Ok(Address::Unix(context.folder.join(path))),
        address => Ok(address),
    }
}

fn tls(map: &Fields<'_>, context: &Context<'_>) -> Option<TlsFiles> {
    let file = |key: &'static str| map.read(key, |value| values::file(value, context.folder));
    map.require("cert", "write the certificate's file, in PEM");
    map.require("key", "write the file of the certificate's key, in PEM");
    let (cert, key, client_ca) = (file("cert"), file("key"), file("client_ca"));
    let client_sans = map.read("client_sans", |value| {
        one_or_more(value, MAX_SANS)?.iter().map(values::words).collect::<Result<Vec<_>, _>>()
    });
    let kinds = [("required", false), ("optional", true)];
    let are_clients_optional =
        map.read("client_certificates", |value| values::word("a rule for client certificates", value, &kinds));
    for of_clients in ["client_sans", "client_certificates"] {
        if map.has(of_clients) && !map.has("client_ca") {
            map.fault_at(of_clients, "clients have no certificates without `client_ca`", "write `client_ca` too");
        }
    }
    map.finish();
    Some(TlsFiles {
        cert: cert?,
        key: key?,
        client_ca,
        are_clients_optional: are_clients_optional.unwrap_or(false),
        client_sans: client_sans.unwrap_or_default(),
    })
}

/// Whether other networks can reach an address. Of names this is not known.
fn is_public(address: &Address) -> bool {
    let Address::Tcp { host, .. } = address else { return false };
    match host.parse::<IpAddr>().map(|address| address.to_canonical()) {
        Ok(IpAddr::V4(address)) => !(address.is_loopback() || address.is_private() || address.is_link_local()),
        Ok(IpAddr::V6(address)) => {
            !(address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local())
        }
        Err(_) => false,
    }
}

pub(super) fn trusted_proxies(map: &Fields<'_>, context: &Context<'_>) -> TrustedProxies {
    let items = map.read("trusted_proxies", |value| one_or_more(value, MAX_NETWORKS)).unwrap_or_default();
    let mut proxies = TrustedProxies::default();
    for item in items {
        let read = text(item).and_then(|given| match given {
            "unix" => Ok(None),
            given => given.parse::<Network>().map(Some),
        });
        match map.faults().sound(item.line, read) {
            None => {}
            Some(None) => proxies.unix = true,
            Some(Some(network)) => {
                if network.prefix == 0 {
                    let message = "everybody is trusted, so every client chooses its own address";
                    let remedy = "write the networks of your proxies only";
                    context.warnings.push(item.line, TextFault::new(message, remedy));
                }
                proxies.networks.push(network);
            }
        }
    }
    proxies
}
