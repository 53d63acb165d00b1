//! The table of commands, one row each: clap, the requests, `--help` and docs/nodetool.md come
//! from here.

use super::arguments::Kind::{Address, Flag, Many, Number, Option as Named, Text};
use super::arguments::{Argument, Given, optional, required};
use super::print::{self, Printed, judged, list, text};
use super::{NodetoolError, column_families, ring};
use crate::storage::compaction::{self, ThresholdError};
use serde_json::{Map, Value, json};

/// A command: its words, the request that it stands for, and how the answer is printed.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    /// A second name.
    pub(super) alias: Option<&'static str>,
    /// One line, for `--help` and the document.
    pub(super) help: &'static str,
    pub(super) arguments: &'static [Argument],
    pub(super) request: Request,
    /// Below `/api/v1/`.
    pub(super) path: &'static str,
    pub(super) parameters: Parameters,
    pub(super) print: Print,
}

/// The parameters of the request; an error if the arguments make no sense.
type Parameters = fn(&Given) -> Result<Map<String, Value>, NodetoolError>;

/// Turns an answer into text. It fails if the resource does not answer so.
type Print = fn(&Value, &Given) -> Result<Printed, serde_json::Error>;

/// Form of the request to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// `GET`: changes nothing, is answered at once.
    Get,
    /// `PUT`: changes a setting, is answered at once.
    Put,
    /// `POST`: answered when the work is done.
    Post,
    /// `DELETE`: the same.
    Delete,
    /// A `POST` that shows the progress of major compactions meanwhile.
    Compaction,
    /// A `POST` that begins an operation on the ring, which is then followed to its end.
    Operation,
}

const fn row(request: Request, name: &'static str, path: &'static str, print: Print) -> Row {
    let parameters: Parameters = |given| Ok(given.parameters());
    Row { name, alias: None, help: "", arguments: &[], request, path, parameters, print }
}

impl Row {
    const fn help(self, help: &'static str) -> Self {
        Self { help, ..self }
    }

    const fn alias(self, alias: &'static str) -> Self {
        Self { alias: Some(alias), ..self }
    }

    /// The same with parameters that are more than the arguments.
    const fn sending(self, parameters: Parameters) -> Self {
        Self { parameters, ..self }
    }

    const fn taking(self, arguments: &'static [Argument]) -> Self {
        Self { arguments, ..self }
    }
}

use Request::{Compaction, Delete, Get, Operation, Post, Put};

const KEYSPACE: Argument = optional(Text, "keyspace", "All keyspaces without it");
const FAMILY: Argument = optional(Text, "column_family", "All of the keyspace without it");
const FAMILIES: Argument = optional(Many, "column_families", "All of the keyspace without any");
const ONE_KEYSPACE: Argument = optional(Named, "keyspace", "Those of one keyspace");
const NO_WAIT: Argument =
    optional(Flag, "no_wait", "Returns when it has begun; `streams` tells how far it is").local();
const UNAWAITED: Argument = optional(
    Flag,
    "no_wait",
    "Returns at once, as 0.6 did: failures are in the log of the server only",
)
.local();

/// All commands, in the order of `--help`.
pub(super) const COMMANDS: &[Row] = &[
    row(Get, "info", "info", |it, _| text(it, print::render_info))
        .help("Prints token, load, uptime and memory"),
    row(Get, "ring", "ring", |it, _| text(it, ring::render_ring))
        .help("Prints the nodes of the ring: who is up, with how much data, where"),
    row(Get, "status", "status", |it, _| judged(it, ring::render_status, |status| status.healthy))
        .help("Prints all nodes at a glance; exits with 1 unless all are up and in their places"),
    row(Get, "describecluster", "cluster", |it, _| {
        judged(it, ring::render_cluster, |description| description.agree)
    })
    .help("Prints whether all nodes agree on schema and replication; exits with 1 if not"),
    row(Post, "drain", "drain", |it, _| {
        judged(it, print::render_drain, |drained| drained.left == 0)
    })
    .help(
        "Takes the node out of its ring, refuses writes and writes everything to disk; restart it \
         then",
    ),
    row(Post, "allowreturn", "ring/allow-return", |it, _| text(it, ring::render_return))
        .help(
            "Takes a removed node back into the ring with the data that it has; for each node to \
             be told",
        )
        .taking(&[required(Address, "address", "Address of the removed node")]),
    row(Operation, "decommission", "ring/decommission", operation)
        .help("Leaves the ring: other nodes take over what this one has")
        .taking(&[NO_WAIT]),
    row(Operation, "move", "ring/move", operation)
        .help("Leaves the ring and joins it at another token")
        .taking(&[required(Text, "token", "The new token, as the partitioner writes it"), NO_WAIT]),
    row(Operation, "loadbalance", "ring/loadbalance", operation)
        .help("Moves to where the busiest node gives half of its load away")
        .taking(&[NO_WAIT]),
    row(Operation, "removetoken", "ring/remove-token", operation)
        .help("Removes a dead node from the ring: others take over what it had")
        .taking(&[
            required(Text, "token", "The token of the dead node, as `nodetool ring` shows it"),
            optional(
                Flag,
                "accept_loss",
                "Also if too few replicas of a range are alive: what only the others have is given \
                 up",
            ),
            NO_WAIT,
        ]),
    row(Operation, "cleanup", "cleanup", operation)
        .help("Drops what this node holds no more, after the ring has changed")
        .taking(&[
            KEYSPACE,
            optional(
                Many,
                "column_families",
                "Taken as in 0.6, and ignored as there: all of the keyspace is cleaned up",
            )
            .local(),
            NO_WAIT,
        ]),
    row(Get, "streams", "streams", |it, given| {
        text(it, |streams| ring::render_streams(streams, given.address("peer")))
    })
    .help("Prints what the node is doing, and which data move between it and others")
    .taking(&[optional(Address, "peer", "Only those to and from this node").named("HOST").local()])
    .alias("netstats"),
    row(Operation, "repair", "repair", operation)
        .help("Makes replicas alike: those of this node's ranges compare what they have")
        .taking(&[
            optional(Text, "keyspace", "The keyspace"),
            FAMILIES,
            optional(
                Flag,
                "primary_range",
                "Only the range that the node owns: enough if it is done on all nodes",
            ),
            NO_WAIT,
        ])
        .sending(repair),
    row(Get, "gossipinfo", "gossip", |it, _| list(it, ring::render_gossip))
        .help("Prints what the nodes say of themselves"),
    row(Get, "hints", "hints", |it, _| text(it, ring::render_hints))
        .help("Prints what is kept for nodes that were down, and what is being done about it"),
    row(Get, "version", "info", print::version).help("Prints the version of the server"),
    row(Get, "cfstats", "cfstats", |it, _| {
        list(it, |keyspaces| keyspaces.iter().map(column_families::render_keyspace).collect())
    })
    .help("Prints statistics of column families")
    .taking(&[KEYSPACE, FAMILY]),
    row(Get, "cfhistograms", "cfhistograms", |it, given| {
        let since_start = given.flag("since_start");
        list(it, |all| {
            all.iter().map(|it| column_families::render_histogram(it, since_start)).collect()
        })
    })
    .help("Prints how long reads and writes of a column family took, in about the last minute")
    .taking(&[
        optional(
            Flag,
            "since_start",
            "Counts all since the start, instead of those of about the last minute",
        )
        .local(),
        optional(Many, "names", "The keyspace and the column family")
            .named("KEYSPACE COLUMN_FAMILY"),
    ])
    .sending(histogram),
    row(Get, "tpstats", "pools", |it, _| list(it, print::render_pools))
        .help("Prints what work is being done, waits and was done"),
    row(Post, "flush", "flush", print::nothing)
        .help("Writes memtables to disk")
        .taking(&[UNAWAITED, KEYSPACE, FAMILIES])
        .sending(|given| Ok(given.work())),
    row(Compaction, "compact", "compact", print::nothing)
        .help("Merges all SSTables of each column family into one")
        .taking(&[UNAWAITED, KEYSPACE, FAMILIES])
        .sending(|given| Ok(given.work())),
    row(Get, "compactionstats", "compactions", |it, _| {
        text(it, column_families::render_compactions)
    })
    .help("Prints which compactions are running, and how far they are"),
    row(Get, "getcompactionthreshold", "compaction-thresholds", |it, _| {
        list(it, column_families::render_thresholds)
    })
    .help("Prints how many SSTables a minor compaction takes")
    .taking(&[KEYSPACE, FAMILY]),
    row(Put, "setcompactionthreshold", "compaction-thresholds", print::nothing)
        .help("Changes how many SSTables a minor compaction takes, until the server is restarted")
        .taking(&[optional(
            Many,
            "values",
            "The least number of SSTables, and the greatest, 0 for no minor compactions; \
                 before them a keyspace and a column family, if not all are meant",
        )
        .named("[KEYSPACE COLUMN_FAMILY] MIN [MAX]")])
        .sending(thresholds),
    row(Put, "setcachecapacity", "cache-capacities", print::nothing)
        .help(
            "Changes how many entries the caches of a column family may have, until the next \
             start",
        )
        .taking(&[
            required(Text, "keyspace", "The keyspace"),
            required(Text, "column_family", "The column family"),
            required(Number, "key_cache", "Keys that the key cache may hold; 0 switches it off")
                .named("KEY_CACHE_CAPACITY"),
            required(Number, "row_cache", "Rows that the row cache may hold; 0 switches it off")
                .named("ROW_CACHE_CAPACITY"),
        ]),
    row(Post, "snapshot", "snapshots", print::nothing).help("Takes a snapshot").taking(&[
        optional(Named, "keyspace", "One keyspace instead of all"),
        optional(Text, "tag", "A name for it, besides the time"),
    ]),
    row(Delete, "clearsnapshot", "snapshots", print::nothing)
        .help("Removes snapshots: all, unless options say which")
        .taking(&[ONE_KEYSPACE, optional(Named, "name", "Those of this name or tag")]),
    row(Get, "listsnapshots", "snapshots", |it, _| list(it, print::render_snapshots))
        .help("Prints which snapshots there are and what space they take")
        .taking(&[ONE_KEYSPACE]),
];

/// Result of an operation on the ring, if its end was waited for.
fn operation(answer: &Value, given: &Given) -> Result<Printed, serde_json::Error> {
    if given.flag("no_wait") {
        print::nothing(answer, given)
    } else {
        text(answer, print::render_operation)
    }
}

/// In the words of 0.6, and how it is done.
const REPAIR_USAGE: &str = "Missing keyspace argument.\n\
    usage: alexandra nodetool repair KEYSPACE [COLUMN_FAMILIES]... [--primary-range] [--no-wait]";

/// `repair` needs a keyspace, and says so as 0.6 does.
fn repair(given: &Given) -> Result<Map<String, Value>, NodetoolError> {
    given.text("keyspace").ok_or(NodetoolError::Usage(REPAIR_USAGE))?;
    Ok(given.parameters())
}

/// `cfhistograms` takes two names, and refuses any other number as 0.6 does.
fn histogram(given: &Given) -> Result<Map<String, Value>, NodetoolError> {
    const USAGE: &str = "Usage of cfhistograms: <keyspace> <column_family>.";
    let [keyspace, family] = given.texts("names")[..] else {
        return Err(NodetoolError::Usage(USAGE));
    };
    let parameters = [("keyspace", keyspace), ("column_family", family)];
    Ok(parameters.map(|(name, value)| (name.to_owned(), json!(value))).into_iter().collect())
}

/// `setcompactionthreshold`: in 0.6 the thresholds are those of the node; here each column family
/// has its own, and a command without one means all.
fn thresholds(given: &Given) -> Result<Map<String, Value>, NodetoolError> {
    let values = given.texts("values");
    let (family, numbers) = match &values[..] {
        [keyspace, family, numbers @ ..] if keyspace.parse::<usize>().is_err() => {
            (Some((*keyspace, *family)), numbers)
        }
        numbers => (None, numbers),
    };
    let number =
        |text: &str| text.parse().map_err(|_| NodetoolError::Usage("Thresholds are whole numbers"));
    let (min, max): (usize, Option<usize>) = match numbers {
        [] => return Err(NodetoolError::Usage("Missing threshold value(s)")),
        [min] => (number(min)?, None),
        [min, max] => (number(min)?, Some(number(max)?)),
        [_, _, _, ..] => return Err(NodetoolError::Usage("Too many threshold values")),
    };
    // Without a maximum the server adds the present one, and checks again.
    compaction::Thresholds::new(min, max.unwrap_or(min.max(2))).map_err(|error| {
        NodetoolError::Usage(match error {
            ThresholdError::TooSmall => "Min threshold must be at least 2",
            ThresholdError::Reversed => "Min threshold can't be greater than Max threshold",
            ThresholdError::TooLarge => "Thresholds are less than 4294967296",
        })
    })?;
    let mut parameters = Map::from_iter([("min".to_owned(), json!(min))]);
    if let Some(max) = max {
        parameters.insert("max".to_owned(), json!(max));
    }
    if let Some((keyspace, family)) = family {
        parameters.insert("keyspace".to_owned(), json!(keyspace));
        parameters.insert("column_families".to_owned(), json!([family]));
    }
    Ok(parameters)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::nodetool::Arguments;
    use crate::kit::manual::check_part;
    use clap::{Args, FromArgMatches, Subcommand};

    #[test]
    fn the_manual_has_the_rows_of_the_table() {
        let row = |row: &Row| {
            let arguments = row.arguments.iter().map(Argument::usage);
            let usage: Vec<String> = [row.name.to_owned()].into_iter().chain(arguments).collect();
            let alias = row.alias.map_or_else(String::new, |alias| format!(", `{alias}`"));
            format!("| `{}`{alias} | {} |\n", usage.join(" "), row.help)
        };
        let rows: String = COMMANDS.iter().map(row).collect();
        let text = format!("| command | what it does |\n|---|---|\n{rows}");
        check_part("docs/nodetool.md", "commands", &text);
    }

    fn parsed(words: &[&str]) -> Result<Value, String> {
        let command = Given::augment_subcommands(clap::Command::new("nodetool"));
        let matches = command.try_get_matches_from([&["nodetool"], words].concat());
        let given = Given::from_arg_matches(&matches.unwrap()).unwrap();
        let parameters = (given.row.parameters)(&given).map_err(|error| error.to_string())?;
        Ok(Value::Object(parameters))
    }

    #[test]
    fn no_argument_hides_an_option_of_all_commands() {
        let all = Arguments::augment_args(clap::Command::new("nodetool"));
        for row in COMMANDS {
            let is_hidden =
                |option: &clap::Arg| row.arguments.iter().any(|it| option.get_id() == it.name);
            assert!(!all.get_arguments().any(is_hidden), "{}", row.name);
        }
    }

    #[test]
    fn arguments_become_parameters() {
        for (words, parameters) in [
            (&["info"][..], json!({})),
            (&["netstats", "10.0.0.2"], json!({})),
            (&["cfstats", "K"], json!({ "keyspace": "K" })),
            (&["flush"], json!({ "column_families": [], "wait": true })),
            (
                &["compact", "--no-wait", "K", "A", "B"],
                json!({ "keyspace": "K", "column_families": ["A", "B"], "wait": false }),
            ),
            (&["removetoken", "5"], json!({ "token": "5", "accept_loss": false })),
            (&["cleanup", "K", "A", "--no-wait"], json!({ "keyspace": "K" })),
            (&["cfhistograms", "K", "A"], json!({ "keyspace": "K", "column_family": "A" })),
            (&["snapshot", "--keyspace", "K"], json!({ "keyspace": "K" })),
            (&["allowreturn", "10.0.0.2"], json!({ "address": "10.0.0.2" })),
            (
                &["setcachecapacity", "K", "A", "7", "0"],
                json!({ "keyspace": "K", "column_family": "A", "key_cache": 7, "row_cache": 0 }),
            ),
        ] {
            assert_eq!(parsed(words), Ok(parameters), "{words:?}");
        }
    }

    #[test]
    fn thresholds_that_make_no_sense_are_refused_in_the_words_of_old() {
        let set = |values: &[&str]| parsed(&[&["setcompactionthreshold"], values].concat());
        assert_eq!(set(&["4"]), Ok(json!({ "min": 4 })));
        assert_eq!(set(&["0", "0"]), Ok(json!({ "min": 0, "max": 0 })));
        let all = json!({ "keyspace": "K", "column_families": ["C"], "min": 2, "max": 8 });
        assert_eq!(set(&["K", "C", "2", "8"]), Ok(all));
        for (values, text) in [
            (&[][..], "Missing threshold value(s)"),
            (&["K", "C"], "Missing threshold value(s)"),
            (&["8", "4"], "Min threshold can't be greater than Max threshold"),
            (&["0", "32"], "Min threshold must be at least 2"),
            (&["1", "4"], "Min threshold must be at least 2"),
            (&["4", "many"], "Thresholds are whole numbers"),
            (&["4", "5", "6"], "Too many threshold values"),
        ] {
            assert_eq!(set(values), Err(text.to_owned()), "{values:?}");
        }
    }
}
