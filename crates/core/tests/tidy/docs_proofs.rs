//! Proof that the checks of the documentation can fail, and that they let pass what they should.

use crate::bounds::{self, Sources};
use crate::house::File;
use crate::paths::{self, Repository};

fn file(path: &str, text: &str) -> File {
    File { path: path.to_owned(), text: text.to_owned() }
}

/// A small workspace with constants in every form.
fn workspace() -> Vec<File> {
    let lane = "/// Not 5: const MAX_WAITING: usize = 5;\npub(super) const MAX_WAITING: usize = 10_000;\n\
                const MAX_BYTES: usize = 64 * 1024 * 1024;\nconst PAUSE: Duration = Duration::from_millis(250);\n";
    let limit = "pub const EXACT: u64 = 1 << 53;\nimpl Limit {\n    pub const MAX_ENTRIES: u64 = 10;\n}\n";
    let request = "impl Request<'_> {\n    pub const MAX_ENTRIES: usize = 32;\n}\nconst MAX_UNITS: u64 = EXACT - 1;\n";
    let config = "pub struct Config {\n    pub grace: Span,\n}\n\
                  fn default() -> Config {\n    Config { grace: Span::from_secs(10), keys: 4 * KEYS }\n}\nconst KEYS: usize = 25;\n";
    vec![
        file("crates/redis/src/lane.rs", lane),
        file("crates/redis/src/lane/tests.rs", "const MAX_TESTED: usize = 3;\n"),
        file("crates/redis/src/lua/head.lua", "local PACKED = 1024 -- bytes\n"),
        file("crates/core/src/limit.rs", limit),
        file("crates/core/src/request.rs", request),
        file("crates/store/src/memory/mod.rs", config),
        file(
            "crates/store/src/other.rs",
            "const ENTRIES: usize = Request::MAX_ENTRIES;\nconst SECONDS: u64 = 100 * 86_400;\n",
        ),
        file(
            bounds::SETTINGS,
            "| `max_message` | `256KiB` | The longest; 1KiB to 16MiB |\n| `workers` | `auto` | 1 to 256, or `auto` |\n",
        ),
    ]
}

#[test]
fn bounds_of_the_page_are_those_of_the_sources() {
    let files = workspace();
    let sources = Sources::new(&files);
    let rows = [
        ("10,000 | `redis::MAX_WAITING`", None),
        ("10,000 | `redis::lane::MAX_WAITING`", None),
        ("64 MiB | `redis::MAX_BYTES`", None),
        ("250 ms | `redis::PAUSE`", None),
        ("1 KiB | `redis::PACKED`", None),
        ("2^53 | `core::EXACT`", None),
        ("2^53 − 1 | `core::MAX_UNITS`", None),
        ("10 | `core::Limit::MAX_ENTRIES`", None),
        ("32 | `core::Request::MAX_ENTRIES`", None),
        ("32 | `store::ENTRIES`", None),
        ("100 days | `store::SECONDS`", None),
        ("at least 10 s | `store::Config.grace`", None),
        ("100 | `store::Config.keys`", None),
        ("256 KiB | `max_message`", None),
        ("256 | `workers`", None),
        ("whatever it takes | by design", None),
        ("10,000 | `redis::MAX_WAITING`, `redis::PACKED`", Some("PACKED")),
        ("9,999 | `redis::MAX_WAITING`", Some("10000")),
        ("10 s | `redis::MAX_WAITING`", Some("MAX_WAITING")),
        ("250 | `redis::PAUSE`", Some("PAUSE")),
        ("10,000 | `redis::MOST_WAITING`", Some("candidates: MAX_WAITING (crates/redis/src/lane.rs)")),
        ("10,000 | `core::MAX_WAITING`", Some("candidates: MAX_WAITING (crates/redis/src/lane.rs)")),
        ("10,000 | `redis::other::MAX_WAITING`", Some("other")),
        ("3 | `redis::MAX_TESTED`", Some("MAX_TESTED")),
        // Of two constants with this name only one is 32.
        ("32 | `core::MAX_ENTRIES`", Some("limit.rs")),
        ("11 s | `store::Config.grace`", Some("grace")),
        ("1 KiB | `max_message`", Some("max_message")),
        ("256 | `worker`", Some("no setting `worker`")),
        ("many | `redis::MAX_WAITING`", Some("`many`")),
        ("10,000 | MAX_WAITING", Some("backticks")),
    ];
    for (row, expected) in rows {
        let page = format!(
            "# Bounds\n\n| bound | value | constant or setting | beyond it |\n| --- | --- | --- | --- |\n| claims | {row} | refused |\n"
        );
        let found = bounds::are_in_the_sources(&page, &sources);
        assert_eq!(found.len(), usize::from(expected.is_some()), "{row}: {found:?}");
        if let Some(expected) = expected {
            assert!(found[0].starts_with(":5: ") && found[0].contains(expected), "{row}: {found:?}");
        }
    }
    assert_eq!(bounds::are_in_the_sources("# Bounds\n", &sources).len(), 1);
}

/// A repository with a few files.
struct Few;

impl Repository for Few {
    fn has(&self, path: &str) -> bool {
        let files =
            ["README.md", "docs", "docs/a.md", "docs/adr", "docs/adr/README.md", "crates/core", "crates/core/src"];
        let tests = ["crates/core/tests/tidy/main.rs", "crates/tollgate/tests/it.rs"];
        files.contains(&path)
            || tests.contains(&path)
            || ["docs/b.png", "crates/core/src/lib.rs", "crates/core/src/key.rs"].contains(&path)
    }

    fn page(&self, path: &str) -> Option<&str> {
        (path == "docs/a.md")
            .then_some("# Top\n## One & two\n### `code` here\n## Twice\n## Twice\n```sh\n# no heading\n```\n")
    }
}

#[test]
fn paths_of_pages_exist() {
    let rows = [
        ("see [a](a.md), [up](../README.md), [web](https://example.com/docs/none.md)", 0),
        ("see [a](a.md#top), [b](a.md#one--two), [c](a.md#code-here), [d](a.md#twice-1), [e](#here)", 0),
        ("![picture](b.png) <img src=\"b.png\">", 0),
        (
            "`crates/core/src/lib.rs`, `crates/core/src/`, crates/core/src/{lib,key}.rs, `docs/*.md`, `crates/core/src/….rs`",
            0,
        ),
        ("`dashboard/dist/index.html` is built; `src/none.rs` and `a/docs/none.md` are not from the root", 0),
        ("see [a][b]\n\n[b]: a.md#top", 0),
        ("see [a][b]\n\n[b]: a.md#none", 1),
        ("`cargo test -p tollgate-core --test tidy` and `FUZZ=7 cargo test -p tollgate --test it -- a`", 0),
        ("`cargo test -p tollgate-core --test none`", 1),
        ("see [a](none.md)", 1),
        ("see [a](../docs/adr/none.md) and [a](docs/a.md)", 2),
        ("see [a](a.md#none), [b](#none), [c](a.md#no-heading)", 3),
        ("![picture](none.png) <img src=\"none.png\">", 2),
        ("`crates/core/src/none.rs`", 1),
        ("crates/core/src/{lib,none}.rs and `docs/none/*.md`.", 2),
        ("```sh\ncargo install --path crates/none\n```", 1),
    ];
    for (text, findings) in rows {
        let text = format!("{text}\n## Here\n");
        let found = paths::exist("docs/page.md", &text, &Few);
        assert_eq!(found.len(), findings, "{text:?}: {found:?}");
    }
    let pages = ["README.md", "docs/a.md", "docs/adr/b.md", "deploy/README.md", "crates/a/README.md", "docs/a.png"];
    assert_eq!(pages.map(paths::is_page), [true, true, true, true, false, false]);
}

#[test]
fn unlisted_pages() {
    let pages = ["docs/rules.md", "docs/adr/0001-one.md", "docs/site/SUMMARY.md", "README.md", "docs/pictures/a.png"];
    let summary = "- [Rules](../rules.md)\n";
    assert_eq!(
        paths::unlisted(pages.into_iter(), summary),
        ["docs/site/SUMMARY.md does not list docs/adr/0001-one.md"]
    );
    assert!(paths::unlisted(["docs/rules.md"].into_iter(), summary).is_empty());
}
