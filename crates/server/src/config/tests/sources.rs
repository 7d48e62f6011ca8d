//! Precedence of sources, and the values from each.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use super::{Start, start};
use crate::config::table::{SettingScope, table};
use crate::config::*;
use tollgate_admin::auth::Identity;
use tollgate_admin::scopes::{AccessScope, AccessScopes};
use tollgate_http::request_target::PathNormalization;
use tollgate_http::response::{Dialects, ScopeValues};
use tollgate_net::Address;

use tollgate_wire::http::{AttributeSource, AuthorizeAttribute, AuthorizeSettings};

/// Flags, variables, a file; a setting, its text and its origin.
type Row<'r> = (&'r [&'r str], &'r [&'r str], &'r str, &'r str, &'r str, &'r str);

#[test]
fn the_source_with_the_highest_precedence_wins() {
    let file = "# settings\ngrpc: 127.0.0.1:3\nhttp: 127.0.0.1:33\n";
    let env = ["TOLLGATE_GRPC=127.0.0.1:2", "TOLLGATE_ADMIN=127.0.0.1:22"];
    let flags = ["--grpc", "127.0.0.1:1"];
    let rows: [Row; 12] = [
        (&flags, &env, file, "grpc", "127.0.0.1:1", "flag --grpc"),
        (&[], &env, file, "grpc", "127.0.0.1:2", "environment variable TOLLGATE_GRPC"),
        (&[], &[], file, "grpc", "127.0.0.1:3", "tollgate.yaml:2"),
        (&[], &[], "", "grpc", "127.0.0.1:8081", "default"),
        (&flags, &env, file, "http", "127.0.0.1:33", "tollgate.yaml:3"),
        (&flags, &env, file, "admin", "127.0.0.1:22", "environment variable TOLLGATE_ADMIN"),
        (&flags, &env, file, "resp", "off", "default"),
        // envoyproxy/ratelimit's environment overrides the defaults only.
        (&["--envoy-env"], &["PORT=4"], file, "http", "127.0.0.1:33", "tollgate.yaml:3"),
        (&["--envoy-env"], &["PORT=4"], "", "http", "0.0.0.0:4", "envoyproxy/ratelimit's PORT"),
        (&[], &["TOLLGATE_ENVOY_ENV=1"], "", "http", "0.0.0.0:8080", "envoyproxy/ratelimit's default"),
        (&[], &["PORT=4"], "envoy_env: yes", "http", "0.0.0.0:4", "envoyproxy/ratelimit's PORT"),
        (&["--envoy-env=false"], &["PORT=4", "TOLLGATE_ENVOY_ENV=1"], "", "http", "127.0.0.1:8080", "default"),
    ];
    for (flags, env, file, name, text, origin) in rows {
        let start = start(flags, env, file);
        assert_eq!(start.value(name), (text.to_owned(), origin.to_owned()), "{start:?}");
    }
}

#[test]
fn a_value_may_be_written_in_several_ways() {
    let rows: [(&[&str], &str, &str, &str); 14] = [
        (&["--rules", "a", "--rules", "b"], "", "rules", "a,b"),
        (&["--rules=a,b"], "", "rules", "a,b"),
        (&[], "rules: [a, b]", "rules", "a,b"),
        (&[], "rules:\n  - a\n  - 'b'", "rules", "a,b"),
        (&[], "rules: a", "rules", "a"),
        (&["--shadow-mode"], "", "shadow_mode", "true"),
        (&["--shadow-mode=false"], "shadow_mode: true", "shadow_mode", "false"),
        (&["--shadow-mode", "--merge-domains"], "", "shadow_mode", "true"),
        (&[], "authorize_attributes: {a: X-A, e: ':endpoint'}", "authorize_attributes", "a=X-A,e=:endpoint"),
        (&[], "authorize_attributes: [a=X-A, b=X-B]", "authorize_attributes", "a=X-A,b=X-B"),
        (&[], "resp: off", "resp", "off"),
        (&[], "max_keys: 1_000", "max_keys", "1_000"),
        (&[], "---\nmax_keys: 7\n", "max_keys", "7"),
        (&[], "# nothing but a comment\n", "max_keys", "10000000"),
    ];
    for (flags, file, name, text) in rows {
        let start = start(flags, &[], file);
        assert_eq!(start.value(name).0, text, "{start:?}");
    }
    for text in ["true", "TRUE", "yes", "on", "1"] {
        assert!(start(&[], &[&format!("TOLLGATE_SHADOW_MODE={text}")], "").loaded().settings.shadow_mode, "{text}");
    }
}

#[test]
fn the_settings_file_can_be_chosen() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    for name in ["one", "two"] {
        fs::write(path(name), format!("service_name: {name}")).unwrap();
    }
    let (one, two) = (path("one"), format!("TOLLGATE_CONFIG={}", path("two")));
    let there = "service_name: there";
    let rows: [(&[&str], &[&str], &str, &str); 5] = [
        (&["--config", &one], &[&two], there, "one"),
        (&[], &[&two], there, "two"),
        (&[], &[], there, "there"),
        (&[], &[], "", "tollgate"),
        (&["--config=none"], &[&two], there, "tollgate"),
    ];
    for (flags, env, file, name) in rows {
        assert_eq!(start(flags, env, file).loaded().settings.observe.service_name, name, "{flags:?} {env:?}");
    }
}

/// Every setting, and never its default.
const EVERYTHING: &str = "\
envoy_env: true
workers: 3
shutdown_delay: 7s
shutdown_timeout: 11s
shadow_mode: true
rules: [a.yaml, b/]
merge_domains: true
every_file: true
rules_poll: 500ms
grpc: unix:/run/grpc.sock
grpc_tls_cert: gc
grpc_tls_key: gk
grpc_tls_client_ca: ga
grpc_tls_client_sans: [one.example, two.example]
grpc_max_connections: 11
grpc_max_in_flight: 0
grpc_max_message: 1MiB
grpc_max_streams: 12
grpc_max_connection_age: off
grpc_max_connection_age_grace: 2m
grpc_keepalive: 1h30m
grpc_keepalive_timeout: 250ms
grpc_responses: status
grpc_response_headers: true
grpc_limit_header: X-Limit
grpc_remaining_header: X-Remaining
grpc_reset_header: X-Reset
grpc_dynamic_metadata: true
http: '[::1]:9'
http_tls_cert: hc
http_tls_key: hk
http_tls_client_ca: ha
http_tls_client_sans: three.example
http_max_connections: 21
http_max_in_flight: 22
http_idle_timeout: 61s
body_timeout: 6s
http_headers: [x-ratelimit-policy, denied-by]
http_normalize: [standard, lower-case]
http_allowed_hosts: [tollgate.internal]
retry_jitter: 2.5%
scope_values: hidden
authorize_domain: shop
authorize_attributes: {key: X-Key, what: ':endpoint', how: ':method', where: ':path'}
authorize_cost_header: X-Cost
authorize_trusted_hops: 2
admin: off
admin_tls_cert: ac
admin_tls_key: ak
admin_tls_client_ca: aa
admin_tls_client_sans: four.example
admin_max_connections: 31
resp: localhost:0
resp_tls_cert: rc
resp_tls_key: rk
resp_tls_client_ca: ra
resp_tls_client_sans: five.example
resp_max_connections: 41
resp_max_in_flight: 42
gateway: /etc/gateway.yaml
store: [rediss://a:1, rediss://b:2]
max_keys: 1000
max_keys_per_rule: 25%
data: /var/lib/tollgate
snapshot_interval: 20s
store_user: gate
store_password: secret
store_password_file: none
store_ca: sa
store_cert: sc
store_key: sk
store_prefix: 'shop:'
store_pool: 5
store_deadline: 5ms
store_cool_down: 1s
leases: off
lease_time: 2s
lease_keys: 700
local_keys: 5000
last_resort: 300/second
replicas: 4
region: eu
regions: {us-west: 'rediss://w', eu: 'rediss://e', ap: 'rediss://x:1,y:2'}
region_user: west
region_password: hidden
region_password_file: none
region_ca: ga
region_cert: gc
region_key: gk
region_deadline: 70ms
region_beat: 150ms
region_share_interval: 45s
control: postgres://gate:hidden@db/control
control_snapshots: /srv/snapshots
control_required: true
guardrails: false
guardrail_confirm: 2%
guardrail_paid: 30%
guardrail_approve: 40%
guardrail_requests: 50
guardrail_files: hold
admin_token_file: /run/token
admin_identities: ['spiffe://corp/ops=all', billing.internal=read+quota]
http_auth: token
grpc_auth: token
key_privacy: hashed
key_secret_file: keys.txt
receipt_keys: [a new secret of the fleet, an old secret of the fleet]
receipt_keys_file: none
idempotency_ttl: 1h
idempotency_max: 2000
idempotency_max_per_caller: 20
log_level: warn,tollgate=debug
log_format: json
otlp_endpoint: http://collector:4317
otlp_sample: 0.25%
service_name: gate
server_name: gate-7
metrics_show_keys: true
decision_log: files
decision_log_sample: 2%
decision_log_callers: 0.5%
decision_log_dir: /srv/decisions
decision_log_file_size: 1MiB
decision_log_files: 5
decision_log_keep: 2h
decision_log_max: 7000
decision_log_max_size: 3MiB
decision_log_repeats: 9
traffic_sample: false
traffic_sample_size: 2MiB
traffic_sample_callers: 10%
events: /etc/events.yaml
events_size: 3MiB
events_keep: 2d
";

fn listen(address: &str, letter: char, sans: &[&str], max_connections: usize) -> ListenSettings {
    let path = |part: char| [letter, part].iter().collect::<String>().into();
    let sans = sans.iter().map(|san| (*san).to_owned()).collect();
    let clients = Some(ClientAuthSettings { ca: path('a'), sans, is_optional: false });
    let tls = Some(TlsSettings { cert: path('c'), key: path('k'), clients });
    ListenSettings { address: address.parse().unwrap(), tls, max_connections }
}

#[test]
fn every_setting_can_be_set() {
    let settings = table().iter().filter(|setting| setting.scope == SettingScope::Everywhere);
    let lines: Vec<&str> = EVERYTHING.lines().collect();
    for (setting, line) in settings.clone().zip(&lines) {
        assert!(line.starts_with(&format!("{}: ", setting.name)), "{} {line}", setting.name);
        // There are two exclusive settings for each secret.
        assert!(
            ["store_password_file", "region_password_file", "receipt_keys_file"].contains(&&*setting.name)
                || !line.ends_with(&format!(": {}", setting.default)),
            "{line} is the default"
        );
    }
    assert_eq!(settings.count(), lines.len());

    let header = |name: &'static str| http::HeaderName::from_static(name);
    let attribute = |name: &str, source| AuthorizeAttribute { name: name.to_owned(), source };
    let expected = ServerSettings {
        rules: RulesSettings {
            paths: vec!["a.yaml".into(), "b/".into()],
            merge_domains: true,
            every_file: true,
            poll: Duration::from_millis(500),
        },
        grpc: GrpcSettings {
            listen: listen("unix:/run/grpc.sock", 'g', &["one.example", "two.example"], 11),
            max_in_flight: 0,
            max_message: 1 << 20,
            max_streams: 12,
            max_connection_age: None,
            max_connection_age_grace: Duration::from_secs(120),
            keepalive: Duration::from_secs(5_400),
            keepalive_timeout: Duration::from_millis(250),
            full_responses: false,
            response_headers: Some(ResponseHeaders {
                limit: "X-Limit".to_owned(),
                remaining: "X-Remaining".to_owned(),
                reset: "X-Reset".to_owned(),
            }),
            dynamic_metadata: true,
            auth: DataAuth::Token,
        },
        http: HttpSettings {
            listen: listen("[::1]:9", 'h', &["three.example"], 21),
            max_in_flight: 22,
            idle_timeout: Duration::from_secs(61),
            body_timeout: Duration::from_secs(6),
            headers: Dialects {
                x_ratelimit: false,
                policy: true,
                bucket: false,
                ratelimit: false,
                denied_by: true,
                signal: false,
            },
            normalization: PathNormalization { lower_case: true, ..PathNormalization::default() },
            allowed_hosts: vec!["tollgate.internal".to_owned()],
            retry_jitter: Some(Percent { bps: 250 }),
            scope_values: ScopeValues::Hidden,
            authorize: AuthorizeSettings {
                domain: Some("shop".to_owned()),
                attributes: vec![
                    attribute("key", AttributeSource::Header(header("x-key"))),
                    attribute("what", AttributeSource::Endpoint),
                    attribute("how", AttributeSource::Method),
                    attribute("where", AttributeSource::Path),
                ],
                cost_header: header("x-cost"),
                trusted_hops: 2,
            },
            auth: DataAuth::Token,
        },
        admin: AdminSettings {
            listen: listen("off", 'a', &["four.example"], 31),
            token_file: Some("/run/token".into()),
            identities: vec![
                Identity { name: "spiffe://corp/ops".to_owned(), scopes: AccessScopes::all() },
                Identity {
                    name: "billing.internal".to_owned(),
                    scopes: [AccessScope::Read, AccessScope::Quota].into_iter().collect(),
                },
            ],
            as_envoy: false,
        },
        resp: RespSettings { listen: listen("localhost:0", 'r', &["five.example"], 41), max_in_flight: 42 },
        gateway: Some("/etc/gateway.yaml".into()),
        store: StoreSettings::Redis(Box::new(RedisSettings {
            address: "rediss+cluster://a:1,b:2".parse().unwrap(),
            access: RedisAccess {
                user: Some("gate".to_owned()),
                password: Some(PasswordSource::Text("secret".into())),
                ca: Some("sa".into()),
                certificate: Some(ClientCertificate { cert: "sc".into(), key: "sk".into() }),
            },
            prefix: "shop:".to_owned(),
            pool: 5,
            deadline: Duration::from_millis(5),
            cool_down: Duration::from_secs(1),
            last_resort: Some(300),
            replicas: 4,
            local_keys: 5_000,
            leases: LeaseSettings { is_enabled: false, time: Duration::from_secs(2), keys: 700 },
        })),
        regions: Some(RegionSettings {
            names: tollgate::RegionNames::new("eu", ["ap", "us-west"]).unwrap(),
            others: vec![
                OtherRegion { name: "ap".to_owned(), address: "rediss+cluster://x:1,y:2".parse().unwrap() },
                OtherRegion { name: "us-west".to_owned(), address: "rediss://w".parse().unwrap() },
            ],
            access: RedisAccess {
                user: Some("west".to_owned()),
                password: Some(PasswordSource::Text("hidden".into())),
                ca: Some("ga".into()),
                certificate: Some(ClientCertificate { cert: "gc".into(), key: "gk".into() }),
            },
            deadline: Duration::from_millis(70),
            beat: Duration::from_millis(150),
            share_interval: Duration::from_secs(45),
        }),
        max_keys: 1_000,
        max_keys_per_rule: Percent { bps: 2_500 },
        data: DataSettings::Directory { path: "/var/lib/tollgate".into(), is_explicit: true },
        snapshot_interval: Duration::from_secs(20),
        workers: WorkerSettings::Count(3.try_into().unwrap()),
        shutdown_delay: Duration::from_secs(7),
        shutdown_timeout: Duration::from_secs(11),
        shadow_mode: true,
        control: ControlSettings {
            place: ControlPlace::At(tollgate_control::DbLocation::Postgres(
                "postgres://gate:hidden@db/control".to_owned(),
            )),
            snapshots: Some("/srv/snapshots".into()),
            required: true,
            guardrails: settings::GuardrailSettings {
                on: false,
                confirm: Percent { bps: 200 },
                paid: Percent { bps: 3_000 },
                approve: Percent { bps: 4_000 },
                requests: 50,
                files: tollgate_admin::guardrails::GuardedFiles::Hold,
            },
        },
        key_privacy: KeyPrivacySettings {
            form: tollgate::PrivacySetting::Hashed,
            secret_file: Some("keys.txt".into()),
        },
        receipt_keys: ReceiptKeySource::Texts(
            ["a new secret of the fleet", "an old secret of the fleet"]
                .map(|key| settings::SecretText(key.to_owned()))
                .into(),
        ),
        idempotency: IdempotencySettings { ttl: Duration::from_secs(3_600), max: 2_000, max_per_caller: 20 },
        observe: ObserveSettings {
            log_level: "warn,tollgate=debug".to_owned(),
            log_format: LogFormat::Json,
            otlp_endpoint: Some(settings::Url("http://collector:4317".to_owned())),
            otlp_sample: Percent { bps: 25 },
            service_name: "gate".to_owned(),
            server_name: Some("gate-7".to_owned()),
            region: Some("eu".to_owned()),
            metrics_show_keys: true,
            decisions: settings::DecisionLogSettings {
                place: settings::DecisionLogPlace::Files,
                sample: Percent { bps: 200 },
                callers: Percent { bps: 50 },
                directory: Some("/srv/decisions".into()),
                file_size: 1 << 20,
                files: 5,
                keep: Duration::from_secs(7_200),
                max: 7_000,
                max_size: 3 << 20,
                repeats: 9,
            },
            traffic: settings::TrafficSettings { on: false, size: 2 << 20, callers: Percent { bps: 1_000 } },
        },
        events: settings::EventSettings {
            file: Some("/etc/events.yaml".into()),
            size: 3 << 20,
            keep: Duration::from_secs(172_800),
        },
    };
    assert_eq!(start(&[], &[], EVERYTHING).loaded().settings, expected);

    // The same by flags and by variables.
    let values: Vec<(String, String)> = {
        let loaded = start(&[], &[], EVERYTHING).loaded();
        let values = loaded.values.iter().filter(|(setting, _)| setting.scope == SettingScope::Everywhere);
        values.map(|(setting, value)| (setting.name.to_string(), value.text.clone().unwrap())).collect()
    };
    let flags = values.iter().map(|(name, text)| format!("--{}={text}", name.replace('_', "-"))).collect();
    let by_flags = Start { flags, ..Start::default() };
    assert_eq!(by_flags.loaded().settings, expected);
    let variables =
        values.iter().map(|(name, text)| (format!("TOLLGATE_{}", name.to_ascii_uppercase()), text.clone())).collect();
    let by_variables = Start { variables, ..Start::default() };
    assert_eq!(by_variables.loaded().settings, expected);
}

#[test]
fn defaults_listen_on_loopback() {
    let loaded = Start::default().loaded();
    assert_eq!((loaded.warnings, loaded.print_only), (vec![], false));
    let settings = loaded.settings;
    let addresses = [&settings.grpc.listen, &settings.http.listen, &settings.admin.listen, &settings.resp.listen]
        .map(|listen| (listen.address.to_string(), listen.tls.clone(), listen.max_connections));
    let row = |address: &str, most| (address.to_owned(), None, most);
    assert_eq!(
        addresses,
        [row("127.0.0.1:8081", 4096), row("127.0.0.1:8080", 4096), row("127.0.0.1:8070", 256), row("off", 4096)]
    );
    assert_eq!(settings.resp.listen.address, Address::Off);
    assert_eq!(settings.rules.paths, Vec::<PathBuf>::new());
    assert_eq!(settings.data, DataSettings::Directory { path: "tollgate-data".into(), is_explicit: false });
    assert_eq!(settings.workers, WorkerSettings::Auto);
    assert_eq!(settings.grpc.response_headers, None);
    assert_eq!(settings.grpc.max_connection_age, Some(Duration::from_secs(86_400)));
    assert_eq!(settings.grpc.max_message, 512 * 1024);
    assert_eq!(settings.http.retry_jitter, Some(Percent { bps: 1_000 }));
    assert!(settings.http.headers.ratelimit && settings.http.headers.x_ratelimit);
    assert_eq!(settings.http.authorize.attributes.len(), 5);
    assert_eq!(settings.observe.otlp_endpoint, None);
    assert_eq!(settings.receipt_keys, ReceiptKeySource::Generated);
    assert_eq!(
        settings.idempotency,
        IdempotencySettings { ttl: Duration::from_secs(86_400), max: 1_000_000, max_per_caller: 10_000 }
    );
}

#[test]
fn none_and_off() {
    let off = start(
        &["--data=off", "--http-headers=none", "--retry-jitter=off", "--authorize-attributes=none"],
        &[],
        "data: /x\nrules: none\n",
    );
    let settings = off.loaded().settings;
    assert_eq!(settings.data, DataSettings::Off);
    assert_eq!((settings.http.retry_jitter, settings.http.authorize.attributes), (None, vec![]));
    let none = Dialects {
        x_ratelimit: false,
        policy: false,
        bucket: false,
        ratelimit: false,
        denied_by: false,
        signal: false,
    };
    assert_eq!(settings.http.headers, none);
    assert_eq!(settings.rules.paths, Vec::<PathBuf>::new());
}

#[test]
fn variables_of_other_programs_are_ignored() {
    let links = [
        "TOLLGATE_SERVICE_HOST=10.0.0.1",
        "TOLLGATE_SERVICE_PORT=8081",
        "TOLLGATE_SERVICE_PORT_GRPC=8081",
        "TOLLGATE_PORT=tcp://10.0.0.1:8081",
        "TOLLGATE_PORT_8081_TCP=tcp://10.0.0.1:8081",
        "TOLLGATE_PORT_8081_TCP_PROTO=tcp",
        "TOLLGATE_PORT_8081_TCP_PORT=8081",
        "TOLLGATE_PORT_8081_TCP_ADDR=10.0.0.1",
        "TOLLGATE_GRPC_PORT_8081_TCP_ADDR=10.0.0.1",
        "REDIS_PORT=tcp://10.0.0.1:6379",
        "REDIS_SERVICE_HOST=10.0.0.1",
        // Those of the commands that call a server.
        "TOLLGATE_SERVER=https://tollgate:8070",
        "TOLLGATE_TOKEN=tg_x",
        "TOLLGATE_TOKEN_FILE=token",
        "TOLLGATE_CA=ca.pem",
    ];
    assert_eq!(start(&["--envoy-env", "--grpc=off", "--http=off", "--admin=off"], &links, "").warnings(), [""; 0]);
    for other in
        ["TOLLGATE_PORT=8081", "TOLLGATE_PORT_X_TCP=1", "TOLLGATE_PORT_1_TCP_ADDR_X=1", "TOLLGATE_PORT_1_SSH=1"]
    {
        let (name, _) = other.split_once('=').unwrap();
        let problems = start(&[], &[other], "").problems();
        assert!(problems.len() == 1 && problems[0].starts_with(&format!("{name}: error: ")), "{problems:?}");
    }
}

#[test]
fn values_that_are_not_utf_8_are_errors_only_in_settings() {
    let not_text = || OsStr::from_bytes(b"\xff").to_owned();
    let load = |variables: Vec<(OsString, OsString)>| {
        let matches = command(clap::Command::new("tollgate")).try_get_matches_from(["tollgate"]).unwrap();
        super::load(&matches, variables, tempfile::tempdir().unwrap().path())
    };
    assert!(load(vec![("LS_COLORS".into(), not_text()), (not_text(), "x".into())]).is_ok());
    let problems = load(vec![("TOLLGATE_DATA".into(), not_text())]).unwrap_err();
    assert_eq!(
        problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["TOLLGATE_DATA: error: `data`: the value of TOLLGATE_DATA is not UTF-8; use UTF-8 text"]
    );
}
