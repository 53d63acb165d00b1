//! The tree of this node.

use super::LegacyPeers;
use super::java;
use super::pairs::Side;
use super::tree::MerkleTree;
use crate::base::java::TooLong;
use crate::base::lock::{Mutex, MutexGuard, rank};
use crate::model::schema::FamilyId;
use crate::net::Verb;
use crate::net::bodies::TreeResponse;
use crate::repair::compare::{HashError, HashSink, HashedRow};
use crate::repair::host::Host;
use crate::repair::job::JobControl;
use crate::ring::RowRange;
use crate::storage::Storage;
use crate::storage::original::can_have_key;
use log::Level;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Fewest and most leaves of a tree; 0.6 has up to as many.
const LEAVES: (u64, u64) = (64, 1 << 15);

/// How long a tree that came unasked waits until this node builds its own: whoever repairs asks
/// all, and its request may still be on its way.
const GRACE: Duration = Duration::from_secs(5);

/// Why there is no tree.
#[derive(Debug, thiserror::Error)]
enum BuildError {
    #[error(transparent)]
    Hash(#[from] HashError),
    #[error("it cannot be sent: {0}")]
    Encode(#[from] TooLong),
}

/// Who is to get the next tree of a column family.
#[derive(Debug, Default)]
struct Wanted {
    by_all: bool,
    by: BTreeSet<IpAddr>,
}

/// The trees that are wanted; those that are being built are empty.
#[derive(Debug, Default)]
pub(in crate::repair::legacy) struct TreeBuilds(
    Mutex<rank::LegacyPeers, BTreeMap<FamilyId, Wanted>>,
);

impl TreeBuilds {
    /// Notes who wants a tree. Whether nobody builds it yet.
    fn want(&self, family: FamilyId, by: Option<IpAddr>) -> bool {
        let mut builds = self.lock();
        let is_new = !builds.contains_key(&family);
        let wanted = builds.entry(family).or_default();
        match by {
            Some(by) => drop(wanted.by.insert(by)),
            None => wanted.by_all = true,
        }
        is_new
    }

    fn is_wanted_by_all(&self, family: FamilyId) -> bool {
        self.lock().get(&family).is_some_and(|wanted| wanted.by_all)
    }

    /// Who wants it now. None, and nobody builds it any more, if that is nobody.
    fn take(&self, family: FamilyId) -> Option<Wanted> {
        let mut builds = self.lock();
        let wanted = std::mem::take(builds.get_mut(&family)?);
        if wanted.by_all || !wanted.by.is_empty() {
            return Some(wanted);
        }
        builds.remove(&family);
        None
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<FamilyId, Wanted>> {
        self.0.lock()
    }
}

impl LegacyPeers {
    /// Builds the tree of a column family for a neighbour, or for all, as soon as it is its turn.
    pub(super) fn want_tree(
        self: &Arc<Self>,
        family: FamilyId,
        by: Option<IpAddr>,
        host: &Arc<dyn Host>,
    ) {
        if !self.builds.want(family, by) {
            return;
        }
        let (this, host) = (Arc::clone(self), Arc::clone(host));
        self.spawn(async move {
            if !this.builds.is_wanted_by_all(family) {
                tokio::time::sleep(GRACE).await;
            }
            while let Some(wanted) = this.builds.take(family) {
                this.give_tree(family, wanted, &host).await;
            }
        });
    }

    async fn give_tree(
        self: &Arc<Self>,
        family: FamilyId,
        Wanted { by_all, by }: Wanted,
        host: &Arc<dyn Host>,
    ) {
        let mut to = self.neighbours(family, &host.look());
        if !by_all {
            // One that has got the tree of this node since needs no other.
            let now = self.clock.monotonic();
            to.retain(|it| by.contains(it) && self.pairs.waits(family, *it, now));
        }
        if to.is_empty() {
            return;
        }
        let name = self.storage.schema().family(family).to_string();
        let Ok(_permit) = self.writing.acquire().await else { return };
        let storage = Arc::clone(&self.storage);
        let control = JobControl { stop: self.stop.clone(), ..JobControl::default() };
        let work = move || {
            let tree = build(&storage, family, &control)?;
            let bytes = java::encode(&tree)?;
            Ok::<_, BuildError>((Arc::new(tree), bytes))
        };
        let (tree, bytes) = match self.blocking.run(work).await {
            Ok(Ok(built)) => built,
            Ok(Err(error)) => {
                self.messenger.log(
                    Level::Error,
                    self.messenger.local(),
                    format_args!(
                        "the tree of {name} that {to:?} wait for cannot be built: {error}"
                    ),
                );
                for other in to {
                    self.waiters.tell(family, other, Err(error.to_string()));
                }
                return;
            }
            Err(_) => return,
        };
        self.messenger.log(
            Level::Info,
            self.messenger.local(),
            format_args!("Sending AEService tree for {name} to: {to:?}"),
        );
        let body = TreeResponse { family, tree: &bytes }.encode(self.storage.schema());
        for other in to {
            let sent = body.as_ref().map_err(ToString::to_string).and_then(|body| {
                let sent = self.messenger.send(Verb::TreeResponse, body, other);
                sent.map_err(|error| error.to_string())
            });
            if let Err(error) = sent {
                self.complain(other, &error);
            }
            let now = self.clock.monotonic();
            let pair = self.pairs.pair((family, other), Side::Own, Arc::clone(&tree), now);
            if let Some(theirs) = pair {
                let (this, host, tree) = (Arc::clone(self), Arc::clone(host), Arc::clone(&tree));
                self.spawn(async move {
                    this.compare(family, other, (&tree, &theirs), &host).await;
                });
            }
        }
    }
}

/// Builds a tree of all rows, after a flush.
pub(in crate::repair::legacy) fn build(
    storage: &Storage,
    family: FamilyId,
    control: &JobControl,
) -> Result<MerkleTree, HashError> {
    let set = storage.validation_set(family)?;
    let (partitioner, store) = (storage.partitioner(), storage.store(family));
    let leaves = set.rows().clamp(LEAVES.0, LEAVES.1);
    let mut tree = if partitioner.preserves_order() {
        MerkleTree::by_samples(partitioner, set.sampled_tokens(), leaves as usize)
    } else {
        MerkleTree::even(partitioner, leaves.next_power_of_two().ilog2() as u8)
    };
    let builder = storage.row_builder(family, store.options().column_index_bytes)?;
    let mut sink = HashSink::new(builder, control, |row: HashedRow<'_>| {
        // A row that the neighbours cannot have would make the ranges differ for ever.
        if let Some(hash) = row.hash.filter(|_| can_have_key(row.key.key())) {
            tree.add(row.key.token(), &hash);
        }
        true
    });
    storage.validate(&set, &[RowRange::all()], store.gc_before(), &mut sink)?;
    Ok(tree)
}
