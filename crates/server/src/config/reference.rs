//! The reference page, `docs/settings.md`: written from the table, and held to it by a test.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::envoy::{COMPOSED, DIRECT, UNNEEDED};
use super::table::{Kind, Said, Setting, table};
use super::text::{size_words, time_words};

const BEGINNING: &str = "\
# Settings

What `tollgate serve` can be told. This page is written from the table of settings that the program has
(`UPDATE_DOCS=1 cargo test -p tollgate-server the_settings_page`).

A setting has one name in three spellings: `grpc_tls_cert` is the flag `--grpc-tls-cert`, the environment variable
`TOLLGATE_GRPC_TLS_CERT` and the key `grpc_tls_cert` of the file. A flag is stronger than a variable, a variable than
the file, the file than the default. `tollgate serve --print-config` shows every setting and where it came from, as a
file that says the same.

```yaml
# tollgate.yaml
rules: [rules/, more.yaml]       # or rules/,more.yaml
grpc: 0.0.0.0:8081
grpc_max_connection_age: 1h30m
shadow_mode: true
authorize_attributes:            # or api_key=X-Api-Key,endpoint=:endpoint
  api_key: X-Api-Key
  endpoint: \":endpoint\"
```

The file is `--config FILE`, else `TOLLGATE_CONFIG`, else `tollgate.yaml` if there is one; `--config none` reads none.
An unknown key, flag or `TOLLGATE_` variable is an error, and all errors are told at once. Variables that Kubernetes
makes for a Service (`TOLLGATE_SERVICE_HOST`, `TOLLGATE_PORT_8081_TCP`) are passed over, and so are those of the
commands that ask a server (`TOLLGATE_SERVER`, `TOLLGATE_TOKEN`).

| kind | how it is written |
| --- | --- |
| address | `127.0.0.1:8081`, `[::1]:8081`, `unix:/run/tollgate.sock`, `off`; port 0 lets the system choose |
| time | `250ms`, `10s`, `5m`, `24h`, `1h30m` |
| size | `64KiB`, `1MiB`, or bytes |
| switch | `true` or `false`; the flag by itself is `true` |
| list | values with commas between them; in the file also a list; the flag may be repeated; `none` |
";

const ENVOY: &str = "\
## envoyproxy/ratelimit's environment

With `--envoy-env` (or `TOLLGATE_ENVOY_ENV=1`) its variables are read too, and its defaults hold where they are not set:
it listens on every network, which is told at the start. All settings above are stronger. A variable that is set to
nothing is not set.

| variable | its default | setting |
| --- | --- | --- |
";

const TRACING: &str = "
With `TRACING_ENABLED=true` traces go to `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, else `OTEL_EXPORTER_OTLP_ENDPOINT`, else
`http://localhost:4317`, by gRPC.

These mean nothing here. One that is set is named in a warning, and so is one that begins like them and is unknown.

| variable | why | instead |
| --- | --- | --- |
";

fn page() -> String {
    let mut page = BEGINNING.to_owned();
    let mut group = "";
    for setting in table() {
        if setting.group != group {
            group = setting.group;
            let _ = write!(page, "\n## {group}\n\n| setting | default | |\n| --- | --- | --- |\n");
        }
        let _ = writeln!(page, "| `{}` | `{}` | {}{} |", setting.name, setting.default, setting.help, notes(setting));
    }
    let _ = write!(page, "\n{ENVOY}");
    let direct = DIRECT.iter().map(|direct| (direct.variable, direct.default, direct.setting));
    for (variable, default, setting) in COMPOSED.iter().copied().chain(direct) {
        let default = if default.is_empty() { String::new() } else { format!("`{default}`") };
        let _ = writeln!(page, "| `{variable}` | {default} | `{setting}` |");
    }
    page.push_str(TRACING);
    for unneeded in UNNEEDED {
        let names: Vec<String> = unneeded.names.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(page, "| {} | {} | {} |", names.join(", "), unneeded.why, unneeded.instead);
    }
    page
}

/// What may be written, and where.
fn notes(setting: &Setting) -> String {
    let or_off = |off: bool| if off { ", or `off`" } else { "" };
    let words = |words: &[&str]| words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    let range = match setting.kind {
        Kind::Number { least, most } => format!("; {least} to {most}"),
        Kind::Workers { most } => format!("; 1 to {most}, or `auto`"),
        Kind::Size { least, most } => format!("; {} to {}", size_words(least), size_words(most)),
        Kind::Time { least, most, off } => format!("; {} to {}{}", time_words(least), time_words(most), or_off(off)),
        Kind::Percent { off } => format!("; 0% to 100%{}", or_off(off)),
        Kind::Word(choice) => format!("; {}", words(choice)),
        Kind::Words(choice) => format!("; `all`, `none`, or some of {}", words(choice)),
        Kind::Rate { most } => format!("; 1/second to {most}/second, or `off`"),
        Kind::Directory => "; a path, or `off`".to_owned(),
        _ => String::new(),
    };
    match setting.said {
        Said::Everywhere => range,
        Said::Outside => format!("{range}; not in the file"),
        Said::Flag => format!("{range}; a flag only"),
    }
}

#[test]
fn the_settings_page_says_what_the_table_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/settings.md");
    let page = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page, "docs/settings.md is not what the table says; write it anew with UPDATE_DOCS=1");
}
