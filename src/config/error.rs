//! What can be wrong with a configuration, in the original's words where it has some.

use super::classes::{AuthenticatorName, SnitchName, StrategyName};
use super::notes::Note;
use super::settings::MAX_TOKEN_LENGTH;
use super::spelling;
use super::xml::XmlFault;
use crate::ring::Partitioner;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// All errors of a configuration, at least one, and the notes on what could be read. Displays a
/// line for each error, in the order of the file.
#[derive(Debug)]
pub struct ConfigErrors {
    /// In the order of evaluation, which is that of the original.
    pub errors: Vec<ConfigError>,
    /// In the order of lines.
    pub notes: Vec<Note>,
}

impl ConfigErrors {
    /// How the process ends: as the error says that the original reports, which is the first.
    pub fn class(&self) -> FailureClass {
        self.errors.first().map_or(FailureClass::Startup, ConfigError::class)
    }

    /// The exit code of the process.
    pub fn exit_code(&self) -> u8 {
        self.class().exit_code()
    }

    /// The errors in the order of lines.
    pub fn by_line(&self) -> Vec<&ConfigError> {
        let mut errors: Vec<_> = self.errors.iter().collect();
        errors.sort_by_key(|error| error.line());
        errors
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.by_line().into_iter().map(ConfigError::log_line);
        f.write_str(&lines.collect::<Vec<_>>().join("\n"))
    }
}

impl std::error::Error for ConfigErrors {}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self { errors: vec![error], notes: Vec::new() }
    }
}

/// A configuration that the server cannot run with. Displays with file, line, element, value and
/// what would be allowed.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// There is no such file.
    #[error(
        "{path}: Cannot locate storage-conf.xml via storage-config system property or classpath \
         lookup."
    )]
    NotFound {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The file is there but cannot be read.
    #[error("{path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// The file is not an XML document.
    #[error("{origin}:{line}: {fault}")]
    Malformed {
        /// The file, or another name of the text.
        origin: String,
        /// Where the fault is; the first line is 1.
        line: u32,
        /// What is wrong there.
        fault: XmlFault,
    },
    /// An element or attribute is missing or has a value that cannot be.
    #[error("{}:{}: {}: {}{}", .0.origin, .0.line, .0.element, .0.problem, .0.advice())]
    Element(Box<ElementError>),
}

/// One element or attribute, and what is wrong with it.
#[derive(Debug)]
pub struct ElementError {
    /// The file, or another name of the text.
    pub origin: String,
    /// The line of the element, or of its parent if it is missing.
    pub line: u32,
    /// Its path, as `/Storage/Seeds/Seed` or `/Storage/…/ColumnFamily[@Name='x']/@KeysCached`.
    pub element: String,
    /// The value as written, without surrounding blanks; `None` if there is none.
    pub value: Option<String>,
    /// What is wrong.
    pub problem: Problem,
}

/// How the process ends when it cannot run with a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureClass {
    /// A setting that the original checks.
    BadConfiguration,
    /// A host without an address.
    UnknownHost,
    /// All that the original trips over.
    Startup,
}

impl FailureClass {
    /// The exit code of the process, as old start scripts expect it.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::BadConfiguration => 1,
            Self::UnknownHost => 2,
            Self::Startup => 3,
        }
    }

    /// What the process says on standard error.
    pub fn stderr_line(self) -> &'static str {
        match self {
            Self::BadConfiguration => "Bad configuration; unable to start server",
            Self::UnknownHost => {
                "Unable to start with unknown hosts configured.  Use IP addresses instead of \
                 hostnames."
            }
            Self::Startup => "Exception encountered during startup.",
        }
    }
}

impl ConfigError {
    /// How the process ends.
    pub fn class(&self) -> FailureClass {
        match self {
            Self::Element(error) => error.problem.class(),
            Self::NotFound { .. } | Self::Unreadable { .. } | Self::Malformed { .. } => {
                FailureClass::Startup
            }
        }
    }

    /// The exit code of the process.
    pub fn exit_code(&self) -> u8 {
        self.class().exit_code()
    }

    /// What the server logs at ERROR, beginning as in the original.
    pub fn log_line(&self) -> String {
        match self.class() {
            FailureClass::Startup => format!("Exception encountered during startup. {self}"),
            _ => format!("Fatal error: {self}"),
        }
    }

    /// The line of the fault, if the file could be read at all.
    pub fn line(&self) -> Option<u32> {
        match self {
            Self::NotFound { .. } | Self::Unreadable { .. } => None,
            Self::Malformed { line, .. } => Some(*line),
            Self::Element(error) => Some(error.line),
        }
    }

    /// What is wrong with an element or attribute.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Element(error) => Some(&error.problem),
            _ => None,
        }
    }
}

impl ElementError {
    /// The value and what is allowed instead, as the end of the message.
    fn advice(&self) -> String {
        const LONGEST_VALUE: usize = 200;
        let mut parts = Vec::new();
        let words = self.problem.words();
        if let Some(value) = &self.value {
            let start: String = value.chars().take(LONGEST_VALUE).collect();
            parts.push(format!("value is '{}'", start.escape_debug()));
        }
        if !words.is_empty() {
            parts.push(format!("allowed: {}", words.join(", ")));
        }
        parts.extend(self.problem.way_out().map(str::to_owned));
        let value = self.value.as_deref().unwrap_or_default();
        if let Some(nearest) = spelling::nearest_value(value, words) {
            parts.push(format!("did you mean {nearest}?"));
        }
        if parts.is_empty() { String::new() } else { format!(" ({})", parts.join("; ")) }
    }
}

/// What is wrong with an element or attribute. Displays as the original's text if it has one.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// A required element whose absence the original does not check.
    #[error("the element is required")]
    Missing,
    /// An element of a list that is empty.
    #[error("the element is empty")]
    Empty,
    /// A list that is longer than any sensible one.
    #[error("more than {0} entries")]
    TooMany(usize),
    /// Not a number, or none of the wanted kind.
    #[error("not {0}")]
    NotANumber(&'static str),
    /// A number out of bounds that only this server checks.
    #[error("must be {0}")]
    OutOfBounds(&'static str),
    /// Two listeners on one port.
    #[error("{0} is this port already. Give each listener one of its own.")]
    PortTaken(String),
    /// A token is required, and there is none.
    #[error("there is no AdminToken, so that nobody could change anything")]
    NoToken,
    /// More memory than the machine has.
    #[error("must not be more than the memory of this machine, which is {0} MB")]
    BeyondMemory(u64),
    /// A block cache that leaves nothing of the budget.
    #[error("must be less than MemoryBudgetInMB, which is {0}")]
    BeyondBudget(u64),
    /// A directory that cannot be created or written to.
    #[error("the directory cannot be used: {0}")]
    Directory(io::Error),
    /// A word that is none of a set that only this server has.
    #[error("Unrecognized value for {element}.")]
    UnknownWord {
        /// The element or attribute.
        element: &'static str,
        /// The words it may be.
        allowed: &'static [&'static str],
    },
    /// Neither true nor false.
    #[error("Unrecognized value for {0}.  Use 'true' or 'false'.")]
    NotABoolean(&'static str),
    /// `CommitLogSync` is another word.
    #[error("CommitLogSync must be either 'periodic' or 'batch'")]
    CommitLogSync,
    /// The period is missing or not a number.
    #[error("Unrecognized value for CommitLogSyncPeriodInMS.  Integer expected.")]
    CommitLogSyncPeriod,
    /// The window is missing or not a number.
    #[error("Unrecognized value for CommitLogSyncBatchWindowInMS.  Double expected.")]
    CommitLogSyncBatchWindow,
    /// A window beside periodic sync.
    #[error(
        "Periodic sync specified, but CommitLogSyncBatchWindowInMS found.  Only specify \
         CommitLogSyncPeriodInMS when using periodic sync."
    )]
    WindowWithPeriodicSync,
    /// A period beside batch sync.
    #[error(
        "Batch sync specified, but CommitLogSyncPeriodInMS found.  Only specify \
         CommitLogSyncBatchWindowInMS when using batch sync."
    )]
    PeriodWithBatchSync,
    /// `DiskAccessMode` is none of [`DISK_ACCESS_MODES`].
    #[error("DiskAccessMode must be either 'auto', 'mmap', 'mmap_index_only', or 'standard'")]
    DiskAccessMode,
    /// No such authenticator.
    #[error("Invalid authenticator class {0}")]
    InvalidAuthenticator(String),
    /// No partitioner.
    #[error("Missing partitioner directive /Storage/Partitioner")]
    MissingPartitioner,
    /// No such partitioner.
    #[error("Invalid partitioner class {0}")]
    InvalidPartitioner(String),
    /// The initial token is none of the partitioner.
    #[error("not a token of {}", .0.class_name())]
    InvalidToken(Partitioner),
    /// The initial token has the character that separates what nodes tell each other.
    #[error(
        "InitialToken must not have a comma: nodes tell each other their tokens in lists that \
         commas separate, and the others would take the part before it for this node's token"
    )]
    TokenWithComma,
    /// The initial token is longer than what other nodes take.
    #[error("InitialToken must not have more than {MAX_TOKEN_LENGTH} bytes, or others refuse it")]
    LongToken,
    /// The threshold of the failure detector is out of its range.
    #[error("PhiConvictThreshold must be between 5 and 16")]
    PhiConvictThreshold,
    /// `ConcurrentReads` or `ConcurrentWrites` is too small.
    #[error("{0} must be at least 2")]
    TooFewThreads(&'static str),
    /// The node's identity would be every address.
    #[error(
        "ListenAddress must be a single interface.  See \
         http://wiki.apache.org/cassandra/FAQ#cant_listen_on_ip_any"
    )]
    ListenAddressIsAny,
    /// The name of `ListenAddress` leads nowhere.
    #[error("Unknown ListenAddress '{0}'")]
    UnknownListenAddress(String),
    /// Another host without an address.
    #[error("{host}: {reason}")]
    UnknownHost {
        /// The host as configured.
        host: String,
        /// What the resolver says.
        reason: io::Error,
    },
    /// `MemtableOperationsInMillions` is not positive.
    #[error("Memtable object count must be a positive double")]
    MemtableOperations,
    /// `RowWarningThresholdInMB` is not positive.
    #[error("Row warning threshold must be a positive integer")]
    RowWarningThreshold,
    /// `IndexInterval` is not positive.
    #[error("Index Interval must be a positive, non-zero integer.")]
    IndexInterval,
    /// Commit log and data share a directory.
    #[error("CommitLogDirectory must not be the same as any DataFileDirectory")]
    CommitLogAmongData,
    /// The archive of the commit log shares a directory with the log or with data.
    #[error(
        "CommitLogArchiveDirectory must not be the same as CommitLogDirectory or any \
         DataFileDirectory"
    )]
    ArchiveAmongOthers,
    /// No data directory.
    #[error("At least one DataFileDirectory must be specified")]
    NoDataFileDirectory,
    /// A required directory is missing.
    #[error("{0} must be specified")]
    MissingDirectory(&'static str),
    /// No seed.
    #[error("A minimum of one seed is required.")]
    NoSeeds,
    /// No keyspace.
    #[error("No keyspaces configured")]
    NoKeyspaces,
    /// A keyspace without a name.
    #[error("Table name attribute is required")]
    MissingKeyspaceName,
    /// A keyspace named `system`.
    #[error("'system' is a reserved table name for Cassandra internals")]
    ReservedKeyspaceName,
    /// A name that cannot be that of a directory.
    #[error("names of directories and files cannot contain '/' or control characters")]
    UnusableName,
    /// A keyspace of a 0.6 file without a strategy.
    #[error("Missing replicaplacementstrategy directive for {0}")]
    MissingStrategy(String),
    /// An older file without a strategy.
    #[error("Missing replicaplacementstrategy directive /Storage/ReplicaPlacementStrategy")]
    MissingGlobalStrategy,
    /// No such strategy.
    #[error("Invalid replicaplacementstrategy class {0}")]
    InvalidStrategy(String),
    /// A keyspace of a 0.6 file without a replication factor. The slip of the pen is original.
    #[error("Missing replicationfactor directory for keyspace {0}")]
    MissingReplicationFactor(String),
    /// A keyspace of a 0.6 file without a snitch.
    #[error("Missing endpointsnitch directive for keyspace {0}")]
    MissingSnitch(String),
    /// An older file without a snitch.
    #[error("Missing endpointsnitch directive /Storage/EndPointSnitch")]
    MissingGlobalSnitch,
    /// No such snitch.
    #[error("Invalid endpointsnitch class {0}")]
    InvalidSnitch(String),
    /// The data-centre strategy does not know how many replicas each data centre gets.
    #[error("DatacenterShardStrategy requires DatacenterEndpointSnitch")]
    DatacentersUnknown,
    /// A column family without a name.
    #[error("ColumnFamily name attribute is required")]
    MissingColumnFamilyName,
    /// A hyphen in the name of a column family: it separates the parts of old file names.
    #[error("ColumnFamily names cannot contain hyphens")]
    HyphenInColumnFamilyName,
    /// Neither standard nor super.
    #[error("ColumnFamily {column_family} has invalid type {value}")]
    InvalidColumnType {
        /// The column family.
        column_family: String,
        /// The type as written.
        value: String,
    },
    /// An attribute of the time before 0.4.
    #[error("ColumnSort is no longer an accepted attribute.  Use CompareWith instead.")]
    ColumnSort,
    /// No such comparator, in the words of 0.6.
    #[error("java.lang.ClassNotFoundException: {class}")]
    UnknownComparator {
        /// The full class name.
        class: String,
        /// The class names that there are.
        known: Vec<String>,
    },
    /// No such comparator, in the words of 0.4 and 0.5.
    #[error("Unable to load class {class} for {attribute} attribute")]
    UnloadableComparator {
        /// The full class name.
        class: String,
        /// The attribute that names it.
        attribute: &'static str,
        /// The class names that there are.
        known: Vec<String>,
    },
    /// Subcolumns of a standard column family.
    #[error(
        "CompareSubcolumnsWith is only a valid attribute on super columnfamilies (not regular \
         columnfamily {0})"
    )]
    SubcolumnsOfStandard(String),
    /// Thresholds that nodetool would refuse as well.
    #[error("Min threshold can't be greater than Max threshold")]
    CompactionThresholds,
    /// The root element is another.
    #[error("the root element must be <Storage>")]
    NotAStorageFile,
}

/// The words that `DiskAccessMode` may be.
pub const DISK_ACCESS_MODES: [&str; 4] = ["auto", "mmap", "mmap_index_only", "standard"];

impl Problem {
    /// How the process ends.
    pub fn class(&self) -> FailureClass {
        match self {
            Self::UnknownHost { .. } => FailureClass::UnknownHost,
            Self::Missing
            | Self::Empty
            | Self::TooMany(_)
            | Self::NotANumber(_)
            | Self::InvalidToken(_)
            | Self::DatacentersUnknown
            | Self::Directory(_)
            | Self::NotAStorageFile => FailureClass::Startup,
            _ => FailureClass::BadConfiguration,
        }
    }

    /// The values that are allowed, if they are a set of words.
    fn words(&self) -> Vec<&str> {
        match self {
            Self::UnknownWord { allowed, .. } => allowed.to_vec(),
            Self::NotABoolean(_) => vec!["true", "false"],
            Self::CommitLogSync => vec!["periodic", "batch"],
            Self::DiskAccessMode => DISK_ACCESS_MODES.to_vec(),
            Self::InvalidAuthenticator(_) => {
                AuthenticatorName::ALL.map(AuthenticatorName::class_name).to_vec()
            }
            Self::InvalidPartitioner(_) | Self::MissingPartitioner => {
                Partitioner::ALL.map(Partitioner::class_name).to_vec()
            }
            Self::InvalidStrategy(_) | Self::MissingStrategy(_) | Self::MissingGlobalStrategy => {
                StrategyName::ALL.map(StrategyName::class_name).to_vec()
            }
            Self::InvalidSnitch(_) | Self::MissingSnitch(_) | Self::MissingGlobalSnitch => {
                SnitchName::ALL.map(SnitchName::class_name).to_vec()
            }
            Self::InvalidColumnType { .. } => vec!["Standard", "Super"],
            Self::UnknownComparator { known, .. } | Self::UnloadableComparator { known, .. } => {
                known.iter().map(String::as_str).collect()
            }
            Self::InvalidToken(Partitioner::Random) => vec!["a decimal number"],
            Self::InvalidToken(Partitioner::OrderPreserving) => vec!["any text"],
            Self::InvalidToken(Partitioner::CollatingOrderPreserving) => {
                vec!["an even number of hexadecimal digits"]
            }
            _ => Vec::new(),
        }
    }

    /// What to do, where neither the text nor the allowed words say it.
    fn way_out(&self) -> Option<&'static str> {
        match self {
            Self::MissingReplicationFactor(_) => {
                Some("add <ReplicationFactor>1</ReplicationFactor> for a single node")
            }
            Self::DatacentersUnknown => {
                Some("or one <DatacenterReplicationFactor Datacenter=\"…\"> for each data centre")
            }
            Self::NoKeyspaces => Some("add <Keyspaces> with one <Keyspace>"),
            _ => None,
        }
    }
}
