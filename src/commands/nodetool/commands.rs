//! The commands: what clap, `--help` and docs/nodetool.md know of them, the request that each
//! stands for, and how the answer is printed.

use super::client::members;
use super::print::{self, Print, judged, list, nothing, text};
use super::{column_families, ring};
use crate::admin::report::LogLevels;
use crate::commands::output::Failure;
use crate::storage::compaction::{self, ThresholdError};
use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Map, Value, json};
use std::io;
use std::net::{IpAddr, ToSocketAddrs};

#[derive(Debug, Subcommand)]
#[command(rename_all = "lower")]
pub(super) enum Command {
    #[command(flatten)]
    Look(Look),
    #[command(flatten)]
    Change(Change),
    #[command(flatten)]
    Operation(Operation),
}

/// Commands that change nothing, and are answered at once, or after a time that they say.
#[derive(Debug, Subcommand)]
#[command(rename_all = "lower")]
pub(super) enum Look {
    /// Prints token, load, uptime and memory
    Info,
    /// Prints the nodes of the ring: who is up, with how much data, where
    Ring,
    /// Prints why the node does not serve as it should; exits with 1 if there is a reason
    Health,
    /// Prints all nodes at a glance; exits with 1 unless all are up and in their places
    Status,
    /// Prints whether all nodes agree on schema and replication; exits with 1 if not
    DescribeCluster,
    /// Prints what the node is doing, and which data move between it and others
    #[command(alias = "netstats")]
    Streams {
        /// Only those to and from this node
        #[arg(value_name = "HOST")]
        peer: Option<String>,
    },
    /// Prints what the nodes say of themselves
    GossipInfo,
    /// Prints what is kept for nodes that were down, and what is being done about it
    Hints,
    /// Prints the version of the server
    Version,
    /// Prints statistics of column families
    CfStats(Families),
    /// Prints how long reads and writes of a column family took, in about the last minute
    CfHistograms {
        /// Counts all since the start, instead of those of about the last minute
        #[arg(long = "since-start")]
        since_start: bool,
        /// The keyspace
        keyspace: String,
        /// The column family
        column_family: String,
    },
    /// Prints what work is being done, waits and was done
    TpStats,
    /// Prints which compactions are running, and how far they are
    CompactionStats,
    /// Prints how many SSTables a minor compaction takes
    GetCompactionThreshold(Families),
    /// Prints the last requests of clients that took long
    Slow,
    /// Prints which rows are read and written most: counts operations for some time
    TopPartitions(Sampling),
    /// Prints which rows take the most room in SSTables
    WidestRows {
        #[command(flatten)]
        families: Families,
        /// Rows that are shown
        #[arg(short = 'k', long, default_value_t = 10)]
        count: usize,
    },
    /// Prints which lines are logged
    GetLoggingLevels,
    /// Prints how fast compactions may read, in MB per second
    GetCompactionThroughput,
    /// Prints how fast data may be fetched from other nodes, in MB per second
    GetStreamThroughput,
    /// Prints which snapshots there are and what space they take
    ListSnapshots {
        /// Those of one keyspace
        #[arg(long)]
        keyspace: Option<String>,
    },
}

/// Column families, or one of them.
#[derive(Debug, Args)]
pub(super) struct Families {
    /// All keyspaces without it
    keyspace: Option<String>,
    /// All of the keyspace without it
    column_family: Option<String>,
}

/// Operations to count by row, with the arguments of later releases.
#[derive(Debug, Args)]
pub(super) struct Sampling {
    /// Milliseconds for which operations are counted, 10000 without them; before them a keyspace,
    /// or one and a column family, if not all are meant
    #[arg(value_name = "[KEYSPACE [COLUMN_FAMILY]] [DURATION]")]
    values: Vec<String>,
    /// Rows that have counters: the more, the more exact are the counts
    #[arg(short = 's', long, default_value_t = 256)]
    capacity: usize,
    /// Rows that are shown
    #[arg(short = 'k', long, default_value_t = 10)]
    count: usize,
    /// Operations that are counted
    #[arg(short = 'a', long, value_delimiter = ',', ignore_case = true,
        value_parser = ["READS", "WRITES"], default_value = "READS,WRITES")]
    samplers: Vec<String>,
}

/// Commands that are answered when they are done.
#[derive(Debug, Subcommand)]
#[command(rename_all = "lower")]
pub(super) enum Change {
    /// Takes the node out of its ring, refuses writes and writes everything to disk; restart it
    /// then
    Drain,
    /// Takes a removed node back into the ring with the data that it has; for each node to be told
    AllowReturn {
        /// Address of the removed node
        address: IpAddr,
    },
    /// Writes memtables to disk
    Flush(Work),
    /// Merges all SSTables of each column family into one
    Compact(Work),
    /// Stops running compactions, or the repair: SSTables stay as they were
    Stop {
        /// The number of the compaction, as `compactionstats` shows it; all without it
        #[arg(value_name = "NUMBER")]
        id: Option<u64>,
        /// The repair that the node coordinates, instead of compactions
        #[arg(long, conflicts_with = "id")]
        repair: bool,
    },
    /// Changes how many SSTables a minor compaction takes, until the server is restarted
    SetCompactionThreshold {
        /// The least number of SSTables, and the greatest, 0 for no minor compactions; before them
        /// a keyspace and a column family, if not all are meant
        #[arg(value_name = "[KEYSPACE COLUMN_FAMILY] MIN [MAX]")]
        values: Vec<String>,
    },
    /// Changes how many entries the caches of a column family may have, until the next start
    SetCacheCapacity {
        /// The keyspace
        keyspace: String,
        /// The column family
        column_family: String,
        /// Keys that the key cache may hold; 0 switches it off
        #[arg(value_name = "KEY_CACHE_CAPACITY")]
        key_cache: u64,
        /// Rows that the row cache may hold; 0 switches it off
        #[arg(value_name = "ROW_CACHE_CAPACITY")]
        row_cache: u64,
    },
    /// Reads storage-conf.xml again: keyspaces, column families and settings change without a
    /// restart where they can
    Reload,
    /// Changes which lines are logged, until the next start or reload
    SetLoggingLevel {
        /// Levels such as `debug` or `info,alexandra::gossip=debug`; those of the start without any
        levels: Option<String>,
    },
    /// Changes how long a request of a client takes that is logged and kept for `slow`, until the
    /// next start or reload
    SetSlowThreshold {
        /// Milliseconds; 0 for none
        #[arg(value_name = "MILLIS")]
        millis: u64,
    },
    /// Changes how fast compactions may read, until the next start or reload
    SetCompactionThroughput {
        /// MB per second; 0 for no limit
        #[arg(value_name = "MB")]
        megabytes: u32,
    },
    /// Changes how fast data may be fetched from other nodes, until the next start or reload
    SetStreamThroughput {
        /// MB per second; 0 for no limit
        #[arg(value_name = "MB")]
        megabytes: u32,
    },
    /// Takes a snapshot
    Snapshot {
        /// One keyspace instead of all
        #[arg(long)]
        keyspace: Option<String>,
        /// A name for it, besides the time
        tag: Option<String>,
    },
    /// Removes snapshots: all, unless options say which
    ClearSnapshot {
        /// Those of one keyspace
        #[arg(long)]
        keyspace: Option<String>,
        /// Those of this name or tag
        #[arg(long)]
        name: Option<String>,
    },
}

/// Work on column families.
#[derive(Debug, Args)]
pub(super) struct Work {
    /// Returns at once, as 0.6 did: failures are in the log of the server only
    #[arg(long)]
    no_wait: bool,
    /// All keyspaces without it
    pub(super) keyspace: Option<String>,
    /// All of the keyspace without any
    pub(super) column_families: Vec<String>,
}

/// Operations on the ring, which are followed to their end.
#[derive(Debug, Subcommand)]
#[command(rename_all = "lower")]
pub(super) enum Operation {
    /// Leaves the ring: other nodes take over what this one has
    Decommission(Waiting),
    /// Leaves the ring and joins it at another token
    Move {
        /// The new token, as the partitioner writes it
        token: String,
        #[command(flatten)]
        waiting: Waiting,
    },
    /// Moves to where the busiest node gives half of its load away
    LoadBalance(Waiting),
    /// Removes a dead node from the ring: others take over what it had
    RemoveToken {
        /// The token of the dead node, as `nodetool ring` shows it
        token: String,
        /// Also if too few replicas of a range are alive: what only the others have is given up
        #[arg(long = "accept-loss")]
        accept_loss: bool,
        #[command(flatten)]
        waiting: Waiting,
    },
    /// Drops what this node holds no more, after the ring has changed
    Cleanup {
        /// All keyspaces without it
        keyspace: Option<String>,
        /// Taken as in 0.6, and ignored as there: all of the keyspace is cleaned up
        column_families: Vec<String>,
        #[command(flatten)]
        waiting: Waiting,
    },
    /// Makes replicas alike: those of this node's ranges compare what they have
    Repair {
        /// The keyspace
        keyspace: String,
        /// All of the keyspace without any
        column_families: Vec<String>,
        /// Only the range that the node owns: enough if it is done on all nodes
        #[arg(long = "primary-range")]
        primary_range: bool,
        #[command(flatten)]
        waiting: Waiting,
    },
}

#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Waiting {
    /// Returns when it has begun; `streams` tells how far it is
    #[arg(long)]
    pub(super) no_wait: bool,
}

impl Command {
    pub(super) fn call(&self) -> Result<Call, Failure> {
        match self {
            Self::Look(look) => look.call(),
            Self::Change(change) => change.call(),
            Self::Operation(operation) => Ok(operation.call()),
        }
    }
}

/// A request, and how its answer is printed.
pub(super) struct Call {
    pub(super) method: Method,
    /// Below `/api/v1/`.
    pub(super) path: &'static str,
    pub(super) parameters: Map<String, Value>,
    pub(super) print: Print,
}

/// A call whose parameters are the members of a JSON object that are there.
fn call(method: Method, path: &'static str, parameters: Value, print: Print) -> Call {
    Call { method, path, parameters: members(parameters), print }
}

fn get(path: &'static str, print: Print) -> Call {
    call(Method::GET, path, json!({}), print)
}

impl Families {
    fn get(&self, path: &'static str, print: Print) -> Call {
        let Self { keyspace, column_family } = self;
        let parameters = json!({ "keyspace": keyspace, "column_family": column_family });
        call(Method::GET, path, parameters, print)
    }
}

/// The address of a node that is named.
fn address_of(name: &str) -> Result<IpAddr, Failure> {
    let found = name.parse().or_else(|_| {
        let mut found = (name, 0).to_socket_addrs()?;
        found.next().map(|it| it.ip()).ok_or_else(|| io::Error::other("it has no address"))
    });
    found.map_err(|error| Failure::new(format_args!("{name}: {error}")))
}

impl Look {
    fn call(&self) -> Result<Call, Failure> {
        Ok(match self {
            Self::Info => get("info", text(print::render_info)),
            Self::Health => get("info", Box::new(print::health)),
            Self::Ring => get("ring", text(ring::render_ring)),
            Self::Status => get("status", judged(ring::render_status, |status| status.healthy)),
            Self::DescribeCluster => {
                get("cluster", judged(ring::render_cluster, |description| description.agree))
            }
            Self::Streams { peer } => {
                let peer = peer.as_deref().map(address_of).transpose()?;
                get("streams", text(move |streams| ring::render_streams(streams, peer)))
            }
            Self::GossipInfo => get("gossip", list(ring::render_gossip)),
            Self::Hints => get("hints", text(ring::render_hints)),
            Self::Version => get("info", Box::new(print::version)),
            Self::CfStats(families) => {
                families.get("cfstats", list(column_families::render_keyspaces))
            }
            Self::CfHistograms { since_start, keyspace, column_family } => {
                let since_start = *since_start;
                let parameters = json!({ "keyspace": keyspace, "column_family": column_family });
                let print = list(move |all| column_families::render_histograms(all, since_start));
                call(Method::GET, "cfhistograms", parameters, print)
            }
            Self::TpStats => get("pools", list(print::render_pools)),
            Self::CompactionStats => get("compactions", text(column_families::render_compactions)),
            Self::GetCompactionThreshold(families) => {
                families.get("compaction-thresholds", list(column_families::render_thresholds))
            }
            Self::Slow => get("slow", text(print::render_slow)),
            Self::TopPartitions(sampling) => {
                let print = text(column_families::render_busy_rows);
                call(Method::POST, "busy-rows", sampling.parameters()?, print)
            }
            Self::WidestRows { families: Families { keyspace, column_family }, count } => {
                let parameters = json!({
                    "keyspace": keyspace,
                    "column_family": column_family,
                    "count": count.to_string(),
                });
                let print = list(column_families::render_widest_rows);
                call(Method::GET, "widest-rows", parameters, print)
            }
            Self::GetLoggingLevels => {
                get("log-levels", text(|it: &LogLevels| format!("{}\n", it.levels)))
            }
            Self::GetCompactionThroughput => {
                get("throughputs", text(|it| print::render_throughput("compaction", it)))
            }
            Self::GetStreamThroughput => {
                get("throughputs", text(|it| print::render_throughput("stream", it)))
            }
            Self::ListSnapshots { keyspace } => {
                let parameters = json!({ "keyspace": keyspace });
                call(Method::GET, "snapshots", parameters, list(print::render_snapshots))
            }
        })
    }
}

impl Change {
    fn call(&self) -> Result<Call, Failure> {
        let post = |path, parameters, print| call(Method::POST, path, parameters, print);
        Ok(match self {
            Self::Drain => {
                post("drain", json!({}), judged(print::render_drain, |drained| drained.left == 0))
            }
            Self::AllowReturn { address } => {
                post("ring/allow-return", json!({ "address": address }), text(ring::render_return))
            }
            Self::Flush(work) => post("flush", work.parameters(), nothing()),
            Self::Compact(work) => post("compact", work.parameters(), nothing()),
            Self::Stop { repair: true, .. } => post("ring/operation/stop", json!({}), nothing()),
            Self::Stop { id, .. } => {
                post("compactions/stop", json!({ "id": id }), text(print::render_stopped))
            }
            Self::SetCompactionThreshold { values } => {
                call(Method::PUT, "compaction-thresholds", thresholds(values)?, nothing())
            }
            Self::SetCacheCapacity { keyspace, column_family, key_cache, row_cache } => {
                let parameters = json!({
                    "keyspace": keyspace,
                    "column_family": column_family,
                    "key_cache": key_cache,
                    "row_cache": row_cache,
                });
                call(Method::PUT, "cache-capacities", parameters, nothing())
            }
            Self::Reload => post("reload", json!({}), text(print::render_reloaded)),
            Self::SetLoggingLevel { levels } => {
                call(Method::PUT, "log-levels", json!({ "levels": levels }), nothing())
            }
            Self::SetSlowThreshold { millis } => {
                call(Method::PUT, "slow", json!({ "threshold_millis": millis }), nothing())
            }
            Self::SetCompactionThroughput { megabytes } => {
                call(Method::PUT, "throughputs", json!({ "compaction": megabytes }), nothing())
            }
            Self::SetStreamThroughput { megabytes } => {
                call(Method::PUT, "throughputs", json!({ "streams": megabytes }), nothing())
            }
            Self::Snapshot { keyspace, tag } => {
                post("snapshots", json!({ "keyspace": keyspace, "tag": tag }), nothing())
            }
            Self::ClearSnapshot { keyspace, name } => {
                let parameters = json!({ "keyspace": keyspace, "name": name });
                call(Method::DELETE, "snapshots", parameters, nothing())
            }
        })
    }
}

impl Sampling {
    fn parameters(&self) -> Result<Value, Failure> {
        let Self { values, capacity, count, samplers } = self;
        let (names, duration) = match &values[..] {
            [names @ .., last] if names.len() == 2 || last.parse::<u64>().is_ok() => {
                let wrong = |_| {
                    let text = format!("the duration is a number of milliseconds, and not {last}");
                    Failure::new(text)
                };
                (names, Some(last.parse::<u64>().map_err(wrong)?))
            }
            names => (names, None),
        };
        if names.len() > 2 {
            return Err(Failure::new("Too many arguments: see toppartitions --help"));
        }
        let samplers: Vec<String> = samplers.iter().map(|it| it.to_lowercase()).collect();
        Ok(json!({
            "keyspace": names.first(),
            "column_family": names.get(1),
            "duration_millis": duration,
            "capacity": capacity,
            "count": count,
            "samplers": samplers,
        }))
    }
}

impl Work {
    fn parameters(&self) -> Value {
        let Self { no_wait, keyspace, column_families } = self;
        json!({ "keyspace": keyspace, "column_families": column_families, "wait": !no_wait })
    }
}

impl Operation {
    fn call(&self) -> Call {
        let (path, parameters) = match self {
            Self::Decommission(_) => ("ring/decommission", json!({})),
            Self::Move { token, .. } => ("ring/move", json!({ "token": token })),
            Self::LoadBalance(_) => ("ring/loadbalance", json!({})),
            Self::RemoveToken { token, accept_loss, .. } => {
                ("ring/remove-token", json!({ "token": token, "accept_loss": accept_loss }))
            }
            Self::Cleanup { keyspace, .. } => ("cleanup", json!({ "keyspace": keyspace })),
            Self::Repair { keyspace, column_families, primary_range, .. } => {
                let parameters = json!({
                    "keyspace": keyspace,
                    "column_families": column_families,
                    "primary_range": primary_range,
                });
                ("repair", parameters)
            }
        };
        let is_followed = !self.waiting().no_wait;
        let print = if is_followed { text(print::render_operation) } else { nothing() };
        call(Method::POST, path, parameters, print)
    }

    pub(super) fn waiting(&self) -> Waiting {
        match self {
            Self::Decommission(waiting)
            | Self::LoadBalance(waiting)
            | Self::Move { waiting, .. }
            | Self::RemoveToken { waiting, .. }
            | Self::Cleanup { waiting, .. }
            | Self::Repair { waiting, .. } => *waiting,
        }
    }
}

/// `setcompactionthreshold`: in 0.6 the thresholds are those of the node; here each column family
/// has its own, and a command without one means all.
fn thresholds(values: &[String]) -> Result<Value, Failure> {
    let (family, numbers) = match values {
        [keyspace, family, numbers @ ..] if keyspace.parse::<usize>().is_err() => {
            (Some((keyspace, family)), numbers)
        }
        numbers => (None, numbers),
    };
    let number =
        |text: &String| text.parse().map_err(|_| Failure::new("Thresholds are whole numbers"));
    let (min, max): (usize, Option<usize>) = match numbers {
        [] => return Err(Failure::new("Missing threshold value(s)")),
        [min] => (number(min)?, None),
        [min, max] => (number(min)?, Some(number(max)?)),
        [_, _, _, ..] => return Err(Failure::new("Too many threshold values")),
    };
    // Without a maximum the server adds the present one, and checks again.
    compaction::Thresholds::new(min, max.unwrap_or(min.max(2))).map_err(|error| {
        Failure::new(match error {
            ThresholdError::TooSmall => "Min threshold must be at least 2",
            ThresholdError::Reversed => "Min threshold can't be greater than Max threshold",
            ThresholdError::TooLarge => "Thresholds are less than 4294967296",
        })
    })?;
    let (keyspace, families) = family.map(|(keyspace, family)| (keyspace, [family])).unzip();
    Ok(json!({ "keyspace": keyspace, "column_families": families, "min": min, "max": max }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::nodetool::Arguments;
    use crate::kit::manual::check_part;
    use clap::ArgAction;

    fn nodetool() -> clap::Command {
        Command::augment_subcommands(clap::Command::new("nodetool"))
    }

    /// Form of an argument in the document.
    fn usage(argument: &clap::Arg) -> String {
        let names = argument.get_value_names().unwrap_or_default();
        let name = names.first().map(ToString::to_string).unwrap_or_default();
        match (argument.get_long(), argument.get_action()) {
            (Some(long), ArgAction::SetTrue) => format!("[--{long}]"),
            (Some(long), _) => format!("[--{long} {name}]"),
            (None, _) if argument.is_required_set() || name.contains(' ') => name,
            (None, ArgAction::Append) => format!("[{name}…]"),
            (None, _) => format!("[{name}]"),
        }
    }

    #[test]
    fn the_manual_has_the_commands() {
        let row = |command: &clap::Command| {
            let name = command.get_name().to_owned();
            let usage: Vec<_> =
                [name].into_iter().chain(command.get_arguments().map(usage)).collect();
            let aliases = command.get_all_aliases().map(|alias| format!(", `{alias}`"));
            let aliases: String = aliases.collect();
            let about = command.get_about().unwrap();
            format!("| `{}`{aliases} | {about} |\n", usage.join(" "))
        };
        let rows: String = nodetool().get_subcommands().map(row).collect();
        let text = format!("| command | what it does |\n|---|---|\n{rows}");
        check_part("docs/nodetool.md", "commands", &text);
    }

    #[test]
    fn no_argument_hides_an_option_of_all_commands() {
        let all = Arguments::augment_args(clap::Command::new("nodetool"));
        let is_hidden = |it: &clap::Arg| all.get_arguments().any(|all| all.get_id() == it.get_id());
        for command in nodetool().get_subcommands() {
            assert!(!command.get_arguments().any(is_hidden), "{}", command.get_name());
        }
    }
}
