//! Identity of a node: its token, its generation, the names of its cluster and of its partitioner.

use super::local_placement::{HAS_DATA, PLACE, SavedPlace};
use super::{KEYSPACE, ROW, TOKEN, location_info, read_row};
use crate::config::settings::Release;
use crate::model::cell::Cell;
use crate::model::mutation::MutationBuilder;
use crate::model::schema::ColumnFamilySchema;
use crate::model::slice::CellRange;
use crate::model::version::RowVersion;
use crate::ring::{DecoratedKey, Partitioner, Token};
use crate::storage::database::{Database, WriteError};
use crate::storage::error::ReadError;
use crate::storage::row::RowReader;
use crate::storage::rows::MergedRows;
use crate::storage::sstable::SsTable;

const GENERATION: &[u8] = b"Generation";
const CLUSTER_NAME: &[u8] = b"ClusterName";
/// Misspelt in the original, too.
const PARTITIONER: &[u8] = b"Partioner";

/// Identity of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its place on the ring; none if it is to join, and has none yet.
    pub token: Option<Token>,
    /// The place that it had before it was about to go to another one.
    pub former: Option<Token>,
    /// Number of this start: grows with each, in seconds since the Unix epoch if possible.
    pub generation: i32,
    /// Whether this is the first start.
    pub is_new: bool,
}

/// Why a node cannot go on as who it was. The texts are those of the original.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The data were written in another cluster.
    #[error("ClusterName mismatch: {saved} != {configured}")]
    ClusterName {
        /// Name in the data.
        saved: String,
        /// Name in the configuration.
        configured: String,
    },
    /// The data were written with another partitioner.
    #[error("Detected partitioner mismatch! Did you change the partitioner?")]
    Partitioner,
    /// There are data of a node that has no token or no generation.
    #[error(
        "Couldn't read system generation or token. Did you change the partitioner? Else \
         LocationInfo.manifest or an SSTable of column family LocationInfo in the folder of \
         keyspace {KEYSPACE} is a wrong one: put the right one back"
    )]
    Incomplete,
    /// The data cannot be read.
    #[error("Could not read system table. Did you change partitioners? {0}")]
    Read(#[from] ReadError),
    /// A node that joins for the first time has data already, of which nothing is known.
    #[error(
        "this node is to bootstrap, and begins with no data, but the directories hold some of {0}: \
         empty them, or set AutoBootstrap to false and InitialToken to have these data served"
    )]
    HoldsData(String),
    /// A node that is on its way onto the ring or from it cannot go on as another program.
    #[error(
        "the node is no member of the ring ({0}): have it end what it has begun, and export it then"
    )]
    NoMember(String),
    /// The data cannot be written.
    #[error("cannot write the system keyspace: {0}")]
    Write(#[from] WriteError),
}

/// Establishes who the node is: as it was at the last start, or at the first start a node without
/// a token. If that `joins` it must not have data, which it would drop. The result is durable when
/// this returns.
pub fn establish_identity(
    storage: &Database,
    cluster_name: &str,
    now_secs: i32,
    joins: bool,
) -> Result<Identity, IdentityError> {
    let partitioner = storage.partitioner();
    let saved = Saved::read(storage)?;
    saved.check(cluster_name, partitioner)?;
    let place = SavedPlace::read(storage)?;
    let generation = |last: &Vec<u8>| {
        let last = last.first_chunk().ok_or(IdentityError::Incomplete)?;
        Ok::<i32, IdentityError>(i32::from_be_bytes(*last).saturating_add(1).max(now_secs))
    };
    let is_between = match place {
        SavedPlace::First
        | SavedPlace::Joining(_)
        | SavedPlace::Arriving { .. }
        | SavedPlace::Departing => true,
        SavedPlace::Member | SavedPlace::Left => false,
    };
    let token_of = |bytes: &Vec<u8>| {
        partitioner.token_from_bytes(bytes).map_err(|_| IdentityError::Incomplete)
    };
    let (token, former, generation, is_new) = match (&saved.token, &saved.generation) {
        (token, Some(last)) if is_between => {
            (None, token.as_ref().map(token_of).transpose()?, generation(last)?, false)
        }
        (Some(token), Some(last)) => (Some(token_of(token)?), None, generation(last)?, false),
        // The original has noted something, under keys of another partitioner.
        (None, None) if has_original_notes(storage) => return Err(IdentityError::Incomplete),
        (None, None) => {
            if joins {
                check_no_data(storage)?;
            }
            (None, None, now_secs, true)
        }
        _ => return Err(IdentityError::Incomplete),
    };
    let identity = Identity { token, former, generation, is_new };
    write(storage, cluster_name, &identity, saved.next_timestamp(identity.generation))?;
    Ok(identity)
}

fn has_original_notes(storage: &Database) -> bool {
    let view = storage.family(location_info(storage)).view();
    view.tables.iter().any(|table| table.is_legacy())
}

/// Returns the rows of `LocationInfo` by which a server of the original goes on as this node, from
/// the SSTables of that column family. Its generation will be one that this node has not had.
pub fn identity_for_original<'a>(
    family: &ColumnFamilySchema,
    tables: impl IntoIterator<Item = &'a SsTable>,
    release: Release,
) -> Result<Vec<(DecoratedKey, RowVersion)>, IdentityError> {
    let (mut kept, mut found) = (Vec::new(), 0);
    let mut rows = MergedRows::of_whole(tables)?;
    while let Some((key, sources)) = rows.advance()? {
        let names: &[&[u8]] = match (key.key().as_bytes(), release) {
            (b"L", Release::V06) => &[CLUSTER_NAME, GENERATION, PARTITIONER, TOKEN],
            (b"L", _) => &[GENERATION, TOKEN],
            (b"Bootstrap", Release::V05 | Release::V06) => &[HAS_DATA],
            _ => &[],
        };
        let reader = RowReader::of_everything(family, sources);
        let (mut cells, mut version) =
            (reader.cells(CellRange::ALL, false)?, RowVersion::default());
        while let Some(cell) = cells.advance()? {
            if cell.name() == PLACE && !matches!(cell.value(), b"member" | b"first") {
                return Err(IdentityError::NoMember(cell.value().escape_ascii().to_string()));
            }
            if !names.contains(&cell.name()) || !cell.is_live() {
                continue;
            }
            found += usize::from(matches!(cell.name(), TOKEN | GENERATION));
            version.cells.push(match (cell.name(), cell.value().first_chunk()) {
                (GENERATION, Some(last)) => {
                    let next = i32::from_be_bytes(*last).saturating_add(1).to_be_bytes();
                    Cell::live(b"", GENERATION, &next, cell.timestamp().saturating_add(1))
                }
                _ => cell,
            });
        }
        kept.push((key.clone(), version));
    }
    if found == 2 { Ok(kept) } else { Err(IdentityError::Incomplete) }
}

/// Fails if a column family of a user has data.
pub fn check_no_data(storage: &Database) -> Result<(), IdentityError> {
    let of_users = storage.families().filter(|store| store.schema().keyspace != KEYSPACE);
    let mut with_data = of_users.filter(|store| {
        let statistics = store.statistics();
        statistics.live_bytes > 0 || statistics.memtable_operations > 0
    });
    let found = with_data.next().map(|store| store.schema().to_string());
    found.map_or(Ok(()), |family| Err(IdentityError::HoldsData(family)))
}

/// Saves a generation that others have made necessary, durably. It may be smaller than the saved
/// one.
pub fn save_generation(storage: &Database, generation: i32) -> Result<(), IdentityError> {
    let saved = Saved::read(storage)?;
    let mut row = MutationBuilder::new(storage.schema(), KEYSPACE, ROW.as_bytes());
    row.family(location_info(storage));
    let timestamp = saved.next_timestamp(generation);
    row.insert((b"", GENERATION), &generation.to_be_bytes(), timestamp);
    storage.apply_own(&row.finish())?;
    Ok(storage.sync().map_err(WriteError::from)?)
}

/// Columns that the last start has written, in the row `L` of [`super::LOCATION_INFO`].
#[derive(Debug, Default)]
pub struct Saved {
    /// The token, as it is stored.
    pub token: Option<Vec<u8>>,
    generation: Option<Vec<u8>>,
    /// The timestamp of the generation.
    timestamp: Option<i64>,
    cluster_name: Option<Vec<u8>>,
    partitioner: Option<Vec<u8>>,
}

impl Saved {
    fn read(storage: &Database) -> Result<Self, ReadError> {
        Ok(Self::of(read_row(storage, ROW)?.cells))
    }

    /// The columns among these cells, of which later ones replace those before.
    pub fn of(cells: impl IntoIterator<Item = Cell>) -> Self {
        let mut saved = Self::default();
        for cell in cells.into_iter().filter(Cell::is_live) {
            let slot = match cell.name() {
                TOKEN => &mut saved.token,
                GENERATION => {
                    saved.timestamp = Some(cell.timestamp());
                    &mut saved.generation
                }
                CLUSTER_NAME => &mut saved.cluster_name,
                PARTITIONER => &mut saved.partitioner,
                _ => continue,
            };
            *slot = Some(cell.value().to_vec());
        }
        saved
    }

    /// Number of the last start.
    pub fn generation(&self) -> Option<i32> {
        Some(i32::from_be_bytes(*self.generation.as_ref()?.first_chunk()?))
    }

    /// Name of the cluster, if a release has noted it that does.
    pub fn cluster_name(&self) -> Option<String> {
        Some(String::from_utf8_lossy(self.cluster_name.as_ref()?).into_owned())
    }

    /// Fails if the data are of another cluster or partitioner.
    pub fn check(&self, cluster_name: &str, partitioner: Partitioner) -> Result<(), IdentityError> {
        if let Some(saved) = self.cluster_name()
            && saved != cluster_name
        {
            let configured = cluster_name.to_owned();
            return Err(IdentityError::ClusterName { saved, configured });
        }
        if self.partitioner.as_ref().is_some_and(|p| p != partitioner.class_name().as_bytes()) {
            return Err(IdentityError::Partitioner);
        }
        Ok(())
    }

    /// The timestamp of a generation that is to replace the saved one, whichever is greater, and
    /// whatever the clock does.
    fn next_timestamp(&self, generation: i32) -> i64 {
        let after = self.timestamp.map_or(i64::MIN, |last| last.saturating_add(1));
        after.max(i64::from(generation))
    }
}

fn write(
    storage: &Database,
    cluster_name: &str,
    identity: &Identity,
    generation_timestamp: i64,
) -> Result<(), IdentityError> {
    let partitioner = storage.partitioner();
    let mut row = MutationBuilder::new(storage.schema(), KEYSPACE, ROW.as_bytes());
    row.family(location_info(storage));
    if identity.is_new {
        // First, since a node without a token is one only if it is to get one.
        SavedPlace::Joining(None).save(storage, None)?;
        row.insert((b"", CLUSTER_NAME), cluster_name.as_bytes(), 0);
        row.insert((b"", PARTITIONER), partitioner.class_name().as_bytes(), 0);
    }
    let generation = identity.generation.to_be_bytes();
    row.insert((b"", GENERATION), &generation, generation_timestamp);
    storage.apply_own(&row.finish())?;
    storage.sync().map_err(WriteError::from)?;
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::LOCATION_INFO;
    use super::*;
    use crate::kit::clock::ManualClock;
    use crate::kit::disk::SimFileSystem;
    use crate::model::comparator::Comparator;
    use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema, Schema};
    use crate::storage::database::Components;
    use crate::storage::options::FamilyOptions;
    use std::sync::Arc;

    pub(in crate::storage::system) fn open(
        fs: &SimFileSystem,
        partitioner: Partitioner,
    ) -> Database {
        let components = Components::new(Arc::new(fs.clone()), Arc::new(ManualClock::default()));
        let family = |keyspace: &str, name: &str| {
            Arc::new(ColumnFamilySchema::new(
                keyspace.into(),
                name.into(),
                ColumnFamilyKind::Standard { columns: Comparator::Bytes },
            ))
        };
        let families = [family(KEYSPACE, LOCATION_INFO), family("Blog", "Entries")];
        let schema = Arc::new(Schema::new(families));
        let options = crate::kit::storage::options();
        let options_of = |_| FamilyOptions::default();
        Database::open(components, options, partitioner, schema, options_of).unwrap()
    }

    /// Storage with the keyspace `system` and one more.
    pub(in crate::storage::system) fn open_with(partitioner: Partitioner) -> Database {
        open(&SimFileSystem::new(1), partitioner)
    }

    #[test]
    fn a_node_stays_who_it_is() {
        let fs = SimFileSystem::new(1);
        let partitioner = Partitioner::Random;
        let establish = |name: &str, now| {
            let storage = open(&fs, partitioner);
            let identity = establish_identity(&storage, name, now, false);
            (storage, identity)
        };
        let identity =
            |token, generation, is_new| Identity { token, former: None, generation, is_new };
        let (storage, first) = establish("Test Cluster", 1000);
        assert_eq!(first.unwrap(), identity(None, 1000, true));
        let token = partitioner.token(b"anything");
        SavedPlace::Member.save(&storage, Some(&token)).unwrap();
        drop(storage);
        let second = establish("Test Cluster", 5).1.unwrap();
        assert_eq!(second, identity(Some(token), 1001, false));
        assert_eq!(establish("Test Cluster", 2000).1.unwrap().generation, 2000);
        let error = establish("Other", 2001).1.unwrap_err().to_string();
        assert_eq!(error, "ClusterName mismatch: Test Cluster != Other");
    }

    #[test]
    fn a_generation_that_was_lowered_grows_from_there() {
        let fs = SimFileSystem::new(1);
        let establish = |now| {
            let storage = open(&fs, Partitioner::Random);
            let identity = establish_identity(&storage, "c", now, false).unwrap();
            (storage, identity.generation)
        };
        let (storage, first) = establish(2_000_000_000);
        assert_eq!(first, 2_000_000_000);
        save_generation(&storage, 1000).unwrap();
        drop(storage);
        let (storage, second) = establish(500);
        assert_eq!(second, 1001);
        drop(storage);
        assert_eq!(establish(500).1, 1002);
    }

    #[test]
    fn a_first_place_is_no_membership_until_others_have_answered() {
        let fs = SimFileSystem::new(1);
        let establish = || {
            let storage = open(&fs, Partitioner::Random);
            let identity = establish_identity(&storage, "c", 1000, false).unwrap();
            (storage, identity.token, identity.former)
        };
        let token = Token::Random(5);
        SavedPlace::First.save(&establish().0, Some(&token)).unwrap();
        let (storage, own, former) = establish();
        assert_eq!((own, former), (None, Some(token.clone())));
        SavedPlace::Member.save(&storage, None).unwrap();
        drop(storage);
        assert_eq!(establish().1, Some(token));
    }

    #[test]
    fn a_node_that_is_to_join_has_no_token_until_it_has_joined() {
        let fs = SimFileSystem::new(1);
        let establish = |now| {
            let storage = open(&fs, Partitioner::Random);
            let identity = establish_identity(&storage, "c", now, true).unwrap();
            (storage, identity)
        };
        let place = |storage: &Database| SavedPlace::read(storage).unwrap();
        let arriving =
            |token: &Token| SavedPlace::Arriving { token: token.clone(), replaced: None };
        let (storage, first) = establish(1000);
        assert_eq!((first.token, place(&storage)), (None, SavedPlace::Joining(None)));
        let token = Token::Random(5);
        SavedPlace::Joining(Some(token.clone())).save(&storage, None).unwrap();
        drop(storage);
        let (storage, second) = establish(1000);
        assert_eq!((second.token, second.generation), (None, 1001));
        assert_eq!(place(&storage), SavedPlace::Joining(Some(token.clone())));
        arriving(&token).save(&storage, Some(&token)).unwrap();
        drop(storage);
        let (storage, third) = establish(1000);
        assert_eq!((third.token, place(&storage)), (None, arriving(&token)));
        SavedPlace::Member.save(&storage, None).unwrap();
        assert_eq!(place(&storage), SavedPlace::Member);
        drop(storage);
        let (storage, fourth) = establish(1000);
        assert_eq!(fourth.token, Some(token));
        // At another place later on.
        let other = Token::Random(6);
        SavedPlace::Left.save(&storage, None).unwrap();
        assert_eq!(place(&storage), SavedPlace::Left);
        arriving(&other).save(&storage, Some(&other)).unwrap();
        SavedPlace::Member.save(&storage, None).unwrap();
        drop(storage);
        let (storage, fifth) = establish(1000);
        assert_eq!((fifth.token, fifth.former), (Some(other.clone()), None));
        // About to leave it for another one.
        SavedPlace::Joining(Some(Token::Random(7))).save(&storage, None).unwrap();
        drop(storage);
        let sixth = establish(1000).1;
        assert_eq!((sixth.token, sixth.former), (None, Some(other)));
    }

    #[test]
    fn who_bootstraps_first_does_not_drop_data_of_which_nothing_is_known() {
        let storage = open_with(Partitioner::Random);
        let id = storage.schema().family_id("Blog", "Entries").unwrap();
        let mut row = MutationBuilder::new(storage.schema(), "Blog", b"row");
        row.family(id).insert((b"", b"column"), b"value", 1);
        storage.apply_own(&row.finish()).unwrap();
        let refused = establish_identity(&storage, "c", 1000, true).unwrap_err();
        assert!(matches!(&refused, IdentityError::HoldsData(family) if family == "Blog.Entries"));
        // A first member serves them.
        assert!(establish_identity(&storage, "c", 1000, false).unwrap().is_new);
    }
}
