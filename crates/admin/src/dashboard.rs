//! The dashboard: static files embedded in the binary. They contain no data, so they need no authentication; the API that they
//! call does.

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
    /// Its path on the listener.
    path: &'static str,
    /// Its `ETag`.
    tag: &'static str,
    bytes: &'static [u8],
}

/// The files built from `dashboard/`, if any.
const ASSETS: &[Asset] = include!(concat!(env!("OUT_DIR"), "/dashboard.rs"));

/// The page of a binary without the dashboard.
const NOT_BUILT: &str = "<!doctype html>
<html lang=\"en\">
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<title>Tollgate</title>
<h1>Tollgate</h1>
<p>This binary was built without its dashboard: without the feature <code>dashboard</code>, or without the folder
<code>dashboard/dist</code>, which <code>make dashboard</code> makes.</p>
<p>The other pages of this listener are listed at <a href=\"/pages\">/pages</a>.</p>
</html>
";

/// Headers of every page: it loads its own files and calls this listener, and nothing else.
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

/// File names contain a content hash: a file never changes.
const CACHE_IMMUTABLE: &str = "public, max-age=31536000, immutable";
/// The page refers to the files, so it is always revalidated.
const CACHE_REVALIDATE: &str = "no-cache";

/// Whether the binary has the dashboard.
pub(super) fn is_built() -> bool {
    find(ASSETS, "/").is_some()
}

pub(super) fn routes() -> Router {
    router(ASSETS)
}

fn router(assets: &'static [Asset]) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/assets/{name}", get(asset))
        .layer(map_response(with_headers))
        .with_state(assets)
}

async fn index(State(assets): State<&'static [Asset]>, headers: HeaderMap) -> Response {
    match find(assets, "/") {
        Some(page) => page.answer(&headers, CACHE_REVALIDATE),
        None => ([(CACHE_CONTROL, CACHE_REVALIDATE)], Html(NOT_BUILT)).into_response(),
    }
}

async fn asset(State(assets): State<&'static [Asset]>, Path(name): Path<String>, headers: HeaderMap) -> Response {
    match find(assets, &format!("/assets/{name}")) {
        Some(asset) => asset.answer(&headers, CACHE_IMMUTABLE),
        None => (StatusCode::NOT_FOUND, "the dashboard has no such file; reload the page\n").into_response(),
    }
}

fn find(assets: &'static [Asset], path: &str) -> Option<&'static Asset> {
    assets.iter().find(|asset| asset.path == path)
}

impl Asset {
    fn answer(&self, request: &HeaderMap, caching: &'static str) -> Response {
        let headers = [(ETAG, self.tag), (CACHE_CONTROL, caching)];
        if request.get_all(IF_NONE_MATCH).iter().any(|tags| has_tag(tags, self.tag)) {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
        (headers, [(CONTENT_TYPE, self.content_type())], self.bytes).into_response()
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
fn has_tag(tags: &HeaderValue, tag: &str) -> bool {
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
        let (head, body) = router(assets).oneshot(request).await.unwrap().into_parts();
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
    async fn files_are_cached_forever_and_the_page_is_revalidated() {
        let (_, page, _) = ask(BUILT, "/", "").await;
        assert_eq!(
            (&page[CACHE_CONTROL], &page[CONTENT_TYPE]),
            (&CACHE_REVALIDATE.parse().unwrap(), &"text/html; charset=utf-8".parse().unwrap())
        );
        let (_, script, body) = ask(BUILT, "/assets/a-1.js", "\"1\"").await;
        assert_eq!((&script[CACHE_CONTROL], &*body), (&CACHE_IMMUTABLE.parse().unwrap(), "run()"));
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
        // The policy would block them.
        assert!(!body.contains("style") && !body.contains("script"), "{body}");
    }
}
