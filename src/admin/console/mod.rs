//! The web console: one page with its style and scripts, which uses the resources as any other
//! client does. A browser runs no scripts and asks no servers but these, whatever the data say.

use axum::Router;
use axum::extract::Request;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use axum::routing::get;

const CSS: &str = "text/css; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";

/// Paths, types and contents of the files.
const FILES: [(&str, &str, &str); 9] = [
    ("/", HTML, include_str!("index.html")),
    ("/console/console.css", CSS, include_str!("console.css")),
    ("/console/console.js", JS, include_str!("console.js")),
    ("/console/api.js", JS, include_str!("api.js")),
    ("/console/browser.js", JS, include_str!("browser.js")),
    ("/console/dom.js", JS, include_str!("dom.js")),
    ("/console/graphs.js", JS, include_str!("graphs.js")),
    ("/console/ring.js", JS, include_str!("ring.js")),
    ("/console/work.js", JS, include_str!("work.js")),
];

/// Headers of all answers, so that a browser makes no page of data either.
const HEADERS: [(HeaderName, &str); 4] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
         img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'",
    ),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    // Rows must not stay in a browser, nor the page of an older version.
    (CACHE_CONTROL, "no-store"),
];

/// Adds the files of the console.
pub(super) fn add_files<S: Clone + Send + Sync + 'static>(router: Router<S>) -> Router<S> {
    FILES.into_iter().fold(router, |router, (path, content_type, text)| {
        router.route(path, get(async move || ([(CONTENT_TYPE, content_type)], text)))
    })
}

/// Adds the headers to an answer.
pub(super) async fn harden(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
