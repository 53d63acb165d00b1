//! From requests to resources: who may, and which one.

use super::access;
use super::console;
use super::context::AdminContext;
use super::error::AdminError;
use super::resources::{self, Admin, resources};
use super::server::Peer;
use crate::base::audit;
use crate::base::latest::Latest;
use crate::base::limited_log::LimitedLog;
use crate::config::Settings;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use std::sync::Arc;
use std::time::Duration;

/// All resources, each checked by the guard first.
pub(super) fn router(context: Arc<AdminContext>) -> Router {
    const NOTHING: &str = "there is nothing here: the console is at /, the resources are below \
                           /api/v1/ and at /metrics";
    const OTHER_METHOD: &str = "this resource is not used by this method";
    let log = LimitedLog::new(audit::TARGET, Arc::clone(&context.clock), LOG_INTERVAL);
    let guarded = Arc::new(Guard { settings: Arc::clone(&context.settings), log });
    let router = resources()
        .into_iter()
        .fold(Router::new(), |router, resource| router.route(resource.path, resource.route));
    console::add_files(router)
        .fallback(async || AdminError::not_found(NOTHING))
        .method_not_allowed_fallback(async || {
            AdminError::new(StatusCode::METHOD_NOT_ALLOWED, OTHER_METHOD)
        })
        .layer(middleware::from_fn_with_state(guarded, guard))
        .layer(middleware::from_fn(console::harden))
        .with_state(Admin::new(context))
}

/// The shortest time between two log lines about refusals.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Decides on requests, and keeps those that it refuses from filling the log.
#[derive(Debug)]
struct Guard {
    settings: Arc<Latest<Settings>>,
    log: LimitedLog<()>,
}

/// Line of the log about a change. It is written even if the client has left, since most changes go
/// on without one.
struct ChangeLine {
    what: String,
    status: Option<StatusCode>,
}

impl Drop for ChangeLine {
    fn drop(&mut self) {
        let what = &self.what;
        match self.status {
            Some(status) => log::info!(target: audit::TARGET, "{what}: {status}"),
            None => {
                log::info!(target: audit::TARGET, "{what}: the client left before the answer");
            }
        }
    }
}

/// Lets a request through if its sender may, and notes changes in the log.
async fn guard(
    State(guard): State<Arc<Guard>>,
    Extension(peer): Extension<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let (peer, method) = (peer.address(), request.method().clone());
    let path = request.uri().path().to_owned();
    // A look whose choice is in the body decides on its sender itself.
    let acts_as = if path == resources::ROWS { &Method::GET } else { &method };
    match access::check(&guard.settings.admin, peer, acts_as, request.headers()) {
        Ok(()) if acts_as.is_safe() => {
            let response = next.run(request).await;
            if response.status() == StatusCode::UNAUTHORIZED {
                guard.log.warn((), format_args!("{method} {path} of {peer} is refused"));
            }
            response
        }
        Ok(()) => {
            let what = format!("{method} {path} of {peer}");
            let mut line = ChangeLine { what, status: None };
            let response = next.run(request).await;
            line.status = Some(response.status());
            response
        }
        Err((status, why)) => {
            guard.log.warn((), format_args!("{method} {path} of {peer} is refused: {why}"));
            AdminError::new(status, why).into_response()
        }
    }
}
