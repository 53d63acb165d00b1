//! Commands that take their time: they show on a terminal how far the server is.

use super::NodetoolError;
use super::arguments::Given;
use super::client::Client;
use crate::admin::report::{Collected, Compaction, Compactions, Done, OperationState};
use crate::commands::progress::Progress;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::fmt::Write;
use std::time::Duration;

/// Interval at which the server is asked for its progress.
const POLL: Duration = Duration::from_millis(500);

/// Begins an operation on the ring, and returns its state when it has ended, or at once with
/// `--no-wait`.
pub(super) fn follow(
    client: &Client,
    path: &str,
    given: &Given,
    parameters: &Map<String, Value>,
) -> Result<Value, NodetoolError> {
    let parse = |answer: &Value| {
        OperationState::deserialize(answer).map_err(|error| client.senseless(error))
    };
    let mut answer: Value = client.work(path, parameters)?;
    let mut state = parse(&answer)?;
    if given.flag("no_wait") {
        return Ok(answer);
    }
    let bar = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{spinner} {elapsed_precise} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.enable_steady_tick(POLL);
    let asked = state.operation.clone();
    while state.done.is_none() && state.error.is_none() {
        bar.set_message(brief(&state));
        std::thread::sleep(POLL);
        answer = client.get("/api/v1/ring/operation")?;
        if answer.is_null() {
            return Err(NodetoolError::Lost(asked));
        }
        state = parse(&answer)?;
        if state.operation != asked {
            return Err(NodetoolError::Lost(asked));
        }
    }
    bar.finish_and_clear();
    state.error.map_or(Ok(answer), |error| Err(NodetoolError::Failed(error)))
}

/// Progress in one line.
pub(super) fn brief(state: &OperationState) -> String {
    let sum = |of: fn(&Collected) -> u64| state.collected.iter().map(of).sum::<u64>();
    let bytes: u64 = state.collected.iter().map(|it| it.bytes).sum();
    let mut text = state.mode.clone();
    if !state.collected.is_empty() {
        let (done, all) = (sum(|it| it.ranges_done), sum(|it| it.ranges));
        let _ = write!(text, " ({done} of {all} ranges, {bytes} bytes)");
    }
    let (hashed, all) = (state.rows_hashed, state.rows_to_hash);
    if let Some(percent) = (hashed.min(all) * 100).checked_div(all) {
        let _ = write!(text, ": {hashed} of about {all} rows read, {percent} %");
    }
    text
}

/// Has column families compacted, one after the other.
pub(super) fn compact(
    client: &Client,
    path: &str,
    given: &Given,
    parameters: &Map<String, Value>,
) -> Result<Value, NodetoolError> {
    let progress = Progress::of_work(0);
    if !progress.is_shown() {
        return Ok(client.work(path, parameters)?);
    }
    let (keyspace, families) = (given.text("keyspace"), given.texts("column_families"));
    let watched = "/api/v1/compactions";
    let answer = client.work_watched(path, parameters, watched, |found: &Compactions| {
        if let Some(running) = asked_for(keyspace, &families, found) {
            progress.tell(&format!("{}.{}", running.keyspace, running.column_family));
            progress.set_of(running.bytes_read.min(running.bytes_total), running.bytes_total);
        }
    })?;
    drop(progress);
    let done = Done::deserialize(&answer).map_err(|error| client.senseless(error))?;
    complain!("{} column families", done.column_families.len());
    Ok(answer)
}

/// The compaction that the command waits for, as far as can be told.
fn asked_for<'a>(
    keyspace: Option<&str>,
    families: &[&str],
    found: &'a Compactions,
) -> Option<&'a Compaction> {
    found.running.iter().find(|running| {
        running.kind == "major"
            && keyspace.is_none_or(|keyspace| *keyspace == running.keyspace)
            && (families.is_empty() || families.contains(&&*running.column_family))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compaction_that_was_asked_for_is_shown() {
        let running = |id, kind: &str, family: &str| Compaction {
            id,
            kind: kind.into(),
            keyspace: "K".into(),
            column_family: family.into(),
            ..Compaction::default()
        };
        let found = Compactions {
            running: vec![
                running(1, "minor", "A"),
                running(2, "major", "A"),
                running(3, "major", "B"),
            ],
            ..Compactions::default()
        };
        let shown = |keyspace, families: &[&str]| {
            asked_for(keyspace, families, &found).map(|running| running.id)
        };
        assert_eq!([shown(None, &[]), shown(Some("K"), &[])], [Some(2); 2]);
        assert_eq!([shown(Some("K"), &["A"]), shown(Some("K"), &["B"])], [Some(2), Some(3)]);
        assert_eq!([shown(Some("K"), &["C"]), shown(Some("L"), &[])], [None; 2]);
    }
}
