//! Tests of the configuration.

use std::time::Duration;

use http::Method;
use proptest::prelude::*;
use tollgate_net::Address;

use super::*;
use crate::model::*;
use tollgate_shed::Class;

/// Cases: a name after `#####`, a file, `-----`, and the problems of that file.
const PROBLEMS: &str = include_str!("../../tests/files/problems.txt");

/// Stands in a case for settings without problems, apart from what the case is about.
const REST: &str = "listen: 127.0.0.1:8000\n\
                    upstreams: {u: {servers: [10.0.0.1:80]}}\n\
                    routes: [{name: all, match: \"/*\", upstream: u}]\n";

/// A configuration with most settings.
const SKETCH: &str = include_str!("../../tests/files/sketch.yaml");

/// Other forms of the same settings.
const FORMS: &str = include_str!("../../tests/files/forms.yaml");

fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn read(text: &str) -> Result<ReadConfig, Vec<GatewayProblem>> {
    GatewayConfig::read("f", text, Path::new("/etc/gateway"))
}

fn sound(text: &str) -> GatewayConfig {
    let read = read(text).unwrap_or_else(|problems| panic!("{}", shown(&problems)));
    assert_eq!(shown(&read.warnings), "");
    read.config
}

fn shown(problems: &[GatewayProblem]) -> String {
    problems.iter().map(GatewayProblem::to_string).collect::<Vec<_>>().join("\n")
}

/// All problems of a file.
fn problems(text: &str) -> String {
    match read(text) {
        Ok(read) => shown(&read.warnings),
        Err(problems) => shown(&problems),
    }
}

#[test]
fn every_problem_has_its_line_and_its_remedy() {
    let mut cases = 0;
    for case in PROBLEMS.split("#####").skip(1) {
        let (name, rest) = case.split_once('\n').unwrap();
        let (text, expected) = rest.split_once("-----\n").unwrap();
        assert_eq!(problems(&text.replace("...\n", REST)), expected.trim_end(), "\n{}:\n{text}", name.trim());
        cases += 1;
    }
    assert!(cases >= 40, "only {cases} cases were found");
}

#[test]
fn the_number_of_problems_is_bounded() {
    let routes: String = (0..20_000).map(|_| "  - {name: a, match: /a, upstream: u}\n").collect();
    let text = format!("listen: 1\nupstreams: {{u: {{servers: [a:80]}}}}\nroutes:\n{routes}");
    let problems = read(&text).unwrap_err();
    assert_eq!(problems.len(), 100);
    assert_eq!(problems[0].to_string(), "f:3: error: the list is too long; write at most 10000 items");
}

#[test]
fn what_the_file_does_not_say_has_a_default() {
    let config = sound(REST);
    let [listener] = &config.listeners[..] else { panic!("{:?}", config.listeners) };
    assert_eq!(listener.address, Address::Tcp { host: "127.0.0.1".to_owned(), port: 8000 });
    assert_eq!((&listener.tls, listener.max_connections), (&None, 10_000));
    assert_eq!(config.trusted_proxies, TrustedProxies::default());
    assert_eq!((config.domain, config.limits_path), (None, None));
    assert!(config.attributes.is_empty() && config.issuers.is_empty() && config.priorities.rules.is_empty());
    assert_eq!(config.to_upstream, UpstreamHeaders::default());
    assert_eq!(config.worker_shedding.mode, SheddingMode::Off);
    let upstream = &config.upstreams[0];
    assert_eq!(upstream.servers, ServerSource::Static(vec![ServerAddress::Socket("10.0.0.1:80".parse().unwrap())]));
    assert_eq!(upstream.protocol, UpstreamProtocol::Negotiated);
    assert_eq!((&upstream.tls, &upstream.health, &upstream.ejection), (&None, &None, &None));
    assert_eq!(upstream.connections, ConnectionConfig { most: 256, waiting: 1024, idle: secs(4), age: secs(600) });
    let adaptive = AdaptiveConfig {
        mode: SheddingMode::Shadow,
        min: 3,
        max: 1000,
        probe: secs(60),
        shares: [0.7, 0.8, 0.9, 1.0],
        reserve: Vec::new(),
    };
    assert_eq!(upstream.adaptive, adaptive);
    let route = &config.routes[0];
    assert_eq!((route.name.as_str(), route.line, route.upstream), ("all", 3, 0));
    assert!(
        route.hosts.is_empty() && route.methods.is_empty() && route.path.segments.is_empty() && route.path.has_rest
    );
    assert_eq!((route.max_body, route.odd_paths, &route.strip_prefix), (10 << 20, false, &None));
    let timeouts = Timeouts {
        connect: secs(1),
        tls: secs(2),
        request_idle: secs(30),
        response: secs(15),
        response_idle: secs(60),
        whole: None,
    };
    assert_eq!(route.timeouts, timeouts);
    let retries = RetryConfig {
        attempts: 1,
        on_connect: true,
        on_reset: true,
        on_timeout: false,
        on_status: vec![],
        methods: vec![],
        budget: 0.2,
    };
    assert_eq!(route.retries, retries);
}

#[test]
fn a_whole_configuration_is_read() {
    let config = sound(SKETCH);
    let tls = config.listeners[0].tls.as_ref().unwrap();
    assert_eq!(
        (tls.cert.as_path(), tls.key.as_path()),
        (Path::new("/etc/gateway/tls/api.pem"), Path::new("/etc/gateway/tls/api.key"))
    );
    assert_eq!(config.listeners[0].address.to_string(), "0.0.0.0:8443");
    assert_eq!(config.listeners[1].address.to_string(), "127.0.0.1:8000");
    assert_eq!(config.trusted_proxies, TrustedProxies { networks: vec!["10.0.0.0/8".parse().unwrap()], unix: false });
    assert_eq!(config.domain.as_deref(), Some("api_platform"));
    let [key, customer, tier] = &config.attributes[..] else { panic!("{:?}", config.attributes) };
    assert!(matches!(&key.sources[..], [AttributeSource::Header(name)] if name == "x-api-key"));
    // Both have the same keys, which are fetched once.
    let [issuer] = &config.issuers[..] else { panic!("{:?}", config.issuers) };
    assert_eq!(issuer.keys, KeySource::File("/etc/gateway/jwks.json".into()));
    assert_eq!((issuer.issuer.as_deref(), &issuer.token), (Some("https://id.example"), &TokenSource::Bearer));
    for (attribute, claimed) in [(customer, "sub"), (tier, "plan")] {
        let [AttributeSource::JwtClaim { claim, issuer: of_claim }] = &attribute.sources[..] else {
            panic!("{attribute:?}")
        };
        assert!(claim == claimed && Arc::ptr_eq(issuer, of_claim));
    }
    let [critical, by_key, by_header] = &config.priorities.rules[..] else { panic!("{:?}", config.priorities) };
    assert_eq!((critical.class, critical.route.as_deref()), (Class::Critical, Some("charges")));
    assert!(
        by_key.class == Class::Test && by_key.attributes[0].0 == "api_key" && by_key.attributes[0].1.matches("test_1")
    );
    assert!(by_header.headers[0].0 == "x-mode" && by_header.headers[0].1.matches("test"));
    assert_eq!(
        config.worker_shedding,
        WorkerSheddingConfig { mode: SheddingMode::Shadow, ..WorkerSheddingConfig::default() }
    );
    let sent =
        UpstreamHeaders { caller: true, tier: true, priority: true, remaining: true, ..UpstreamHeaders::default() };
    assert_eq!(config.to_upstream, sent);
}

#[test]
fn upstreams_and_routes_of_a_whole_configuration() {
    let config = sound(SKETCH);
    let [orders, llm] = &config.upstreams[..] else { panic!("{:?}", config.upstreams) };
    assert!(matches!(&orders.servers, ServerSource::Static(servers) if servers.len() == 2));
    assert_eq!(
        orders.health.as_ref().unwrap(),
        &HealthConfig { path: "/healthz".to_owned(), every: secs(5), timeout: secs(2), fails: 3, passes: 2 }
    );
    assert_eq!(orders.ejection, Some(EjectionConfig::default()));
    assert_eq!(orders.adaptive, AdaptiveConfig::default());
    assert_eq!(
        llm.servers,
        ServerSource::Static(vec![ServerAddress::Name { host: "llm.internal".to_owned(), port: 443 }])
    );
    assert_eq!((llm.protocol, llm.adaptive.mode), (UpstreamProtocol::Http2, SheddingMode::Off));
    assert_eq!(llm.tls, Some(UpstreamTls { server_name: None, ca: None, certificate: None }));
    let [charges, by_order, chat, graphql] = &config.routes[..] else { panic!("{:?}", config.routes) };
    assert_eq!((&charges.methods, &charges.require), (&vec![Method::POST], &vec!["api_key".to_owned()]));
    assert_eq!(by_order.hosts, [HostPattern::Exact("api.example.com".to_owned())]);
    let segments = ["v1", "orders"].map(|text| Segment::Literal(text.to_owned()));
    assert_eq!(by_order.path, PathPattern { segments: segments.to_vec(), has_rest: true });
    assert_eq!((by_order.strip_prefix.as_deref(), by_order.timeouts.response), (Some("/v1"), secs(5)));
    assert_eq!((chat.upstream, chat.timeouts.response_idle, chat.timeouts.response), (1, secs(300), secs(15)));
    let tokens = CostConfig {
        attribute: "tokens".to_owned(),
        reserve: CostSource::Json(JsonPointer(vec!["max_tokens".to_owned()])),
        otherwise: 4096,
        settle: Some(SettleSource::Json(JsonPointer(vec!["usage".to_owned(), "total_tokens".to_owned()]))),
    };
    assert_eq!(chat.costs, [tokens]);
    let bounds = GraphQlBounds { depth: 12, most: 1000, ..GraphQlBounds::default() };
    assert_eq!(graphql.costs[0].reserve, CostSource::GraphQl(bounds));
}

#[test]
fn settings_have_short_and_long_forms() {
    let config = read(FORMS).unwrap_or_else(|problems| panic!("{}", shown(&problems))).config;
    let addresses: Vec<_> = config.listeners.iter().map(|listener| listener.address.to_string()).collect();
    assert_eq!(addresses, ["127.0.0.1:8000", "127.0.0.1:8001", "unix:/etc/gateway/run/gateway.sock"]);
    assert!(config.trusted_proxies.unix);
    let kinds: Vec<_> = config.attributes.iter().map(|attribute| format!("{:?}", attribute.sources)).collect();
    assert_eq!(kinds[0], r#"[Header("x-api-key"), Query("key"), Cookie("sid"), Bearer]"#);
    assert_eq!(kinds[1], r#"[PathParameter("tenant")]"#);
    assert_eq!(kinds[5], "[Certificate(San), Certificate(Fingerprint)]");
    let [main, plan] = &config.issuers[..] else { panic!("{:?}", config.issuers) };
    assert_eq!(
        main.keys,
        KeySource::Url { url: "https://id.example/jwks.json".to_owned(), every: secs(600), ca: None }
    );
    assert_eq!((&main.token, main.leeway), (&TokenSource::Cookie("session".to_owned()), Duration::ZERO));
    assert_eq!((&plan.token, plan.leeway), (&TokenSource::Header("x-token".parse().unwrap()), secs(60)));
    assert_eq!(config.priorities.header.unwrap(), "x-priority");
    assert_eq!(config.priorities.rules[0].attributes[0].0, "plan");
    assert_eq!((config.worker_shedding.mode, config.worker_shedding.grace), (SheddingMode::Enforce, Duration::ZERO));
    assert_eq!(config.limits_path.as_deref(), Some("/v1/limits"));
}

#[test]
fn failures_that_eject_a_server_are_chosen() {
    let config = |eject: &str| {
        let text = format!(
            "listen: 8000\nupstreams: {{a: {{servers: [127.0.0.1:1], eject: {eject}}}}}\nroutes: [{{name: r, match: /*, upstream: a}}]\n"
        );
        read(&text).map(|read| read.config.upstreams[0].ejection.clone().unwrap().statuses)
    };
    assert_eq!(config("on").unwrap(), [500, 502, 503, 504]);
    assert_eq!(config("{statuses: [502, 599]}").unwrap(), [502, 599]);
    assert!(config("{statuses: []}").unwrap().is_empty());
    let problems = shown(&config("{statuses: [404]}").unwrap_err());
    assert!(
        problems.contains("`404` is no status of a server that failed; write statuses from 500 to 599"),
        "{problems}"
    );
}

#[test]
fn upstreams_have_short_and_long_forms() {
    let config = read(FORMS).unwrap_or_else(|problems| panic!("{}", shown(&problems))).config;
    let [a, b, c, d] = &config.upstreams[..] else { panic!("{:?}", config.upstreams) };
    assert_eq!(a.servers, ServerSource::Dns { host: "orders.svc".to_owned(), port: 8443, every: secs(9) });
    // Found servers are addresses, and their certificates have the name that was looked up.
    assert_eq!(a.tls.as_ref().unwrap().server_name.as_deref(), Some("orders.svc"));
    assert!(a.protocol == UpstreamProtocol::Http1 && a.adaptive.mode == SheddingMode::Enforce);
    assert!(a.health.as_ref().unwrap().path == "/up" && a.ejection == Some(EjectionConfig::default()));
    assert_eq!(b.servers, ServerSource::File { path: "/etc/gateway/servers.txt".into(), every: secs(5) });
    let tls = b.tls.as_ref().unwrap();
    assert_eq!(
        (tls.server_name.as_deref(), tls.ca.as_deref()),
        (Some("b.example"), Some(Path::new("/etc/gateway/ca.pem")))
    );
    assert_eq!(tls.certificate, Some(("/etc/gateway/c.pem".into(), "/etc/gateway/k.pem".into())));
    assert_eq!(c.servers, ServerSource::Static(vec![ServerAddress::Unix("/run/app.sock".into())]));
    assert_eq!((c.adaptive.min, c.adaptive.max, c.adaptive.shares), (5, 9, [0.7, 0.8, 0.9, 0.95]));
    let ServerSource::Static(servers) = &d.servers else { panic!("{:?}", d.servers) };
    assert_eq!(servers[0], ServerAddress::Name { host: "d.example".to_owned(), port: 80 });
    assert_eq!(servers[2], ServerAddress::Socket("[::1]:80".parse().unwrap()));
    assert_eq!((&d.tls, d.connections.waiting), (&None, 0));
}

#[test]
fn routes_have_short_and_long_forms() {
    let config = read(FORMS).unwrap_or_else(|problems| panic!("{}", shown(&problems))).config;
    let [one, two, three, four] = &config.routes[..] else { panic!("{:?}", config.routes) };
    let hosts = [HostPattern::Exact("api.example.com".to_owned()), HostPattern::Suffix(".example.com".to_owned())];
    assert_eq!(one.hosts, hosts);
    assert_eq!(one.path.segments[1], Segment::Parameter("tenant".to_owned()));
    let retries = &one.retries;
    assert_eq!((retries.attempts, retries.on_connect, retries.on_reset), (2, false, false));
    assert_eq!((&retries.on_status[..], &retries.methods[..]), (&[503][..], &[Method::PUT, Method::DELETE][..]));
    assert_eq!((one.timeouts.whole, two.timeouts.whole, two.timeouts.tls), (None, Some(secs(120)), secs(3)));
    assert_eq!((one.max_body, one.odd_paths, two.retries.attempts, three.retries.attempts), (64 << 10, true, 0, 1));
    let reserved: Vec<_> = one.costs.iter().map(|cost| format!("{:?} else {}", cost.reserve, cost.otherwise)).collect();
    assert_eq!(
        reserved,
        [r#"Header("x-cost") else 2"#, "Length { bytes: 1024 } else 1", "Number(7) else 7", "Number(100) else 100"]
    );
    assert_eq!(one.costs[3].settle, Some(SettleSource::Llm { include_usage: true }));
    assert_eq!(two.costs[0].settle, Some(SettleSource::Header("x-tollgate-cost".parse().unwrap())));
    assert_eq!(two.costs[1].reserve, CostSource::GraphQl(GraphQlBounds::default()));
    assert_eq!(three.costs[0].reserve, CostSource::Json(JsonPointer(vec!["a/b".to_owned(), "~c".to_owned()])));
    assert_eq!(three.path.segments[1], Segment::Literal(String::new()));
    assert_eq!((&four.path.segments[..], four.path.has_rest), (&[Segment::Literal(String::new())][..], false));
}

#[test]
fn a_file_is_read_from_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.yaml");
    std::fs::write(&path, FORMS).unwrap();
    let read = GatewayConfig::read_file(&path).unwrap();
    assert!(
        matches!(&read.config.upstreams[1].servers, ServerSource::File { path, .. } if *path == folder.path().join("servers.txt"))
    );

    let missing = GatewayConfig::read_file(&folder.path().join("none.yaml")).unwrap_err();
    assert!(missing[0].to_string().contains("none.yaml:1: error: the file can't be read: "), "{}", missing[0]);
    std::fs::write(&path, vec![b'#'; (16 << 20) + 1]).unwrap();
    assert_eq!(GatewayConfig::read_file(&path).unwrap_err()[0].message, "the file is larger than 16 MiB");
}

/// A change of a file: a line is removed, repeated, cut short, or has a character replaced.
fn changed(text: &str, change: usize, at: usize, by: char) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let at = at % lines.len();
    let middle = lines[at].char_indices().nth(change % 40).map_or(lines[at].len(), |(middle, _)| middle);
    match change % 4 {
        0 => drop(lines.remove(at)),
        1 => lines.insert(at, lines[at].clone()),
        2 => lines[at].truncate(middle),
        _ => lines[at].insert(middle, by),
    }
    lines.join("\n")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_file_is_read_or_refused(
        text in prop::sample::select(vec![SKETCH, FORMS]),
        changes in prop::collection::vec((0_usize..400, 0_usize..100, prop::sample::select("{}[]:,*\"#-9 a/%".chars().collect::<Vec<_>>())), 1..4),
    ) {
        let text = changes.into_iter().fold(text.to_owned(), |text, (change, at, by)| changed(&text, change, at, by));
        let lines = text.lines().count().max(1);
        for problem in read(&text).err().unwrap_or_default() {
            prop_assert!((1..=lines).contains(&problem.line) && !problem.remedy.is_empty(), "{problem}");
        }
    }
}
