//! Whether the node is well: one answer for info, status, load balancers and metrics.

use super::context::AdminContext;
use crate::storage::database::{Trouble, TroubleKind};
use serde::Serialize;

/// Whether a node can serve.
#[derive(Debug, Serialize)]
pub(super) struct Health {
    /// Whether it takes writes of all column families.
    pub(super) takes_writes: bool,
    /// Why it does not serve as it should; empty if all is well.
    pub(super) troubles: Vec<Trouble>,
}

impl Health {
    fn new(troubles: Vec<Trouble>) -> Self {
        let takes_writes = !troubles.iter().any(|trouble| trouble.kind.refuses_writes());
        Self { takes_writes, troubles }
    }
}

/// Whether writes are refused for another reason than a drain.
pub(super) fn has_failed(troubles: &[Trouble]) -> bool {
    let mut kinds = troubles.iter().map(|trouble| trouble.kind);
    kinds.any(|kind| kind != TroubleKind::Drained && kind.refuses_writes())
}

/// Whether the node was drained.
pub(super) fn is_drained(troubles: &[Trouble]) -> bool {
    troubles.iter().any(|trouble| trouble.kind == TroubleKind::Drained)
}

impl AdminContext {
    /// Whether the node can serve.
    pub(super) fn health(&self) -> Health {
        let mut troubles = self.storage.troubles();
        if self.member.coordinator().peers().is_self_removed {
            let text = "was removed from the ring or replaced: it serves nobody".to_owned();
            troubles.push(Trouble { kind: TroubleKind::Removed, text });
        }
        let conflict = self.member.with_gossip(|gossiper, _| gossiper.generation_conflict());
        troubles.extend(
            conflict
                .map(|conflict| Trouble { kind: TroubleKind::Refused, text: conflict.to_string() }),
        );
        Health::new(troubles)
    }
}
