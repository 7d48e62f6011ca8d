//! Generates `docs/settings.md` from the table; a test compares them.

use std::fmt::Write;

use super::envoy::{COMPOSED_VARIABLES, DIRECT_VARIABLES, UNSUPPORTED};
use super::table::{Setting, SettingKind, SettingScope, table};
use super::text::{format_size, format_time};

const INTRODUCTION: &str = "\
# Settings

The settings of `tollgate serve`. This page is generated from the program's table of settings
(`UPDATE_DOCS=1 cargo test -p tollgate-server the_settings_page`).

A setting has one name in three spellings: `grpc_tls_cert` is the flag `--grpc-tls-cert`, the environment variable
`TOLLGATE_GRPC_TLS_CERT` and the key `grpc_tls_cert` of the file. A flag overrides a variable, a variable overrides the
file, the file overrides the default. `tollgate serve --print-config` prints every setting and its origin, as an
equivalent file.

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

The file is `--config FILE`, else `TOLLGATE_CONFIG`, else `tollgate.yaml` if it exists; `--config none` reads no file.
An unknown key, flag or `TOLLGATE_` variable is an error, and all errors are reported at once. Variables that Kubernetes
sets for a Service (`TOLLGATE_SERVICE_HOST`, `TOLLGATE_PORT_8081_TCP`) are ignored, and so are those of the commands
that call a server (`TOLLGATE_SERVER`, `TOLLGATE_TOKEN`).

| kind | syntax |
| --- | --- |
| address | `127.0.0.1:8081`, `[::1]:8081`, `unix:/run/tollgate.sock`, `off`; port 0 lets the system choose |
| time | `250ms`, `10s`, `5m`, `24h`, `1h30m` |
| size | `64KiB`, `1MiB`, or bytes |
| switch | `true` or `false`; the flag by itself is `true` |
| list | values separated by commas; in the file also a list; the flag may be repeated; `none` |
";

const ENVOY: &str = "\
## envoyproxy/ratelimit's environment

With `--envoy-env` (or `TOLLGATE_ENVOY_ENV=1`) the server also reads the variables of envoyproxy/ratelimit and uses its
defaults: it listens on every network, with a warning at the start. All settings above override them. An empty variable
counts as not set.

| variable | default | setting |
| --- | --- | --- |
";

const TRACING: &str = "
With `TRACING_ENABLED=true` traces go to `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, else `OTEL_EXPORTER_OTLP_ENDPOINT`, else
`http://localhost:4317`, over gRPC.

These variables are not supported. The server warns about those that are set, and about unknown variables with the same
prefixes.

| variable | reason | remedy |
| --- | --- | --- |
";

fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    let mut group = "";
    for setting in table() {
        if setting.group != group {
            group = setting.group;
            let _ = write!(page, "\n## {group}\n\n| setting | default | meaning |\n| --- | --- | --- |\n");
        }
        let _ = writeln!(page, "| `{}` | `{}` | {}{} |", setting.name, setting.default, setting.help, notes(setting));
    }
    let _ = write!(page, "\n{ENVOY}");
    let direct = DIRECT_VARIABLES.iter().map(|direct| (direct.variable, direct.default, direct.setting));
    for (variable, default, setting) in COMPOSED_VARIABLES.iter().copied().chain(direct) {
        let default = if default.is_empty() { String::new() } else { format!("`{default}`") };
        let _ = writeln!(page, "| `{variable}` | {default} | `{setting}` |");
    }
    page.push_str(TRACING);
    for unsupported in UNSUPPORTED {
        let names: Vec<String> = unsupported.names.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(page, "| {} | {} | {} |", names.join(", "), unsupported.reason, unsupported.remedy);
    }
    page
}

/// The allowed values, and where the setting can be written.
fn notes(setting: &Setting) -> String {
    let or_off = |off: bool| if off { ", or `off`" } else { "" };
    let words = |words: &[&str]| words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    let range = match setting.kind {
        SettingKind::Number { min, max } => format!("; {min} to {max}"),
        SettingKind::Workers { max } => format!("; 1 to {max}, or `auto`"),
        SettingKind::Size { min, max } => format!("; {} to {}", format_size(min), format_size(max)),
        SettingKind::Time { min, max, off } => format!("; {} to {}{}", format_time(min), format_time(max), or_off(off)),
        SettingKind::Percent { off } => format!("; 0% to 100%{}", or_off(off)),
        SettingKind::Word(choice) => format!("; {}", words(choice)),
        SettingKind::Words(choice) => format!("; `all`, `none`, or some of {}", words(choice)),
        SettingKind::Rate { max } => format!("; 1/second to {max}/second, or `off`"),
        SettingKind::Directory => "; a path, or `off`".to_owned(),
        _ => String::new(),
    };
    match setting.scope {
        SettingScope::Everywhere => range,
        SettingScope::Outside => format!("{range}; not in the file"),
        SettingScope::Flag => format!("{range}; a flag only"),
    }
}

#[test]
fn the_settings_page_is_up_to_date() {
    tollgate_testing::assert_generated("settings.md", &page());
}
