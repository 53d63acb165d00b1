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
use crate::service::LoginTurns;
use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// All resources, each checked by the guard first.
pub(super) fn router(context: Arc<AdminContext>) -> Router {
    const NOTHING: &str = "there is nothing here: the console is at /, the resources are below \
                           /api/v1/ and at /metrics";
    const OTHER_METHOD: &str = "this resource is not used by this method";
    let log = LimitedLog::new(audit::TARGET, Arc::clone(&context.clock), LOG_INTERVAL);
    let (settings, turns) = (Arc::clone(&context.settings), LoginTurns::default());
    let guarded = Arc::new(Guard { settings, turns, log });
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

/// The shortest time between two log lines about refusals of one address.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Decides on requests, and keeps those that it refuses from filling the log.
#[derive(Debug)]
struct Guard {
    settings: Arc<Latest<Settings>>,
    /// Turns of addresses to present a token.
    turns: LoginTurns,
    /// By address.
    log: LimitedLog<IpAddr>,
}

/// Line of the log about a change. It is written even without an answer: if the client has left,
/// most changes go on.
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
                log::info!(target: audit::TARGET, "{what}: ended without an answer");
            }
        }
    }
}

/// Lets a request through if its sender may, and notes changes in the log.
async fn guard(
    State(guard): State<Arc<Guard>>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    let (peer, method) = (peer.address(), request.method().clone());
    let path = request.uri().path().to_owned();
    // A look whose choice is in the body decides on its sender itself.
    let acts_as = if path == resources::ROWS { &Method::GET } else { &method };
    // Also where none is needed: the answer may tell whether it is right.
    let has_token = access::judge_token(&guard.settings.admin, request.headers());
    let is_unjudged = match has_token {
        Some(is_right) => !guard.turns.take(peer, is_right).await,
        None => false,
    };
    // Others who guess keep nobody from looks that need no token.
    if is_unjudged && acts_as.is_safe() {
        request.headers_mut().remove(AUTHORIZATION);
    }
    let may_act = if is_unjudged && !acts_as.is_safe() {
        Err(access::TOO_MANY_TOKENS)
    } else {
        access::check(&guard.settings.admin, peer, acts_as, request.headers())
    };
    match may_act {
        Ok(()) if acts_as.is_safe() => {
            let response = next.run(request).await;
            if response.status() == StatusCode::UNAUTHORIZED {
                guard.log.warn(peer, format_args!("{method} {path} of {peer} is refused"));
            } else if has_token == Some(false) {
                guard.log.warn(peer, format_args!("{method} {path} of {peer} has a wrong token"));
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
            guard.log.warn(peer, format_args!("{method} {path} of {peer} is refused: {why}"));
            AdminError::new(status, why).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::{Clock, SystemClock};
    use crate::base::seats::Seats;
    use crate::config::Loader;
    use crate::model::comparator::ComparatorRegistry;
    use axum::body::Body;
    use axum::routing::any;
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use tokio::time::Instant;
    use tokio_util::sync::CancellationToken;

    #[tokio::test(start_paused = true)]
    async fn a_wrong_token_has_the_next_one_of_its_address_wait() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let loaded = Loader::for_tools(&ComparatorRegistry::default()).load(None).unwrap();
        let mut settings = loaded.settings;
        settings.admin.token = Some("right".to_owned());
        let log = LimitedLog::new(audit::TARGET, Arc::clone(&clock), LOG_INTERVAL);
        let (settings, turns) = (Arc::new(Latest::new(settings)), LoginTurns::default());
        let guarded = Arc::new(Guard { settings, turns, log });
        let router = Router::new().route("/", any(async || ()));
        let router = router.layer(middleware::from_fn_with_state(guarded, guard));
        let service = TowerToHyperService::new(router);
        let mut seats = Seats::new(2, clock, CancellationToken::new());
        let peers = [1, 2].map(|last| Peer(seats.seat(([10, 0, 0, last], 1).into())));
        // Status, and whether the answer took time.
        let ask = async |method: Method, peer: &Peer, token: &str| {
            let request = Request::builder().method(method).uri("/").extension(peer.clone());
            let request = request.header(AUTHORIZATION, format!("Bearer {token}"));
            let begin = Instant::now();
            let response = service.call(request.body(Body::empty()).unwrap()).await.unwrap();
            (response.status().as_u16(), begin.elapsed() > Duration::ZERO)
        };
        let [guesser, other] = &peers;
        assert_eq!(ask(Method::POST, guesser, "wrong").await, (401, false));
        assert_eq!(ask(Method::POST, other, "right").await, (200, false));
        // A look needs no token, but may tell whether it is right.
        assert_eq!(ask(Method::GET, guesser, "wrong").await, (200, true));
        assert_eq!(ask(Method::POST, guesser, "right").await, (200, true));
        assert_eq!(ask(Method::POST, guesser, "right").await, (200, false));
    }
}
