//! The errors of invalid settings.

use std::fs;

use super::start;
use crate::config::origin::MAX_ERRORS;
use crate::config::table::table;

/// A setting, an invalid text, and the error.
const BAD: &[(&str, &str, &str)] = &[
    ("shadow_mode", "maybe", "`maybe` is neither true nor false; write true or false"),
    ("print_config", "maybe", "`maybe` is neither true nor false; write true or false"),
    ("grpc", "x", "`x` is not an address; write the port too: x:8081"),
    (
        "grpc",
        ":8081",
        "`:8081` has no host; write 127.0.0.1:8081 for this machine only, or 0.0.0.0:8081 for every network",
    ),
    ("workers", "0", "`0` is out of range; write a number from 1 to 256, or auto"),
    ("workers", "257", "`257` is out of range; write a number from 1 to 256, or auto"),
    ("workers", "many", "`many` is not a whole number; write a number from 1 to 256, or auto"),
    ("grpc_max_connections", "0", "`0` is out of range; write a number from 1 to 1000000"),
    ("grpc_max_connections", "-1", "`-1` is not a whole number; write a number from 1 to 1000000"),
    ("max_keys", "99999999999999999999", "99999999999999999999 is too large; write a number from 1 to 10000000000"),
    ("grpc_max_message", "1023", "`1023` is out of range; write a size from 1KiB to 16MiB"),
    ("grpc_max_message", "17MiB", "`17MiB` is out of range; write a size from 1KiB to 16MiB"),
    (
        "grpc_max_message",
        "99999999999999999GiB",
        "`99999999999999999GiB` is out of range; write a size from 1KiB to 16MiB",
    ),
    ("grpc_max_message", "1MB", "`1MB` is not a size; write bytes, or a number with KiB or MiB, for instance 64KiB"),
    ("grpc_keepalive", "60", "`60` has no unit; write 60s for seconds or 60ms for milliseconds"),
    ("grpc_keepalive", "soon", "`soon` is not a length of time; write for instance 250ms, 10s, 5m or 1h30m"),
    ("grpc_keepalive", "1m1h", "`1m1h` is not a length of time; write for instance 250ms, 10s, 5m or 1h30m"),
    ("grpc_keepalive", "1.5h", "`1.5h` is not a length of time; write for instance 250ms, 10s, 5m or 1h30m"),
    ("grpc_keepalive", "999ms", "`999ms` is too short; write 1s or longer"),
    ("grpc_keepalive", "25h", "`25h` is too long; write 24h or shorter"),
    (
        "grpc_keepalive",
        "99999999999999999999d",
        "`99999999999999999999d` is not a length of time; write for instance 250ms, 10s, 5m or 1h30m",
    ),
    ("grpc_max_connection_age", "366d", "`366d` is too long; write 365d or shorter, or off"),
    ("grpc_max_connection_age", "1", "`1` has no unit; write 1s for seconds or 1ms for milliseconds, or off"),
    (
        "store",
        "disk",
        "an address begins with redis://, rediss://, redis+cluster://, redis+sentinel:// or unix://; write for instance redis://localhost:6379; write memory, or a URL as in docs/redis.md",
    ),
    (
        "store",
        "redis://me:secret@host:x",
        "after host comes a colon and a port from 1 to 65535; an IPv6 address is in brackets; write memory, or a URL as in docs/redis.md",
    ),
    (
        "store_prefix",
        "a{b}",
        "`a{b}` can't begin a key; write up to 64 ASCII characters without spaces and braces, such as tg:",
    ),
    ("store_pool", "0", "`0` is out of range; write a number from 1 to 64"),
    ("store_deadline", "1001ms", "`1001ms` is too long; write 1s or shorter"),
    ("store_deadline", "8", "`8` has no unit; write 8s for seconds or 8ms for milliseconds"),
    ("store_cool_down", "99ms", "`99ms` is too short; write 100ms or longer"),
    (
        "last_resort",
        "100",
        "`100` is not a number of requests a second from 1 to 1000000000; write for instance 1000/second, or off",
    ),
    (
        "last_resort",
        "0/second",
        "`0/second` is not a number of requests a second from 1 to 1000000000; write for instance 1000/second, or off",
    ),
    (
        "grpc_limit_header",
        "a b",
        "`a b` is not the name of a header; write letters, digits and dashes, for instance X-Api-Key",
    ),
    (
        "authorize_cost_header",
        "ü",
        "`ü` is not the name of a header; write letters, digits and dashes, for instance X-Api-Key",
    ),
    (
        "http_headers",
        "ratelimt",
        "`ratelimt` is not one of x-ratelimit, x-ratelimit-policy, x-ratelimit-bucket, ratelimit, denied-by, signal; did you mean `ratelimit`?",
    ),
    ("http_headers", "ratelimit,none", "`none` is combined with other values; write it alone, or remove it"),
    ("http_headers", "ratelimit,ratelimit", "`ratelimit` appears twice; keep one of the two"),
    (
        "http_normalize",
        "lowercase",
        "`lowercase` is not one of standard, matrix-parameters, trailing-slash, lower-case; did you mean `lower-case`?",
    ),
    ("rules", "a,,b", "there is an empty value in `a,,b`; write values with a single comma between them, or none"),
    ("retry_jitter", "10", "`10` is not a percentage; write 10%, or off"),
    (
        "otlp_sample",
        "101%",
        "`101%` is not a percentage; write a percentage from 0% to 100%, with at most two decimals, for instance 10%",
    ),
    ("scope_values", "ful", "`ful` is not one of shortened, full, hidden; did you mean `full`?"),
    ("log_format", "xml", "`xml` is not one of text, json; write one of text, json"),
    ("log_level", "inof", "`inof` is not a level; did you mean `info`?"),
    ("log_level", "x=y=z", "`x=y=z` is neither a level nor directives; write for instance info or info,tollgate=debug"),
    (
        "otlp_endpoint",
        "collector:4317",
        "`collector:4317` is not an http or https URL; write for instance http://127.0.0.1:4317, or none",
    ),
    (
        "otlp_endpoint",
        "ftp://me:secret@x",
        "`ftp://me:***@x` is not an http or https URL; write for instance http://127.0.0.1:4317, or none",
    ),
    (
        "authorize_attributes",
        "api_key",
        "`api_key` is not an attribute with a header; write for instance api_key=X-Api-Key or endpoint=:endpoint",
    ),
    (
        "authorize_attributes",
        "a=:host",
        "`:host` is not a part of the original request; write :endpoint, :method, :path or the name of a header",
    ),
    ("authorize_attributes", "a=X-A,a=X-B", "the attribute `a` appears twice; keep one of the two"),
    ("authorize_trusted_hops", "33", "`33` is out of range; write a number from 0 to 32"),
];

#[test]
fn an_invalid_value_is_reported_with_a_remedy() {
    for (name, text, error) in BAD {
        let flag = format!("--{}", name.replace('_', "-"));
        let by_flag = start(&[&format!("{flag}={text}")], &[], "");
        assert_eq!(by_flag.problems(), [format!("{flag}: error: `{name}`: {error}")]);
        if *name == "print_config" {
            continue;
        }
        let variable = format!("TOLLGATE_{}", name.to_ascii_uppercase());
        let by_variable = start(&[], &[&format!("{variable}={text}")], "");
        assert_eq!(by_variable.problems(), [format!("{variable}: error: `{name}`: {error}")]);
        let by_file = start(&[], &[], &format!("\n{name}: '{text}'\n"));
        assert_eq!(by_file.problems(), [format!("tollgate.yaml:2: error: `{name}`: {error}")]);
    }
}

#[test]
fn an_overridden_value_is_not_reported() {
    assert_eq!(start(&["--workers=2"], &["TOLLGATE_WORKERS=0"], "workers: [1, 2]").value("workers").0, "2");
}

/// This also shows that every setting is parsed.
#[test]
fn an_empty_value_is_an_error_for_every_setting() {
    for setting in table() {
        let flag = format!("{}=", setting.flag());
        let problems = start(&[&flag], &[], "").problems();
        let remedy = match &*setting.name {
            "config" => "name a file, or write none".to_owned(),
            _ => format!("write a value such as {}, or remove it", setting.default),
        };
        assert_eq!(problems, [format!("{}: error: `{}`: it is empty; {remedy}", setting.flag(), setting.name)]);
    }
}

#[test]
fn an_unknown_setting_is_reported_with_a_similar_one() {
    let keys = |key: &str| start(&[], &[], &format!("\n{key}: 1\n")).problems();
    let variables = |name: &str| start(&[], &[&format!("{name}=1")], "").problems();
    let none = "`tollgate serve --help` lists the settings";
    assert_eq!(keys("grcp"), ["tollgate.yaml:2: error: `grcp` is not a setting; did you mean `grpc`?"]);
    assert_eq!(
        keys("grpc-tls-cert"),
        ["tollgate.yaml:2: error: `grpc-tls-cert` is not a setting; did you mean `grpc_tls_cert`?"]
    );
    assert_eq!(keys("--rules"), ["tollgate.yaml:2: error: `--rules` is not a setting; did you mean `rules`?"]);
    assert_eq!(keys("listeners"), [format!("tollgate.yaml:2: error: `listeners` is not a setting; remove it; {none}")]);
    assert_eq!(
        keys("config"),
        ["tollgate.yaml:2: error: `config` does not belong in the file; use --config on the command line"]
    );
    assert_eq!(
        keys("print_config"),
        ["tollgate.yaml:2: error: `print_config` does not belong in the file; use --print-config on the command line"]
    );
    assert_eq!(
        variables("TOLLGATE_GRCP"),
        ["TOLLGATE_GRCP: error: `TOLLGATE_GRCP` is not a setting; did you mean TOLLGATE_GRPC?"]
    );
    assert_eq!(
        variables("TOLLGATE_LISTENERS"),
        [format!("TOLLGATE_LISTENERS: error: `TOLLGATE_LISTENERS` is not a setting; unset it; {none}")]
    );
    assert!(variables("TOLLGATE_PRINT_CONFIG")[0].starts_with("TOLLGATE_PRINT_CONFIG: error: "));
    // Variables with other names belong to other programs.
    assert_eq!(start(&[], &["TOLLGATES=1", "tollgate_grpc=1", "GRPC_PORT=x"], "").warnings(), [""; 0]);
}

#[test]
fn an_invalid_file_is_reported() {
    let rows: [(&str, &[&str]); 14] = [
        (
            "- a\n- b",
            &[
                "tollgate.yaml:1: error: settings must be a map, not a list; write `key: value` lines, for instance grpc: 127.0.0.1:8081",
            ],
        ),
        (
            "grpc",
            &[
                "tollgate.yaml:1: error: settings must be a map, not `grpc`; write `key: value` lines, for instance grpc: 127.0.0.1:8081",
            ],
        ),
        (
            "workers: 1\n---\nworkers: 2",
            &["tollgate.yaml:3: error: a second document begins here; remove the `---`; settings are one map"],
        ),
        (
            "workers: 1\nworkers: 2",
            &["tollgate.yaml:2: error: `workers` is here twice, first in line 1; keep one of the two"],
        ),
        ("workers:", &["tollgate.yaml:1: error: `workers`: there is no value; write one, or remove the line"]),
        ("workers: [1]", &["tollgate.yaml:1: error: `workers`: a list can't be its value; write a single value"]),
        ("grpc: {a: b}", &["tollgate.yaml:1: error: `grpc`: a map can't be its value; write a single value"]),
        (
            "rules: {a: b}",
            &["tollgate.yaml:1: error: `rules`: a map can't be its value; write a list, or values separated by commas"],
        ),
        ("rules: []", &["tollgate.yaml:1: error: `rules`: it is empty; write `rules: none`, or values"]),
        (
            "rules: [a, [b]]",
            &["tollgate.yaml:1: error: `rules`: a list can't be an item of the list; write single values"],
        ),
        ("rules: [a, ~]", &["tollgate.yaml:1: error: `rules`: there is no value; write one, or remove the line"]),
        (
            "rules: ['a,b']",
            &[
                "tollgate.yaml:1: error: `rules`: `a,b` contains a comma, which separates values; write each value on a line of its own, without commas",
            ],
        ),
        (
            "authorize_attributes: {a: ~}",
            &["tollgate.yaml:1: error: `authorize_attributes`: there is no value; write one, or remove the line"],
        ),
        ("grpc: [", &["tollgate.yaml:1: error: this is not YAML: "]),
    ];
    for (file, expected) in rows {
        let problems = start(&[], &[], file).problems();
        assert_eq!(problems.len(), expected.len(), "{file}: {problems:?}");
        for (problem, expected) in problems.iter().zip(expected) {
            let is_expected = problem == expected || (expected.ends_with(": ") && problem.starts_with(expected));
            assert!(is_expected, "{file}: {problem}");
        }
    }
}

#[test]
fn an_unreadable_file_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("bytes"), b"\xff").unwrap();
    let problems = |name: &str| start(&["--config", &path(name)], &[], "").problems().join("\n");
    assert!(problems("missing").starts_with(&format!("{}: error: the file can't be read: ", path("missing"))));
    assert_eq!(
        problems("bytes"),
        format!("{}: error: byte 0 is not UTF-8; save the file as UTF-8 text", path("bytes"))
    );
    let folder = directory.path().to_str().unwrap();
    let problems = start(&["--config", folder], &[], "").problems();
    assert_eq!(problems, [format!("{folder}: error: it is not a regular file; name a file or a directory of files")]);
}

#[test]
fn settings_that_need_each_other() {
    for listener in ["grpc", "http", "admin", "resp"] {
        let rows: [(&[&str], &str, &str); 5] = [
            (&["tls_cert"], "tls_cert", "tls_key"),
            (&["tls_key"], "tls_key", "tls_cert"),
            (&["tls_cert", "tls_key", "tls_client_sans"], "tls_client_sans", "tls_client_ca"),
            (&["tls_client_ca"], "tls_client_ca", "tls_cert"),
            (&["tls_client_ca", "tls_client_sans"], "tls_client_ca", "tls_cert"),
        ];
        for (given, lone, missing) in rows {
            let file: String = given.iter().map(|name| format!("{listener}_{name}: x\n")).collect();
            let line = given.iter().position(|name| *name == lone).unwrap() + 1;
            let (lone, missing) = (format!("{listener}_{lone}"), format!("{listener}_{missing}"));
            let problem = format!(
                "tollgate.yaml:{line}: error: `{lone}` needs `{missing}`, which is not set; set `{missing}` too, or remove `{lone}`"
            );
            assert_eq!(start(&[], &[], &file).problems(), [problem]);
        }
    }
}

#[test]
fn two_listeners_cannot_share_an_address() {
    let problems = start(&["--http=127.0.0.1:8081"], &[], "").problems();
    assert_eq!(
        problems,
        ["--http: error: `http` and `grpc` both listen on 127.0.0.1:8081; give each an address of its own"]
    );
    let problems = start(&["--resp=unix:x", "--admin=unix:x"], &[], "").problems();
    assert_eq!(problems, ["--resp: error: `resp` and `admin` both listen on unix:x; give each an address of its own"]);
    assert_eq!(start(&["--grpc=127.0.0.1:0", "--http=127.0.0.1:0", "--admin=off"], &[], "").warnings(), [""; 0]);
}

#[test]
fn all_errors_are_reported_at_once() {
    let problems = start(&["--grpc=x"], &["TOLLGATE_WORKERS=x", "TOLLGATE_NOPE=x"], "grcp: 1\ndata: []\n").problems();
    let places: Vec<&str> =
        problems.iter().filter_map(|problem| problem.split_once(": error: ")).map(|(place, _)| place).collect();
    assert_eq!(places, ["TOLLGATE_NOPE", "tollgate.yaml:1", "--grpc", "tollgate.yaml:2", "TOLLGATE_WORKERS"]);
}

#[test]
fn the_number_of_errors_is_bounded() {
    let problems = |count: usize| {
        let file: String = (0..count).map(|at| format!("no_such_setting_{at}: 1\n")).collect();
        start(&[], &[], &file).problems()
    };
    assert_eq!(problems(MAX_ERRORS).len(), MAX_ERRORS);
    let more = problems(MAX_ERRORS + 7);
    assert_eq!(more.len(), MAX_ERRORS + 1);
    assert_eq!(more[MAX_ERRORS], "settings: error: and 7 more: only the first 100 are reported; correct those first");
}

#[test]
fn the_length_of_a_list_is_bounded() {
    let list = |count: usize| (0..count).map(|at| at.to_string()).collect::<Vec<_>>().join(",");
    assert_eq!(start(&["--rules", &list(1_000)], &[], "").loaded().settings.rules.paths.len(), 1_000);
    let problems = start(&["--rules", &list(1_001)], &[], "").problems();
    assert_eq!(problems, ["--rules: error: `rules`: there are more than 1000 values; write fewer"]);
}
