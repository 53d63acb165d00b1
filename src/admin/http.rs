//! From requests to resources: who may, which one, on which thread.

use super::access::Access;
use super::connection::Peer;
use super::context::AdminContext;
use super::error::AdminError;
use super::jobs::Jobs;
use super::request::{has_no_body, read_change};
use super::resources::{Call, RESOURCES, Reply, Resource};
use crate::base::limited_log::LimitedLog;
use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use axum::{Extension, Router};
use std::sync::Arc;
use std::time::Duration;

/// Parts of the node that resources report on.
#[derive(Debug, Clone)]
struct Shared {
    context: Arc<AdminContext>,
    jobs: Jobs,
    /// Looks at the disk. Anybody may look, and must not keep an operator from a change.
    looks: Jobs,
}

/// All resources, behind the guard.
pub(super) fn router(context: Arc<AdminContext>, access: Access) -> Router {
    let log = LimitedLog::new("alexandra::admin", Arc::clone(&context.clock), LOG_INTERVAL);
    let guarded = Arc::new(Guard { access, log });
    let shared = Shared { context, jobs: Jobs::default(), looks: Jobs::default() };
    let router = RESOURCES.iter().fold(Router::new(), |router, resource| {
        let method = MethodFilter::try_from(resource.method.clone());
        let method = method.expect("the table has common methods");
        let answer = async move |State(shared): State<Shared>, request: Request| {
            answer(shared, resource, request).await
        };
        router.route(resource.path, on(method, answer))
    });
    router
        .fallback(async || AdminError::NoResource)
        .method_not_allowed_fallback(async || AdminError::Method)
        .layer(middleware::from_fn_with_state(guarded, guard))
        .with_state(shared)
}

async fn answer(
    Shared { context, jobs, looks }: Shared,
    resource: &Resource,
    request: Request,
) -> Result<Response, AdminError> {
    let (head, body) = match resource.method {
        Method::GET => (request.into_parts().0, Vec::new()),
        Method::DELETE => (has_no_body(request)?, Vec::new()),
        _ => read_change(request).await?,
    };
    match (resource.handle)(Call { context, head, body })? {
        Reply::Ready(answer) => Ok(answer),
        Reply::Look(job) => looks.run(job).await,
        Reply::Job(job) => jobs.run(job).await,
        Reply::Background(job, answer) => {
            drop(jobs.begin(|| job().inspect_err(|error| log::error!("{error}")))?);
            Ok(answer)
        }
        // It goes on when its client has gone away.
        Reply::Task(task) => Jobs::join(tokio::spawn(task)).await,
    }
}

/// The shortest time between two log lines about refusals.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Decides on requests, and keeps those that it refuses from filling the log.
#[derive(Debug)]
struct Guard {
    access: Access,
    log: LimitedLog<()>,
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
    match guard.access.check(peer, &method, request.headers()) {
        Ok(()) if method.is_safe() => next.run(request).await,
        Ok(()) => {
            let response = next.run(request).await;
            log::info!("{method} {path} of {peer}: {}", response.status());
            response
        }
        Err(refusal) => {
            guard.log.warn((), format_args!("{method} {path} of {peer} is refused: {refusal}"));
            AdminError::from(refusal).into_response()
        }
    }
}
