//! Builds the settings from texts: each is parsed by its kind, then related settings are checked against each other.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use tollgate_rules::problem::{TextFault, quoted};

use super::origin::Origin;
use super::read::{SettingsReader, mismatch, parse_time};
use super::settings::{
    ClientAuthSettings, DataSettings, EventSettings, GrpcSettings, HttpSettings, ListenSettings, RespSettings,
    ResponseHeaders, RulesSettings, ServerSettings, TlsSettings, WorkerSettings,
};
use super::table::{DIALECTS, GRPC_RESPONSES, NORMALIZATIONS, SCOPE_VALUES, SettingKind, find};
use super::text;
use tollgate_http::request_target::PathNormalization;
use tollgate_http::response::{Dialects, ScopeValues};
use tollgate_net::Address;

use tollgate_wire::http::{AuthorizeAttribute, AuthorizeSettings};

/// Builds a struct after every field has been parsed, so that all errors are reported; `None` if one failed.
macro_rules! build {
    ($name:ident { $($field:ident: $value:expr),* $(,)? }) => {{
        $(let $field = $value;)*
        Some($name { $($field: $field?),* })
    }};
}

impl SettingsReader<'_> {
    /// All settings; contradictions are reported.
    pub(super) fn settings(&mut self) -> Option<ServerSettings> {
        let settings = build!(ServerSettings {
            rules: self.rules(),
            grpc: self.grpc(),
            http: self.http(),
            admin: self.admin(),
            resp: self.resp(),
            gateway: self.or("gateway", "none", |text, _| Ok(PathBuf::from(text))),
            store: self.store(),
            regions: self.regions(),
            max_keys: self.count("max_keys"),
            max_keys_per_rule: self.percent("max_keys_per_rule"),
            data: self.data(),
            snapshot_interval: self.time("snapshot_interval"),
            workers: self.workers(),
            shutdown_delay: self.time("shutdown_delay"),
            shutdown_timeout: self.time("shutdown_timeout"),
            shadow_mode: self.switch("shadow_mode"),
            control: self.control(),
            key_privacy: self.key_privacy(),
            receipt_keys: self.receipt_keys(),
            idempotency: self.idempotency(),
            observe: self.observe(),
            events: self.events(),
        });
        settings.filter(|settings| self.have_distinct_addresses(settings))
    }

    fn events(&mut self) -> Option<EventSettings> {
        build!(EventSettings {
            file: self.or("events", "none", |text, _| Ok(PathBuf::from(text))),
            size: self.count("events_size"),
            keep: self.time("events_keep"),
        })
    }

    fn rules(&mut self) -> Option<RulesSettings> {
        build!(RulesSettings {
            paths: self.list("rules", |path| Ok(PathBuf::from(path))),
            merge_domains: self.switch("merge_domains"),
            every_file: self.switch("every_file"),
            poll: self.time("rules_poll"),
        })
    }

    fn grpc(&mut self) -> Option<GrpcSettings> {
        build!(GrpcSettings {
            listen: self.listen("grpc"),
            max_in_flight: self.count("grpc_max_in_flight"),
            max_message: self.count("grpc_max_message"),
            max_streams: self.count("grpc_max_streams"),
            max_connection_age: self.or("grpc_max_connection_age", "off", parse_time),
            max_connection_age_grace: self.time("grpc_max_connection_age_grace"),
            keepalive: self.time("grpc_keepalive"),
            keepalive_timeout: self.time("grpc_keepalive_timeout"),
            full_responses: self.word("grpc_responses", GRPC_RESPONSES, &[true, false]),
            response_headers: self.response_headers(),
            dynamic_metadata: self.switch("grpc_dynamic_metadata"),
            auth: self.data_auth("grpc_auth"),
        })
    }

    fn response_headers(&mut self) -> Option<Option<ResponseHeaders>> {
        let headers = build!(ResponseHeaders {
            limit: self.header_text("grpc_limit_header"),
            remaining: self.header_text("grpc_remaining_header"),
            reset: self.header_text("grpc_reset_header"),
        });
        let enabled = self.switch("grpc_response_headers")?;
        headers.map(|headers| enabled.then_some(headers))
    }

    fn http(&mut self) -> Option<HttpSettings> {
        build!(HttpSettings {
            listen: self.listen("http"),
            max_in_flight: self.count("http_max_in_flight"),
            idle_timeout: self.time("http_idle_timeout"),
            body_timeout: self.time("body_timeout"),
            headers: self.dialects(),
            normalization: self.normalization(),
            allowed_hosts: self.list("http_allowed_hosts", |host| Ok(host.to_owned())),
            retry_jitter: self.or("retry_jitter", "off", |text, _| text::percent(text)),
            scope_values: self.word(
                "scope_values",
                SCOPE_VALUES,
                &[ScopeValues::Shortened, ScopeValues::Full, ScopeValues::Hidden,]
            ),
            authorize: self.authorize(),
            auth: self.data_auth("http_auth"),
        })
    }

    fn dialects(&mut self) -> Option<Dialects> {
        self.read("http_headers", |text, _| {
            let chosen = if text == "all" { DIALECTS.to_vec() } else { text::list(text)? };
            for word in &chosen {
                text::word(word, DIALECTS)?;
            }
            let has = |word: &str| chosen.contains(&word);
            Ok(Dialects {
                x_ratelimit: has("x-ratelimit"),
                policy: has("x-ratelimit-policy"),
                bucket: has("x-ratelimit-bucket"),
                ratelimit: has("ratelimit"),
                denied_by: has("denied-by"),
                signal: has("signal"),
            })
        })
    }

    fn normalization(&mut self) -> Option<PathNormalization> {
        self.read("http_normalize", |text, _| {
            let chosen = if text == "all" { NORMALIZATIONS.to_vec() } else { text::list(text)? };
            for word in &chosen {
                text::word(word, NORMALIZATIONS)?;
            }
            let has = |word: &str| chosen.contains(&word);
            Ok(PathNormalization {
                // The others build on it.
                standard: !chosen.is_empty(),
                matrix_parameters: has("matrix-parameters"),
                trailing_slash: has("trailing-slash"),
                lower_case: has("lower-case"),
            })
        })
    }

    fn authorize(&mut self) -> Option<AuthorizeSettings> {
        build!(AuthorizeSettings {
            domain: self.or("authorize_domain", "none", |text, _| Ok(text.to_owned())),
            attributes: self.attributes(),
            cost_header: self.header("authorize_cost_header"),
            trusted_hops: self.count("authorize_trusted_hops"),
        })
    }

    fn attributes(&mut self) -> Option<Vec<AuthorizeAttribute>> {
        self.read("authorize_attributes", |text, _| {
            let mut attributes: Vec<AuthorizeAttribute> = Vec::new();
            for pair in text::list(text)? {
                let attribute = text::attribute(pair)?;
                if attributes.iter().any(|other| other.name == attribute.name) {
                    let message = format!("the attribute {} appears twice", quoted(&attribute.name));
                    return Err(TextFault::new(message, "keep one of the two"));
                }
                attributes.push(attribute);
            }
            Ok(attributes)
        })
    }

    fn resp(&mut self) -> Option<RespSettings> {
        build!(RespSettings { listen: self.listen("resp"), max_in_flight: self.count("resp_max_in_flight") })
    }

    fn data(&mut self) -> Option<DataSettings> {
        let is_explicit = self.values.get("data").is_some_and(|value| value.origin != Origin::Default);
        let path = self.or("data", "off", |text, _| Ok(PathBuf::from(text)))?;
        Some(path.map_or(DataSettings::Off, |path| DataSettings::Directory { path, is_explicit }))
    }

    fn workers(&mut self) -> Option<WorkerSettings> {
        self.read("workers", |text, kind| {
            let SettingKind::Workers { max } = kind else { return Err(mismatch()) };
            if text == "auto" {
                return Ok(WorkerSettings::Auto);
            }
            let count = text::number(text, 1, max)
                .map_err(|fault| TextFault::new(fault.message, format!("{}, or auto", fault.remedy)))?;
            let count = usize::try_from(count).ok().and_then(NonZeroUsize::new);
            count.map(WorkerSettings::Count).ok_or_else(mismatch)
        })
    }

    pub(super) fn listen(&mut self, name: &str) -> Option<ListenSettings> {
        build!(ListenSettings {
            address: self.read(name, |text, _| Address::parse(text, usual_port(name))
                .map_err(|error| TextFault::new(error.message, error.remedy))),
            tls: self.tls(name),
            max_connections: self.count(&format!("{name}_max_connections")),
        })
    }

    fn tls(&mut self, listener: &str) -> Option<Option<TlsSettings>> {
        let [cert, key, ca, sans] =
            ["cert", "key", "client_ca", "client_sans"].map(|part| format!("{listener}_tls_{part}"));
        let read = |reader: &mut Self, name: &str| reader.or(name, "none", |text, _| Ok(PathBuf::from(text)));
        let paths = (read(self, &cert), read(self, &key), read(self, &ca), self.list(&sans, |san| Ok(san.to_owned())));
        let (at_cert, at_key, at_ca, at_sans) = paths;
        let (at_cert, at_key, at_ca, at_sans) = (at_cert?, at_key?, at_ca?, at_sans?);
        // Settings that need another one that is not set.
        let incomplete = [
            (at_cert.is_some() && at_key.is_none(), &cert, &key),
            (at_key.is_some() && at_cert.is_none(), &key, &cert),
            (at_ca.is_some() && at_cert.is_none(), &ca, &cert),
            (!at_sans.is_empty() && at_ca.is_none(), &sans, &ca),
        ];
        let incomplete: Vec<_> = incomplete.into_iter().filter(|(incomplete, ..)| *incomplete).collect();
        for (_, name, missing) in &incomplete {
            let message = format!("`{name}` needs `{missing}`, which is not set");
            self.reject(name, TextFault::new(message, format!("set `{missing}` too, or remove `{name}`")));
        }
        if !incomplete.is_empty() {
            return None;
        }
        let clients = at_ca.map(|ca| ClientAuthSettings { ca, sans: at_sans, is_optional: false });
        Some(at_cert.zip(at_key).map(|(cert, key)| TlsSettings { cert, key, clients }))
    }

    /// Whether no two listeners have the same address.
    fn have_distinct_addresses(&mut self, settings: &ServerSettings) -> bool {
        let listeners = [
            ("grpc", &settings.grpc.listen),
            ("http", &settings.http.listen),
            ("admin", &settings.admin.listen),
            ("resp", &settings.resp.listen),
        ];
        let mut distinct = true;
        for (at, (name, listen)) in listeners.iter().enumerate() {
            let is_shareable = matches!(listen.address, Address::Off | Address::Tcp { port: 0, .. });
            let before = listeners.iter().take(at).find(|(_, other)| !is_shareable && other.address == listen.address);
            if let Some((other, _)) = before {
                let message = format!("`{name}` and `{other}` both listen on {}", listen.address);
                self.reject(name, TextFault::new(message, "give each an address of its own"));
                distinct = false;
            }
        }
        distinct
    }
}

/// The port of a listener in examples: its default, or that of the documentation if it is off by default.
fn usual_port(listener: &str) -> u16 {
    const RESP: u16 = 6380;
    let default = find(listener).and_then(|setting| setting.default.parse().ok());
    match default {
        Some(Address::Tcp { port, .. }) => port,
        _ => RESP,
    }
}
