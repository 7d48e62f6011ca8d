//! The dashboard: files that the binary has in itself. They hold no data, so whoever reaches the listener may have them; what they
//! show they ask of the API, which wants to know who asks.

use axum::Router;
use axum::extract::{Path, State};
use axum::middleware::map_response;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderName, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, StatusCode};

/// A file of the dashboard.
#[derive(Debug)]
struct Asset {
    /// Where it is on the listener.
    path: &'static str,
    /// Its `ETag`.
    tag: &'static str,
    bytes: &'static [u8],
}

/// What was built from `dashboard/`, or nothing.
const ASSETS: &[Asset] = include!(concat!(env!("OUT_DIR"), "/dashboard.rs"));

/// What is shown in its place where it was not built.
const NOT_BUILT: &str = "<!doctype html>
<html lang=\"en\">
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<title>Tollgate</title>
<h1>Tollgate</h1>
<p>This binary was built without its dashboard. To have it, install Node.js with npm, run <code>make dashboard</code> in the
source, and build the binary again; <code>make run</code> does all of it.</p>
<p>The other pages of this listener are named at <a href=\"/pages\">/pages</a>.</p>
</html>
";

/// What every page of the dashboard is sent with: it loads its own files and asks this listener, and nothing else.
const HEADERS: [(&str, &str); 5] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; \
         base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("x-frame-options", "DENY"),
];

/// The names of files have hashes of their content: one that is there never changes.
const FOR_GOOD: &str = "public, max-age=31536000, immutable";
/// The page names the files, so it is asked for each time.
const EACH_TIME: &str = "no-cache";

pub(super) fn routes() -> Router {
    of(ASSETS)
}

fn of(assets: &'static [Asset]) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/assets/{name}", get(asset))
        .layer(map_response(with_headers))
        .with_state(assets)
}

async fn index(State(assets): State<&'static [Asset]>, headers: HeaderMap) -> Response {
    match find(assets, "/") {
        Some(page) => page.answer(&headers, EACH_TIME),
        None => ([(CACHE_CONTROL, EACH_TIME)], Html(NOT_BUILT)).into_response(),
    }
}

async fn asset(State(assets): State<&'static [Asset]>, Path(name): Path<String>, headers: HeaderMap) -> Response {
    match find(assets, &format!("/assets/{name}")) {
        Some(asset) => asset.answer(&headers, FOR_GOOD),
        None => (StatusCode::NOT_FOUND, "the dashboard has no such file: load the page again\n").into_response(),
    }
}

fn find(assets: &'static [Asset], path: &str) -> Option<&'static Asset> {
    assets.iter().find(|asset| asset.path == path)
}

impl Asset {
    fn answer(&self, asked: &HeaderMap, caching: &'static str) -> Response {
        let kept = [(ETAG, self.tag), (CACHE_CONTROL, caching)];
        if asked.get_all(IF_NONE_MATCH).iter().any(|tags| names(tags, self.tag)) {
            return (StatusCode::NOT_MODIFIED, kept).into_response();
        }
        (kept, [(CONTENT_TYPE, self.content_type())], self.bytes).into_response()
    }

    fn content_type(&self) -> &'static str {
        match self.path.rsplit_once('.').map(|(_, kind)| kind) {
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            None => "text/html; charset=utf-8",
            Some(_) => "application/octet-stream",
        }
    }
}

/// Whether `If-None-Match` has this tag, strong or weak.
fn names(tags: &HeaderValue, tag: &str) -> bool {
    let tags = tags.to_str().unwrap_or_default().split(',').map(str::trim);
    tags.into_iter().any(|one| one == "*" || one.trim_start_matches("W/") == tag)
}

async fn with_headers(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http::Request;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;

    const BUILT: &[Asset] = &[
        Asset { path: "/", tag: "\"1\"", bytes: b"<!doctype html>" },
        Asset { path: "/assets/a-1.js", tag: "\"2\"", bytes: b"run()" },
    ];

    async fn ask(assets: &'static [Asset], path: &str, tags: &str) -> (u16, HeaderMap, String) {
        let request = Request::get(path).header(IF_NONE_MATCH, tags).body(Body::empty()).unwrap();
        let (head, body) = of(assets).oneshot(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (head.status.as_u16(), head.headers, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn every_answer_says_what_its_page_may_do() {
        for (assets, path, status) in
            [(BUILT, "/", 200), (BUILT, "/assets/a-1.js", 200), (BUILT, "/assets/no.js", 404), (&[], "/", 200)]
        {
            let (answered, headers, _) = ask(assets, path, "").await;
            assert_eq!(answered, status, "{path}");
            for (name, value) in HEADERS {
                assert_eq!(headers[name], value, "{path}");
            }
        }
    }

    #[tokio::test]
    async fn what_is_named_by_its_content_is_kept_for_good_and_the_page_is_asked_for_each_time() {
        let (_, page, _) = ask(BUILT, "/", "").await;
        assert_eq!(
            (&page[CACHE_CONTROL], &page[CONTENT_TYPE]),
            (&EACH_TIME.parse().unwrap(), &"text/html; charset=utf-8".parse().unwrap())
        );
        let (_, script, body) = ask(BUILT, "/assets/a-1.js", "\"1\"").await;
        assert_eq!((&script[CACHE_CONTROL], &*body), (&FOR_GOOD.parse().unwrap(), "run()"));
        for tags in ["\"1\"", "W/\"1\"", "\"0\", \"1\"", "*"] {
            let (status, headers, body) = ask(BUILT, "/", tags).await;
            assert_eq!((status, &headers[ETAG], &*body), (304, &"\"1\"".parse().unwrap(), ""), "{tags}");
        }
        assert_eq!(ask(BUILT, "/", "\"11\"").await.0, 200);
    }

    #[tokio::test]
    async fn a_binary_without_the_dashboard_says_how_to_build_it() {
        let (status, headers, body) = ask(&[], "/", "*").await;
        assert_eq!((status, &headers[CONTENT_TYPE]), (200, &"text/html; charset=utf-8".parse().unwrap()));
        assert!(body.contains("make dashboard") && body.contains("/pages"), "{body}");
        // The policy would not let it have any.
        assert!(!body.contains("style") && !body.contains("script"), "{body}");
    }
}
