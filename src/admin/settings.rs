//! Settings that operators change while the node runs: those of the configuration file, and some
//! until the next start or reload.

use super::error::AdminError;
use super::report::{LogLevels, Slow, Throughputs};
use super::request::Change;
use super::resources::{Admin, Answer, Nothing};
use super::rows::HIDDEN;
use super::server::Peer;
use crate::base::log_levels;
use crate::node::{ReloadError, Reloaded};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use serde::Deserialize;
use std::time::Duration;

/// Bytes of a megabyte.
const MB: u64 = 1 << 20;

/// Reads the configuration file again. It goes on when its client has gone away.
pub(super) async fn reload(
    State(it): State<Admin>,
    Change(Nothing {}): Change<Nothing>,
) -> Answer<Reloaded> {
    it.jobs
        .run(move || {
            it.context.reload.run().map(Json).map_err(|error| match error {
                ReloadError::UnderWay => AdminError::new(StatusCode::CONFLICT, error),
                ReloadError::Hints(_) | ReloadError::Schema(_) => AdminError::failed(error),
                _ => AdminError::bad_request(error),
            })
        })
        .await
}

/// Levels in the form of `RUST_LOG`; null for those of the start.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewLevels {
    levels: Option<String>,
}

pub(super) async fn set_log_levels(
    Change(NewLevels { levels }): Change<NewLevels>,
) -> Answer<LogLevels> {
    // The log tells them, on one line.
    if levels.as_deref().is_some_and(|levels| levels.contains(char::is_control)) {
        return Err(AdminError::bad_request("levels have no control characters"));
    }
    log_levels::set(levels.as_deref()).map_err(AdminError::bad_request)?;
    Ok(Json(present_levels()))
}

pub(super) fn present_levels() -> LogLevels {
    LogLevels { levels: log_levels::levels() }
}

/// New limits in megabytes per second, 0 for none; what is missing stays as it is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewThroughputs {
    compaction: Option<u32>,
    streams: Option<u32>,
}

pub(super) async fn set_throughputs(
    State(it): State<Admin>,
    Change(NewThroughputs { compaction, streams }): Change<NewThroughputs>,
) -> Answer<Throughputs> {
    let rate = |megabytes: u32| Some(u64::from(megabytes) * MB).filter(|rate| *rate > 0);
    if let Some(compaction) = compaction {
        it.context.storage.set_compaction_rate(rate(compaction));
    }
    if let Some(streams) = streams {
        it.context.member.operations().set_rate(rate(streams));
    }
    Ok(Json(it.context.throughputs()))
}

/// Requests that took long. Keys are parts of rows, which not everybody may see.
pub(super) async fn slow(
    State(it): State<Admin>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Json<Slow> {
    let mut slow = it.context.slow();
    if !it.context.shows_keys(peer.address(), &headers) {
        for request in &mut slow.requests {
            HIDDEN.clone_into(&mut request.subject);
        }
    }
    Json(slow)
}

/// Another threshold for slow requests; 0 for none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewThreshold {
    threshold_millis: u64,
}

pub(super) async fn set_slow_threshold(
    State(it): State<Admin>,
    Change(NewThreshold { threshold_millis: millis }): Change<NewThreshold>,
) -> Answer<Slow> {
    let threshold = (millis > 0).then(|| Duration::from_millis(millis));
    it.context.requests.slow().set_threshold(threshold);
    Ok(Json(it.context.slow()))
}

impl super::AdminContext {
    /// Requests that took long.
    pub(super) fn slow(&self) -> Slow {
        let slow = self.requests.slow();
        let threshold_millis = slow.threshold().map(|it| it.as_millis() as u64);
        Slow { threshold_millis, requests: slow.recent() }
    }

    /// The limits of compactions and streams.
    pub(super) fn throughputs(&self) -> Throughputs {
        let megabytes = |rate: Option<u64>| rate.map_or(0, |rate| rate / MB);
        Throughputs {
            compaction: megabytes(self.storage.compaction_rate()),
            streams: megabytes(self.member.operations().rate()),
        }
    }
}
