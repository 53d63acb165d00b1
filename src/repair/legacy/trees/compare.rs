//! In what this node and a neighbour differ, and what goes to the neighbour.

use super::LegacyPeers;
use super::tree::MerkleTree;
use crate::model::schema::FamilyId;
use crate::repair::host::Host;
use crate::repair::legacy::send::Load;
use crate::storage::engine::TakenIn;
use log::Level;
use std::net::IpAddr;
use std::sync::Arc;

/// What a comparison has found, and what the neighbour has got because of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::repair::legacy) struct Compared {
    /// Ranges that both have.
    pub(super) ranges: usize,
    /// Ranges in which they differ.
    pub(super) differing: usize,
    pub(super) sent: TakenIn,
}

impl LegacyPeers {
    /// Compares the tree of this node with that of a neighbour, and sends the neighbour all rows
    /// of the ranges in which they differ.
    pub(super) async fn compare(
        &self,
        family: FamilyId,
        other: IpAddr,
        (own, theirs): (&MerkleTree, &MerkleTree),
        host: &Arc<dyn Host>,
    ) {
        let schema = Arc::clone(self.storage.schema().family(family));
        let shared = self.shared_with(family, other, &host.look());
        let ranges = own.differences(theirs, &shared);
        let (mut compared, differing) = (
            Compared { ranges: shared.len(), differing: 0, sent: TakenIn::default() },
            ranges.len(),
        );
        let mut outcome = Ok(());
        if differing == 0 {
            self.messenger.log(
                Level::Info,
                other,
                format_args!("this node and {other} are consistent for {schema}"),
            );
        } else {
            self.messenger.log(
                Level::Info,
                other,
                format_args!(
                    "Performing streaming repair of {differing} ranges to {other} for {schema}"
                ),
            );
            compared.differing = differing;
            let (keyspace, family) = (&*schema.keyspace, Some(family));
            let pushed = self.push(other, Load { keyspace, ranges: &ranges, family }, &**host);
            match pushed.await {
                Ok(sent) => {
                    compared.sent = sent;
                    self.messenger.log(
                        Level::Info,
                        other,
                        format_args!("Finished streaming repair to {other} for {schema}"),
                    );
                }
                Err(error) => {
                    self.messenger.log(
                        Level::Error,
                        other,
                        format_args!("the repair of {schema} at {other} failed: {error}"),
                    );
                    outcome = Err(error.to_string());
                }
            }
        }
        self.waiters.tell(family, other, outcome.map(|()| compared));
    }
}
