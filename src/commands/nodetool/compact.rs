//! `nodetool compact [keyspace [column families…]]`. Unlike that of 0.6 it returns when the
//! compactions have ended, unless it is told not to wait.

use super::client::Client;
use super::flush;
use super::{NodetoolError, Output};
use crate::admin::report::{Compaction, Compactions, Done};
use crate::commands::progress::Progress;

/// Which column families are meant.
pub(super) type Arguments = flush::Arguments;

pub(super) fn run(client: &Client, arguments: &Arguments) -> Result<Output, NodetoolError> {
    let (path, body, watched) = ("/api/v1/compact", arguments.body(), "/api/v1/compactions");
    let progress = Progress::of_work(0);
    let done: Done = if progress.is_shown() {
        client.work_watched(path, &body, watched, |found: &Compactions| {
            if let Some(running) = asked_for(arguments, found) {
                progress.tell(&format!("{}.{}", running.keyspace, running.column_family));
                progress.set_of(running.bytes_read.min(running.bytes_total), running.bytes_total);
            }
        })?
    } else {
        client.work(path, &body)?
    };
    let is_shown = progress.is_shown();
    drop(progress);
    if is_shown {
        complain!("{} column families", done.column_families.len());
    }
    Ok(Output::new(&done, String::new()))
}

/// The compaction that this command waits for, as far as can be told: column families are taken one
/// after the other.
fn asked_for<'a>(arguments: &Arguments, found: &'a Compactions) -> Option<&'a Compaction> {
    let Arguments { keyspace, column_families, .. } = arguments;
    found.running.iter().find(|running| {
        running.kind == "major"
            && keyspace.as_ref().is_none_or(|keyspace| *keyspace == running.keyspace)
            && (column_families.is_empty() || column_families.contains(&running.column_family))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn arguments(words: &[&str]) -> Arguments {
        Line::try_parse_from([&["compact"], words].concat()).unwrap().arguments
    }

    #[test]
    fn the_compaction_that_was_asked_for_is_shown() {
        let running = |id, kind: &str, family: &str| Compaction {
            id,
            kind: kind.into(),
            keyspace: "K".into(),
            column_family: family.into(),
            inputs: vec![],
            bytes_total: 9,
            bytes_read: 3,
            bytes_written: 2,
            rows: 1,
            running_seconds: 1,
        };
        let found = Compactions {
            running: vec![
                running(1, "minor", "A"),
                running(2, "major", "A"),
                running(3, "major", "B"),
            ],
            pending: vec![],
            completed: 0,
            failed: 0,
            bytes_in: 0,
            bytes_out: 0,
        };
        let shown = |words: &[&str]| asked_for(&arguments(words), &found).map(|it| it.id);
        assert_eq!([shown(&[]), shown(&["K"]), shown(&["K", "A"])], [Some(2); 3]);
        assert_eq!((shown(&["K", "B"]), shown(&["K", "C"]), shown(&["L"])), (Some(3), None, None));
    }

    #[test]
    fn who_does_not_wait_says_so() {
        assert_eq!(arguments(&["K"]).body()["wait"], true);
        assert_eq!(arguments(&["--no-wait", "K", "A"]).body()["wait"], false);
    }
}
