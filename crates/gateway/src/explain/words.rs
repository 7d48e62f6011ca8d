//! Parts of a configuration as short texts.

use crate::model::{
    AttributeSource, CertificateField, CostConfig, CostSource, HostPattern, JsonPointer, PathPattern, PriorityRule,
    RouteConfig, Segment, ServerSource, SettleSource,
};

/// The most servers that are listed.
const SHOWN_SERVERS: usize = 8;

pub(super) fn of_route(route: &RouteConfig) -> String {
    let mut text = route.methods.iter().map(http::Method::as_str).collect::<Vec<_>>().join(",");
    if !text.is_empty() {
        text.push(' ');
    }
    text.push_str(&route.hosts.iter().map(of_host).collect::<Vec<_>>().join(","));
    text + &of_path(&route.path)
}

pub(super) fn of_host(host: &HostPattern) -> String {
    match host {
        HostPattern::Exact(name) => name.clone(),
        HostPattern::Suffix(suffix) => format!("*{suffix}"),
    }
}

pub(super) fn of_path(path: &PathPattern) -> String {
    let mut text: String = path
        .segments
        .iter()
        .map(|segment| match segment {
            Segment::Literal(literal) => format!("/{literal}"),
            Segment::Parameter(name) => format!("/{{{name}}}"),
        })
        .collect();
    if path.has_rest {
        text.push_str("/*");
    } else if text.is_empty() {
        text.push('/');
    }
    text
}

pub(super) fn of_source(source: &AttributeSource) -> String {
    match source {
        AttributeSource::Header(name) => format!("header {name}"),
        AttributeSource::Query(name) => format!("query parameter {name}"),
        AttributeSource::Cookie(name) => format!("cookie {name}"),
        AttributeSource::PathParameter(name) => format!("path parameter {name}"),
        AttributeSource::Bearer => "bearer token, as a digest".to_owned(),
        AttributeSource::JwtClaim { claim, .. } => format!("claim {claim} of a verified token"),
        AttributeSource::Certificate(CertificateField::San) => "name in the client's certificate".to_owned(),
        AttributeSource::Certificate(CertificateField::Subject) => "subject of the client's certificate".to_owned(),
        AttributeSource::Certificate(CertificateField::Fingerprint) => {
            "fingerprint of the client's certificate".to_owned()
        }
        AttributeSource::TlsFingerprint => "fingerprint of the client's TLS library".to_owned(),
    }
}

pub(super) fn of_servers(servers: &ServerSource) -> String {
    match servers {
        ServerSource::Static(servers) => {
            let shown: Vec<String> = servers.iter().take(SHOWN_SERVERS).map(ToString::to_string).collect();
            match servers.len().saturating_sub(SHOWN_SERVERS) {
                0 => shown.join(", "),
                more => format!("{} and {more} more", shown.join(", ")),
            }
        }
        ServerSource::Dns { host, port, .. } => format!("all addresses of {host}:{port}"),
        ServerSource::File { path, .. } => format!("those in {}", path.display()),
    }
}

pub(super) fn of_cost(cost: &CostConfig) -> String {
    let otherwise = cost.otherwise;
    match &cost.reserve {
        CostSource::Number(_) => "the same for every request".to_owned(),
        CostSource::Header(name) => format!("header {name}, else {otherwise}"),
        CostSource::Length { bytes } => format!("1 for each {bytes} bytes of the body, else {otherwise}"),
        CostSource::Json(pointer) => format!("{} in the body, else {otherwise}", of_pointer(pointer)),
        CostSource::GraphQl(bounds) => format!("GraphQL, at most {}", bounds.most),
    }
}

pub(super) fn of_settle(settle: &SettleSource) -> String {
    match settle {
        SettleSource::Header(name) => format!("header {name} of the response"),
        SettleSource::Json(pointer) => format!("{} in the response", of_pointer(pointer)),
        SettleSource::Llm { .. } => "tokens that the response reports".to_owned(),
    }
}

fn of_pointer(JsonPointer(tokens): &JsonPointer) -> String {
    tokens.iter().map(|token| format!("/{}", token.replace('~', "~0").replace('/', "~1"))).collect()
}

/// `{route: charges, api_key: test_*}`
pub(super) fn of_priority(rule: &PriorityRule) -> String {
    let route = rule.route.iter().map(|route| format!("route: {route}"));
    let attributes = rule.attributes.iter().map(|(name, pattern)| format!("{name}: {pattern}"));
    let headers = rule.headers.iter().map(|(name, pattern)| format!("header {name}: {pattern}"));
    format!("{{{}}}", route.chain(attributes).chain(headers).collect::<Vec<_>>().join(", "))
}
