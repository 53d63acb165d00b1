//! The runner of the layers `storage` and `compaction`: one server's storage on a simulated disk.

mod files;
mod show;
mod transfer;
mod world;

use self::world::World;
use super::run_all;
use goldenscript::Context;
use std::error::Error;
use std::path::Path;

type Output = Result<String, Box<dyn Error>>;

/// Commands of a script. Ranges are written `all`, or `a..f` for behind `a` up to `f`;
/// `n..b` wraps. Columns of `Comments` are written `super/name`.
#[derive(Debug, goldenscript::Command)]
pub(crate) enum Command {
    /// Changes settings for the next start: `configure data="data more" min=4`. Takes a family out
    /// of the configuration: `configure without=Editors`.
    Configure(Vec<(String, String)>),
    /// Starts the server. With `settles=false` it does not wait for the flush of what is replayed.
    Open {
        #[arg(key = "accept-commitlog-loss", optional)]
        accepts_log_loss: bool,
        #[arg(key = "accept-data-loss", optional)]
        accepts_data_loss: bool,
        #[arg(key)]
        settles: Option<bool>,
    },
    /// Ends the server in order.
    Close,
    /// Kills the process; the machine runs on.
    Kill,
    /// Cuts the power, and lets `nothing`, a `part` or `everything` of what was not synced survive.
    Crash(String),
    /// Moves the clock: `advance 10s`.
    Advance(String),
    /// Refuses writes from now on.
    Drain,
    /// Makes the commit log durable.
    Sync,
    /// Why the server does not serve as it should.
    Troubles,
    /// The same, when there are so many reasons.
    #[command(name = "await-troubles")]
    AwaitTroubles(usize),

    /// Writes columns of a row: `write Authors ada name=Ada at=5`.
    Write {
        family: String,
        key: String,
        #[arg(key)]
        at: Option<i64>,
        #[arg(key, many)]
        columns: Vec<(String, String)>,
    },
    /// Writes a column that expires: `write-until Authors ada name Ada at=5 seconds=10`.
    #[command(name = "write-until")]
    WriteUntil {
        family: String,
        key: String,
        column: String,
        value: String,
        #[arg(key)]
        at: i64,
        #[arg(key)]
        seconds: u32,
    },
    /// Writes rows of a column each, whose value is so many bytes of chance.
    Fill {
        family: String,
        prefix: String,
        #[arg(key)]
        rows: usize,
        #[arg(key)]
        bytes: usize,
    },
    /// Deletes a row, a super column (`s/`) or a column.
    Delete {
        family: String,
        key: String,
        column: Option<String>,
        #[arg(key)]
        at: i64,
    },
    /// Deletes the columns whose names go on from this one with a zero byte.
    #[command(name = "delete-prefix")]
    DeletePrefix {
        family: String,
        key: String,
        column: String,
        #[arg(key)]
        at: i64,
    },
    /// Deletes columns, or super columns, from the first up to the last, or before it.
    #[command(name = "delete-range")]
    DeleteRange {
        family: String,
        key: String,
        #[arg(key)]
        from: Option<String>,
        #[arg(key)]
        to: Option<String>,
        #[arg(key)]
        before: Option<String>,
        #[arg(key)]
        at: i64,
    },
    /// Reads a row, or columns of it, as a client does.
    Read {
        family: String,
        key: String,
        #[arg(optional)]
        columns: Vec<String>,
    },
    /// Reads a range of rows as a client does.
    Scan { family: String, range: Option<String> },
    /// Reads a row as another replica does.
    Version { family: String, key: String },

    /// Adds a family of standard columns to a keyspace of the running server.
    #[command(name = "add-family")]
    AddFamily { keyspace: String, family: String },
    /// Drops a family of the running server.
    #[command(name = "drop-family")]
    DropFamily(String),
    /// The families of a keyspace.
    Families(String),
    /// Writes the memtable of a family to disk.
    Flush(String),
    /// Merges all SSTables of a family.
    Compact(String),
    /// The live SSTables of a family.
    Tables(String),
    /// Waits until a family has so many live SSTables, moving the clock if it is told to.
    #[command(name = "await-tables")]
    AwaitTables {
        family: String,
        count: usize,
        #[arg(key)]
        advancing: Option<String>,
    },
    /// Waits until so many compactions have been done, and so many have failed, since the start.
    #[command(name = "await-compactions")]
    AwaitCompactions {
        #[arg(key, optional)]
        done: u64,
        #[arg(key, optional)]
        failed: u64,
        #[arg(key)]
        advancing: Option<String>,
    },
    /// Changes the thresholds of minor compactions.
    Thresholds {
        family: String,
        #[arg(key)]
        min: usize,
        #[arg(key)]
        max: usize,
    },
    /// The rows in the row cache of a family.
    #[command(name = "cached-rows")]
    CachedRows(String),
    /// The widest rows of a family.
    Widest(String),
    /// Counts the operations on rows of these families, with this number of counters for reads and
    /// for writes; 0 for none.
    Sample {
        #[arg(key, optional)]
        reads: usize,
        #[arg(key, optional)]
        writes: usize,
        families: Vec<String>,
    },
    /// Ends that, and prints the counts.
    Sampled,
    /// Takes a snapshot.
    Snapshot(Option<String>),
    /// The names of all snapshots, and how many bytes they have, and have alone.
    Snapshots {
        #[arg(key, optional)]
        sizes: bool,
    },
    /// Removes the snapshots of this tag, or all.
    #[command(name = "clear-snapshots")]
    ClearSnapshots(Option<String>),

    /// One of [`files::Command`] or [`transfer::Command`].
    #[command(other)]
    Other(goldenscript::Command),
}

impl goldenscript::Runner for World {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Output {
        match command {
            Command::Configure(settings) => self.configure(settings),
            Command::Open { accepts_log_loss, accepts_data_loss, settles } => {
                self.open((*accepts_log_loss, *accepts_data_loss), settles.unwrap_or(true))
            }
            Command::Close => self.close(),
            Command::Kill => self.kill(),
            Command::Crash(survival) => self.crash(survival),
            Command::Advance(time) => self.advance(time),
            Command::Drain => self.drain(),
            Command::Sync => self.sync(),
            Command::Troubles => self.troubles(),
            Command::AwaitTroubles(count) => self.await_troubles(*count),
            Command::Write { family, key, at, columns } => self.write((family, key), *at, columns),
            Command::WriteUntil { family, key, column, value, at, seconds } => {
                self.write_until((family, key), (column, value), *at, *seconds)
            }
            Command::DeletePrefix { family, key, column, at } => {
                self.delete_prefix((family, key), column, *at)
            }
            Command::DeleteRange { family, key, from, to, before, at } => {
                let [from, to, before] = [from, to, before].map(Option::as_deref);
                self.delete_range((family, key), from, (to, before), *at)
            }
            Command::Fill { family, prefix, rows, bytes } => {
                self.fill((family, prefix), *rows, *bytes)
            }
            Command::Delete { family, key, column, at } => {
                self.delete((family, key), column.as_deref(), *at)
            }
            Command::Read { family, key, columns } => self.read((family, key), columns),
            Command::Scan { family, range } => self.scan(family, range.as_deref()),
            Command::Version { family, key } => self.version((family, key)),
            Command::AddFamily { keyspace, family } => self.add_family(keyspace, family),
            Command::DropFamily(family) => self.drop_family(family),
            Command::Families(keyspace) => Ok(self.families(keyspace)),
            Command::Flush(family) => self.flush(family),
            Command::Compact(family) => self.compact(family),
            Command::Tables(family) => self.tables(family),
            Command::AwaitTables { family, count, advancing } => {
                self.await_tables(family, *count, advancing.as_deref())
            }
            Command::AwaitCompactions { done, failed, advancing } => {
                self.await_compactions((*done, *failed), advancing.as_deref())
            }
            Command::Thresholds { family, min, max } => self.thresholds(family, *min, *max),
            Command::CachedRows(family) => self.cached_rows(family),
            Command::Widest(family) => self.widest(family),
            Command::Sample { reads, writes, families } => self.sample(families, *reads, *writes),
            Command::Sampled => self.sampled(),
            Command::Snapshot(tag) => self.snapshot(tag.as_deref()),
            Command::Snapshots { sizes } => self.snapshots(*sizes),
            Command::ClearSnapshots(tag) => self.clear_snapshots(tag.as_deref()),
            Command::Other(other) => self.run_on_files(&other.try_into()?),
        }
    }
}

fn run(script: &Path) {
    goldenscript::run(&mut World::new(), script).unwrap();
}

#[test]
fn storage() {
    run_all("storage", run);
}

#[test]
fn compaction() {
    run_all("compaction", run);
}
