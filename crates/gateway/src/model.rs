//! What a gateway does, as plain data: the content of `gateway.yaml`, checked and with every default filled in.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Method};
use tollgate_net::Address;
use tollgate_net::tls::TlsFiles;
use tollgate_rules::model::Network;
use tollgate_rules::pattern::Pattern;

use tollgate_shed::Class;
pub use tollgate_shed::ShedMode as SheddingMode;

/// The whole configuration.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    pub listeners: Vec<ListenerConfig>,
    pub trusted_proxies: TrustedProxies,
    /// The domain of rules. `None` if the rules have a single one.
    pub domain: Option<String>,
    /// The attributes of requests besides those that every request has.
    pub attributes: Vec<AttributeConfig>,
    /// How tokens are verified, by the names that attributes refer to.
    pub issuers: Vec<Arc<IssuerConfig>>,
    pub priorities: PriorityConfig,
    pub upstreams: Vec<UpstreamConfig>,
    pub routes: Vec<RouteConfig>,
    pub worker_shedding: WorkerSheddingConfig,
    /// What upstreams learn from the gateway.
    pub to_upstream: UpstreamHeaders,
    /// Where an authenticated caller sees its own limits. `None`: nowhere.
    pub limits_path: Option<String>,
}

/// A listener. Without TLS it serves HTTP/1.1, and HTTP/2 by prior knowledge; with TLS, what ALPN selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerConfig {
    pub address: Address,
    pub tls: Option<TlsFiles>,
    pub max_connections: usize,
}

/// Who may send `X-Forwarded-For` and the like. Nobody by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    pub networks: Vec<Network>,
    /// Whether whoever connects to a Unix socket is trusted: it has no address that a network could contain.
    pub unix: bool,
}

// === Identity ===

/// An attribute of requests.
#[derive(Clone, Debug)]
pub struct AttributeConfig {
    pub name: String,
    /// The first one that has a value is used.
    pub sources: Vec<AttributeSource>,
}

/// Where the value of an attribute comes from.
#[derive(Clone, Debug)]
pub enum AttributeSource {
    Header(HeaderName),
    /// A parameter of the query, percent-decoded.
    Query(String),
    Cookie(String),
    /// A parameter of the route's path: `{name}`.
    PathParameter(String),
    /// The token of `Authorization: Bearer`, as a digest.
    Bearer,
    /// A claim of a verified token.
    JwtClaim {
        claim: String,
        issuer: Arc<IssuerConfig>,
    },
    /// The client's certificate, verified in the handshake.
    Certificate(CertificateField),
    /// What the handshake shows of the client's program: its JA4 fingerprint.
    TlsFingerprint,
}

/// A part of a client's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateField {
    /// The first subject alternative name.
    San,
    /// The distinguished name, as RFC 4514 writes it.
    Subject,
    /// The SHA-256 digest of the certificate, in hexadecimal digits.
    Fingerprint,
}

/// Whose tokens are accepted, and how they are verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerConfig {
    pub keys: KeySource,
    /// The required `iss`. `None` accepts any.
    pub issuer: Option<String>,
    /// The required `aud`. `None` accepts any.
    pub audience: Option<String>,
    pub token: TokenSource,
    /// How far clocks may differ.
    pub leeway: Duration,
}

/// Where a JSON web key set comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    File(PathBuf),
    /// Is fetched in the background, every so often.
    Url {
        url: String,
        every: Duration,
        /// The CA of its server in PEM. `None`: those of the system.
        ca: Option<PathBuf>,
    },
}

impl KeySource {
    /// Whether two sources have the same keys.
    pub fn is_at_same_place(&self, other: &KeySource) -> bool {
        match (self, other) {
            (KeySource::File(path), KeySource::File(other)) => path == other,
            (KeySource::Url { url, .. }, KeySource::Url { url: other, .. }) => url == other,
            _ => false,
        }
    }
}

impl fmt::Display for KeySource {
    /// The name of the file, or the URL without what may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeySource::File(path) => write!(f, "{}", path.display()),
            KeySource::Url { url, .. } => {
                let end = url.find(['?', '#']).unwrap_or(url.len());
                let (scheme, rest) = url[..end].split_once("://").unwrap_or(("https", &url[..end]));
                let authority = rest.find('/').unwrap_or(rest.len());
                let host = rest[..authority].rfind('@').map_or(0, |at| at + 1);
                write!(f, "{scheme}://{}", &rest[host..])
            }
        }
    }
}

/// Where a token is in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenSource {
    /// `Authorization: Bearer`.
    Bearer,
    Header(HeaderName),
    Cookie(String),
}

// === Priorities ===

/// How the class of a request is found: the first that matches, else by its method.
#[derive(Clone, Debug, Default)]
pub struct PriorityConfig {
    /// In the order of the file.
    pub rules: Vec<PriorityRule>,
    /// With it a caller may lower its own class, never raise it.
    pub header: Option<HeaderName>,
}

/// Requests that have all of these are of this class.
#[derive(Clone, Debug)]
pub struct PriorityRule {
    pub class: Class,
    /// The name of a route.
    pub route: Option<String>,
    pub attributes: Vec<(String, Pattern)>,
    pub headers: Vec<(HeaderName, Pattern)>,
}

// === Upstreams ===

/// Servers that requests are forwarded to.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamConfig {
    pub name: String,
    pub servers: ServerSource,
    pub protocol: UpstreamProtocol,
    pub tls: Option<UpstreamTls>,
    pub health: Option<HealthConfig>,
    pub ejection: Option<EjectionConfig>,
    pub connections: ConnectionConfig,
    pub adaptive: AdaptiveConfig,
    pub fairness: Option<FairnessConfig>,
}

/// Where the addresses of servers come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerSource {
    Static(Vec<ServerAddress>),
    /// All addresses of a name, looked up every so often.
    Dns {
        host: String,
        port: u16,
        every: Duration,
    },
    /// A file with an address in each line, watched.
    File {
        path: PathBuf,
        every: Duration,
    },
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ServerAddress {
    Socket(SocketAddr),
    /// A name, looked up when a connection is made.
    Name {
        host: String,
        port: u16,
    },
    Unix(PathBuf),
}

/// The protocol of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamProtocol {
    Http1,
    Http2,
    /// What the server selects with ALPN; without TLS, HTTP/1.1.
    Negotiated,
}

/// TLS to an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamTls {
    /// The name that certificates must have, and that is sent as SNI. `None`: the host of the server, or its address.
    pub server_name: Option<String>,
    /// The CA in PEM. `None`: those of the system.
    pub ca: Option<PathBuf>,
    /// The gateway's own certificate and key, in PEM.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// Checks of servers in the background.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthConfig {
    pub path: String,
    pub every: Duration,
    pub timeout: Duration,
    /// So many failures in a row make a server unhealthy …
    pub fails: u32,
    /// … and so many successes healthy again.
    pub passes: u32,
}

/// Servers that fail requests are not used for a while.
#[derive(Clone, Debug, PartialEq)]
pub struct EjectionConfig {
    /// Failures in a row.
    pub failures: u32,
    /// Statuses that are failures, as are connections that break and responses that are late.
    pub statuses: Vec<u16>,
    pub time: Duration,
    /// The largest part of the servers that may be ejected at the same time.
    pub most: f64,
}

/// Connections to each server of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionConfig {
    /// The most connections to a server.
    pub most: usize,
    /// The most requests that wait for one.
    pub waiting: usize,
    /// How long an unused one stays open.
    pub idle: Duration,
    /// The age at which one is not used any more.
    pub age: Duration,
}

/// The adaptive cap on requests in flight to an upstream.
#[derive(Clone, Debug, PartialEq)]
pub struct AdaptiveConfig {
    pub mode: SheddingMode,
    pub min: u32,
    pub max: u32,
    /// How often the latency without load is measured at the latest.
    pub probe: Duration,
    /// The part of the cap that each class may use, least important first.
    pub shares: [f64; 4],
    /// The part of the cap that is reserved for the callers of a tier, by its name in the rules.
    pub reserve: Vec<(String, f64)>,
}

/// The shedder that lowers the rates of the busiest callers of an overloaded upstream.
#[derive(Clone, Debug, PartialEq)]
pub struct FairnessConfig {
    pub mode: SheddingMode,
    /// The latency, in relation to the one without load, above which rates are lowered.
    pub latency: f64,
    /// The part of the requests that the cap refuses above which they are lowered.
    pub refused: f64,
    /// How long they are not lowered at first.
    pub grace: Duration,
    /// From there to the fair rate, for each tier.
    pub ramp: Duration,
}

/// The shedder of an overloaded process.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerSheddingConfig {
    pub mode: SheddingMode,
    /// The utilisation from which more and more is shed …
    pub from: f64,
    /// … and below which less and less.
    pub until: f64,
    /// From nothing to everything.
    pub ramp: Duration,
    /// How long nothing is shed at first.
    pub grace: Duration,
}

// === Routes ===

/// Which requests go to which upstream, and how.
#[derive(Clone, Debug)]
pub struct RouteConfig {
    /// Unique.
    pub name: String,
    /// Its line in the file.
    pub line: usize,
    /// Empty: any host.
    pub hosts: Vec<HostPattern>,
    pub path: PathPattern,
    /// Empty: any method.
    pub methods: Vec<Method>,
    /// The index of the upstream.
    pub upstream: usize,
    /// Attributes without which the answer is 401.
    pub require: Vec<String>,
    /// Removed from the path before it is forwarded.
    pub strip_prefix: Option<String>,
    pub costs: Vec<CostConfig>,
    pub timeouts: Timeouts,
    pub retries: RetryConfig,
    /// The largest body of a request, in bytes.
    pub max_body: u64,
    /// Whether paths with encoded slashes or backslashes, or empty segments, are forwarded instead of refused.
    pub odd_paths: bool,
}

/// The host of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// In lower case, without a port.
    Exact(String),
    /// `*.example.com`: the part with its dot.
    Suffix(String),
}

/// A path by segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    pub segments: Vec<Segment>,
    /// Whether any further segments, or none, may follow: a last `*`.
    pub has_rest: bool,
}

/// A segment of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Empty only at the end: the path has a last slash.
    Literal(String),
    /// `{name}`.
    Parameter(String),
}

/// Timeouts of a request. Each is for its own phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    pub connect: Duration,
    pub tls: Duration,
    /// Between parts of the request's body: from the client, and to the server.
    pub request_idle: Duration,
    /// From the end of the request to the head of the response.
    pub response: Duration,
    /// Between parts of the response's body.
    pub response_idle: Duration,
    /// The whole request. `None`: no bound.
    pub whole: Option<Duration>,
}

/// When a request is sent again. It is charged once.
#[derive(Clone, Debug, PartialEq)]
pub struct RetryConfig {
    /// At most so often.
    pub attempts: u32,
    /// Failures to connect.
    pub on_connect: bool,
    /// A connection that was closed before the first byte of the response.
    pub on_reset: bool,
    /// No head of a response in time.
    pub on_timeout: bool,
    /// These statuses of the upstream.
    pub on_status: Vec<u16>,
    /// Methods beyond GET, HEAD and OPTIONS.
    pub methods: Vec<Method>,
    /// The most retries of an upstream, as a part of its requests.
    pub budget: f64,
}

// === Costs ===

/// An attribute with what a request costs.
#[derive(Clone, Debug, PartialEq)]
pub struct CostConfig {
    /// The name that rules use: `cost: tokens`.
    pub attribute: String,
    pub reserve: CostSource,
    /// Where the source has no value.
    pub otherwise: u64,
    /// What the request really cost, known at its end. At most one cost of a route has it.
    pub settle: Option<SettleSource>,
}

/// What a request costs, before it is forwarded.
#[derive(Clone, Debug, PartialEq)]
pub enum CostSource {
    Number(u64),
    Header(HeaderName),
    /// `Content-Length` ÷ this many bytes, rounded up.
    Length {
        bytes: u64,
    },
    /// A number in a JSON body.
    Json(JsonPointer),
    GraphQl(GraphQlBounds),
}

/// What a request cost, from its response.
#[derive(Clone, Debug, PartialEq)]
pub enum SettleSource {
    /// Is removed from the response.
    Header(HeaderName),
    /// A number in a JSON body, or in the last event of a stream that has it.
    Json(JsonPointer),
    /// Tokens as OpenAI, Anthropic and Gemini report them.
    Llm {
        /// Whether usage is requested from OpenAI's streams, and the event with it removed if the client did not request it.
        include_usage: bool,
    },
}

/// A place in a JSON document (RFC 6901), by its tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPointer(pub Vec<String>);

/// The bounds of GraphQL queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphQlBounds {
    pub depth: u32,
    pub aliases: u32,
    /// Queries of a batch.
    pub batch: u32,
    /// The length of a list that has no argument for it.
    pub list: u64,
    /// The most that a query may cost: beyond it the answer is 400.
    pub most: u64,
}

// === Headers to upstreams ===

/// The headers that upstreams get. The client's own of these names are always removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamHeaders {
    /// `X-Tollgate-Caller`.
    pub caller: bool,
    /// `X-Tollgate-Tier`.
    pub tier: bool,
    /// `X-Tollgate-Priority`.
    pub priority: bool,
    /// `X-Tollgate-Rule`: the limit with the least room.
    pub rule: bool,
    /// `X-Tollgate-Remaining`: its room.
    pub remaining: bool,
    /// `X-Tollgate-Request-Cost`.
    pub cost: bool,
}
