//! Commands that take their time: they show on a terminal how far the server is.

use super::client::Client;
use super::commands::{Call, Work};
use crate::admin::report::{Compaction, Compactions, Done, OperationState};
use crate::commands::output::Failure;
use crate::commands::progress::Progress as Bar;
use crate::repair::Progress;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

/// Interval at which the server is asked for its progress.
const POLL: Duration = Duration::from_millis(500);

/// Follows the operation on the ring that has begun; returns its state when it has ended.
pub(super) fn follow(client: &Client, mut answer: Value) -> Result<Value, Failure> {
    let parse = |answer: &Value| {
        OperationState::deserialize(answer).map_err(|error| client.senseless(error))
    };
    let mut state = parse(&answer)?;
    let bar = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{spinner} {elapsed_precise} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.enable_steady_tick(POLL);
    let (asked, began) = (state.operation.clone(), state.began);
    while state.done.is_none() && state.error.is_none() {
        bar.set_message(brief(&state));
        std::thread::sleep(POLL);
        answer = client.get("/api/v1/ring/operation")?;
        if answer.is_null() {
            return Err(gone(&asked));
        }
        state = parse(&answer)?;
        // One that began later hides how this one ended.
        if state.operation != asked || state.began.to_bits() != began.to_bits() {
            return Err(gone(&asked));
        }
    }
    bar.finish_and_clear();
    state.error.map_or(Ok(answer), |error| Err(Failure::new(error)))
}

fn gone(operation: &str) -> Failure {
    Failure::new(format_args!(
        "{operation} is not under way any more, and how it ended is not known: another operation \
         was begun, or the server restarted. Its log says more"
    ))
}

/// Step and progress in one line.
pub(super) fn brief(state: &OperationState) -> String {
    let amount = amount(state);
    if amount.is_empty() { state.mode.clone() } else { format!("{}: {amount}", state.mode) }
}

/// Progress in numbers, if there are any yet.
pub(super) fn amount(state: &OperationState) -> String {
    let sum =
        |of: fn(&Progress) -> u64| state.collected.iter().map(|it| of(&it.progress)).sum::<u64>();
    let mut parts = Vec::new();
    if !state.collected.is_empty() {
        let (done, all) = (sum(|it| it.ranges_done), sum(|it| it.ranges));
        parts.push(format!("{done} of {all} ranges, {} bytes", sum(|it| it.bytes)));
    }
    let (hashed, all) = (state.rows_hashed, state.rows_to_hash);
    if let Some(percent) = (hashed.min(all) * 100).checked_div(all) {
        parts.push(format!("{hashed} of about {all} rows read, {percent} %"));
    }
    parts.join("; ")
}

/// Has column families compacted, one after the other.
pub(super) fn compact(
    client: &Client,
    path: &str,
    call: &Call,
    work: &Work,
) -> Result<Value, Failure> {
    let progress = Bar::of_work(0);
    if !progress.is_shown() {
        return client.call(&call.method, path, &call.parameters);
    }
    let (keyspace, families) = (work.keyspace.as_deref(), &work.column_families);
    let watched = "/api/v1/compactions";
    let answer = client.work_watched(path, &call.parameters, watched, |found: &Compactions| {
        if let Some(running) = asked_for(keyspace, families, found) {
            progress.tell(&running.family.to_string());
            progress.set_of(running.bytes_read.min(running.bytes_total), running.bytes_total);
        }
    })?;
    drop(progress);
    let done = Done::deserialize(&answer).map_err(|error| client.senseless(error))?;
    complain!("{} column families", done.column_families.len());
    Ok(answer)
}

/// The compaction that the command probably waits for.
fn asked_for<'a>(
    keyspace: Option<&str>,
    families: &[String],
    found: &'a Compactions,
) -> Option<&'a Compaction> {
    found.running.iter().find(|running| {
        running.kind == "major"
            && keyspace.is_none_or(|keyspace| *keyspace == running.family.keyspace)
            && (families.is_empty() || families.contains(&running.family.column_family))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::report::Family;

    #[test]
    fn the_compaction_that_was_asked_for_is_shown() {
        let running = |id, kind: &str, family: &str| Compaction {
            id,
            kind: kind.into(),
            family: Family { keyspace: "K".into(), column_family: family.into() },
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
            let families: Vec<String> = families.iter().map(ToString::to_string).collect();
            asked_for(keyspace, &families, &found).map(|running| running.id)
        };
        assert_eq!([shown(None, &[]), shown(Some("K"), &[])], [Some(2); 2]);
        assert_eq!([shown(Some("K"), &["A"]), shown(Some("K"), &["B"])], [Some(2), Some(3)]);
        assert_eq!([shown(Some("K"), &["C"]), shown(Some("L"), &[])], [None; 2]);
    }
}
